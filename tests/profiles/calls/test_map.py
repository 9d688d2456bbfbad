"""`Pool.map`: order, batches, failures of single items, bounded look-ahead."""

from __future__ import annotations

import functools
import gc
import itertools
import os
import signal
import threading
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import profile_tools
import pytest

from clutch import BadArguments, NoSuchTool, Pool, PoolClosed, RemoteError, WorkerLost
from clutch.testing import Watch
from support.rendezvous import Rendezvous


@pytest.mark.parametrize(
    "function", [profile_tools.add, profile_tools.add_async, lambda value: value, "add", "add_async"]
)
@pytest.mark.parametrize("chunksize", [None, 1, 7])
def test_in_order(pool: Pool, function: object, chunksize: int | None) -> None:
    assert list(pool.map(function, range(200), chunksize=chunksize)) == list(range(200))  # type: ignore[arg-type]


def test_nothing(pool: Pool) -> None:
    assert list(pool.map(profile_tools.add, [])) == []
    assert list(pool.map(profile_tools.add, [], [1])) == []


@pytest.mark.parametrize("function", [profile_tools.add, profile_tools.add_async])
def test_several_iterables(pool: Pool, function: Callable[..., int]) -> None:
    assert list(pool.map(function, range(5), [10, 20, 30])) == [10, 21, 32]
    assert list(pool.map(function, range(3), itertools.repeat(1))) == [1, 2, 3]


def test_tuples_are_items(pool: Pool) -> None:
    assert list(pool.map(profile_tools.echo, [(1, 2), (), (3,)])) == [(1, 2), (), (3,)]


@pytest.mark.per_profile
def test_many_items(pool: Pool) -> None:
    assert sum(pool.map(profile_tools.echo, range(50_000))) == sum(range(50_000))


def test_large_items(pool: Pool) -> None:
    items = [bytes([number]) * 200_000 for number in range(20)]
    assert list(pool.map(profile_tools.echo, items)) == items


@pytest.mark.per_profile
@pytest.mark.parametrize("chunksize", [1, 4, 100])
def test_an_item_that_fails_fails_alone(pool: Pool, chunksize: int) -> None:
    results = pool.map(profile_tools.fail_on, range(10), itertools.repeat(5), chunksize=chunksize)
    assert [next(results) for _ in range(5)] == [0, 1, 2, 3, 4]
    with pytest.raises(ArithmeticError) as caught:
        next(results)
    assert caught.value.args == (5,)
    assert "in fail_on" in str(caught.value.__cause__)
    assert list(results) == [6, 7, 8, 9], "iteration goes on after the error"


@pytest.mark.per_profile
def test_base_exceptions_of_items(pool: Pool) -> None:
    results = pool.map(profile_tools.exit_with, [1, 2], chunksize=2)
    for code in (1, 2):
        with pytest.raises(SystemExit) as caught:
            next(results)
        assert caught.value.code == code
    assert list(results) == []


@pytest.mark.per_profile
def test_results_that_cannot_be_encoded_fail_alone(pool: Pool) -> None:
    def odd(number: int) -> object:
        return profile_tools.make_lock() if number == 1 else number

    results = pool.map(odd, range(3), chunksize=3)
    assert next(results) == 0
    with pytest.raises(RemoteError) as caught:
        next(results)
    assert caught.value.kind == "encode"
    assert list(results) == [2]


def test_a_tool_that_does_not_exist(pool: Pool) -> None:
    with pytest.raises(NoSuchTool):
        list(pool.map("nope", range(3)))


def test_failure_64_threads_on_one_map(pool: Pool) -> None:
    """Who comes while another one is at work on it is told so, as by a generator."""
    inside, gate = threading.Event(), threading.Event()

    def items() -> Iterator[int]:
        yield 1
        inside.set()
        assert gate.wait(30)
        yield 2

    results = pool.map(profile_tools.echo, items(), chunksize=1, buffersize=1)
    with ThreadPoolExecutor(1) as others:
        first = others.submit(next, results)
        assert inside.wait(30)
        for use in (next, lambda results: results.close()):
            with pytest.raises(ValueError, match="already executing"):
                use(results)
        gate.set()
        assert first.result(30) == 1
    assert list(results) == [2]


