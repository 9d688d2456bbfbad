-- ARGV: of each job: 'queue' or 'schedule', its queue, its time, its payload.
while at < #ARGV do put(take(), take(), take(), take()) end
return 1
