"""The seam of job queues: what a bench needs of each, and nothing else.

A contestant lives in three processes. The bench reads its requirement and settings, and starts its consumer; an agent
(`benches.jobs.agent`) enqueues with it; its consumer loads its app through `benches.jobs.app`. Only `app`, `connect`
and what follows `connect` import the peer, which is on the path of these two alone (`benches.jobs.packages`).
"""

from __future__ import annotations

import asyncio
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from typing import Any, ClassVar, Literal, TypeVar

from benches.jobs.packages import Packages

T = TypeVar("T")

SLOTS = 10
JOBS_MIN = 2_000
"""Fewer than these are no fewer for slow ones."""
IN_FLIGHT = 100
"""Enqueues at a time of asyncio's peers that have no call for many."""


class Contestant(Packages, ABC):
    """One job queue with its fastest documented settings."""

    store: ClassVar[Literal["redis", "sqlite"]] = "redis"
    share: ClassVar[float] = 1.0
    """Of the jobs of a row; less for those that would take minutes."""
    settings: ClassVar[str]
    """What was set besides the flags of the consumer, and why, for the notes."""

    def jobs(self, count: int) -> int:
        """How many of `count` jobs it gets."""
        return max(round(count * self.share), min(count, JOBS_MIN))

    @abstractmethod
    def app(self, url: str) -> dict[str, Any]:
        """The names that its consumer looks up in `benches.jobs.app`; jobs under "jobs", by the name in `work`."""

    @abstractmethod
    def consumer(self, url: str, slots: int) -> list[str]:
        """The arguments of the interpreter that start its consumer; SIGTERM stops it."""

    def environment(self, slots: int) -> dict[str, str]:
        """Variables that its consumer needs."""
        del slots
        return {}

    @abstractmethod
    def connect(self, url: str) -> None:
        """Be ready to enqueue, in an agent."""

    @abstractmethod
    def enqueue(self, job: str, count: int) -> None:
        """Enqueue one by one, each acknowledged by the store before the next."""

    @abstractmethod
    def enqueue_many(self, job: str, count: int) -> None:
        """Enqueue in the fastest way it has."""


class AsyncContestant(Contestant):
    """A job queue whose calls are coroutines: one loop in the agent, without a switch for each job."""

    _runner: asyncio.Runner
    _jobs: dict[str, Any]

    def connect(self, url: str) -> None:
        self._runner = asyncio.Runner(loop_factory=self.loop_factory())
        self.run(self.open(url))

    def loop_factory(self) -> Callable[[], asyncio.AbstractEventLoop] | None:
        """What makes the loop; asyncio's own unless the peer's pages name another."""
        return None

    def enqueue(self, job: str, count: int) -> None:
        self.run(self.one_by_one(job, count))

    def enqueue_many(self, job: str, count: int) -> None:
        self.run(self._many(job, count))

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """In its loop."""
        return self._runner.run(work)

    async def one_by_one(self, job: str, count: int) -> None:
        for _ in range(count):
            await self.put(job)

    async def _many(self, job: str, count: int) -> None:
        for begin in range(0, count, IN_FLIGHT):
            await asyncio.gather(*(self.put(job) for _ in range(min(IN_FLIGHT, count - begin))))

    @abstractmethod
    async def open(self, url: str) -> None:
        """`connect`, inside the loop."""

    @abstractmethod
    async def put(self, job: str) -> Any:
        """Enqueue one."""


def spread(slots: int) -> tuple[int, int]:
    """Processes and slots of each: as many processes as there are CPUs and as divide the slots evenly."""
    cpus = len(os.sched_getaffinity(0))
    processes = max(count for count in range(1, slots + 1) if slots % count == 0 and count <= cpus)
    return processes, slots // processes
