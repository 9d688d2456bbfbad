"""A worker of the app on a Redis of its own, and the messages that it is given.

Messages are those of Celery's client: one is sent, and copied with other ids, so that thousands take no minute.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import signal
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benches.celery import BROKER, RESULTS
from benches.jobs.commands import calls
from clutch.lab.drivers import marks
from clutch.lab.drivers.program import Program, Wrong
from clutch.lab.peers.jobs import redis_server

TARGET = "benches.celery.app"
QUEUE, COPIED = "celery", "copied"
CHUNK = 1_000
LOOK_SECONDS = 0.005
WARM_TASKS = 20
WARM_SECONDS_MAX = 60.0


def clutch(*options: str) -> list[str]:
    return [sys.executable, "-m", "clutch", "work", f"{TARGET}:app", *options]


def celery(*options: str) -> list[str]:
    return [sys.executable, "-m", "celery", "-A", TARGET, "worker", "--loglevel", "WARNING", *options]


class House:
    """`client`: the app as a client has it."""

    def __init__(self, command: Sequence[str], url: str, folder: Path, environment: dict[str, str]) -> None:
        self.url, self.folder = url, folder
        self.environment = environment
        module: Any = importlib.import_module(TARGET)
        self.tasks = {name: getattr(module, name) for name in ("nothing", "nap")}
        self.redis = importlib.import_module("redis").Redis.from_url(url)
        self.worker = Program(command, environment)

    def pids(self) -> list[int]:
        return self.worker.pids()

    def put(self, task: str, args: Sequence[Any], count: int) -> None:
        """Messages of a task, as many as Celery's client would have sent."""
        sent = self.tasks[task].apply_async(args, queue=COPIED)
        text = self.redis.rpop(COPIED).decode().replace(f'"{COPIED}"', f'"{QUEUE}"')
        tag = text.partition('"delivery_tag": "')[2].partition('"')[0]
        for size in (min(CHUNK, count - begin) for begin in range(0, count, CHUNK)):
            fresh = (text.replace(sent.id, str(uuid.uuid4())).replace(tag, str(uuid.uuid4())) for _ in range(size))
            self.redis.lpush(QUEUE, *fresh)

    def wait(self, count: int, seconds: float) -> None:
        """Until so many tasks have ended. Raises Wrong."""
        until = time.monotonic() + seconds
        while marks.count(self.folder) < count:
            if (code := self.worker.ended()) is not None:
                raise Wrong(f"the worker ended with {code}")
            if time.monotonic() > until:
                raise Wrong(f"{marks.count(self.folder):,} of {count:,} tasks have ended within {seconds:.0f} s")
            time.sleep(LOOK_SECONDS)

    def warm(self) -> None:
        self.put("nothing", (), WARM_TASKS)
        self.wait(WARM_TASKS, WARM_SECONDS_MAX)
        marks.take(self.folder)

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Its processes stand still inside."""
        pids = self.pids()
        tell(pids, signal.SIGSTOP)
        try:
            yield
        finally:
            tell(pids, signal.SIGCONT)

    def commands(self) -> dict[str, int]:
        """How often the Redis was given each command so far, by scripts too."""
        return calls(self.redis.connection_pool.connection_kwargs["port"])

    def redis_cpu_s(self) -> float:
        used = self.redis.info("cpu")
        return used["used_cpu_user"] + used["used_cpu_sys"]


def tell(pids: Sequence[int], number: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


@contextlib.contextmanager
def running(command: Sequence[str], keeps_results: bool = False) -> Iterator[House]:
    """A worker that has run its first tasks, until it is stopped. Raises Wrong."""
    with redis_server.running() as url, tempfile.TemporaryDirectory(prefix="clutch-bench-") as folder:
        environment = {BROKER: url, RESULTS: "1" if keeps_results else "", marks.FOLDER: folder}
        environment["PYTHONPATH"] = os.getcwd()
        os.environ.update(environment)
        house = House(command, url, Path(folder), environment)
        try:
            house.warm()
            yield house
        except Exception as error:
            house.worker.note_tail(error)
            raise
        finally:
            house.worker.stop()
