"""Failures 28, 29 and 52: work past its deadline, and workers that are stopped."""

from __future__ import annotations

import os
import signal
import time
from concurrent.futures import wait

import pytest

from clutch import DeadlineExceeded, Pool, WorkerLost
from clutch.testing import Watch
from rendezvous import Rendezvous

pytestmark = pytest.mark.timeout(120)
DEADLINE_SECONDS = 0.5
TOLERANCE_SECONDS = 0.05
ATTEMPTS = 4
STUCK_CALLS = 100


@pytest.mark.parametrize("busy", ["spin_long", "sleep_long", "hold_the_gil"])
@pytest.mark.parametrize("profile", ["process", "thread"])
def test_failure_28_the_caller_is_told_at_the_deadline(rendezvous: Rendezvous, profile: str, busy: str) -> None:
    """The best of some attempts: what a busy machine adds is not the pool's."""
    late = []
    with Pool("harmful", profile=profile, workers=1, grace=0.1) as pool:
        pool.wait_ready(timeout=60)
        for _ in range(ATTEMPTS):
            started = time.monotonic()
            future = pool.options(deadline=DEADLINE_SECONDS).submit(busy, rendezvous.port)
            guest = rendezvous.guest()
            with pytest.raises(DeadlineExceeded) as caught:
                future.result(30)
            late.append(time.monotonic() - started - DEADLINE_SECONDS)
            assert caught.value.where == "running"
            guest.wait_gone()
            assert pool.submit("echo", 1).result(30) == 1
    assert all(seconds > -0.005 for seconds in late), "never before"
    assert min(late) < TOLERANCE_SECONDS, late


def test_failure_28_a_hundred_stuck_calls_never_shrink_the_pool(rendezvous: Rendezvous) -> None:
    with Pool("harmful", workers=2, grace=0.1) as pool:
        pool.wait_ready(timeout=60)
        limited = pool.options(deadline=0.05)
        stuck = [limited.submit("hold_the_gil", rendezvous.port) for _ in range(STUCK_CALLS)]
        assert not wait(stuck, 60).not_done
        assert {type(future.exception()) for future in stuck} == {DeadlineExceeded}
        visits = [pool.submit("visit", rendezvous.port, "free") for _ in range(2)]
        free = 0
        while free < 2:
            guest = rendezvous.guest()
            free += guest.word == "free"
            guest.let_go()
        assert not wait(visits, 30).not_done
        assert all(future.exception() is None for future in visits)


def test_failure_29_a_late_reply_is_never_anothers() -> None:
    with Pool("harmful", workers=2, grace=0.1) as pool:
        pool.wait_ready(timeout=60)
        futures = {}
        for number in range(2000):
            deadline = 0.0005 * (number % 7) + 0.0001
            futures[pool.options(deadline=deadline).submit("echo", number)] = number
            if number % 10 == 0:
                assert pool.submit("echo", -number).result(30) == -number
        assert not wait(futures, 60).not_done
        for future, number in futures.items():
            error = future.exception()
            assert isinstance(error, DeadlineExceeded) or future.result() == number


def test_failure_52_a_stopped_worker_gets_nothing_and_goes_on(rendezvous: Rendezvous, events: Watch) -> None:
    with Pool("harmful", workers=2) as pool:
        pool.wait_ready(timeout=60)
        for future in [pool.submit("visit_or_not", None) for _ in range(1000)]:
            future.result(30)
        running = pool.submit("visit", rendezvous.port)
        busy = rendezvous.guest()
        idle = next(worker["pid"] for worker in pool.stats()["workers"] if worker["pid"] != busy.pid)
        os.kill(busy.pid, signal.SIGSTOP)
        events.wait("worker_stopped", pool="pool", pid=busy.pid)
        others = [pool.submit("visit_or_not", None) for _ in range(200)]
        assert not wait(others, 30).not_done
        assert {future.result() for future in others} == {idle}
        os.kill(busy.pid, signal.SIGCONT)
        events.wait("worker_continued", pool="pool", pid=busy.pid)
        busy.let_go("went on")
        assert running.result(30) == "went on"
        assert pool.stats()["restarts"] == 0


def test_failure_52_all_stopped_then_all_go_on(events: Watch) -> None:
    with Pool("harmful", name="stopped", workers=2) as pool:
        pool.wait_ready(timeout=60)
        pids = [worker["pid"] for worker in pool.stats()["workers"]]
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        for pid in pids:
            events.wait("worker_stopped", pid=pid)
        waiting = [pool.submit("echo", number) for number in range(50)]
        assert pool.stats()["queued"] == 50
        for pid in pids:
            os.kill(pid, signal.SIGCONT)
        assert [future.result(30) for future in waiting] == list(range(50))
        assert events.all("worker_gone", pool="stopped") == []


def test_failure_52_a_worker_that_stays_stopped_is_replaced(rendezvous: Rendezvous, events: Watch) -> None:
    with Pool("harmful", workers=1, stopped_limit=0.2) as pool:
        future = pool.submit("visit", rendezvous.port)
        guest = rendezvous.guest()
        os.kill(guest.pid, signal.SIGSTOP)
        with pytest.raises(WorkerLost, match="stopped"):
            future.result(30)
        guest.wait_gone()
        assert pool.submit("echo", 1).result(30) == 1


def test_failure_52_a_stopped_worker_past_a_deadline_is_replaced(rendezvous: Rendezvous) -> None:
    with Pool("harmful", workers=1, grace=0.1) as pool:
        pool.wait_ready(timeout=60)
        future = pool.options(deadline=0.6).submit("visit", rendezvous.port)
        guest = rendezvous.guest()
        os.kill(guest.pid, signal.SIGSTOP)
        with pytest.raises(DeadlineExceeded):
            future.result(30)
        guest.wait_gone()
        assert pool.submit("echo", 1).result(30) == 1
