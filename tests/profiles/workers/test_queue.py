"""The waiting line: deadlines, priorities, cancelling, limits; failures 17, 19 and 20 over every profile."""

from __future__ import annotations

import concurrent.futures
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from clutch import DeadlineExceeded, Overloaded, Pool
from clutch.testing import Watch
from support.rendezvous import Guest, Rendezvous


@contextmanager
def full(pool: Pool, rendezvous: Rendezvous) -> Iterator[list[Guest]]:
    """Every slot has a call that waits to be let go."""
    pool.wait_ready(timeout=60)
    held = [pool.submit("visit", rendezvous.port) for _ in range(pool.stats()["slots"])]
    guests = rendezvous.guests(len(held))
    yield guests
    for guest in guests:
        guest.let_go()
    for future in held:
        future.result(30)


@pytest.mark.per_profile
def test_first_in_first_out(make_pool: Callable[..., Pool], rendezvous: Rendezvous) -> None:
    pool = make_pool(workers=1)
    with full(pool, rendezvous) as guests:
        futures = [pool.submit("visit", rendezvous.port, str(number)) for number in range(30)]
        for number in range(30):
            guests[-1].let_go()
            guests.append(rendezvous.guest())
            assert guests[-1].word == str(number)
    for future in futures:
        future.result(30)


def test_larger_priorities_first(make_pool: Callable[..., Pool], rendezvous: Rendezvous) -> None:
    pool = make_pool(workers=1)
    with full(pool, rendezvous) as guests:
        for at, priority in enumerate([0, -9, 9, 3, 0, 9, -1]):
            pool.options(priority=priority).submit("visit", rendezvous.port, f"{priority} {at}")
        order = []
        for _ in range(7):
            guests[-1].let_go()
            guests.append(rendezvous.guest())
            order.append(guests[-1].word)
    assert order == ["9 2", "9 5", "3 3", "0 0", "0 4", "-1 6", "-9 1"]


@pytest.mark.parametrize("priority", [-10, 10, 1000])
def test_priorities_have_bounds(pool: Pool, priority: int) -> None:
    with pytest.raises(ValueError, match="priority"):
        pool.options(priority=priority)


@pytest.mark.per_profile
def test_failure_17_cancelled_while_queued_never_runs(pool: Pool, rendezvous: Rendezvous, events: Watch) -> None:
    with full(pool, rendezvous):
        futures = [pool.submit("visit", rendezvous.port, "never") for _ in range(20)]
        assert all(future.cancel() for future in futures)
        assert all(future.cancelled() and future.done() and not future.running() for future in futures)
        assert all(future.cancel() for future in futures), "twice is harmless"
        with pytest.raises(concurrent.futures.CancelledError):
            futures[0].result()
        with pytest.raises(concurrent.futures.CancelledError):
            futures[0].exception()
        assert pool.stats()["queued"] == 0
        assert len(events.all("work_cancelled", pool=pool.name)) == 20
    assert pool.submit("add", 1).result(30) == 1
    assert rendezvous.nobody_waits()


def test_what_is_done_is_not_cancelled(pool: Pool) -> None:
    future = pool.submit("add", 1)
    assert future.result(30) == 1
    assert not future.cancel() and not future.cancelled() and not future.running()


@pytest.mark.per_profile
def test_deadline_in_the_queue(pool: Pool, rendezvous: Rendezvous, events: Watch) -> None:
    with full(pool, rendezvous):
        future = pool.options(deadline=0.01).submit("visit", rendezvous.port, "never")
        with pytest.raises(DeadlineExceeded) as caught:
            future.result(30)
        assert caught.value.where == "queue"
        assert isinstance(caught.value, TimeoutError)
        with pytest.raises(DeadlineExceeded):
            pool.options(deadline=0.0).call("visit", rendezvous.port, "never")
        events.wait("work_expired", pool=pool.name, at="queue")
        assert pool.stats()["queued"] == 0
    assert pool.submit("add", 1).result(30) == 1
    assert rendezvous.nobody_waits()


def test_deadline_of_the_pool(make_pool: Callable[..., Pool], rendezvous: Rendezvous) -> None:
    pool = make_pool(deadline=60)
    with full(pool, rendezvous):
        assert not pool.submit("add", 1).done()
        with pytest.raises(DeadlineExceeded):
            pool.options(deadline=0.01).call("add", 1)


@pytest.mark.per_profile
def test_deadline_while_running(make_pool: Callable[..., Pool], rendezvous: Rendezvous) -> None:
    """What becomes of the code is in test_stopping.py; the slot comes back in any case."""
    pool = make_pool(workers=1, grace=0.1)
    pool.wait_ready(timeout=60)
    future = pool.options(deadline=0.6).submit("visit", rendezvous.port)
    guest = rendezvous.guest()
    with pytest.raises(DeadlineExceeded) as caught:
        future.result(30)
    assert caught.value.where == "running"
    guest.wait_gone()
    visits = [pool.submit("visit", rendezvous.port) for _ in range(pool.stats()["slots"])]
    for guest in rendezvous.guests(len(visits)):
        guest.let_go("came")
    assert [visit.result(30) for visit in visits] == ["came"] * len(visits)


