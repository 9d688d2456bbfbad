"""flexiq over SQLite, with threads and with processes."""

from __future__ import annotations

import importlib
import os
from typing import Any

from clutch.lab.drivers import marks
from clutch.lab.peers.jobs.job_peer import APP, NAME, WORKERS, At, JobPeer, chunks


class Flexiq(JobPeer):
    requirements = ("flexiq",)
    store = "sqlite"

    def __init__(self, pool: str) -> None:
        self.name, self.pool = f"flexiq {pool}", pool
        self.settings = f"--pool {pool}, scheduler_batch_size=100, scheduler_poll_interval_ms=1; WAL; enqueue_many"

    def app(self, at: At) -> dict[str, Any]:
        flexiq: Any = importlib.import_module("flexiq")
        queue = flexiq.Queue(
            db_path=str(at.database),
            workers=int(os.environ[WORKERS]),
            scheduler_batch_size=100,
            scheduler_poll_interval_ms=1,
        )
        return {"queue": queue, "job": queue.task(name=NAME)(marks.native())}

    def consumer(self, at: At, workers: int) -> list[str]:
        return ["-m", "flexiq.cli", "worker", "--app", f"{APP}:queue", "--pool", self.pool]

    def connect(self, at: At) -> None:
        self.queue = self.app(at)["queue"]

    def enqueue_many(self, kwargs: dict[str, Any], count: int) -> None:
        for size in chunks(count):
            self.queue.enqueue_many(NAME, [()] * size, [kwargs] * size)


PEERS = (Flexiq("thread"), Flexiq("prefork"))
