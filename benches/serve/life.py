"""What fails while workers are replaced under load: a reload, a recycle of each worker, a SIGKILL of each in turn.

A worker that is killed takes what it had begun with it; nothing else may fail.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from clutch.lab.drivers.probe import Sample
from clutch.lab.drivers.served import HOST, ServedDriver
from clutch.lab.load import Load

SECONDS = 12.0
CALM_SECONDS = 1.0
LOOKERS = 64


@contextlib.contextmanager
def through(order: dict[str, Any], change: str, workers: int) -> Iterator[Sample]:
    """Requests that were answered, and those that were not, by what became of them."""
    driver = ServedDriver(order)
    try:
        yield lambda load, seconds: disturbed(driver, load, CHANGES[change], workers)
    finally:
        driver.end()


def disturbed(driver: ServedDriver, load: Load, change: Callable[[ServedDriver, int], None], workers: int) -> Any:
    found: list[dict[str, Any]] = []
    asking = threading.Thread(target=lambda: found.append(driver.measure(load, SECONDS)))
    asking.start()
    try:
        time.sleep(CALM_SECONDS)
        began = time.monotonic()
        change(driver, workers)
        took = time.monotonic() - began
        assert asking.is_alive(), f"the workers were not replaced within {SECONDS:.0f} s"
    finally:
        asking.join()
    errors: dict[str, int] = found[0]["errors"]
    refused, failed = errors.get("refused", 0), sum(errors.values())
    status = sum(count for kind, count in errors.items() if kind.startswith("status"))
    counts = {"answered": found[0]["units"], "failed": failed, "refused": refused, "status": status}
    return {**counts, "broken off": failed - refused - status, "took": took}


def reload(driver: ServedDriver, workers: int) -> None:
    """HUP, as all of these servers understand it, until none of the old workers answers."""
    before = all_workers(driver, workers)
    os.kill(master(driver), signal.SIGHUP)
    until(driver, lambda seen: not seen & before)


def recycle(driver: ServedDriver, workers: int) -> None:
    """Until so many have come anew as there are: each ends after some thousand requests."""
    seen: set[int] = set()

    def is_done(now: set[int]) -> bool:
        seen.update(now)
        return len(seen) >= 2 * workers

    until(driver, is_done)


def kill_each(driver: ServedDriver, workers: int) -> None:
    """One after the other, each when all are there."""
    for pid in all_workers(driver, workers):
        os.kill(pid, signal.SIGKILL)
        until(driver, lambda seen, pid=pid: pid not in seen and len(seen) == workers)
        time.sleep(CALM_SECONDS)


CHANGES = {"reload": reload, "recycle": recycle, "kill": kill_each}


def master(driver: ServedDriver) -> int:
    assert driver.program is not None
    return driver.program.pid


def all_workers(driver: ServedDriver, count: int) -> set[int]:
    seen: set[int] = set()
    until(driver, lambda now: seen.update(now) or len(seen) >= count)
    return seen


def until(driver: ServedDriver, is_so: Callable[[set[int]], Any]) -> None:
    end = time.monotonic() + SECONDS
    while not is_so(workers_of(driver.port)):
        assert time.monotonic() < end, f"not so within {SECONDS:.0f} s"


def workers_of(port: int) -> set[int]:
    """Those that answer now, asked on many connections at once."""
    with ThreadPoolExecutor(LOOKERS) as clients:
        return {pid for pid in clients.map(pid_at, [port] * LOOKERS) if pid is not None}


def pid_at(port: int) -> int | None:
    connection = http.client.HTTPConnection(HOST, port, timeout=10)
    with contextlib.closing(connection):
        try:
            connection.request("GET", "/pid")
            answer = connection.getresponse()
            return int(answer.read()) if answer.status == http.HTTPStatus.OK else None
        except (OSError, http.client.HTTPException):
            return None
