"""A loop that other threads wake once, and only while it sleeps, and that serves its sources within its sleep."""

from __future__ import annotations

import asyncio
import functools
import gc
import os
import selectors
import signal
import socket
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from clutch import _core
from clutch._worker.profiles.loop_sleep import sleep_of

CALLS = 2_000
THREADS = 4
TIMEOUT_SECONDS = 60.0
HAS_GIL = getattr(sys, "_is_gil_enabled", lambda: True)()


class Ready:
    """What a loop is to run; `meanwhile()` is what other threads do while it goes to sleep."""

    def __init__(self) -> None:
        self.work: list[str] = []
        self.meanwhile: Callable[[], object] = lambda: None

    def __len__(self) -> int:
        self.meanwhile()
        return len(self.work)


class Loop:
    def __init__(self) -> None:
        self.selector = selectors.EpollSelector()
        self.ready = Ready()
        self.told: list[dict[str, Any]] = []
        self._scheduled: list[object] = ["first", "later"]
        self._stopping = False
        self._debug = False
        self.writes = 0
        self.write: Callable[[], object] = self.count
        keys = self.selector._fd_to_key  # type: ignore[attr-defined]
        loop: Any = self
        self.sleep = _core.LoopSleep(loop, self.selector.fileno(), keys, self.ready, lambda: self.write())

    def count(self) -> None:
        self.writes += 1

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        self.told.append(context)

    def wake_thrice(self) -> None:
        for _ in range(3):
            self.sleep.wake()


@pytest.fixture
def loop() -> Iterator[Loop]:
    loop = Loop()
    yield loop
    loop.selector.close()


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    a, b = socket.socketpair()
    with a, b:
        yield a, b


def serve(loop: Loop, one: socket.socket, callback: Callable[[], object]) -> None:
    loop.selector.register(one, selectors.EVENT_READ, "the loop's")
    loop.sleep.serve(one.fileno(), callback)


def test_what_nobody_waits_for_any_more_lets_the_loop_turn(
    loop: Loop, pair: tuple[socket.socket, socket.socket]
) -> None:
    """A descriptor was closed before the loop forgot it, and somebody has a copy of its socket: it stays readable."""
    loop.selector.register(pair[0], selectors.EVENT_READ)
    copy, closed = pair[0].dup(), pair[0].fileno()
    with copy:
        pair[0].close()
        loop.selector.unregister(closed)
        pair[1].send(b"x")
        assert [list(loop.sleep.select(TIMEOUT_SECONDS)) for _ in range(3)] == [[], [], []]


def test_a_sleep_is_ended_once(loop: Loop) -> None:
    loop.ready.meanwhile = loop.wake_thrice
    for sleeps in (1, 2, 3):
        assert list(loop.sleep.select(0)) == []
        assert loop.writes == sleeps


def test_a_loop_that_runs_is_not_woken(loop: Loop) -> None:
    loop.sleep.wake()
    loop.sleep.select(0)
    loop.sleep.wake()
    assert loop.writes == 0


def test_what_came_before_it_slept_is_not_waited_for(loop: Loop) -> None:
    loop.ready.work.append("work")
    assert list(loop.sleep.select(None)) == []


def test_a_wake_that_failed_is_none(loop: Loop) -> None:
    def fail() -> None:
        raise KeyboardInterrupt

    def fail_once() -> None:
        with pytest.raises(KeyboardInterrupt):
            loop.sleep.wake()
        loop.write = loop.count
        loop.sleep.wake()

    loop.write = fail
    loop.ready.meanwhile = fail_once
    loop.sleep.select(0)
    assert loop.writes == 1


def test_a_signal_ends_a_sleep_and_its_handler_runs(loop: Loop) -> None:
    def fail(*_: object) -> None:
        raise OSError("interrupted")

    before = signal.signal(signal.SIGUSR1, fail)
    try:
        loop.ready.meanwhile = lambda: signal.pthread_kill(threading.get_ident(), signal.SIGUSR1)
        with pytest.raises(OSError, match="interrupted"):
            loop.sleep.select(TIMEOUT_SECONDS)
    finally:
        signal.signal(signal.SIGUSR1, before)
    loop.sleep.wake()
    assert loop.writes == 0


def test_a_loop_that_sleeps_within_its_own_sleep_is_woken_each_time(loop: Loop) -> None:
    """As nest_asyncio lets it, from a signal's handler: who has ended which sleep is not known any more."""

    def nest() -> None:
        loop.ready.meanwhile = loop.sleep.wake
        loop.sleep.select(0)
        loop.sleep.wake()

    loop.ready.meanwhile = nest
    loop.sleep.select(0)
    assert loop.writes == 2


