"""streaq over Redis."""

from __future__ import annotations

import importlib
from typing import Any

from clutch.lab.drivers import marks
from clutch.lab.peers.jobs.job_peer import APP, NAME, AsyncJobPeer, At, chunks


class Streaq(AsyncJobPeer):
    name = "streaq"
    requirements = ("streaq",)
    settings = "a process a worker with 16 jobs at a time (its default), ttl=0 (no results), not logged; enqueue_many"

    def app(self, at: At) -> dict[str, Any]:
        streaq: Any = importlib.import_module("streaq")
        worker = streaq.Worker(redis_url=at.redis, queue_name=NAME)
        return {"worker": worker, "job": worker.task(name=NAME, ttl=0, silent=True)(marks.native())}

    def consumer(self, at: At, workers: int) -> list[str]:
        return ["-m", "streaq", "run", f"{APP}:worker", "--workers", str(workers)]

    async def open(self, at: At) -> None:
        app = self.app(at)
        self.worker, self.job = app["worker"], app["job"]

    async def put_many(self, kwargs: dict[str, Any], count: int) -> None:
        async with self.worker:
            for size in chunks(count):
                await self.worker.enqueue_many([self.job.enqueue(**kwargs) for _ in range(size)])


PEERS = (Streaq(),)
