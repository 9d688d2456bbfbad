"""Interrupts at awkward moments: in clean-up, while waiting for a turn, in storms, in code that meddles with signals.

What docs/stopping.md promises holds in each: it comes once, it hits nobody else, and no worker ends that need not.
"""

from __future__ import annotations

import concurrent.futures
import random
import sys
import threading
from collections.abc import Callable
from typing import Any

import cleanup_tools
import profile_tools
import pytest

from clutch import DeadlineExceeded, Pool
from clutch.testing import Watch
from support.rendezvous import Rendezvous
from support.shapes import Shape

pytestmark = pytest.mark.per_profile

STACKS_ATTEMPTS = 10
DESCRIPTORS_OF_A_LOOP = 3
TIDYING = ["spin_then_tidy", "spin_async_then_tidy", "sleep_async_then_tidy"]


@pytest.fixture
def patient(make_pool: Callable[..., Pool]) -> Pool:
    """One worker, which no call costs its life within the time of a test."""
    pool = make_pool("cleanup_tools", workers=1, interrupt_grace=300.0)
    pool.wait_ready(timeout=60)
    return pool


def wait_empty(pool: Pool) -> None:
    """Until all slots are free, also of what nobody waits for."""
    while pool.stats()["sent"]:
        assert pool.submit("echo", 1).result(60) == 1


def stop_another(pool: Pool, rendezvous: Rendezvous) -> None:
    """In the same worker, where it has room."""
    if pool.stats()["slots"] > 1:
        other = pool.submit("visit_async", rendezvous.port, "other")
        guest = rendezvous.guest()
        assert guest.word == "other" and other.cancel()
        guest.wait_gone()


def check_tidies(patient: Pool, rendezvous: Rendezvous) -> None:
    """The clean-up goes on to its end, also while other work in its worker is stopped."""
    tidying = rendezvous.guest()
    assert tidying.word == "tidying"
    stop_another(patient, rendezvous)
    tidying.let_go()
    last = rendezvous.guest()
    assert last.word == "tidy"
    last.let_go()
    assert patient.submit("echo", 1).result(30) == 1


@pytest.mark.parametrize("name", TIDYING)
def test_clean_up_is_left_alone(patient: Pool, shape: Shape, name: str, rendezvous: Rendezvous) -> None:
    if shape.name == "greenlet" and name == "spin_async_then_tidy":
        return  # nothing stops it there
    future = patient.submit(name, rendezvous.port)
    guest = rendezvous.guest()
    assert future.cancel()
    guest.wait_gone()
    check_tidies(patient, rendezvous)


def test_a_slot_is_kept_until_the_threads_of_a_stopped_call_have_ended(
    patient: Pool, shape: Shape, rendezvous: Rendezvous
) -> None:
    slots = patient.stats()["slots"]
    if shape.name == "greenlet" or slots < 2:
        return  # no threads there, or nothing else to run beside it
    future = patient.submit("leave_a_thread", rendezvous.port)
    thread = rendezvous.guest()
    assert future.cancel()
    rendezvous.guest().let_go()
    for _ in range(20):
        assert patient.submit("echo", 1).result(30) == 1
    assert patient.stats()["sent"] == 1
    thread.let_go()
    wait_empty(patient)


def test_what_the_end_of_a_task_has_planned_runs_also_where_it_ends_the_loop(
    patient: Pool, shape: Shape, rendezvous: Rendezvous
) -> None:
    if shape.name == "async":
        return  # tasks share a loop there, which nothing ends
    future = patient.submit("close_and_leave", rendezvous.port)
    assert future.exception(30) is not None
    rendezvous.guest().wait_gone()
    assert patient.submit("echo", 1).result(30) == 1


@pytest.mark.parametrize("name", ["stream_then_tidy", "stream_async_then_tidy"])
def test_the_clean_up_of_generators_is_left_alone(patient: Pool, name: str, rendezvous: Rendezvous) -> None:
    stream = patient.stream(name, rendezvous.port)
    assert next(stream) == 1
    guest = rendezvous.guest()
    stream.close()
    guest.wait_gone()
    check_tidies(patient, rendezvous)


def test_a_turn_that_comes_with_the_interrupt_is_passed_on(patient: Pool, rendezvous: Rendezvous) -> None:
    """A serial tool is cancelled in the moment in which its turn comes: the next one still gets in."""
    if patient.stats()["slots"] < 2:
        return
    for _ in range(20):
        first = patient.submit("visit_alone", rendezvous.port)
        guest = rendezvous.guest()
        second = patient.submit("visit_alone", rendezvous.port)
        assert patient.submit("echo", 1).result(30) == 1  # begun after it, in a third slot
        second.cancel()
        guest.let_go()
        first.result(30)
        third = patient.submit("visit_alone", rendezvous.port, "third")
        while (guest := rendezvous.guest()).word != "third":
            pass
        guest.let_go("in")
        assert third.result(30) == "in"