def test_selects_as_the_selector_does(loop: Loop, pair: tuple[socket.socket, socket.socket]) -> None:
    one, other = pair
    for wanted in (selectors.EVENT_READ, selectors.EVENT_WRITE, selectors.EVENT_READ | selectors.EVENT_WRITE):
        loop.selector.register(one, wanted, "data")
        assert list(loop.sleep.select(0)) == loop.selector.select(0)
        other.send(b"x")
        assert list(loop.sleep.select(None)) == loop.selector.select(None)
        one.recv(10)
        loop.selector.unregister(one)
    loop.selector.register(one, selectors.EVENT_READ)
    other.close()
    assert list(loop.sleep.select(None)) == loop.selector.select(None) != []


def test_sleeps_as_long_as_it_is_told(loop: Loop) -> None:
    clock = asyncio.new_event_loop()
    try:
        for seconds in (0.0004, 0.01, 0.05):
            begun = clock.time()
            assert list(loop.sleep.select(seconds)) == []
            assert clock.time() - begun >= seconds
    finally:
        clock.close()


def test_a_source_is_served_within_the_sleep(loop: Loop, pair: tuple[socket.socket, socket.socket]) -> None:
    one, other = pair
    seen: list[bytes] = []
    serve(loop, one, lambda: seen.append(one.recv(100)))
    loop.selector.register(other, selectors.EVENT_READ, "the loop's")
    other.send(b"to the source")
    assert list(loop.sleep.select(0)) == []
    one.send(b"to the loop")
    assert [key.fileobj for key, _ in loop.sleep.select(0)] == [other]
    assert b"".join(seen) == b"to the source"


def serve_again_and_again(loop: Loop, pair: tuple[socket.socket, socket.socket]) -> list[bytes]:
    """A source that always has more. Returns what it has read."""
    one, other = pair
    seen: list[bytes] = []
    serve(loop, one, lambda: (seen.append(one.recv(1)), other.send(b"x")))
    other.send(b"x")
    return seen


@pytest.mark.parametrize("last", ["work", "planned", "taken back", "stop"])
def test_sleeps_on_until_the_loop_has_something_to_do(
    last: str, loop: Loop, pair: tuple[socket.socket, socket.socket]
) -> None:
    one, other = pair
    seen: list[bytes] = []

    def serve_four() -> None:
        seen.append(one.recv(1))
        other.send(b"x")
        if len(seen) == 4:
            match last:
                case "work":
                    loop.ready.work.append("a callback")
                case "planned":
                    loop._scheduled.insert(0, "sooner")
                case "taken back":
                    loop._scheduled = ["later"]
                case "stop":
                    loop._stopping = True

    serve(loop, one, serve_four)
    other.send(b"x")
    assert list(loop.sleep.select(None)) == []
    assert len(seen) == 4


def test_a_busy_source_keeps_nothing_that_is_due_waiting(loop: Loop, pair: tuple[socket.socket, socket.socket]) -> None:
    seen = serve_again_and_again(loop, pair)
    assert list(loop.sleep.select(0)) == []
    assert len(seen) == 1
    assert list(loop.sleep.select(0.05)) == []
    assert len(seen) > 1


def test_a_busy_source_keeps_no_signal_waiting(loop: Loop, pair: tuple[socket.socket, socket.socket]) -> None:
    def end(*_: object) -> None:
        raise KeyboardInterrupt

    serve_again_and_again(loop, pair)
    before = signal.signal(signal.SIGUSR1, end)
    timer = threading.Timer(0.05, signal.pthread_kill, (threading.get_ident(), signal.SIGUSR1))
    timer.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            loop.sleep.select(None)
    finally:
        timer.join()
        signal.signal(signal.SIGUSR1, before)


def test_a_descriptor_that_is_somebody_elses_by_now_is_the_loops(loop: Loop) -> None:
    one, other = socket.socketpair()
    with one, other:
        serve(loop, one, lambda: pytest.fail("it is not ours any more"))
        loop.selector.unregister(one)
        key = loop.selector.register(one, selectors.EVENT_READ, "another's")
        other.send(b"x")
        assert list(loop.sleep.select(0)) == [(key, selectors.EVENT_READ)]


def test_a_source_with_the_number_of_an_earlier_one_is_served(loop: Loop) -> None:
    for _ in range(3):
        one, other = socket.socketpair()
        with one, other:
            seen: list[bytes] = []
            serve(loop, one, functools.partial(lambda one, seen: seen.append(one.recv(1)), one, seen))
            other.send(b"x")
            assert (list(loop.sleep.select(0)), seen) == ([], [b"x"])
            loop.selector.unregister(one)