def test_failure_64_each_item_comes_once(pool: Pool) -> None:
    results = pool.map(profile_tools.echo, range(3_000), chunksize=5)

    def read(_: int) -> list[int]:
        mine: list[int] = []
        while True:
            try:
                mine.append(next(results))
            except ValueError:
                continue
            except StopIteration:
                return mine

    with ThreadPoolExecutor(4) as threads:
        taken = [item for mine in threads.map(read, range(4)) for item in mine]
    assert sorted(taken) == list(range(3_000))


def test_an_iterable_that_reads_its_own_map(pool: Pool) -> None:
    def items() -> Iterator[int]:
        yield from range(100)
        next(results)

    results = pool.map(profile_tools.echo, items(), chunksize=1)
    with pytest.raises(ValueError, match="already executing"):
        list(results)


def test_items_that_cannot_be_sent(pool: Pool) -> None:
    with pytest.raises(BadArguments, match=r"[lL]ock"):
        list(pool.map(profile_tools.echo, [1, profile_tools.make_lock()]))


TOLD = 100


def results_and_errors(results: Iterator[Any]) -> tuple[list[Any], dict[int, Exception]]:
    """Of all items; the errors by their place."""
    read: list[Any] = []
    errors: dict[int, Exception] = {}
    while len(read) + len(errors) < TOLD:
        try:
            read.append(next(results))
        except Exception as error:
            errors[len(read) + len(errors)] = error
    assert list(results) == []
    return read, errors


BAD = {"unsendable": profile_tools.make_lock, "unreadable": profile_tools.Unreadable}


@pytest.mark.parametrize("chunksize", [None, 1, 7, 64, 1000])
@pytest.mark.parametrize("bad", BAD)
def test_an_item_that_cannot_travel_fails_alone(pool: Pool, tmp_path: Path, bad: str, chunksize: int | None) -> None:
    """Wherever it stands in its batch; and nothing runs twice."""
    file = tmp_path / "ran"

    def note(item: object) -> object:
        with file.open("a") as lines:
            lines.write(f"{item}\n")
        return item

    items: list[Any] = list(range(TOLD))
    bad_ones = [0, 37, 38, 99]
    for at in bad_ones:
        items[at] = BAD[bad]()
    good = [item for at, item in enumerate(items) if at not in bad_ones]
    read, errors = results_and_errors(pool.map(note, items, chunksize=chunksize))
    assert read == good
    assert list(errors) == bad_ones
    assert all(isinstance(error, BadArguments) for error in errors.values())
    assert sorted(map(int, file.read_text().split())) == good


def test_a_function_that_cannot_be_sent_is_told_at_once(pool: Pool) -> None:
    with pytest.raises(BadArguments, match=r"[lL]ock"):
        pool.map(functools.partial(profile_tools.echo, profile_tools.make_lock()), itertools.count())


def test_an_item_that_cannot_be_read_fails_its_chunk_after_the_shutdown(make_pool: Callable[..., Pool]) -> None:
    """Nothing can be sent again then."""
    with make_pool() as pool:
        unread = pool.map(profile_tools.echo, [1, profile_tools.Unreadable(), 3, *range(4, 7)], chunksize=3)
    for _ in range(3):
        with pytest.raises(BadArguments, match="not here"):
            next(unread)
    assert list(unread) == [4, 5, 6]


