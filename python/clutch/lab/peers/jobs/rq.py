"""rq over Redis."""

from __future__ import annotations

import importlib
from typing import Any

from clutch.lab.drivers import marks
from clutch.lab.peers.jobs.job_peer import NAME, At, JobPeer, chunks


class Rq(JobPeer):
    name = "rq"
    requirements = ("rq", "hiredis")
    settings = (
        "a pool of SimpleWorker, which its page on workers has for speed (no fork a job); no results; enqueue_many"
    )

    def app(self, at: At) -> dict[str, Any]:
        redis: Any = importlib.import_module("redis")
        rq: Any = importlib.import_module("rq")
        return {"queue": rq.Queue(NAME, connection=redis.Redis.from_url(at.redis), default_timeout=-1)}

    def consumer(self, at: At, workers: int) -> list[str]:
        shape = ["-n", str(workers), "-w", "rq.worker.SimpleWorker"]
        return ["-m", "rq.cli", "worker-pool", "-u", at.redis, *shape, "-q", NAME]

    def connect(self, at: At) -> None:
        self.queue = self.app(at)["queue"]

    def enqueue_many(self, kwargs: dict[str, Any], count: int) -> None:
        prepare = self.queue.prepare_data
        for size in chunks(count):
            self.queue.enqueue_many([prepare(marks.job, kwargs=kwargs, result_ttl=0) for _ in range(size)])


PEERS = (Rq(),)