@pytest.mark.parametrize("registers", [True, False])
def test_what_was_ready_is_not_told_of_what_has_its_number_by_now(registers: bool, loop: Loop) -> None:
    """The code of a source closes what was ready, and opens something else."""
    source, client = socket.socketpair()
    old, peer = socket.socketpair()
    fresh = socket.socket(type=socket.SOCK_DGRAM)
    with source, client, peer, fresh:

        def replace() -> None:
            source.recv(1)
            loop.selector.unregister(old)
            number = old.fileno()
            if registers:
                os.dup2(fresh.fileno(), number)
                loop.selector.register(number, selectors.EVENT_READ)

        serve(loop, source, replace)
        loop.selector.register(old, selectors.EVENT_READ)
        client.send(b"x")
        peer.send(b"x")
        assert list(loop.sleep.select(0)) == []
        old.close()


@pytest.mark.parametrize("why", ["a task runs", "it is debugged"])
def test_a_loop_that_is_to_queue_what_is_ready_is_told_of_sources(
    why: str, loop: Loop, pair: tuple[socket.socket, socket.socket]
) -> None:
    """One that is run within its own task takes the task away around its callbacks alone."""
    one, other = pair
    seen: list[bytes] = []
    serve(loop, one, lambda: seen.append(one.recv(1)))
    other.send(b"x")
    task: Any = object()
    if why == "a task runs":
        asyncio.tasks._enter_task(loop, task)  # type: ignore[arg-type, attr-defined]
    else:
        loop._debug = True
    assert [key.fileobj for key, _ in loop.sleep.select(0)] == [one]
    if why == "a task runs":
        asyncio.tasks._leave_task(loop, task)  # type: ignore[arg-type, attr-defined]
    loop._debug = False
    assert (list(loop.sleep.select(0)), seen) == ([], [b"x"])


def test_a_loop_that_is_closed_leaves_nothing() -> None:
    loop = asyncio.SelectorEventLoop()
    sleep_of(loop)
    loop.close()
    gone = weakref.ref(loop)
    del loop
    gc.collect()
    assert gone() is None


def test_what_a_source_forgets_is_not_told(loop: Loop, pair: tuple[socket.socket, socket.socket]) -> None:
    """Its code runs before what else is ready is looked up."""
    one, other = pair
    serve(loop, one, lambda: (one.recv(10), loop.selector.unregister(other)))
    loop.selector.register(other, selectors.EVENT_READ)
    one.send(b"x")
    other.send(b"x")
    assert list(loop.sleep.select(0)) == []


def test_an_error_of_a_source_is_the_loops_handlers(loop: Loop, pair: tuple[socket.socket, socket.socket]) -> None:
    one, other = pair
    errors: list[BaseException] = [ValueError("a"), asyncio.CancelledError("b")]

    def fail() -> None:
        one.recv(1)
        raise errors[len(loop.told)]

    serve(loop, one, fail)
    other.send(b"xx")
    for count in (1, 2):
        assert list(loop.sleep.select(0)) == []
        assert len(loop.told) == count
    assert [context["exception"] for context in loop.told] == errors


@pytest.mark.parametrize("end", [SystemExit, KeyboardInterrupt])
def test_what_ends_a_loop_ends_the_sleep(
    end: type[BaseException], loop: Loop, pair: tuple[socket.socket, socket.socket]
) -> None:
    one, other = pair

    def fail() -> None:
        one.recv(1)
        raise end

    serve(loop, one, fail)
    other.send(b"x")
    with pytest.raises(end):
        loop.sleep.select(0)
    assert (loop.told, list(loop.sleep.select(0))) == ([], [])


def test_everything_that_threads_ask_for_is_done() -> None:
    loop = asyncio.SelectorEventLoop()
    written = []
    write = loop._write_to_self  # type: ignore[attr-defined]
    loop._write_to_self = lambda: (written.append(None), write())  # type: ignore[attr-defined]
    assert sleep_of(loop) is not None
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


def test_loops_of_another_make_stay_as_they_are() -> None:
    with selectors.PollSelector() as selector:
        loop = asyncio.SelectorEventLoop(selector)
        assert sleep_of(loop) is None
        loop.close()


def test_what_asyncio_reads_itself_is_heard() -> None:
    """As connections of its streams, and its own pipe for signals."""
    loop = asyncio.SelectorEventLoop()
    assert sleep_of(loop) is not None

    async def run() -> bytes:
        heard = asyncio.Event()
        loop.add_signal_handler(signal.SIGUSR1, heard.set)
        os.kill(os.getpid(), signal.SIGUSR1)
        await asyncio.wait_for(heard.wait(), TIMEOUT_SECONDS)
        one, other = socket.socketpair()
        reader, answering = await asyncio.open_connection(sock=one)
        _, writer = await asyncio.open_connection(sock=other)
        writer.write(b"a line\n")
        line = await reader.readline()
        writer.close()
        assert await reader.read() == b""
        answering.close()
        return line

    try:
        assert loop.run_until_complete(run()) == b"a line\n"
    finally:
        loop.close()
