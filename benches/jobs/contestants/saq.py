"""saq over Redis."""

from __future__ import annotations

from typing import Any

from benches.jobs import work
from benches.jobs.contestant import IN_FLIGHT, SLOTS, AsyncContestant

_JOB = {"ttl": -1, "timeout": 0, "retries": 1}


class Saq(AsyncContestant):
    """Coroutines in one process, which was faster than two of half the slots; a finished job is deleted, not kept."""

    name = "saq"
    requirements = ("saq[hiredis]",)
    settings = f"ttl=-1 (keep no result), timeout=0, max_concurrent_ops={IN_FLIGHT}; async jobs; many: gather of 100"

    def app(self, url: str) -> dict[str, Any]:
        from saq import Queue

        queue = Queue.from_url(url, max_concurrent_ops=IN_FLIGHT)
        functions = [("mark", work.mark_in_context), ("stamp", work.stamp_in_context)]
        return {"queue": queue, "settings": {"queue": queue, "functions": functions, "concurrency": SLOTS}}

    def consumer(self, url: str, slots: int) -> list[str]:
        return ["-m", "saq", "benches.jobs.app.settings", "--workers", "1", "--quiet"]

    async def open(self, url: str) -> None:
        self._queue = self.app(url)["queue"]
        await self._queue.connect()

    async def put(self, job: str) -> Any:
        return await self._queue.enqueue(job, **_JOB)
