"""Samples of job queues: what an enqueue costs, how long a job is on its way, what waits and what it weighs.

A queue is opened as the lab's driver of jobs opens it, so that one function serves Clutch and its peers.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import socket
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from clutch.lab import watching
from clutch.lab.drivers import marks
from clutch.lab.drivers.jobs import ClutchQueue, JobsDriver, queue_of
from clutch.lab.drivers.probe import Sample
from clutch.lab.drivers.served import HOST
from clutch.lab.load import Load
from clutch.lab.peers.jobs import redis_server
from clutch.lab.presets.enqueue import PAYLOAD_BYTES, floor

LATENCY_SECONDS_MAX = 5.0
PAUSE_SECONDS = (0.01, 0.03)
"""Random, so that they meet no poll in step."""
LOOK_SECONDS = 0.0005
FIRST, LAST = 200, 800
"""Runs between which the clock of growth runs: past the start, and fewer than wait at the least."""
WAIT_SECONDS_MAX = 60.0
MANY = 1_000


@contextlib.contextmanager
def enqueue(order: dict[str, Any], at_a_time: int = 1, has_tasks: bool = False) -> Iterator[Sample]:
    """Enqueues a second by as many threads, or tasks of one loop, as there are callers; no consumer runs. With what the
    Redis was sent for each."""
    with tempfile.TemporaryDirectory(prefix="clutch-bench-") as folder:
        queue: Any = queue_of(order, Path(folder))
        put = putting(queue, order, at_a_time)
        put()

        def sample(load: Load, seconds: float) -> dict[str, float]:
            before, began = counters(queue), time.perf_counter()
            if has_tasks:
                count = asyncio.run(by_tasks(queue, order, load.callers, began + seconds))
            else:
                count = at_a_time * by_threads(put, load.callers, began + seconds)
            spent = time.perf_counter() - began
            sent = {name: (value - before[name]) / count for name, value in counters(queue).items()}
            return {"rate": count / spent, **sent}

        try:
            yield sample
        finally:
            queue.end()


def putting(queue: Any, order: dict[str, Any], at_a_time: int) -> Callable[[], object]:
    """What enqueues so many: one by one as each does it, with its acknowledgement."""
    if isinstance(queue, ClutchQueue) and at_a_time == 1:
        store = queue.jobs.options(queue=queue.queue, retry=0)
        return lambda: store.enqueue(queue.order["name"], **order["kwargs"])
    return lambda: queue.enqueue_many(at_a_time)


def by_threads(put: Callable[[], object], callers: int, until: float) -> int:
    counts = [0] * callers

    def call(nr: int) -> None:
        while time.perf_counter() < until:
            put()
            counts[nr] += 1

    threads = [threading.Thread(target=call, args=(nr,)) for nr in range(callers)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    return sum(counts)


async def by_tasks(queue: ClutchQueue, order: dict[str, Any], callers: int, until: float) -> int:
    store = queue.jobs.options(queue=queue.queue, retry=0)

    async def call() -> int:
        count = 0
        while time.perf_counter() < until:
            await store.aenqueue(queue.order["name"], **order["kwargs"])
            count += 1
        return count

    return sum(await asyncio.gather(*(call() for _ in range(callers))))


def counters(queue: Any) -> dict[str, int]:
    """What the Redis has been sent so far; nothing where there is none."""
    if (server := getattr(queue, "redis", None)) is None:
        return {}
    told = asked(server.port, "INFO stats").splitlines()
    stats = dict(line.split(":", 1) for line in told if ":" in line)
    return {"commands": int(stats["total_commands_processed"]), "bytes": int(stats["total_net_input_bytes"])}


def asked(port: int, command: str) -> str:
    """The bulk answer of a Redis."""
    with socket.create_connection((HOST, port), 10) as connection, connection.makefile("rb") as answer:
        connection.sendall(command.encode() + b"\r\n")
        return answer.read(int(answer.readline()[1:])).decode()


@contextlib.contextmanager
def redis_floor() -> Iterator[Sample]:
    """LPUSH a second by the server's own benchmark, over as many connections as there are callers."""
    with redis_server.running() as url:
        yield lambda load, seconds: {"rate": floor(url, load.callers) or 0.0, "bytes": PAYLOAD_BYTES, "commands": 1.0}


