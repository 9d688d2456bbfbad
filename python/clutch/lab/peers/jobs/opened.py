"""A job queue of somebody else in the runner: its Redis, its settings, and its jobs by their marks."""

from __future__ import annotations

import contextlib
import os
import signal
import sqlite3
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from clutch.lab import orphans
from clutch.lab.drivers import marks
from clutch.lab.drivers.jobs import Queue
from clutch.lab.drivers.program import Wrong
from clutch.lab.peers import registry
from clutch.lab.peers.jobs.job_peer import PEER, URL, WORKERS, At, JobPeer
from clutch.lab.peers.jobs.marked import Marked
from clutch.lab.peers.jobs.redis_server import RedisServer

HOLD_SECONDS_MAX = 10.0
HOLD_PAUSE_SECONDS = 0.003


def opened(order: dict[str, Any], folder: Path) -> Queue:
    return PeerQueue(order, folder)


class PeerQueue(Marked):
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
        """Few have a pause of their own, so that the processes are stopped: none of them while it writes to a
        database that it would lock as long."""
        until = time.monotonic() + HOLD_SECONDS_MAX
        while True:
            for pid in consumer:
                orphans.send(pid, signal.SIGSTOP)
            if self.peer.store != "sqlite" or is_free(self.at.database):
                return
            self.let_go(consumer)
            if time.monotonic() > until:
                raise Wrong(f"its database is locked for {HOLD_SECONDS_MAX:.0f} s")
            time.sleep(HOLD_PAUSE_SECONDS)

    def let_go(self, consumer: Sequence[int]) -> None:
        for pid in consumer:
            orphans.send(pid, signal.SIGCONT)


def is_free(database: Path) -> bool:
    """Whether nobody writes to it."""
    with contextlib.closing(sqlite3.connect(database, timeout=0)) as connection:
        try:
            connection.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError:
            return False
        connection.rollback()
        return True
