"""Callers that put jobs into Redis, each waiting for its acknowledgement. No consumer runs."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

from clutch.lab import watching
from clutch.lab.generator import Latencies
from clutch.lab.load import Load, latencies_of

QUEUE = "lab"
TOOL = "send"
ARGUMENTS = {"to": "ann@example.org", "subject": "hello", "body": "x" * 100}
WARM_UP = 3
"""Enqueues of each caller before the clock runs: one of them opens its connection."""


def start(order: dict[str, Any]) -> EnqueueDriver:
    return EnqueueDriver(order)


class EnqueueDriver:
    """A client of a store that nobody else uses: it is emptied before and after each measurement."""

    def __init__(self, order: dict[str, Any]) -> None:
        began = time.perf_counter()
        self.at = urlsplit(order["url"])
        self.put = CLIENTS[order["client"]](order)
        self.empty()
        self.put()
        self.start_s = time.perf_counter() - began

    def hello(self) -> dict[str, Any]:
        return {"start_s": self.start_s, "check_s": 0.001}

    def pids(self) -> list[int]:
        return [os.getpid()]

    def memory_of(self) -> list[int]:
        return self.pids()

    def end(self) -> None:
        self.empty()

    def empty(self) -> None:
        with socket.create_connection((self.at.hostname, self.at.port), 10) as connection:
            connection.sendall(b"FLUSHALL\r\n")
            connection.recv(64)

    def measure(self, load: Load, seconds: float) -> dict[str, Any]:
        """As many threads as callers; what they have put within the time."""
        self.empty()
        before: list[tuple[float, watching.Usage]] = []
        # While all wait: once they run, the main thread may come to it when they have ended.
        ready = threading.Barrier(
            load.callers, action=lambda: before.append((time.perf_counter(), watching.usage(os.getpid())))
        )
        found: list[list[float]] = [[] for _ in range(load.callers)]
        errors: Counter[str] = Counter()

        def caller(latencies: list[float]) -> None:
            for _ in range(WARM_UP):
                self.put()
            ready.wait()
            until = (last := time.perf_counter()) + seconds
            while last < until:
                try:
                    self.put()
                except Exception as error:
                    errors[type(error).__name__] += 1
                    return
                now = time.perf_counter()
                latencies.append(now - last)
                last = now

        callers = [threading.Thread(target=caller, args=(latencies,), daemon=True) for latencies in found]
        for one in callers:
            one.start()
        for one in callers:
            one.join()
        ((began, used),) = before
        wall = time.perf_counter() - began
        used = watching.usage(os.getpid()) - used
        self.empty()
        latencies = Latencies()
        units = 0
        for one in found:
            latencies.record_many(one)
            units += len(one)
        return {
            "units": units,
            "wall_s": wall,
            "errors": dict(errors),
            **used.as_figures(),
            "load_cpu_s": 0.0,
            **latencies_of(latencies.report(), units),
        }


def of_clutch(order: dict[str, Any]) -> Callable[[], object]:
    import clutch

    jobs = clutch.Jobs(order["url"], strategy=order["strategy"], connections=order["connections"])
    store = jobs.options(queue=QUEUE)
    return lambda: store.enqueue(TOOL, **ARGUMENTS)


def of_redis_py(order: dict[str, Any]) -> Callable[[], object]:
    """The bare client, shared by all threads: a list, and the same arguments as JSON."""
    import json

    import redis  # pyright: ignore[reportMissingImports] - a peer's package

    client = redis.Redis.from_url(order["url"])
    return lambda: client.lpush(QUEUE, json.dumps({"tool": TOOL, "arguments": ARGUMENTS}))


CLIENTS: dict[str, Callable[[dict[str, Any]], Callable[[], object]]] = {"clutch": of_clutch, "redis-py": of_redis_py}
