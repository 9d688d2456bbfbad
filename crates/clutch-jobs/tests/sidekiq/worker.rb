# Runs jobs, and lists what they got.
require "sidekiq"

Sidekiq.configure_server { |config| config.redis = {url: "unix://#{ENV.fetch("REDIS_SOCKET")}"} }

class HardJob
  include Sidekiq::Worker

  def perform(*args)
    Sidekiq.redis { |redis| redis.rpush("done", JSON.generate([jid, args])) }
  end
end
