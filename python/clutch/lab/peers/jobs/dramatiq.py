"""dramatiq over Redis."""

from __future__ import annotations

import importlib
from typing import Any

from clutch.lab.drivers import marks
from clutch.lab.peers.jobs.job_peer import APP, NAME, At, JobPeer


class Dramatiq(JobPeer):
    name = "dramatiq"
    requirements = ("dramatiq[redis]", "hiredis")
    settings = (
        "a process a worker with 8 threads each (its default), no middleware, dramatiq_queue_prefetch=1000; send()"
    )

    def app(self, at: At) -> dict[str, Any]:
        dramatiq: Any = importlib.import_module("dramatiq")
        redis: Any = importlib.import_module("dramatiq.brokers.redis")
        broker = redis.RedisBroker(url=at.redis, middleware=[])
        return {"broker": broker, "job": dramatiq.actor(broker=broker, actor_name=NAME)(marks.job)}

    def consumer(self, at: At, workers: int) -> list[str]:
        return ["-m", "dramatiq", f"{APP}:broker", "-p", str(workers), "--skip-logging"]

    def environment(self) -> dict[str, str]:
        return {"dramatiq_queue_prefetch": "1000"}

    def connect(self, at: At) -> None:
        self.job = self.app(at)["job"]

    def enqueue_many(self, kwargs: dict[str, Any], count: int) -> None:
        for _ in range(count):
            self.job.send(**kwargs)


PEERS = (Dramatiq(),)
