"""arq over Redis."""

from __future__ import annotations

from typing import Any

from benches.jobs import work
from benches.jobs.contestant import SLOTS, AsyncContestant


class Arq(AsyncContestant):
    """It polls: at each poll it takes at most `queue_read_limit` jobs, 100 each 0.5 s by default, which is 200/s."""

    name = "arq"
    requirements = ("arq",)
    share = 0.25
    settings = "keep_result=0, log_results=False, poll_delay=0.01 s, queue_read_limit=1000; many: gather of 100"

    def app(self, url: str) -> dict[str, Any]:
        from arq.connections import RedisSettings
        from arq.worker import func

        functions: dict[str, Any] = {"mark": work.mark_in_context, "stamp": work.stamp_in_context}
        attributes = {
            "functions": [func(function, name=name, keep_result=0) for name, function in functions.items()],
            "redis_settings": RedisSettings.from_dsn(url),
            "max_jobs": SLOTS,
            "poll_delay": 0.01,
            "queue_read_limit": 1000,
            "keep_result": 0,
            "log_results": False,
        }
        return {"WorkerSettings": type("WorkerSettings", (), attributes)}

    def consumer(self, url: str, slots: int) -> list[str]:
        return ["-m", "arq", "benches.jobs.app.WorkerSettings"]

    async def open(self, url: str) -> None:
        from arq import create_pool
        from arq.connections import RedisSettings

        self._pool = await create_pool(RedisSettings.from_dsn(url))

    async def put(self, job: str) -> Any:
        return await self._pool.enqueue_job(job)
