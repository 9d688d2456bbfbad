# Pushes a job at once and one for later to the server at the socket ARGV[0].
require "sidekiq"

Sidekiq.configure_client { |config| config.redis = {url: "unix://#{ARGV[0]}"} }

job = {"class" => "HardJob", "args" => ["\u00e9 \u{1F98A}", 1.5, {"a" => [nil]}], "tags" => ["red"], "retry" => 3, "mine" => {"a" => 1}}
puts Sidekiq::Client.push(job)
Sidekiq::Client.push(job.merge("at" => Time.now.to_f + 3600))
