"""What a map tells of items that fail: which ones, and, where it is asked to, in their places."""

from __future__ import annotations

import itertools
import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError
from typing import Any

import profile_tools
import pytest

from clutch import BadArguments, DeadlineExceeded, Pool, WorkerLost
from support.rendezvous import Rendezvous

MakePool = Callable[..., Pool]


def failures(results: Iterator[Any]) -> list[BaseException]:
    """Those that are raised, in their order."""
    found: list[BaseException] = []
    while True:
        try:
            next(results)
        except StopIteration:
            return found
        except (Exception, CancelledError) as error:
            found.append(error)


def notes(errors: list[BaseException]) -> list[list[str]]:
    return [getattr(error, "__notes__", []) for error in errors]


@pytest.mark.parametrize("chunksize", [None, 1, 4, 100])
@pytest.mark.parametrize("ordered", [True, False])
def test_a_failed_item_is_named(pool: Pool, chunksize: int | None, ordered: bool) -> None:
    def odd(number: int) -> int:
        if number % 20 == 3:
            raise ArithmeticError(number)
        return number

    numbers = range(1_000, 1_100)
    errors = failures(pool.map(odd, numbers, chunksize=chunksize, ordered=ordered))
    assert all(type(error) is ArithmeticError for error in errors)
    found = {error.args[0]: error.__notes__ for error in errors if isinstance(error, ArithmeticError)}
    assert found == {number: [f"item {number - 1_000} of the map: {number}"] for number in range(1_003, 1_100, 20)}


def test_a_failed_row_of_several_iterables_is_named(pool: Pool) -> None:
    errors = failures(pool.map(profile_tools.fail_on, range(3), itertools.repeat(1)))
    assert notes(errors) == [["item 1 of the map: (1, 1)"]]


@pytest.mark.parametrize("chunksize", [1, 3])
def test_the_note_of_a_large_item_is_short(pool: Pool, chunksize: int) -> None:
    errors = failures(pool.map(int, ["x" * 2_000_000, "y" * 1_000, "z"], chunksize=chunksize))
    first, second, third = [note for told in notes(errors) for note in told]
    assert first == "item 0 of the map: <str, too large to be kept>"
    assert len(second) < 130 and second.startswith("item 1 of the map: ")
    assert third == "item 2 of the map: 'z'"


@pytest.mark.parametrize("chunksize", [None, 1, 3])
def test_items_that_cannot_be_sent_or_read_are_named(pool: Pool, chunksize: int | None) -> None:
    errors = failures(
        pool.map(profile_tools.echo, [1, profile_tools.make_lock(), 3, profile_tools.Unreadable()], chunksize=chunksize)
    )
    assert [type(error) for error in errors] == [BadArguments] * 2
    assert [told[0].partition(":")[0] for told in notes(errors)] == ["item 1 of the map", "item 3 of the map"]


@pytest.mark.per_profile
@pytest.mark.parametrize("return_exceptions", [True, False])
def test_an_item_that_is_killed_is_named(make_pool: MakePool, rendezvous: Rendezvous, return_exceptions: bool) -> None:
    pool = make_pool(workers=1)

    def step(number: int, port: int) -> int:
        if number == 4:
            profile_tools.meet(port)
        return number

    ports = itertools.repeat(rendezvous.port)
    results = pool.map(step, range(9), ports, chunksize=9, return_exceptions=return_exceptions)
    os.kill(rendezvous.guest().pid, signal.SIGKILL)
    if return_exceptions:
        found = list(results)
        errors = [found.pop(4)]
        assert found == [0, 1, 2, 3, 5, 6, 7, 8]
    else:
        errors = failures(results)
    assert [type(error) for error in errors] == [WorkerLost]
    assert notes(errors) == [[f"item 4 of the map: (4, {rendezvous.port})"]]


@pytest.mark.per_profile
def test_an_item_past_its_deadline_is_named(make_pool: MakePool, rendezvous: Rendezvous) -> None:
    pool = make_pool(workers=1, deadline=1.0)
    pool.wait_ready()
    errors = failures(pool.map(profile_tools.visit, [rendezvous.port], chunksize=1))
    assert [type(error) for error in errors] == [DeadlineExceeded]
    assert notes(errors) == [[f"item 0 of the map: {rendezvous.port}"]]


def test_items_that_fail_together_are_named_together(make_pool: MakePool, rendezvous: Rendezvous) -> None:
    pool = make_pool(workers=1)
    results = pool.map(profile_tools.visit, [rendezvous.port] * 3, chunksize=3)
    rendezvous.guest()
    pool.kill_workers()
    pool.shutdown()
    told = {note for of_one in notes(failures(results)) for note in of_one}
    assert told
    assert all(note.startswith(("item 0 of", "items 0 to 2 of", "item 1 of", "item 2 of")) for note in told)


@pytest.mark.parametrize("chunksize", [None, 1, 4])
@pytest.mark.parametrize("function", [profile_tools.fail_on, lambda value, bad: profile_tools.fail_on(value, bad)])
def test_exceptions_are_returned_in_their_places(pool: Pool, function: Any, chunksize: int | None) -> None:
    results = pool.map(function, range(10), itertools.repeat(5), chunksize=chunksize, return_exceptions=True)
    found = list(results)
    error = found.pop(5)
    assert found == [0, 1, 2, 3, 4, 6, 7, 8, 9]
    assert type(error) is ArithmeticError and error.__notes__ == ["item 5 of the map: (5, 5)"]
    assert "in fail_on" in str(error.__cause__)


def test_without_order_each_exception_comes_once(pool: Pool) -> None:
    results = pool.map(profile_tools.fail_on, range(50), itertools.repeat(5), ordered=False, return_exceptions=True)
    found = list(results)
    assert len([one for one in found if isinstance(one, ArithmeticError)]) == 1
    assert sorted(one for one in found if isinstance(one, int)) == [*range(5), *range(6, 50)]


def test_what_is_no_items_fault_is_raised_all_the_same(pool: Pool) -> None:
    def items() -> Iterator[int]:
        yield 1
        raise KeyError("of the iterable")

    with pytest.raises(KeyError, match="of the iterable"):
        list(pool.map(profile_tools.echo, items(), return_exceptions=True))


async def fail_on_one(number: int) -> int:
    if number == 1:
        raise ArithmeticError
    return number


@pytest.mark.per_profile
def test_exceptions_of_coroutines_are_returned(pool: Pool) -> None:
    found = list(pool.map(fail_on_one, range(3), return_exceptions=True))
    assert [type(one) for one in found] == [int, ArithmeticError, int]


def test_the_repr_of_a_future_says_that_it_runs(pool: Pool, rendezvous: Rendezvous) -> None:
    future = pool.submit("visit", rendezvous.port)
    guest = rendezvous.guest()
    assert repr(future) == "<clutch.Future running>"
    guest.let_go()
    future.result()
    assert repr(future) == "<clutch.Future finished>"
