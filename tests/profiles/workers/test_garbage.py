"""What is not used any more goes, also where an error that was raised leads back to itself through its frames."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from collections.abc import Callable

import profile_tools
import pytest

from clutch import Future, Pool, Stream, _core
from clutch._pool import future as futures
from support.rendezvous import Rendezvous


class Kept:
    """Something in the frame of a caller."""


def fails_by_future(pool: Pool) -> weakref.ref[Kept]:
    kept = Kept()
    future = pool.submit(profile_tools.raise_it, LookupError())
    with pytest.raises(LookupError):
        future.result(30)
    return weakref.ref(kept)


def fails_by_callback(pool: Pool) -> weakref.ref[Kept]:
    kept = Kept()
    future = pool.submit(profile_tools.raise_it, LookupError())
    future.add_done_callback(lambda done: (kept, done))
    assert isinstance(future.exception(30), LookupError)
    return weakref.ref(kept)


def fails_by_map(pool: Pool) -> weakref.ref[Kept]:
    kept = Kept()
    results = pool.map(profile_tools.raise_it, [LookupError()])
    with pytest.raises(LookupError):
        next(results)
    return weakref.ref(kept)


def fails_by_stream(pool: Pool) -> weakref.ref[Kept]:
    kept = Kept()
    stream = pool.stream(profile_tools.count, 3, 1)
    with pytest.raises(LookupError):
        list(stream)
    return weakref.ref(kept)


@pytest.mark.per_profile
@pytest.mark.parametrize("fail", [fails_by_future, fails_by_callback, fails_by_map, fails_by_stream])
def test_a_failure_keeps_nothing(pool: Pool, fail: Callable[[Pool], weakref.ref[Kept]]) -> None:
    kept = fail(pool)
    others = threading.Event()
    pool.submit(profile_tools.add, 1).add_done_callback(
        lambda _: others.set()
    )  # that thread has let go of the one before
    assert others.wait(30)
    gc.collect()
    assert kept() is None


@pytest.mark.per_profile
def test_an_event_loop_that_ended_early_is_not_kept(pool: Pool) -> None:
    async def leave_early() -> weakref.ref[asyncio.AbstractEventLoop]:
        tasks = [asyncio.ensure_future(wait()) for _ in range(20)]
        await asyncio.wait(tasks, timeout=0)
        return weakref.ref(asyncio.get_running_loop())

    async def wait() -> None:
        await pool.submit(profile_tools.add, 1)

    loops = [asyncio.run(leave_early()) for _ in range(5)]
    asyncio.run(wait())
    gc.collect()
    assert [loop() for loop in loops] == [None] * 5
    assert len(futures._bridges) <= 1


class Waiter:
    """What a bridge wakes."""

    def done(self) -> bool:
        return False

    def set_result(self, _: None) -> None:
        raise AssertionError("nobody drains its bridge")


@pytest.mark.per_profile
@pytest.mark.parametrize("ask", [Pool.submit, Pool.stream])
def test_who_brings_an_answer_has_no_object_of_python(
    pool: Pool, rendezvous: Rendezvous, ask: Callable[..., Future | Stream]
) -> None:
    """PyO3 keeps what such a thread lets go of behind a lock of the process. A fork that came then left it taken to its
    child, for good.
    """

    def subscribe(awaited: Future | Stream) -> list[weakref.ref[object]]:
        bridge, waiter = _core.Bridge(), Waiter()
        awaited._subscribe(bridge, waiter)
        return [weakref.ref(bridge), weakref.ref(waiter)]

    single = ask is Pool.submit
    awaited = ask(pool, "visit", rendezvous.port) if single else ask(pool, "visits", rendezvous.port, 0)
    visitor = rendezvous.guest()
    kept = subscribe(awaited)
    gc.collect()
    assert [reference() for reference in kept] == [None, None]
    visitor.let_go("there")
    assert awaited.result(30) == "there" if isinstance(awaited, Future) else list(awaited) == []
