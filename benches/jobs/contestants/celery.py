"""Celery over Redis."""

from __future__ import annotations

from typing import Any

from benches.jobs import work
from benches.jobs.contestant import Contestant


class Celery(Contestant):
    """Its page Optimizing: prefetch 64 or 128 for short tasks, ignore results, no rate limits."""

    name = "celery"
    requirements = ("celery[redis]", "hiredis")
    share = 0.5
    settings = (
        "task_ignore_result, worker_prefetch_multiplier=128, worker_disable_rate_limits, no result backend; "
        "one by one: one producer, retry=False; many: group().apply_async()"
    )

    def app(self, url: str) -> dict[str, Any]:
        import celery

        app = celery.Celery("bench", broker=url)
        app.conf.update(
            task_ignore_result=True,
            worker_prefetch_multiplier=128,
            worker_disable_rate_limits=True,
            broker_connection_retry_on_startup=True,
        )
        jobs = {name: app.task(getattr(work, name), name=name) for name in ("mark", "stamp")}
        return {"app": app, "jobs": jobs}

    def consumer(self, url: str, slots: int) -> list[str]:
        quiet = ["--without-gossip", "--without-mingle", "--without-heartbeat", "-l", "WARNING"]
        return ["-m", "celery", "-A", "benches.jobs.app:app", "worker", "-P", "threads", "-c", str(slots), *quiet]

    def connect(self, url: str) -> None:
        app = self.app(url)
        self._app, self._jobs = app["app"], app["jobs"]

    def enqueue(self, job: str, count: int) -> None:
        task = self._jobs[job]
        with self._app.producer_pool.acquire(block=True) as producer:
            for _ in range(count):
                task.apply_async(producer=producer, retry=False)

    def enqueue_many(self, job: str, count: int) -> None:
        import celery

        chunk = 1_000
        for begin in range(0, count, chunk):
            celery.group(self._jobs[job].s() for _ in range(min(chunk, count - begin))).apply_async()
