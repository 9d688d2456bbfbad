"""What job queues have in common: the same job, in a consumer that each starts in its own way.

A job peer lives in three processes. The command reads its requirements and settings; the runner enqueues with it; its
consumer loads its app through `clutch.lab.peers.jobs.consumed`. Only `app`, `connect` and what follows `connect` import
the package.
"""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clutch.lab.peers.jobs import redis_server
from clutch.lab.peers.seam import Face, Peer, Store
from clutch.lab.work import JobRun, Work

APP = "clutch.lab.peers.jobs.consumed"
"""The module that consumers load."""
PEER, URL, WORKERS = "CLUTCH_LAB_PEER", "CLUTCH_LAB_URL", "CLUTCH_LAB_WORKERS"
"""Variables that tell it the name of the peer, its Redis, and the number of workers."""
NAME = "lab"
"""Of queues and apps."""
CHUNK = 1_000
IN_FLIGHT = 100
"""Enqueues at a time of those that have no call for many, and are coroutines."""


@dataclass(frozen=True)
class At:
    """Where the jobs of one trial wait. `folder` is for files; `url`: the Redis, if it has one."""

    folder: Path
    url: str | None

    @property
    def database(self) -> Path:
        """Of those over SQLite."""
        return self.folder / "jobs.db"

    @property
    def redis(self) -> str:
        assert self.url is not None
        return self.url


class JobPeer(Peer):
    """A job queue with its fastest documented settings."""

    faces = ("jobs",)
    store: Store | None = "redis"

    def order(self, work: Work, face: Face, workers: int) -> dict[str, Any]:
        assert isinstance(work, JobRun)
        return {
            "kind": "jobs",
            "queue": "clutch.lab.peers.jobs.opened",
            "peer": self.name,
            "module": work.module,
            "name": work.name,
            "kwargs": work.kwargs,
            "slots": workers,
        }

    def lacks(self) -> str | None:
        return super().lacks() or (redis_server.lacks() if self.store == "redis" else None)

    @abstractmethod
    def app(self, at: At) -> dict[str, Any]:
        """The names that its consumer looks up in `APP`."""

    @abstractmethod
    def consumer(self, at: At, workers: int) -> list[str]:
        """The arguments of the interpreter that start its consumer; SIGTERM stops it."""

    def environment(self) -> dict[str, str]:
        """Variables that its consumer needs."""
        return {}

    @abstractmethod
    def connect(self, at: At) -> None:
        """Be ready to enqueue."""

    @abstractmethod
    def enqueue_many(self, kwargs: dict[str, Any], count: int) -> None:
        """Enqueue in the fastest way it has."""


class AsyncJobPeer(JobPeer):
    """A job queue whose calls are coroutines, which run in one loop of the runner."""

    runner: asyncio.Runner

    def connect(self, at: At) -> None:
        self.runner = asyncio.Runner(loop_factory=self.loop_factory())
        self.run(self.open(at))

    def loop_factory(self) -> Callable[[], asyncio.AbstractEventLoop] | None:
        """What makes the loop; asyncio's own unless the peer's pages name another."""
        return None

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        self.runner.run(work)

    def enqueue_many(self, kwargs: dict[str, Any], count: int) -> None:
        self.run(self.put_many(kwargs, count))

    async def put_many(self, kwargs: dict[str, Any], count: int) -> None:
        for size in chunks(count, IN_FLIGHT):
            await asyncio.gather(*(self.put(kwargs) for _ in range(size)))

    @abstractmethod
    async def open(self, at: At) -> None:
        """`connect`, inside the loop."""

    async def put(self, kwargs: dict[str, Any]) -> Any:
        """Enqueue one."""
        raise NotImplementedError


def chunks(count: int, size: int = CHUNK) -> list[int]:
    """Sizes that add up to `count`."""
    return [min(size, count - begin) for begin in range(0, count, size)]