@pytest.mark.per_profile
def test_failure_71_a_kill_in_the_middle_of_a_chunk_fails_the_item_that_ran(
    make_pool: Callable[..., Pool], rendezvous: Rendezvous
) -> None:
    pool = make_pool(workers=1)

    def step(number: int, port: int) -> int:
        if number == 4:
            profile_tools.meet(port)
        return number

    results = pool.map(step, range(12), itertools.repeat(rendezvous.port), chunksize=3, buffersize=1)
    assert [next(results) for _ in range(3)] == [0, 1, 2]
    os.kill(rendezvous.guest().pid, signal.SIGKILL)
    assert next(results) == 3
    with pytest.raises(WorkerLost) as caught:
        next(results)
    assert caught.value.signal == signal.SIGKILL
    assert list(results) == list(range(5, 12))


def test_timeout(pool: Pool, rendezvous: Rendezvous) -> None:
    results = pool.map(profile_tools.visit, [rendezvous.port], timeout=0.01)
    guest = rendezvous.guest()
    with pytest.raises(TimeoutError):
        next(results)
    guest.let_go()
    assert list(pool.map(profile_tools.add, range(10), timeout=60)) == list(range(10))


def counted(taken: list[int]) -> Iterator[int]:
    """Without an end; `taken` is what was taken of it."""
    for number in itertools.count():
        taken.append(number)
        yield number


def test_look_ahead_is_bounded(pool: Pool) -> None:
    taken: list[int] = []
    unsized = pool.map(profile_tools.add, counted(taken))
    assert [next(unsized) for _ in range(100)] == list(range(100))
    assert len(taken) < 1_000_000


@pytest.mark.parametrize("buffersize", [1, 4, 100])
def test_buffersize_is_how_many_results_may_be_unread(pool: Pool, buffersize: int) -> None:
    """As in Python 3.14: items, though they travel in batches."""
    taken: list[int] = []
    results = pool.map(profile_tools.add, counted(taken), buffersize=buffersize)
    assert len(taken) == buffersize
    for number in range(300):
        assert next(results) == number
        assert len(taken) <= number + 1 + buffersize
    assert list(pool.map(profile_tools.add, range(4), buffersize=buffersize)) == [0, 1, 2, 3]


def test_buffersize_counts_chunks_where_their_size_is_given(pool: Pool) -> None:
    taken: list[int] = []
    results = pool.map(profile_tools.add, counted(taken), chunksize=2, buffersize=3)
    assert len(taken) == 6
    assert [next(results) for _ in range(100)] == list(range(100))
    assert len(taken) <= 100 + 2 * (3 + 1)


def test_results_may_be_read_after_the_shutdown(make_pool: Callable[..., Pool]) -> None:
    with make_pool() as pool:
        unread = pool.map(profile_tools.add, range(1000))
    assert list(unread) == list(range(1000))


def test_a_bounded_map_ends_with_the_pool(make_pool: Callable[..., Pool]) -> None:
    """What it had submitted is read first; then it says why there is no more."""
    with make_pool() as pool:
        bounded = pool.map(profile_tools.add, itertools.count(), buffersize=4)
    assert [next(bounded) for _ in range(4)] == [0, 1, 2, 3]
    with pytest.raises(PoolClosed, match="cannot schedule new futures"):
        next(bounded)
    assert list(bounded) == []


@pytest.mark.parametrize("chunksize", [None, 3])
def test_a_map_whose_results_nobody_takes_is_done(
    make_pool: Callable[..., Pool], tmp_path: Path, chunksize: int | None
) -> None:
    file = tmp_path / "done"

    def note(_: int) -> None:
        with file.open("a") as lines:
            lines.write("x")

    with make_pool() as pool:
        pool.map(note, range(1000), chunksize=chunksize)
    assert len(file.read_text()) == 1000