@contextlib.contextmanager
def commits(synchronous: str) -> Iterator[Sample]:
    """INSERT and COMMIT of one row at a time, WAL: what no queue on this disk exceeds with a commit for each job."""
    import sqlite3

    with tempfile.TemporaryDirectory(prefix="clutch-bench-") as folder:
        connection = sqlite3.connect(f"{folder}/floor.db", isolation_level=None)
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute(f"PRAGMA synchronous={synchronous}")
        connection.execute("CREATE TABLE job (id INTEGER PRIMARY KEY, payload BLOB NOT NULL)")

        def sample(_: object, seconds: float) -> dict[str, float]:
            count, began = 0, time.perf_counter()
            while time.perf_counter() < began + seconds:
                connection.execute("BEGIN IMMEDIATE")
                connection.execute("INSERT INTO job (payload) VALUES (?)", (bytes(PAYLOAD_BYTES),))
                connection.execute("COMMIT")
                count += 1
            return {"rate": count / (time.perf_counter() - began)}

        with contextlib.closing(connection):
            yield sample


@contextlib.contextmanager
def latency(order: dict[str, Any], jobs: int) -> Iterator[Sample]:
    """Milliseconds from just before an enqueue to the first line of the job, on an idle system."""
    with contextlib.closing(Closing(JobsDriver(order))) as opened:
        queue: Any = opened.driver.queue
        put = putting(queue, order, 1)

        def one() -> float:
            time.sleep(random.uniform(*PAUSE_SECONDS))
            began = time.time()
            put()
            wait(lambda: queue.has_ended(1), LATENCY_SECONDS_MAX)
            return (queue.take()[0][0] - began) * 1e3

        yield lambda _, seconds: summed_up([one() for _ in range(jobs)])


@contextlib.contextmanager
def redis_hand_over(jobs: int) -> Iterator[Sample]:
    """The same of bare Redis and two processes: one waits in BRPOP, the other does LPUSH."""
    with redis_server.running() as url:
        port = urlsplit(url).port
        read, write = os.pipe()
        if (taker := os.fork()) == 0:
            with socket.create_connection((HOST, port)) as connection:
                while True:
                    connection.sendall(b"BRPOP floor 0\r\n")
                    connection.recv(1 << 16)
                    os.write(write, marks.MARK.pack(time.time(), 0.0))
        with socket.create_connection((HOST, port)) as connection:

            def one() -> float:
                time.sleep(random.uniform(*PAUSE_SECONDS))
                began = time.time()
                connection.sendall(b"LPUSH floor x\r\n")
                connection.recv(100)
                return (marks.MARK.unpack(os.read(read, marks.MARK.size))[0] - began) * 1e3

            try:
                yield lambda _, seconds: summed_up([one() for _ in range(jobs)])
            finally:
                os.kill(taker, 9)
                os.waitpid(taker, 0)


def summed_up(taken_ms: list[float]) -> dict[str, float]:
    return {
        "p50": statistics.median(taken_ms),
        "p99": statistics.quantiles(taken_ms, n=100, method="inclusive")[98],
    }


@contextlib.contextmanager
def growth(order: dict[str, Any], waiting: int) -> Iterator[Sample]:
    """Microseconds of one job, claim and settlement, by one slot, in the midst of so many that wait."""

    def sample(_: object, seconds: float) -> dict[str, float]:
        with contextlib.closing(Closing(JobsDriver(order))) as opened:
            queue: Any = opened.driver.queue
            queue.hold(())
            queue.enqueue_many(waiting)
            queue.let_go(())
            wait(lambda: queue.has_ended(LAST), WAIT_SECONDS_MAX)
            began = sorted(began for began, _ in queue.take())
            return {"each": (began[LAST - 1] - began[FIRST - 1]) / (LAST - FIRST) * 1e6}

    yield sample


@contextlib.contextmanager
def asleep(order: dict[str, Any], slots: int) -> Iterator[Sample]:
    """Megabytes of a consumer whose slots are all in a job that sleeps."""

    def sample(_: object, seconds: float) -> dict[str, float]:
        with contextlib.closing(Closing(JobsDriver(order))) as opened:
            queue: Any = opened.driver.queue
            queue.order["kwargs"] = {"seconds": 2 * WAIT_SECONDS_MAX}
            queue.enqueue_many(slots)
            wait(lambda: queue.jobs.stats()[queue.queue].running == slots, WAIT_SECONDS_MAX)
            return {"megabytes": watching.pss_bytes(opened.driver.consumer()) / 1e6}

    yield sample


def wait(is_so: Callable[[], bool], seconds: float) -> None:
    until = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < until, f"not so within {seconds:g} s"
        time.sleep(LOOK_SECONDS)


class Closing:
    """A driver that ends with a block."""

    def __init__(self, driver: JobsDriver) -> None:
        self.driver = driver

    def close(self) -> None:
        self.driver.end()