def test_early_cancels_leave_nothing_behind(patient: Pool, capfd: pytest.CaptureFixture[str]) -> None:
    """Of a coroutine that has not begun yet, and of the loop that it would run on."""
    slots = patient.stats()["slots"]
    loops = {future.result(30) for future in [patient.submit(profile_tools.loop_id) for _ in range(20 * slots)]}
    before = patient.submit(profile_tools.descriptors).result(30)
    for attempt in range(1_500):
        future = patient.submit(profile_tools.wait_long)
        for _ in range(attempt % 50):
            future.running()
        assert future.cancel()
    wait_empty(patient)
    known = {future.result(30) for future in [patient.submit(profile_tools.loop_id) for _ in range(20 * slots)]}
    assert len(loops | known) <= slots, "none was thrown away"
    # Other slots may have made their loop meanwhile.
    assert patient.submit(profile_tools.descriptors).result(30) <= before + DESCRIPTORS_OF_A_LOOP * (slots - len(loops))
    assert capfd.readouterr().err == ""


def test_who_waits_for_the_main_thread_is_stopped(patient: Pool, shape: Shape, rendezvous: Rendezvous) -> None:
    if shape.name != "thread":
        return  # elsewhere nothing waits for it inside a worker, or everything does
    first = patient.submit("visit_main", rendezvous.port)
    guest = rendezvous.guest()
    waiting = [patient.submit("visit_main", rendezvous.port) for _ in range(2)]
    assert patient.stats()["sent"] == 3
    for future in waiting:
        future.cancel()
    beside = [patient.submit("visit", rendezvous.port) for _ in range(2)]
    for other in rendezvous.guests(2):
        other.let_go("got in")
    assert [future.result(30) for future in beside] == ["got in"] * 2
    guest.let_go("first")
    assert first.result(30) == "first" and rendezvous.nobody_waits()


@pytest.mark.parametrize("function", [cleanup_tools.swallow, cleanup_tools.swallow_async])
def test_a_batch_ends_when_an_item_swallows_its_interrupt(
    patient: Pool, function: Callable[..., Any], rendezvous: Rendezvous
) -> None:
    with pytest.raises(TimeoutError):
        list(patient.map(function, [rendezvous.port] * 3, timeout=0.5, chunksize=3))
    rendezvous.guest().wait_gone()
    wait_empty(patient)
    assert rendezvous.nobody_waits(), "the second item was never begun"


@pytest.mark.parametrize("name", ["take_first_rows", "remove_from_registry", "spin_traced"])
def test_an_interrupt_comes_through(
    patient: Pool, name: str, rendezvous: Rendezvous, capfd: pytest.CaptureFixture[str]
) -> None:
    """Where it cannot it is sent again, and nothing is printed of that."""
    for _ in range(8):
        future = patient.submit(name, rendezvous.port)
        guest = rendezvous.guest()
        assert future.cancel()
        guest.wait_gone()
        assert patient.submit("echo", 1).result(30) == 1
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("options", [{}, {"preload": False}, {"start": "spawn"}])
@pytest.mark.parametrize("target", ["handles_all_signals", "handles_all_signals_at_start", "blocks_all_signals"])
def test_failure_61_user_code_sets_all_signals(
    make_pool: Callable[..., Pool], shape: Shape, target: str, options: dict[str, Any], rendezvous: Rendezvous
) -> None:
    if options and shape.name == "spawn":
        return  # a shape of its own
    pool = make_pool(target, workers=1, interrupt_grace=300.0, **options)
    pool.wait_ready(timeout=60)
    future = pool.submit("spin", rendezvous.port)
    guest = rendezvous.guest()
    while not any(" in spin\n" in text for text in pool.stacks().values()):
        assert not guest.is_gone()
    assert future.cancel()
    guest.wait_gone()
    assert pool.submit("pid").result(30) == guest.pid


SINCE_3_12 = pytest.mark.skipif(sys.version_info < (3, 12), reason="older Pythons tell too late where it is raised")


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("move_into_finalizer", marks=SINCE_3_12),
        pytest.param("move_into_loop", marks=SINCE_3_12),
        pytest.param("move_into_callback", marks=SINCE_3_12),
        pytest.param("move_to_where_a_step_is_planned", marks=SINCE_3_12),
        pytest.param("move_to_where_a_step_is_taken", marks=SINCE_3_12),
        pytest.param("move_to_where_a_callback_is_planned", marks=SINCE_3_12),
        "move_into_wait",
    ],
)
def test_an_interrupt_finds_code_that_has_moved_on(
    patient: Pool, shape: Shape, name: str, rendezvous: Rendezvous
) -> None:
    """Since it was looked at, to where the interpreter only prints an exception, or where an event loop keeps it."""
    if shape.name != "thread":
        return  # elsewhere code is looked at in the thread that runs it
    future = patient.submit(name, rendezvous.port)
    guest = rendezvous.guest()
    assert future.cancel()
    guest.wait_gone()
    assert patient.submit("echo", 1).result(30) == 1


