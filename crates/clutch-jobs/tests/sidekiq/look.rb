# What Sidekiq itself sees on the server at the socket ARGV[0], as JSON.
require "sidekiq/api"

Sidekiq.configure_client { |config| config.redis = {url: "unix://#{ARGV[0]}"} }

def told(job)
  {jid: job.jid, class: job.klass, args: job.args, queue: job.queue, retry_count: job["retry_count"],
   error: [job["error_class"], job["error_message"]], created_at: job.created_at.to_f, at: (job.at.to_f if job.respond_to?(:at))}
end

stats = Sidekiq::Stats.new
puts JSON.generate(
  queues: Sidekiq::Queue.all.to_h { |queue| [queue.name, queue.map { |job| told(job) }] },
  scheduled: Sidekiq::ScheduledSet.new.map { |job| told(job) },
  retries: Sidekiq::RetrySet.new.map { |job| told(job) },
  dead: Sidekiq::DeadSet.new.map { |job| told(job) },
  processes: Sidekiq::ProcessSet.new.map { |process| [process["hostname"], process["pid"], process["busy"]] },
  work: Sidekiq::WorkSet.new.map { |process, _, work| [process, work["queue"], work["payload"]] },
  processed: stats.processed,
  failed: stats.failed
)