@pytest.mark.per_profile
def test_a_blocking_call_past_its_deadline(make_pool: Callable[..., Pool], rendezvous: Rendezvous) -> None:
    pool = make_pool(workers=1, grace=0.1)
    pool.wait_ready(timeout=60)
    with pytest.raises(DeadlineExceeded) as caught:
        pool.options(deadline=0.6).call("visit", rendezvous.port)
    assert caught.value.where == "running"
    assert pool.submit("add", 1).result(30) == 1


@pytest.mark.per_profile
def test_a_stream_past_its_deadline(make_pool: Callable[..., Pool], rendezvous: Rendezvous) -> None:
    pool = make_pool(workers=1, grace=0.1)
    pool.wait_ready(timeout=60)
    stream = pool.options(deadline=0.8).stream("visits", rendezvous.port, 3)
    rendezvous.guest().let_go()
    assert next(stream) == 0
    with pytest.raises(DeadlineExceeded):
        next(stream)
    assert pool.submit("add", 1).result(30) == 1


def test_a_deadline_that_is_kept(pool: Pool) -> None:
    assert pool.options(deadline=60).call("add", 1) == 1
    assert [pool.options(deadline=60).submit("add", number).result(30) for number in range(50)] == list(range(50))


def test_wrong_deadlines(pool: Pool) -> None:
    for deadline in (-1.0, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="deadline"):
            pool.options(deadline=deadline)


def test_a_result_that_is_not_there_in_time(pool: Pool, rendezvous: Rendezvous) -> None:
    future = pool.submit("visit", rendezvous.port)
    guest = rendezvous.guest()
    for wait in (future.result, future.exception):
        with pytest.raises(TimeoutError):
            wait(0.01)
        with pytest.raises(TimeoutError):
            wait(timeout=0)
    guest.let_go("late")
    assert future.result(30) == "late"


def test_failure_19_a_full_queue_refuses(make_pool: Callable[..., Pool], rendezvous: Rendezvous) -> None:
    pool = make_pool(queue={"limit": 5})
    with full(pool, rendezvous):
        accepted = [pool.submit("add", number) for number in range(5)]
        for refused in (lambda: pool.submit("add", 1).result(30), lambda: pool.call("add", 1)):
            with pytest.raises(Overloaded) as caught:
                refused()
            assert caught.value.pool == "made" and caught.value.retry_after is not None
        with pytest.raises(Overloaded):
            list(pool.stream("count", 3))
        # One that goes makes room for one.
        assert accepted[2].cancel()
        accepted[2] = pool.submit("add", 2)
    assert [future.result(30) for future in accepted] == list(range(5))
    assert pool.submit("add", 1).result(30) == 1


def test_map_waits_for_room(make_pool: Callable[..., Pool]) -> None:
    pool = make_pool(queue={"limit": 1})
    assert list(pool.map("add", range(300), chunksize=1)) == list(range(300))


def test_a_full_queue_that_blocks(make_pool: Callable[..., Pool], rendezvous: Rendezvous) -> None:
    pool = make_pool(queue={"limit": 2, "overflow": "block"})
    submitted = threading.Semaphore(0)
    futures: list[concurrent.futures.Future[int]] = []

    def submit_all() -> None:
        for number in range(4):
            futures.append(pool.submit("add", number))
            submitted.release()

    with full(pool, rendezvous):
        thread = threading.Thread(target=submit_all)
        thread.start()
        assert submitted.acquire(timeout=30) and submitted.acquire(timeout=30)
        assert not submitted.acquire(timeout=0.05), "the third waits for room"
        assert pool.stats()["queued"] == 2
    thread.join(30)
    assert [future.result(30) for future in futures] == [0, 1, 2, 3]


def test_options_may_block_where_the_pool_rejects(make_pool: Callable[..., Pool], rendezvous: Rendezvous) -> None:
    pool = make_pool(queue={"limit": 1})
    with concurrent.futures.ThreadPoolExecutor(1) as thread, full(pool, rendezvous):
        queued = pool.submit("add", 1)
        waiting = thread.submit(lambda: pool.options(block=True).call("add", 2))
        with pytest.raises(TimeoutError):
            waiting.result(0.05)
        assert queued.cancel()
    assert waiting.result(30) == 2, "it took the room that was made"


@pytest.mark.per_profile
def test_retry_runs_the_work_again_when_its_worker_dies(make_pool: Callable[..., Pool], rendezvous: Rendezvous) -> None:
    pool = make_pool(workers=1)
    pool.wait_ready(timeout=60)
    future = pool.options(retry=1).submit("visit", rendezvous.port)
    first = rendezvous.guest()
    os.kill(first.pid, signal.SIGKILL)
    second = rendezvous.guest()
    assert second.pid != first.pid
    second.let_go("second")
    assert future.result(30) == "second"
