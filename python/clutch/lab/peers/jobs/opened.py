"""A job queue of somebody else in the runner: its Redis, its settings, and its jobs by their marks."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from clutch.lab import orphans
from clutch.lab.drivers import marks
from clutch.lab.drivers.jobs import Queue, Ran
from clutch.lab.peers import registry
from clutch.lab.peers.jobs.job_peer import PEER, URL, WORKERS, At, JobPeer
from clutch.lab.peers.jobs.redis_server import RedisServer


def opened(order: dict[str, Any], folder: Path) -> Queue:
    return PeerQueue(order, folder)


class PeerQueue:
    def __init__(self, order: dict[str, Any], folder: Path) -> None:
        peer = registry.named(order["peer"])
        assert isinstance(peer, JobPeer)
        self.peer, self.folder, self.kwargs, self.workers = peer, folder, order["kwargs"], order["slots"]
        # In this process, too: it enqueues the job that the consumer is to run.
        os.environ.update(marks.environment(order["module"], order["name"], folder) | {WORKERS: str(self.workers)})
        self.redis = RedisServer(folder) if peer.store == "redis" else None
        self.at = At(folder, None if self.redis is None else self.redis.url)
        try:
            peer.connect(self.at)
        except BaseException:
            self.end()
            raise

    def command(self) -> list[str]:
        return [sys.executable, *self.peer.consumer(self.at, self.workers)]

    def environment(self) -> dict[str, str]:
        url = {} if self.at.url is None else {URL: self.at.url}
        return {PEER: self.peer.name, **url, **self.peer.environment()}

    def enqueue_many(self, count: int) -> None:
        self.peer.enqueue_many(self.kwargs, count)

    def hold(self, consumer: Sequence[int]) -> None:
        """Few have a pause of their own, so that the processes are stopped."""
        for pid in consumer:
            orphans.send(pid, signal.SIGSTOP)

    def let_go(self, consumer: Sequence[int]) -> None:
        for pid in consumer:
            orphans.send(pid, signal.SIGCONT)

    def has_ended(self, count: int) -> bool:
        return marks.count(self.folder) >= count

    def take(self) -> list[Ran]:
        return marks.take(self.folder)

    def pids(self) -> list[int]:
        return [] if self.redis is None else [self.redis.process.pid]

    def end(self) -> None:
        if self.redis is not None:
            self.redis.end()
