"""Failures 28, 29 and 52: work past its deadline, and workers that are stopped."""

from __future__ import annotations

import os
import signal
import time
from concurrent.futures import wait
from typing import Any

import pytest

from clutch import DeadlineExceeded, Pool, WorkerLost
from clutch.testing import Watch
from support.rendezvous import Rendezvous

pytestmark = pytest.mark.timeout(120)
DEADLINE_SECONDS = 0.5
TOLERANCE_SECONDS = 0.05
ATTEMPTS = 4
STUCK_CALLS = 100


@pytest.mark.parametrize("busy", ["spin_long", "sleep_long", "without_the_gil", "hold_the_gil"])
@pytest.mark.parametrize("profile", ["process", "thread", "async", "greenlet"])
def test_failure_28_the_caller_is_told_at_the_deadline(rendezvous: Rendezvous, profile: str, busy: str) -> None:
    """The best of some attempts: what a busy machine adds is not the pool's."""
    if profile == "greenlet":
        pytest.importorskip("gevent")
    late: list[float] = []
    with Pool("harmful_tools", profile=profile, workers=1, grace=0.1, interrupt_grace=0.2, term_grace=0.2) as pool:
        pool.wait_ready(timeout=60)
        while len(late) < ATTEMPTS and not any(seconds < TOLERANCE_SECONDS for seconds in late):
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


@pytest.mark.parametrize(
    "shape",
    [
        {"profile": "process", "workers": 20},
        {"profile": "thread", "workers": 4, "threads": 5},
        {"profile": "async", "workers": 1, "tasks": 20},
        {"profile": "greenlet", "workers": 20, "tasks": 1},
    ],
    ids=lambda shape: shape["profile"],
)
def test_failure_28_a_hundred_stuck_calls_never_shrink_the_pool(
    rendezvous: Rendezvous, events: Watch, shape: dict[str, Any]
) -> None:
    """All slots at a time get stuck in code that no exception reaches, over and over."""
    if shape["profile"] == "greenlet":
        pytest.importorskip("gevent")
    ends = {"grace": 0.05, "interrupt_grace": 0.05, "term_grace": 0.05, "restarts_max": STUCK_CALLS}
    with Pool("harmful_tools", **shape, **ends) as pool:
        pool.wait_ready(timeout=60)
        slots = pool.stats()["slots"]
        for _ in range(STUCK_CALLS // slots):
            stuck = [pool.options(deadline=1.0).submit("stick", rendezvous.port) for _ in range(slots)]
            guests = rendezvous.guests(slots)
            for future in stuck:
                error = future.exception(30)
                assert isinstance(error, DeadlineExceeded) and error.where == "running"
            for pid in {guest.pid for guest in guests}:
                events.wait("worker_gone", pid=pid)
            pool.wait_ready(timeout=30)
            assert pool.stats()["slots"] == slots
        visits = [pool.submit("visit", rendezvous.port) for _ in range(slots)]
        for guest in rendezvous.guests(slots):
            guest.let_go("free")
        assert [future.result(30) for future in visits] == ["free"] * slots


@pytest.mark.parametrize("profile", ["process", "thread", "async", "greenlet"])
def test_failure_29_a_late_reply_is_never_anothers(profile: str) -> None:
    if profile == "greenlet":
        pytest.importorskip("gevent")
    with Pool("harmful_tools", profile=profile, workers=2, grace=0.1) as pool:
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
    with Pool("harmful_tools", workers=2) as pool:
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
    with Pool("harmful_tools", name="stopped", workers=2) as pool:
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
    with Pool("harmful_tools", workers=1, stopped_limit=0.2) as pool:
        future = pool.submit("visit", rendezvous.port)
        guest = rendezvous.guest()
        os.kill(guest.pid, signal.SIGSTOP)
        with pytest.raises(WorkerLost, match="stopped"):
            future.result(30)
        guest.wait_gone()
        assert pool.submit("echo", 1).result(30) == 1


def test_failure_52_a_stopped_worker_past_a_deadline_is_replaced(rendezvous: Rendezvous) -> None:
    with Pool("harmful_tools", workers=1, grace=0.1) as pool:
        pool.wait_ready(timeout=60)
        future = pool.options(deadline=0.6).submit("visit", rendezvous.port)
        guest = rendezvous.guest()
        os.kill(guest.pid, signal.SIGSTOP)
        with pytest.raises(DeadlineExceeded):
            future.result(30)
        guest.wait_gone()
        assert pool.submit("echo", 1).result(30) == 1
