"""Failures 6 and 55: how workers are ended that do not end by themselves, and what that costs those beside them."""

from __future__ import annotations

import signal
import time
from typing import Any

import pytest

from clutch import DeadlineExceeded, Pool, WorkerLost
from clutch.testing import Processes, Watch
from support.rendezvous import Rendezvous

pytestmark = pytest.mark.timeout(120)
BEYOND_GRACE_SECONDS_MAX = 1.0


@pytest.mark.parametrize(
    ("grace", "cause"), [(0.0, "the pool was stopped"), (0.3, "the pool was stopped and the grace was over")]
)
def test_failure_06_a_stop_ends_workers_that_ignore_term(rendezvous: Rendezvous, grace: float, cause: str) -> None:
    with Pool("harmful_tools", workers=4) as pool:
        futures = [pool.submit("ignore_term", rendezvous.port) for _ in range(4)]
        guests = rendezvous.guests(4)
        with Processes([pool.stats()["zygote_pid"], *(guest.pid for guest in guests)]) as processes:
            started = time.monotonic()
            pool._stop(grace)
            assert pool._wait_closed(30)
            took = time.monotonic() - started
            assert grace <= took <= grace + BEYOND_GRACE_SECONDS_MAX
            assert processes.alive() == []
        for future in futures:
            error = future.exception(0)
            assert isinstance(error, WorkerLost) and error.signal == signal.SIGKILL
            assert error.cause == cause and cause in str(error)


def test_work_that_could_run_again_is_lost_with_the_pool(rendezvous: Rendezvous) -> None:
    """It had begun: that the pool is closed would say that it had not."""
    with Pool("harmful_tools", workers=2) as pool:
        futures = [pool.options(retry=3).submit("visit", rendezvous.port) for _ in range(2)]
        rendezvous.guests(2)
        pool.kill_workers()
        assert {type(future.exception(30)) for future in futures} == {WorkerLost}


def test_failure_06_term_is_heeded_by_code_that_heeds_it(rendezvous: Rendezvous) -> None:
    with Pool("harmful_tools", workers=2, term_grace=30) as pool:
        futures = [pool.submit("exit_at_term", rendezvous.port) for _ in range(2)]
        rendezvous.guests(2)
        pool._stop(0.1)
        assert [future.exception(30).exit_code for future in futures] == [5, 5]  # type: ignore[union-attr]


def test_failure_06_terminating_the_workers_is_term_first(rendezvous: Rendezvous) -> None:
    with Pool("harmful_tools", workers=2, term_grace=0.2) as pool:
        heeds = pool.submit("exit_at_term", rendezvous.port)
        ignores = pool.submit("ignore_term", rendezvous.port)
        rendezvous.guests(2)
        pool.terminate_workers()
        ends = [future.exception(30) for future in (heeds, ignores)]
        assert isinstance(ends[0], WorkerLost) and ends[0].exit_code == 5
        assert isinstance(ends[1], WorkerLost) and ends[1].signal == signal.SIGKILL


def test_failure_06_killing_the_workers_is_kill_at_once(rendezvous: Rendezvous) -> None:
    with Pool("harmful_tools", workers=1) as pool:
        heeds = pool.submit("exit_at_term", rendezvous.port)
        rendezvous.guest()
        pool.kill_workers()
        error = heeds.exception(30)
        assert isinstance(error, WorkerLost) and error.signal == signal.SIGKILL
        assert error.cause == "the pool was stopped"


@pytest.mark.parametrize(("tool", "how"), [("exit_at_term", "code 5"), ("ignore_term", "SIGKILL")])
def test_failure_06_a_call_that_does_not_stop_costs_its_worker(
    rendezvous: Rendezvous, events: Watch, tool: str, how: str
) -> None:
    with Pool("harmful_tools", workers=1, interrupt_grace=0.1, term_grace=0.2) as pool:
        pool.wait_ready()  # the deadline is for the call, not for the start
        future = pool.options(deadline=0.5).submit(tool, rendezvous.port)
        guest = rendezvous.guest()
        with pytest.raises(DeadlineExceeded):
            future.result(30)
        # The next worker is there while the old one may still ignore what it is told.
        assert pool.submit("echo", 1).result(30) == 1
        gone = events.wait("worker_gone", pid=guest.pid)
        assert how in gone["cause"] and "past its deadline" in gone["cause"]


SHARED = pytest.mark.parametrize(
    "shape",
    [{"profile": "thread", "workers": 1, "threads": 2}, {"profile": "async", "workers": 1, "tasks": 2}],
    ids=lambda shape: shape["profile"],
)


@SHARED
def test_failure_55_neighbours_of_a_stuck_call_end_in_peace(
    rendezvous: Rendezvous, events: Watch, shape: dict[str, Any]
) -> None:
    with Pool("harmful_tools", **shape, interrupt_grace=0.1) as pool:
        neighbour = pool.submit("visit", rendezvous.port)
        guest = rendezvous.guest()
        stuck = pool.options(deadline=0.5).submit("sleep_long", rendezvous.port)
        with pytest.raises(DeadlineExceeded):
            stuck.result(30)
        while events.wait("worker_ready", pool="pool")["pid"] == guest.pid:
            pass
        events.wait("worker_draining", pid=guest.pid)
        assert pool.submit("echo", 1).result(30) == 1
        guest.let_go("kept")
        assert neighbour.result(30) == "kept"
        pool.kill_workers()


@SHARED
def test_failure_55_neighbours_that_do_not_end_are_told_why(rendezvous: Rendezvous, shape: dict[str, Any]) -> None:
    with Pool("harmful_tools", **shape, grace=0.3, interrupt_grace=0.1, term_grace=0.2) as pool:
        neighbour = pool.submit("visit", rendezvous.port)
        rendezvous.guest()
        stuck = pool.options(deadline=0.5).submit("sleep_long", rendezvous.port)
        with pytest.raises(DeadlineExceeded):
            stuck.result(30)
        with pytest.raises(WorkerLost, match="deadline") as caught:
            neighbour.result(30)
        assert "past its deadline" in (caught.value.cause or "")
        assert pool.submit("echo", 1).result(30) == 1
