-- Begins what must also be done when the memory is full: jobs have to end, and what has ended makes room. The server
-- refuses a script at its first write, unless that is of a kind that needs no memory.
call('DEL', p .. 'none')

