"""Celery over Redis, with processes, threads and greenlets."""

from __future__ import annotations

import importlib
from typing import Any

from clutch.lab.drivers import marks
from clutch.lab.peers.jobs.job_peer import APP, NAME, At, JobPeer, chunks

QUIET = ("--without-gossip", "--without-mingle", "--without-heartbeat", "-l", "WARNING")


class Celery(JobPeer):
    requirements = ("celery[redis]", "hiredis", "gevent")

    def __init__(self, pool: str) -> None:
        self.name, self.pool = f"celery {pool}", pool
        self.settings = (
            f"-P {pool}, worker_prefetch_multiplier=128 and ignored results (its page Optimizing), no rate limits, no "
            "gossip, mingle or heartbeat; group().apply_async()"
        )

    def app(self, at: At) -> dict[str, Any]:
        celery: Any = importlib.import_module("celery")
        app = celery.Celery(NAME, broker=at.redis)
        app.conf.update(
            task_ignore_result=True,
            worker_prefetch_multiplier=128,
            worker_disable_rate_limits=True,
            broker_connection_retry_on_startup=True,
        )
        return {"app": app, "job": app.task(marks.job, name=NAME)}

    def consumer(self, at: At, workers: int) -> list[str]:
        return ["-m", "celery", "-A", f"{APP}:app", "worker", "-P", self.pool, "-c", str(workers), *QUIET]

    def connect(self, at: At) -> None:
        self.celery: Any = importlib.import_module("celery")
        self.job = self.app(at)["job"]

    def enqueue_many(self, kwargs: dict[str, Any], count: int) -> None:
        for size in chunks(count):
            self.celery.group(self.job.s(**kwargs) for _ in range(size)).apply_async()


PEERS = (Celery("prefork"), Celery("threads"), Celery("gevent"))