def test_an_interrupt_comes_while_another_is_dealt_with(patient: Pool, shape: Shape, rendezvous: Rendezvous) -> None:
    if shape.name == "greenlet":
        return  # nothing stops such code there
    future = patient.submit("spin_where_signals_meet", rendezvous.port)
    guest = rendezvous.guest()
    assert future.cancel()
    guest.wait_gone()
    assert patient.submit("echo", 1).result(30) == 1


SHORT = [
    "spin_for",
    "sleep_for",
    "sleep_async_for",
    "spin_async_for",
    "spin_alone_for",
    "sleep_alone_for",
    "spin_in_main_for",
]


@pytest.mark.parametrize("seed", range(2))
def test_a_storm_of_cancels(make_pool: Callable[..., Pool], events: Watch, seed: int) -> None:
    """Work of every kind is submitted and cancelled at random moments: the rest is answered, and the workers live."""
    dice = random.Random(seed)
    pool = make_pool("cleanup_tools", workers=2, interrupt_grace=30.0)
    pool.wait_ready(timeout=60)
    kept: list[tuple[str, concurrent.futures.Future[Any]]] = []
    for _ in range(150):
        round_of = [(name := dice.choice(SHORT), pool.submit(name, dice.random() / 500)) for _ in range(10)]
        dice.shuffle(round_of)
        for name, future in round_of:
            kind = dice.randrange(3)
            if kind == 0:
                kept.append((name, future))
            elif kind == 1:
                future.cancel()
            else:
                threading.Timer(dice.random() / 200, future.cancel).start()
        if dice.randrange(4) == 0:
            assert pool.submit("echo", seed).result(60) == seed
    for name, future in kept:
        assert future.result(60) == ("slept" if name.startswith("sleep") else "spun")
    wait_empty(pool)
    assert events.all("worker_gone", pool="made") == [], "nothing needed to be killed"
    assert events.all("work_lost", pool="made") == []


def test_a_storm_of_deadlines(make_pool: Callable[..., Pool], events: Watch) -> None:
    dice = random.Random(7)
    pool = make_pool("cleanup_tools", workers=2, interrupt_grace=30.0)
    pool.wait_ready(timeout=60)
    futures = []
    for _ in range(600):
        name = dice.choice(SHORT)
        limited = pool.options(deadline=dice.random() / 100 + 0.0005)
        futures.append((name, limited.submit(name, dice.random() / 300)))
    for name, future in futures:
        error = future.exception(60)
        assert isinstance(error, DeadlineExceeded) or future.result() == ("slept" if "sleep" in name else "spun")
    assert [pool.submit("echo", number).result(60) for number in range(50)] == list(range(50))
    assert events.all("worker_gone", pool="made") == []


def check_stacks(pool: Pool, rendezvous: Rendezvous) -> None:
    """Of some attempts: a caller does not wait for the stacks of a worker that gets no time on a busy machine."""
    seen = []
    for _ in range(STACKS_ATTEMPTS):
        future = pool.options(deadline=0.6).submit("spin_then_tidy", rendezvous.port)
        rendezvous.guest()
        error = future.exception(30)
        assert isinstance(error, DeadlineExceeded)
        for word in ("tidying", "tidy"):
            guest = rendezvous.guest()
            assert guest.word == word
            guest.let_go()
        seen.append(error.stacks)
        if " in spin_then_tidy" in (error.stacks or ""):
            return
    raise AssertionError(seen)


def test_stacks_among_hundreds_of_threads(patient: Pool, rendezvous: Rendezvous) -> None:
    """Those of the work itself are there."""
    assert patient.submit("start_threads", 300).result(60) >= 300
    check_stacks(patient, rendezvous)


@pytest.mark.parametrize("how", ["enable", "disable", "later", "another signal"])
def test_user_code_with_its_own_faulthandler(patient: Pool, rendezvous: Rendezvous, how: str) -> None:
    patient.submit("use_faulthandler", how).result(30)
    check_stacks(patient, rendezvous)


def test_an_alarm_of_the_users_own_between_calls_costs_no_worker(
    patient: Pool, shape: Shape, rendezvous: Rendezvous, events: Watch
) -> None:
    if shape.options["profile"] != "process":
        return  # elsewhere user code is not in the main thread, or shares it with a loop
    path = rendezvous.port
    patient.submit("alarm_later", path).result(30)
    rendezvous.guest().wait_gone()
    assert patient.submit("echo", 1).result(30) == 1
    assert events.all("worker_gone", pool="made") == []


def test_code_that_blocks_all_signals_is_ended(
    make_pool: Callable[..., Pool], rendezvous: Rendezvous, events: Watch
) -> None:
    pool = make_pool("cleanup_tools", workers=1, interrupt_grace=0.2, term_grace=0.2, grace=0.1)
    pool.wait_ready(timeout=60)
    future = pool.options(deadline=0.6).submit("block_signals_and_stay", rendezvous.port)
    guest = rendezvous.guest()
    assert isinstance(future.exception(30), DeadlineExceeded)
    guest.wait_gone()
    assert pool.submit("echo", 1).result(30) == 1
