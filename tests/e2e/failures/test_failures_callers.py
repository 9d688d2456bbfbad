"""Failures 61 and 63: who waits in `Pool.call` hears of the answer whichever way it comes, and holds up nobody else."""

from __future__ import annotations

import os
import signal
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any

import pytest

from clutch import Future, Pool
from clutch.errors import RemoteError
from support.rendezvous import Rendezvous

pytestmark = pytest.mark.timeout(120)
LONG = 30


@pytest.fixture
def on_alarm() -> Iterator[Callable[[Callable[[], None]], None]]:
    """Has a function called in the main thread by the next SIGALRM."""
    before = signal.getsignal(signal.SIGALRM)
    yield lambda handle: drop(signal.signal(signal.SIGALRM, lambda *_: handle()))
    signal.signal(signal.SIGALRM, before)


def drop(_: object) -> None: ...


def test_failure_63_a_call_that_was_taken_back_from_a_stopped_worker(rendezvous: Rendezvous) -> None:
    with Pool("harmful_tools", workers=2, stopped_limit=600) as pool, ThreadPoolExecutor(1) as threads:
        pool.wait_ready(timeout=60)
        zygote = pool.stats()["zygote_pid"]
        busy = pool.submit("visit", rendezvous.port)
        guest = rendezvous.guest()
        idle = next(worker["pid"] for worker in pool.stats()["workers"] if worker["pid"] != guest.pid)
        # Nobody tells that the worker is stopped before the call is on its way there.
        os.kill(zygote, signal.SIGSTOP)
        os.kill(idle, signal.SIGSTOP)
        try:
            called = threads.submit(pool.call, "echo", 17)
            wait_until(lambda: pool.stats()["sent"] == 2)
            os.kill(zygote, signal.SIGCONT)
            wait_until(lambda: pool.stats()["queued"] == 1)
            guest.let_go()
            assert called.result(LONG) == 17
            assert busy.result(LONG) is not None
        finally:
            os.kill(zygote, signal.SIGCONT)
            os.kill(idle, signal.SIGCONT)


def wait_until(so: Callable[[], bool]) -> None:
    """For what no event tells; a test's own limit ends it."""
    while not so():
        os.sched_yield()


def test_failure_61_a_handler_uses_the_pool_that_its_thread_waits_for(
    rendezvous: Rendezvous, on_alarm: Callable[[Callable[[], None]], None]
) -> None:
    answers: list[object] = []
    with Pool("harmful_tools", workers=1) as pool:
        pool.wait_ready(timeout=60)
        on_alarm(lambda: answers.append(pool.call("echo", 1)))

        def meanwhile() -> None:
            guest = rendezvous.guest()
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGALRM)
            wait_until(lambda: pool.stats()["queued"] == 1)
            guest.let_go("outer")

        other = threading.Thread(target=meanwhile)
        other.start()
        answers.append(pool.call("visit", rendezvous.port))
        other.join()
    assert answers == [1, "outer"]


def test_failure_61_a_handler_has_a_callback_while_its_thread_adds_one(
    on_alarm: Callable[[Callable[[], None]], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Interrupted(weakref.WeakSet[Future]):
        """Where futures are noted that have a callback."""

        def add(self, item: Future) -> None:
            super().add(item)
            monkeypatch.undo()
            signal.raise_signal(signal.SIGALRM)

    answers: list[object] = []
    with Pool("harmful_tools", workers=1) as pool:
        on_alarm(lambda: pool.submit("echo", 1).add_done_callback(lambda done: answers.append(done.result())))
        monkeypatch.setattr("clutch._pool.future._standard", Interrupted())
        pool.submit("echo", 2).add_done_callback(lambda done: answers.append(done.result()))
    wait_until(lambda: len(answers) == 2)
    assert sorted(map(str, answers)) == ["1", "2"]


def test_failure_61_a_handler_that_takes_long_holds_up_no_other_thread(
    rendezvous: Rendezvous, on_alarm: Callable[[Callable[[], None]], None]
) -> None:
    answered, handled = threading.Event(), []
    with Pool("harmful_tools", profile="thread", workers=1, threads=2) as pool:
        pool.wait_ready(timeout=60)
        on_alarm(lambda: handled.append(answered.wait(LONG)))

        def other_call() -> None:
            guest = rendezvous.guest()
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGALRM)
            pool.call("echo", 1)
            answered.set()
            guest.let_go("outer")

        other = threading.Thread(target=other_call)
        other.start()
        assert pool.call("visit", rendezvous.port) == "outer"
        other.join()
    assert handled == [True], "the other thread's call ended while the handler ran"


class Read:
    """Made in a worker; what happens when it is read here, the test decides."""

    happens: Callable[[], None]

    def __init__(self) -> None:
        self.kept = True

    def __setstate__(self, state: dict[str, object]) -> None:
        type(self).happens()


def test_a_handler_asks_for_the_result_that_its_thread_is_decoding(
    on_alarm: Callable[[Callable[[], None]], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    with Pool(workers=1) as pool:
        future = pool.submit(Read)

        def ask() -> None:
            with pytest.raises(RuntimeError) as caught:
                future.result()
            told.append(str(caught.value))

        on_alarm(ask)
        monkeypatch.setattr(Read, "happens", lambda: signal.raise_signal(signal.SIGALRM), raising=False)
        assert isinstance(future.result(LONG), Read)
    assert len(told) == 1 and "this thread is decoding this result right now" in told[0]


class Exits:
    def __reduce__(self) -> Any:
        return sys.exit, (3,)


def test_a_result_whose_reading_ends_the_program_ends_none_of_its_callbacks() -> None:
    told: list[Any] = []
    called = threading.Event()
    with Pool(workers=1) as pool:
        future = pool.submit(Exits)
        for note in (
            lambda done: told.append(done.exception()),
            lambda done: told.append(done),
            lambda _: called.set(),
        ):
            future.add_done_callback(note)
        assert called.wait(LONG)
        assert wait([future], LONG).done == {future}
        with pytest.raises(RemoteError, match="cannot be read here") as caught:
            future.result(LONG)
    assert told == [caught.value, future]
    assert caught.value.kind == "decode"


def test_signals_are_handled_while_another_thread_decodes_the_result(
    on_alarm: Callable[[Callable[[], None]], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    decoding, waiting, handled = threading.Event(), threading.Event(), threading.Semaphore(0)

    def hold() -> None:
        decoding.set()
        waiting.wait(LONG)
        # The first may be handled before the main thread waits for this one.
        for _ in range(20):
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGALRM)
            assert handled.acquire(timeout=LONG)

    on_alarm(handled.release)
    monkeypatch.setattr(Read, "happens", hold, raising=False)
    with Pool(workers=1) as pool, ThreadPoolExecutor(1) as threads:
        future = pool.submit(Read)
        other = threads.submit(future.result, LONG)
        assert decoding.wait(LONG)
        waiting.set()
        assert future.result(LONG) is other.result(LONG)
