"""Slots: how many calls run at the same time, where, and what they share."""

from __future__ import annotations

import os
from collections.abc import Callable

import profile_tools
import pytest

from clutch import Pool
from support.rendezvous import Guest, Rendezvous
from support.shapes import Shape

pytestmark = pytest.mark.per_profile

BOTH_KINDS = pytest.mark.parametrize("suffix", ["", "_async"])


def let_go(guests: list[Guest]) -> None:
    for guest in guests:
        guest.let_go()


@BOTH_KINDS
def test_every_slot_is_really_concurrent(pool: Pool, shape: Shape, rendezvous: Rendezvous, suffix: str) -> None:
    pool.wait_ready(timeout=60)
    futures = [pool.submit(f"visit{suffix}", rendezvous.port) for _ in range(shape.slots)]
    guests = rendezvous.guests(shape.slots)
    workers = shape.options["workers"]
    assert len({guest.pid for guest in guests}) == workers, "work goes to the least loaded worker"
    assert pool.stats()["slots"] == shape.slots
    let_go(guests)
    for future in futures:
        future.result(30)


def test_both_kinds_share_the_slots(pool: Pool, shape: Shape, rendezvous: Rendezvous) -> None:
    names = ["visit" if number % 2 else "visit_async" for number in range(shape.slots)]
    futures = [pool.submit(name, rendezvous.port) for name in names]
    let_go(rendezvous.guests(shape.slots))
    for future in futures:
        future.result(30)


def test_streams_take_a_slot_each(pool: Pool, shape: Shape, rendezvous: Rendezvous) -> None:
    names = ["visits" if number % 2 else "visits_async" for number in range(shape.slots)]
    streams = [pool.stream(name, rendezvous.port, 1) for name in names]
    for word in ("before 0", "closed"):
        guests = rendezvous.guests(shape.slots)
        assert {guest.word for guest in guests} == {word}
        let_go(guests)
    assert [list(stream) for stream in streams] == [[0]] * shape.slots


@BOTH_KINDS
def test_never_more_run_than_there_are_slots(pool: Pool, shape: Shape, rendezvous: Rendezvous, suffix: str) -> None:
    pool.wait_ready(timeout=60)
    futures = [pool.submit(f"visit{suffix}", rendezvous.port) for _ in range(3 * shape.slots)]
    guests = rendezvous.guests(shape.slots)
    for _ in range(2 * shape.slots):
        assert rendezvous.nobody_waits(), "the next comes only when one has gone"
        guests.pop().let_go()
        guests.append(rendezvous.guest())
    let_go(guests)
    for future in futures:
        future.result(30)


def test_a_call_that_waits_does_not_hold_the_others(
    make_pool: Callable[..., Pool], shape: Shape, rendezvous: Rendezvous
) -> None:
    pool = make_pool()
    pool.wait_ready(timeout=60)
    held = pool.submit("visit", rendezvous.port)
    guest = rendezvous.guest()
    assert [pool.submit("add", number).result(30) for number in range(200)] == list(range(200))
    assert not held.done()
    guest.let_go()
    held.result(30)


@BOTH_KINDS
def test_serial_tools_run_one_at_a_time_in_a_worker(
    make_pool: Callable[..., Pool], shape: Shape, rendezvous: Rendezvous, suffix: str
) -> None:
    pool = make_pool(workers=1)
    pool.wait_ready(timeout=60)
    # Those that wait for their turn hold slots too; one slot is left.
    count = max(1, shape.slots_of_worker - 1)
    futures = [pool.submit(f"visit_alone{suffix}", rendezvous.port, "alone") for _ in range(count)]
    for _ in range(count):
        guest = rendezvous.guest()
        assert guest.word == "alone"
        if shape.slots_of_worker > 1:
            beside = pool.submit("visit", rendezvous.port, "beside")
            other = rendezvous.guest()
            assert other.word == "beside", "other tools run beside it, and it does not"
            other.let_go()
            beside.result(30)
        assert rendezvous.nobody_waits()
        guest.let_go()
    for future in futures:
        future.result(30)


def test_a_serial_tool_that_fails_lets_the_next_in(pool: Pool) -> None:
    with pytest.raises(OSError):
        pool.call("visit_alone", 1)
    with pytest.raises(OSError):
        pool.call("visit_alone", 1)


def test_main_thread_tools(pool: Pool, rendezvous: Rendezvous) -> None:
    assert all(pool.call("in_main_thread") for _ in range(5))
    assert pool.call(profile_tools.in_main_thread), "as a function too"
    futures = [pool.submit("visit_main", rendezvous.port) for _ in range(pool.stats()["slots"])]
    for _ in futures:
        rendezvous.guest().let_go("w")
    assert [future.result(30) for future in futures] == [(True, "w")] * len(futures)


def test_user_code_of_the_process_profile_runs_in_the_main_thread(pool: Pool, shape: Shape) -> None:
    is_main = pool.call(profile_tools.native_main_thread)
    assert is_main or shape.options["profile"] != "process"


def test_context_variables_do_not_leak(pool: Pool) -> None:
    seen = [pool.call(name, "somebody") for name in ("set_visitor", "set_visitor_async") for _ in range(10)]
    assert set(seen) == {"nobody"}
    futures = [pool.submit(name, "else") for name in ("set_visitor", "set_visitor_async") * 10]
    assert {future.result(30) for future in futures} == {"nobody"}


def test_environment_and_start_of_every_worker(make_pool: Callable[..., Pool]) -> None:
    pool = make_pool(env={"CLUTCH_TEST_WORD": "hello"})
    assert pool.call(os.getenv, "CLUTCH_TEST_WORD") == "hello"
    assert os.getenv("CLUTCH_TEST_WORD") is None
