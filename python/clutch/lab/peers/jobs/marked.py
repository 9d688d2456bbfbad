"""A job queue whose runs are known by their marks, and the Redis that was started for it."""

from __future__ import annotations

from pathlib import Path

from clutch.lab.drivers import marks
from clutch.lab.drivers.jobs import Ran
from clutch.lab.peers.jobs.redis_server import RedisServer


class Marked:
    folder: Path
    redis: RedisServer | None

    def has_ended(self, count: int) -> bool:
        return marks.count(self.folder) >= count

    def take(self) -> list[Ran]:
        return marks.take(self.folder)

    def pids(self) -> list[int]:
        return [] if self.redis is None else [self.redis.process.pid]

    def end(self) -> None:
        if self.redis is not None:
            self.redis.end()
