"""A pool where a `concurrent.futures` executor is expected."""

from __future__ import annotations

import concurrent.futures
import contextlib
import copy
import math
import multiprocessing
import os
import pickle
import threading
from collections.abc import Callable
from typing import Any

import profile_tools
import pytest

import clutch
from clutch import BadArguments, Pool, RemoteError, WorkerLost, _core
from support.rendezvous import Rendezvous


def test_programs_that_read_how_many_run_at_once(pool: Pool) -> None:
    assert pool._max_workers == pool.stats()["slots"]
    with Pool(workers=2, profile="thread", threads=3) as beginning:
        assert beginning._max_workers == 6


def test_an_option_by_two_names_is_refused() -> None:
    with pytest.raises(TypeError, match=r"workers=3 and max_workers=2 are the same option: give one"):
        Pool(2, workers=3)


@pytest.mark.parametrize(
    ("made", "call", "expected"),
    [
        ("errors.BadArguments", (profile_tools.echo, profile_tools.Unreadable()), BadArguments),
        ("errors.RemoteError", (profile_tools.raise_held,), RemoteError),
        ("errors.RemoteTraceback", (profile_tools.raise_it, ValueError("plain")), ValueError),
        ("broken.WorkerLost", (os._exit, 3), WorkerLost),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_failure_61_an_error_whose_making_is_broken_off_is_made_again(
    pool: Pool, made: str, call: tuple[Any, ...], expected: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C while the error of a call is made is not that error."""
    future = pool.submit(*call)

    def interrupt(*_: object, **__: object) -> None:
        monkeypatch.undo()
        raise KeyboardInterrupt

    monkeypatch.setattr(f"clutch.{made}", interrupt)
    with pytest.raises(KeyboardInterrupt):
        future.result(30)
    assert isinstance(future.exception(30), expected)


@pytest.mark.parametrize("broken_off", [KeyboardInterrupt, SystemExit])
def test_failure_61_an_answer_whose_reading_is_broken_off_is_read_again(
    pool: Pool, broken_off: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C while a result is unpickled ends the program, and says nothing of the result."""
    monkeypatch.setattr(profile_tools, "broken_off", [])
    good, bad = pool.submit(profile_tools.reading, 5), pool.submit(profile_tools.raise_reading)
    for future in (good, bad):
        profile_tools.broken_off.append(broken_off)
        with pytest.raises(broken_off):
            future.result(30)
        profile_tools.broken_off.append(broken_off)
        with pytest.raises(broken_off):
            future.exception(30)
    assert good.result(30) == 5
    assert isinstance(bad.exception(30), profile_tools.ReadingError)
    for function, arguments in ((profile_tools.reading, (5,)), (profile_tools.raise_reading, ())):
        profile_tools.broken_off.append(broken_off)
        with pytest.raises(broken_off):
            pool.call(function, *arguments)
    results = pool.map(profile_tools.reading, [1, 2], chunksize=2)
    profile_tools.broken_off.append(broken_off)
    with pytest.raises(broken_off):
        next(results)
    assert list(results) == [1, 2]


@pytest.mark.parametrize("seconds", [float("nan"), float("inf"), float("-inf"), -1.0, 1e9, 1e308])
def test_timeouts_of_every_size(pool: Pool, seconds: float, rendezvous: Rendezvous) -> None:
    """What is no number is a ValueError that says so; negative ones are over at once, as in the standard library."""
    done = pool.submit(profile_tools.add, 1)
    waiting = pool.submit("visit", rendezvous.port)
    guest = rendezvous.guest()
    uses: list[Callable[[], object]] = [
        lambda: pool.wait_ready(timeout=seconds),
        lambda: pool._stacks(99, None, seconds),
        lambda: list(pool.map(profile_tools.add, [1], timeout=seconds)),
    ]
    if not seconds > 0:
        uses += [
            lambda: waiting.result(timeout=seconds),
            lambda: waiting.exception(timeout=seconds),
            lambda: _core.Events().next(seconds),
        ]
    if math.isnan(seconds):
        uses += [lambda: pool.recycle(timeout=seconds), lambda: pool.reload(timeout=seconds)]
    for use in uses:
        if math.isnan(seconds):
            with pytest.raises(ValueError, match="timeout nan: allowed are seconds"):
                use()
        else:
            with contextlib.suppress(TimeoutError):
                use()
    if not 0 <= seconds < 1e308:
        with pytest.raises(ValueError, match=r"deadline=\S+ is not a time; allowed: seconds from 0"):
            pool.options(deadline=seconds)
    else:
        assert pool.options(deadline=seconds).call(profile_tools.add, 1) == 1
    guest.let_go()
    assert waiting.result(30) == "" and done.result(timeout=1e9) == 1


def test_it_is_an_executor(pool: Pool) -> None:
    assert isinstance(pool, concurrent.futures.Executor)
    future = pool.submit(profile_tools.add, 1)
    assert isinstance(future, concurrent.futures.Future) and isinstance(future, clutch.Future)
    assert future.result(30) == 1


@pytest.mark.parametrize("when", ["FIRST_COMPLETED", "FIRST_EXCEPTION", "ALL_COMPLETED"])
def test_wait(pool: Pool, rendezvous: Rendezvous, when: str) -> None:
    slow, quick = pool.submit("visit", rendezvous.port), None
    guest = rendezvous.guest()
    if pool.stats()["slots"] > 1:
        quick = pool.submit(profile_tools.raise_it, KeyError())
    if quick is None or when == "ALL_COMPLETED":
        guest.let_go()
    futures = {slow} if quick is None else {slow, quick}
    done, left = concurrent.futures.wait(futures, timeout=30, return_when=when)
    if quick is not None and when != "ALL_COMPLETED":
        assert done == {quick} and left == {slow}
        guest.let_go()
    else:
        assert done == futures and not left
    slow.result(30)


def test_wait_times_out(pool: Pool, rendezvous: Rendezvous) -> None:
    future = pool.submit("visit", rendezvous.port)
    done, left = concurrent.futures.wait([future], timeout=0.01)
    assert not done and left == {future}
    rendezvous.guest().let_go()
    assert concurrent.futures.wait([future], timeout=30).done == {future}


def test_as_completed(pool: Pool) -> None:
    futures = {pool.submit("add", number): number for number in range(100)}
    seen = [future.result() for future in concurrent.futures.as_completed(futures, timeout=30)]
    assert sorted(seen) == list(range(100))
    done = [pool.submit("add", number) for number in range(3)]
    concurrent.futures.wait(done)
    assert {future.result() for future in concurrent.futures.as_completed(done)} == {0, 1, 2}


def test_as_completed_with_other_futures(pool: Pool) -> None:
    with concurrent.futures.ThreadPoolExecutor(1) as threads:
        futures = [pool.submit("add", 1), threads.submit(lambda: 2)]
        assert {future.result() for future in concurrent.futures.as_completed(futures, timeout=30)} == {1, 2}


def test_callbacks(pool: Pool, rendezvous: Rendezvous) -> None:
    called: list[tuple[str, object]] = []
    ended = threading.Semaphore(0)

    def note(name: str) -> Callable[[concurrent.futures.Future[str]], None]:
        def callback(future: concurrent.futures.Future[str]) -> None:
            called.append((name, future.result()))
            ended.release()

        return callback

    future = pool.submit("visit", rendezvous.port)
    guest = rendezvous.guest()
    future.add_done_callback(note("first"))
    future.add_done_callback(note("second"))
    guest.let_go("w")
    assert ended.acquire(timeout=30) and ended.acquire(timeout=30)
    future.add_done_callback(note("late"))
    assert ended.acquire(timeout=30)
    assert called == [("first", "w"), ("second", "w"), ("late", "w")]


def test_callbacks_of_failures_and_cancelled(pool: Pool, rendezvous: Rendezvous) -> None:
    ended: list[concurrent.futures.Future[object]] = []
    came = threading.Semaphore(0)

    def note(future: concurrent.futures.Future[object]) -> None:
        ended.append(future)
        came.release()

    failing = pool.submit(profile_tools.raise_it, KeyError("k"))
    failing.add_done_callback(note)
    assert came.acquire(timeout=30)
    assert isinstance(failing.exception(0), KeyError)
    held = [pool.submit("visit", rendezvous.port) for _ in range(pool.stats()["slots"])]
    guests = rendezvous.guests(len(held))
    queued = pool.submit("add", 1)
    queued.add_done_callback(note)
    assert queued.cancel()
    assert came.acquire(timeout=30)
    assert ended == [failing, queued] and queued.cancelled()
    for guest in guests:
        guest.let_go()
    assert concurrent.futures.wait([*held, queued], timeout=30).not_done == set()


def test_a_callback_that_raises_harms_nobody(pool: Pool) -> None:
    def broken(_: object) -> None:
        raise LookupError("in a callback")

    came = threading.Event()
    future = pool.submit("add", 1)
    future.add_done_callback(broken)
    future.add_done_callback(lambda _: came.set())
    assert came.wait(30)
    assert future.result(30) == 1
    assert pool.submit("add", 2).result(30) == 2


@pytest.mark.per_profile
def test_result_in_many_threads(pool: Pool, rendezvous: Rendezvous) -> None:
    future = pool.submit("visit", rendezvous.port)
    with concurrent.futures.ThreadPoolExecutor(8) as threads:
        waiting = [threads.submit(future.result, 30) for _ in range(8)]
        rendezvous.guest().let_go("for all")
        assert [one.result(30) for one in waiting] == ["for all"] * 8


def test_calls_from_many_threads(pool: Pool) -> None:
    def calls(number: int) -> list[int]:
        return [pool.call("add", number, at) for at in range(100)]

    with concurrent.futures.ThreadPoolExecutor(8) as threads:
        for number, results in enumerate(threads.map(calls, range(8))):
            assert results == [number + at for at in range(100)]


def test_states_of_a_future(pool: Pool, rendezvous: Rendezvous) -> None:
    future = pool.submit("visit", rendezvous.port)
    guest = rendezvous.guest()
    assert (future.running(), future.done(), future.cancelled()) == (True, False, False)
    assert "running" in repr(future)
    guest.let_go()
    future.result(30)
    assert (future.running(), future.done(), future.cancelled()) == (False, True, False)
    assert "finished" in repr(future)


def test_futures_are_not_copied(pool: Pool) -> None:
    future = pool.submit("add", 1)
    for attempt in (lambda: pickle.dumps(future), lambda: copy.copy(future)):
        with pytest.raises((TypeError, pickle.PicklingError)):
            attempt()
    assert future.result(30) == 1


@pytest.mark.per_profile
def test_the_drop_in_arguments(make_pool: Callable[..., Pool]) -> None:
    pool = make_pool(
        None,
        workers=None,
        max_workers=1,
        mp_context=multiprocessing.get_context("spawn"),
        initializer=profile_tools.take,
        initargs=("i",),
        max_tasks_per_child=50,
    )
    assert pool.submit(profile_tools.lives).result(30)[2] == ["i"]
    assert pool.stats()["target"] == 1


def test_the_first_argument_may_be_a_number() -> None:
    with Pool(3) as pool:
        assert pool.stats()["target"] == 3
        assert list(pool.map(profile_tools.add, range(5))) == list(range(5))
    with Pool(2, None, profile_tools.take, ("positional",)) as pool:
        assert pool.call(profile_tools.lives)[2] == ["positional"]


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"max_workers": 0}, ValueError, "greater than 0"),
        ({"max_workers": -1}, ValueError, "greater than 0"),
        ({"max_workers": "2"}, TypeError, "max_workers"),
        ({"max_tasks_per_child": 0}, ValueError, "max_tasks_per_child"),
        ({"max_tasks_per_child": 1.5}, TypeError, "max_tasks_per_child"),
        ({"initializer": 7}, TypeError, "callable"),
    ],
)
def test_wrong_drop_in_arguments(options: dict[str, object], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        Pool(**options)  # type: ignore[arg-type]


def test_every_wrong_option_is_named() -> None:
    with pytest.raises(clutch.ConfigError) as caught:
        Pool("not a target!", profile="procss", wrkers=3, queue={"limit": 0}, start_timeout="soon")
    text = str(caught.value)
    for words in ("target", "profile", "process", "wrkers", "workers", "queue.limit", "start_timeout"):
        assert words in text
    assert len(caught.value.problems) == 5
