"""rq over Redis."""

from __future__ import annotations

from typing import Any

from benches.jobs import work
from benches.jobs.contestant import Contestant


class Rq(Contestant):
    """SimpleWorker runs jobs in the worker itself; its default forks a process for each."""

    name = "rq"
    requirements = ("rq", "hiredis")
    share = 0.25
    settings = "SimpleWorker (no fork for each job), result_ttl=0, default_timeout=-1; many: Queue.enqueue_many"

    def app(self, url: str) -> dict[str, Any]:
        import redis
        import rq

        return {"queue": rq.Queue("bench", connection=redis.Redis.from_url(url), default_timeout=-1)}

    def consumer(self, url: str, slots: int) -> list[str]:
        shape = ["-n", str(slots), "-w", "rq.worker.SimpleWorker"]
        return ["-m", "rq.cli", "worker-pool", "-u", url, *shape, "-q", "bench"]

    def connect(self, url: str) -> None:
        self._queue = self.app(url)["queue"]

    def enqueue(self, job: str, count: int) -> None:
        function = getattr(work, job)
        for _ in range(count):
            self._queue.enqueue(function, result_ttl=0)

    def enqueue_many(self, job: str, count: int) -> None:
        function = getattr(work, job)
        chunk = 1_000
        for begin in range(0, count, chunk):
            size = min(chunk, count - begin)
            self._queue.enqueue_many([self._queue.prepare_data(function, result_ttl=0) for _ in range(size)])
