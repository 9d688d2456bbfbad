"""The deadline of a map is each item's own, however many travel together; and none runs twice for it."""

from __future__ import annotations

import itertools
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import profile_tools
import pytest

from clutch import DeadlineExceeded, Pool
from support.rendezvous import Rendezvous

DEADLINE = 1.6
"""Seconds. Items that do not wait take far less, also on a busy machine."""

MakePool = Callable[..., Pool]
Steps = Callable[..., Iterator[Any]]


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    return tmp_path / "notes"


@pytest.fixture
def steps(rendezvous: Rendezvous, notes: Path) -> Steps:
    """A map over so many numbers, of which some are late."""

    def steps(pool: Pool, function: Any, late: tuple[int, ...], count: int, **more: Any) -> Iterator[Any]:
        pool.wait_ready()
        fixed = [itertools.repeat(one) for one in (late, rendezvous.port, str(notes))]
        return pool.map(function, range(count), *fixed, return_exceptions=True, **more)

    return steps


def begun(notes: Path) -> list[int]:
    return sorted(map(int, notes.read_text().split()))


@pytest.mark.per_profile
@pytest.mark.parametrize(
    ("function", "late", "chunksize"),
    [(profile_tools.note_and_visit_late, (0, 2, 3, 9), 10), (profile_tools.note_and_visit_late_async, (5,), 4)],
)
def test_an_item_past_its_deadline_fails_alone(
    make_pool: MakePool, steps: Steps, notes: Path, function: Any, late: tuple[int, ...], chunksize: int
) -> None:
    pool = make_pool(workers=1, deadline=DEADLINE)
    found = list(steps(pool, function, late, 10, chunksize=chunksize))
    assert [type(one) for one in found] == [DeadlineExceeded if n in late else int for n in range(10)]
    for number in late:
        (note,) = found[number].__notes__
        assert note.startswith(f"item {number} of the map: ({number}, ")
        assert f"while {function.__name__} ran in worker made/" in str(found[number])
    assert begun(notes) == list(range(10)), "each has run once"


def test_without_order_each_item_has_its_own_deadline_too(make_pool: MakePool, steps: Steps, notes: Path) -> None:
    late = (1, 12, 13, 39)
    pool = make_pool(deadline=DEADLINE)
    found = list(steps(pool, profile_tools.note_and_visit_late, late, 40, chunksize=10, ordered=False))
    assert sorted(one for one in found if isinstance(one, int)) == [n for n in range(40) if n not in late]
    assert [type(one) for one in found if not isinstance(one, int)] == [DeadlineExceeded] * len(late)
    assert begun(notes) == list(range(40))


@pytest.mark.per_profile
def test_a_batch_may_take_longer_than_one_item(make_pool: MakePool) -> None:
    pool = make_pool(workers=1, deadline=DEADLINE)
    pool.wait_ready()
    assert list(pool.map(profile_tools.sleep_if_any, [DEADLINE / 3] * 6, chunksize=6)) == [None] * 6


@pytest.mark.per_profile
def test_a_worker_that_stood_still_runs_nothing_that_others_have_run(
    make_pool: MakePool, steps: Steps, rendezvous: Rendezvous, notes: Path
) -> None:
    pool = make_pool(workers=2, deadline=DEADLINE, interrupt_grace="60s")
    results = steps(pool, profile_tools.note_and_visit_late, (3,), 8, chunksize=8)
    guest = rendezvous.guest()
    os.kill(guest.pid, signal.SIGSTOP)
    try:
        found = list(results)
    finally:
        os.kill(guest.pid, signal.SIGCONT)
    # What it had run and not written is not known.
    assert {type(one) for one in found[:4]} <= {int, DeadlineExceeded} and isinstance(found[3], DeadlineExceeded)
    assert found[4:] == [4, 5, 6, 7]
    guest.let_go()  # a thread that waits in a system call is not interrupted
    pool.shutdown()
    assert begun(notes) == list(range(8))


@pytest.mark.parametrize("deadline", [0, 1e-9, 1e16])
def test_deadlines_of_any_length_leave_the_pool_as_it_was(make_pool: MakePool, deadline: float) -> None:
    pool = make_pool()
    pool.wait_ready()
    for _ in range(20):
        found = pool.options(deadline=deadline).map(profile_tools.echo, range(50), chunksize=10, return_exceptions=True)
        assert {type(one) for one in found} <= ({DeadlineExceeded, int} if deadline < 1 else {int})
    assert pool.submit("add", 1).result(30) == 1
