"""taskito over SQLite."""

from __future__ import annotations

from typing import Any

from benches.jobs import work
from benches.jobs.contestant import SLOTS, Contestant
from benches.jobs.sqlite import path_of


class Taskito(Contestant):
    """Its scheduler polls; by default it claims one job each 50 ms at most when idle."""

    name = "taskito"
    requirements = ("taskito",)
    store = "sqlite"
    share = 0.5
    settings = (
        "workers=10, scheduler_batch_size=100, scheduler_poll_interval_ms=1, push_dispatch=True; WAL, and "
        "synchronous=NORMAL, which is built in; many: Queue.enqueue_many"
    )

    def app(self, url: str) -> dict[str, Any]:
        from taskito import Queue

        queue = Queue(
            db_path=str(path_of(url)),
            workers=SLOTS,
            scheduler_batch_size=100,
            scheduler_poll_interval_ms=1,
            push_dispatch=True,
        )
        return {
            "queue": queue,
            "jobs": {name: queue.task(name=name)(getattr(work, name)) for name in ("mark", "stamp")},
        }

    def consumer(self, url: str, slots: int) -> list[str]:
        return ["-m", "taskito.cli", "worker", "--app", "benches.jobs.app:queue"]

    def connect(self, url: str) -> None:
        app = self.app(url)
        self._queue, self._jobs = app["queue"], app["jobs"]

    def enqueue(self, job: str, count: int) -> None:
        task = self._jobs[job]
        for _ in range(count):
            task.delay()

    def enqueue_many(self, job: str, count: int) -> None:
        chunk = 1_000
        for begin in range(0, count, chunk):
            self._queue.enqueue_many(job, [()] * min(chunk, count - begin))
