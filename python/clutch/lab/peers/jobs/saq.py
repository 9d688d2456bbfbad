"""saq over Redis."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from typing import Any

from clutch.lab.drivers import marks
from clutch.lab.peers.jobs.job_peer import APP, IN_FLIGHT, NAME, AsyncJobPeer, At


class Saq(AsyncJobPeer):
    name = "saq"
    requirements = ("saq[hiredis]",)
    settings = (
        "a process a worker with 10 jobs at a time (its default), ttl=-1 (no results), timeout=0; "
        f"{IN_FLIGHT} enqueue() at a time"
    )

    def queue_at(self, at: At) -> Any:
        saq: Any = importlib.import_module("saq")
        return saq.Queue.from_url(at.redis, name=NAME, max_concurrent_ops=IN_FLIGHT)

    def app(self, at: At) -> dict[str, Any]:
        return {"settings": {"queue": self.queue_at(at), "functions": [(NAME, in_context(marks.native()))]}}

    def consumer(self, at: At, workers: int) -> list[str]:
        return ["-m", "saq", f"{APP}.settings", "--workers", str(workers), "--quiet"]

    async def open(self, at: At) -> None:
        self.saq: Any = importlib.import_module("saq")
        self.queue = self.queue_at(at)
        await self.queue.connect()

    async def put(self, kwargs: dict[str, Any]) -> Any:
        job = self.saq.Job(NAME, kwargs=kwargs, ttl=-1, timeout=0, retries=1)
        return await self.queue.enqueue(job)


def in_context(job: Callable[..., Any]) -> Callable[..., Any]:
    """The job as saq calls it: with a context before its arguments."""

    async def in_loop(_context: object, **kwargs: Any) -> None:
        await job(**kwargs)

    def in_thread(_context: object, **kwargs: Any) -> None:
        job(**kwargs)

    return in_loop if inspect.iscoroutinefunction(job) else in_thread


PEERS = (Saq(),)