@pytest.mark.per_profile
@pytest.mark.parametrize("how", ["dropped", "closed"])
def test_a_map_that_is_left_half_read_is_cancelled(
    make_pool: Callable[..., Pool], rendezvous: Rendezvous, events: Watch, how: str
) -> None:
    pool = make_pool(workers=1)
    pool.wait_ready()
    slots = pool.stats()["slots"]
    results = pool.map(profile_tools.visit, [rendezvous.port] * 3 * slots, chunksize=1, buffersize=3 * slots)
    guests = rendezvous.guests(slots)
    for guest in guests:
        guest.let_go("w")
    assert next(results) == "w"
    guests = rendezvous.guests(slots)
    if how == "closed":
        results.close()  # type: ignore[attr-defined]
        assert list(results) == []
    else:
        del results
    events.wait("work_cancelled", pool="made")
    assert pool.stats()["queued"] == 0
    for guest in guests:
        guest.let_go()


def test_results_are_the_callers_alone(pool: Pool) -> None:
    for made in pool.map(profile_tools.make_made, range(10), chunksize=5):
        reference = weakref.ref(made)
        del made
        assert reference() is None


def test_errors_are_the_callers_alone(pool: Pool) -> None:
    results = pool.map(
        profile_tools.raise_it, [profile_tools.Detailed(str(number)) for number in range(3)], chunksize=3
    )
    for _ in range(3):
        with pytest.raises(profile_tools.Detailed) as caught:
            next(results)
        reference = weakref.ref(caught.value)
        del caught
        gc.collect()
        assert reference() is None


def test_work_starts_before_the_first_result_is_asked_for(pool: Pool, rendezvous: Rendezvous) -> None:
    results = pool.map(profile_tools.visit, [rendezvous.port])
    rendezvous.guest().let_go("early")
    assert list(results) == ["early"]


class BrokenOff:
    """Once `breaks`, each seventh reading is broken off, as by a signal's handler; the next one goes on."""

    def __init__(self, count: int) -> None:
        self.breaks = False
        self._left = iter(range(count))
        self._readings = 0

    def __iter__(self) -> Iterator[int]:
        return self

    def __next__(self) -> int:
        self._readings += self.breaks
        if self._readings % 7 == 6:
            self._readings += 1
            raise KeyboardInterrupt
        return next(self._left)


def read_whatever_comes(results: Iterator[int]) -> list[int]:
    read: list[int] = []
    while True:
        try:
            for value in results:
                read.append(value)  # noqa: PERF402 (what comes before the exception counts)
        except KeyboardInterrupt:
            continue
        return read


@pytest.mark.parametrize("options", [{"chunksize": 1}, {"chunksize": 20}, {"buffersize": 4}, {}], ids=str)
def test_what_breaks_off_the_iterable_leaves_no_item_out(pool: Pool, options: dict[str, int]) -> None:
    items = BrokenOff(1_000)
    results = pool.map(profile_tools.add, items, **options)
    items.breaks = True
    assert read_whatever_comes(results) == list(range(1_000))


@pytest.mark.parametrize("options", [{"chunksize": 1}, {"chunksize": 20}, {"buffersize": 4}, {}], ids=str)
def test_what_breaks_off_one_of_several_iterables_leaves_the_rows_whole(pool: Pool, options: dict[str, int]) -> None:
    items = BrokenOff(300)
    results = pool.map(profile_tools.add, range(0, -400, -1), items, **options)
    items.breaks = True
    assert read_whatever_comes(results) == [0] * 300


def test_what_breaks_off_a_shutdown_leaves_no_item_out(make_pool: Callable[..., Pool]) -> None:
    pool, items = make_pool(), BrokenOff(100)
    results = pool.map(profile_tools.add, items, chunksize=3)
    items.breaks = True
    with pytest.raises(KeyboardInterrupt):
        pool.shutdown()
    assert read_whatever_comes(results) == list(range(100))


class SentLate:
    """Comes as 7; its first pickling is broken off."""

    def __init__(self) -> None:
        self._errors: list[BaseException] = [KeyboardInterrupt()]

    def __reduce__(self) -> tuple[Any, ...]:
        if self._errors:
            raise self._errors.pop()
        return int, (7,)


