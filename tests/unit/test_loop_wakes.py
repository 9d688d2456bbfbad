"""A loop that other threads wake once, and only while it sleeps."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable

import pytest

from clutch._worker.profiles.wakes import Sleeper, wake_once

CALLS = 2_000
THREADS = 4
TIMEOUT_SECONDS = 60.0
HAS_GIL = getattr(sys, "_is_gil_enabled", lambda: True)()


class Loop:
    """`meanwhile(sleeper)` is what other threads do while it sleeps."""

    def __init__(self, meanwhile: Callable[[Sleeper], object]) -> None:
        self.ready: list[str] = []
        self.patience: list[float | None] = []
        self.writes = 0
        self.meanwhile = meanwhile
        self.sleeper = Sleeper(self.ready, self.select, self.write)

    def select(self, timeout: float | None) -> list[str]:
        self.patience.append(timeout)
        self.meanwhile(self.sleeper)
        return ["event"]

    def write(self) -> None:
        self.writes += 1


def wake_thrice(sleeper: Sleeper) -> None:
    for _ in range(3):
        sleeper.wake()


def test_a_sleep_is_ended_once() -> None:
    loop = Loop(wake_thrice)
    for sleeps in (1, 2, 3):
        assert loop.sleeper.select(None) == ["event"]
        assert loop.writes == sleeps


def test_a_loop_that_runs_is_not_woken() -> None:
    loop = Loop(lambda _: None)
    loop.sleeper.wake()
    loop.sleeper.select(0.5)
    loop.sleeper.wake()
    assert (loop.writes, loop.patience) == (0, [0.5])


def test_what_came_before_it_slept_is_not_waited_for() -> None:
    loop = Loop(lambda _: None)
    loop.ready.append("work")
    loop.sleeper.select(None)
    assert loop.patience == [0]


def test_a_wake_that_failed_is_none() -> None:
    def fail_once(sleeper: Sleeper) -> None:
        with pytest.raises(KeyboardInterrupt):
            sleeper.wake()
        sleeper.write = loop.write
        sleeper.wake()

    def interrupt() -> None:
        raise KeyboardInterrupt

    loop = Loop(fail_once)
    loop.sleeper.write = interrupt
    loop.sleeper.select(None)
    assert loop.writes == 1


def test_a_select_that_fails_ends_the_sleep() -> None:
    def fail(_: Sleeper) -> None:
        raise OSError("interrupted")

    loop = Loop(fail)
    with pytest.raises(OSError, match="interrupted"):
        loop.sleeper.select(None)
    loop.sleeper.wake()
    assert loop.writes == 0


def test_everything_that_threads_ask_for_is_done() -> None:
    loop = asyncio.SelectorEventLoop()
    written = []
    write = loop._write_to_self  # type: ignore[attr-defined]
    loop._write_to_self = lambda: (written.append(None), write())  # type: ignore[attr-defined]
    wake_once(loop)
    done, count = asyncio.Event(), 0

    def one() -> None:
        nonlocal count
        count += 1
        if count == CALLS * THREADS:
            done.set()

    def ask() -> None:
        for _ in range(CALLS):
            loop.call_soon_threadsafe(one)

    async def serve() -> None:
        threads = [threading.Thread(target=ask) for _ in range(THREADS)]
        for thread in threads:
            thread.start()
        await asyncio.wait_for(done.wait(), TIMEOUT_SECONDS)
        for thread in threads:
            thread.join()

    try:
        loop.run_until_complete(serve())
    finally:
        loop.close()
    assert count == CALLS * THREADS
    assert not HAS_GIL or len(written) < CALLS * THREADS


def test_a_loop_that_runs_within_its_own_sleep_is_woken_each_time() -> None:
    """As nest_asyncio lets it, from a signal's handler: who has ended which sleep is not known any more."""

    def nest(sleeper: Sleeper) -> None:
        loop.meanwhile = lambda sleeper: sleeper.wake()
        sleeper.select(0)
        sleeper.wake()

    loop = Loop(nest)
    loop.sleeper.select(None)
    assert loop.writes == 2
