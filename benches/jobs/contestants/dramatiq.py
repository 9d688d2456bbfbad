"""dramatiq over Redis."""

from __future__ import annotations

from typing import Any

from benches.jobs import work
from benches.jobs.contestant import Contestant, spread


class Dramatiq(Contestant):
    """Threads in as many processes as there are CPUs."""

    name = "dramatiq"
    requirements = ("dramatiq[redis]", "hiredis")
    settings = "RedisBroker, middleware=[], dramatiq_queue_prefetch=1000; many: it has none, one by one"

    def app(self, url: str) -> dict[str, Any]:
        import dramatiq
        from dramatiq.brokers.redis import RedisBroker

        broker = RedisBroker(url=url, middleware=[])
        functions = {"mark": work.mark, "stamp": work.stamp}
        jobs = {name: dramatiq.actor(broker=broker)(function) for name, function in functions.items()}
        return {"broker": broker, "jobs": jobs}

    def consumer(self, url: str, slots: int) -> list[str]:
        processes, each = spread(slots)
        return ["-m", "dramatiq", "benches.jobs.app:broker", "-p", str(processes), "-t", str(each)]

    def environment(self, slots: int) -> dict[str, str]:
        return {"dramatiq_queue_prefetch": "1000"}

    def connect(self, url: str) -> None:
        self._jobs = self.app(url)["jobs"]

    def enqueue(self, job: str, count: int) -> None:
        send = self._jobs[job].send
        for _ in range(count):
            send()

    def enqueue_many(self, job: str, count: int) -> None:
        self.enqueue(job, count)