def test_what_breaks_off_the_pickling_is_told(pool: Pool) -> None:
    for attempt in (
        lambda: pool.call(profile_tools.echo, SentLate()),
        lambda: pool.submit(profile_tools.echo, SentLate()),
    ):
        with pytest.raises(KeyboardInterrupt):
            attempt()
    results = pool.map(profile_tools.echo, [*range(100), SentLate(), 101], chunksize=2)
    read: list[int] = []
    with pytest.raises(KeyboardInterrupt):
        read.extend(results)
    assert [*read, *results] == [*range(100), 7, 101]


@pytest.mark.parametrize("bad", BAD)
def test_what_breaks_off_the_search_for_a_bad_item_leaves_no_item_out(pool: Pool, bad: str) -> None:
    items = [*range(20), BAD[bad](), SentLate(), 9, SentLate()]
    results = pool.map(profile_tools.echo, items, chunksize=6, buffersize=2)
    read: list[object] = []
    while len(read) < len(items):
        try:
            read.extend(results)
        except BadArguments:
            read.append("bad")
        except KeyboardInterrupt:
            continue
    assert read == [*range(20), "bad", 7, 9, 7]
    assert list(results) == []


def test_an_error_of_the_iterable_is_the_callers(pool: Pool) -> None:
    def broken(count: int) -> Iterator[int]:
        yield from range(count)
        raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
        pool.map(profile_tools.add, broken(0))
    results = pool.map(profile_tools.add, broken(500))
    assert [next(results) for _ in range(500)] == list(range(500)), "what came before it is not lost"
    with pytest.raises(LookupError, match="mine"):
        next(results)
    assert list(results) == []


@pytest.mark.parametrize("options", [{"chunksize": 0}, {"chunksize": -1}, {"chunksize": 1 << 70}, {"buffersize": 0}])
def test_wrong_sizes(pool: Pool, options: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=next(iter(options))):
        pool.map(profile_tools.add, [1], **options)


def test_a_buffersize_that_is_no_number(pool: Pool) -> None:
    with pytest.raises(TypeError, match="buffersize must be an integer or None"):
        pool.map(profile_tools.add, [1], buffersize=2.0)  # type: ignore[arg-type]


def test_a_chunksize_that_is_no_integer(pool: Pool) -> None:
    with pytest.raises(TypeError, match=r"chunksize must be an integer or None, not 2\.5"):
        pool.map(profile_tools.add, [1], chunksize=2.5)  # type: ignore[arg-type]


def test_two_maps_at_once(pool: Pool) -> None:
    first, second = pool.map(profile_tools.add, range(100), chunksize=3), pool.map(profile_tools.add_async, range(100))
    assert list(zip(first, second, strict=True)) == [(number, number) for number in range(100)]


@pytest.mark.per_profile
def test_without_order_each_item_comes_once(pool: Pool) -> None:
    assert sorted(pool.map(profile_tools.add, range(5000), ordered=False)) == list(range(5000))
    assert len(list(pool.map(profile_tools.add, range(500), ordered=False, buffersize=7))) == 500
    results, read, errors = pool.map(profile_tools.fail_on, range(200), itertools.repeat(77), ordered=False), [], 0
    for _ in range(200):
        try:
            read.append(next(results))
        except ArithmeticError:
            errors += 1
    assert (sorted(read), errors) == ([at for at in range(200) if at != 77], 1)
    assert list(results) == []


def test_progress_is_told_of_each_item(pool: Pool) -> None:
    told: list[int] = []
    assert len(list(pool.map(profile_tools.add, range(1000), progress=told.append))) == 1000
    assert sum(told) == 1000
    with pytest.raises(TypeError, match="progress 5: allowed are True"):
        pool.map(profile_tools.add, [1], progress=5)  # type: ignore[arg-type]
