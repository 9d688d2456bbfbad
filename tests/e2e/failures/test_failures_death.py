"""Failures 25 to 27: a worker that dies fails what it had begun, and nothing else."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import wait
from typing import Any

import harmful_tools
import pytest

from clutch import Pool, WorkerLost
from clutch.testing import Watch
from support.rendezvous import Guest, Rendezvous

pytestmark = pytest.mark.timeout(120)
TOLD_SECONDS_MAX = 0.1
ATTEMPTS = 5
KILLS = 100


def kill(guest: Guest) -> None:
    os.kill(guest.pid, signal.SIGKILL)


DEATHS = [
    (harmful_tools.die_by_segfault, signal.SIGSEGV, None),
    (harmful_tools.die_by_abort, signal.SIGABRT, None),
    (harmful_tools.die_by_own_signal, signal.SIGKILL, None),
    (harmful_tools.die_by_exit, None, 0),
    (harmful_tools.die_by_exit_7, None, 7),
]


@pytest.mark.parametrize(("how", "number", "code"), DEATHS, ids=[how.__name__ for how, *_ in DEATHS])
@pytest.mark.parametrize("profile", ["process", "thread", "async"])
def test_failure_25_the_ways_of_dying(
    rendezvous: Rendezvous, profile: str, how: Callable[[], None], number: int | None, code: int | None
) -> None:
    with Pool("harmful_tools", profile=profile, workers=1) as pool:
        future = pool.submit("visit_then_die", rendezvous.port, how)
        guest = rendezvous.guest()
        guest.let_go()
        error = future.exception(30)
        assert isinstance(error, WorkerLost)
        assert (error.pid, error.signal, error.exit_code) == (guest.pid, number, code)
        assert str(guest.pid) in str(error)
        assert pool.submit("echo", 1).result(30) == 1


def test_failure_25_sigkill_from_outside(rendezvous: Rendezvous, events: Watch) -> None:
    with Pool("harmful_tools", workers=3) as pool:
        pool.wait_ready(timeout=60)
        futures = [pool.submit("visit", rendezvous.port, str(number)) for number in range(3)]
        guests = rendezvous.guests(3)
        queued = [pool.submit("echo", number) for number in range(100)]
        kill(guests[1])
        lost = futures[int(guests[1].word)]
        error = lost.exception(30)
        assert isinstance(error, WorkerLost) and error.signal == signal.SIGKILL and error.pid == guests[1].pid
        guests[0].let_go("kept"), guests[2].let_go("kept")
        assert [future.result(30) for future in futures if future is not lost] == ["kept"] * 2
        assert [future.result(30) for future in queued] == list(range(100))
        assert len(events.all("work_lost", pool="pool")) == 1
        events.wait("worker_gone", pid=guests[1].pid)
        pool.wait_ready(timeout=30)
        assert pool.stats()["restarts"] == 1


def test_failure_25_blocking_callers_are_told_too(rendezvous: Rendezvous) -> None:
    outcomes: list[BaseException] = []

    def call() -> None:
        try:
            pool.call("visit", rendezvous.port)
        except BaseException as error:
            outcomes.append(error)

    with Pool("harmful_tools", workers=2) as pool:
        threads = [threading.Thread(target=call) for _ in range(2)]
        for thread in threads:
            thread.start()
        for guest in rendezvous.guests(2):
            kill(guest)
        for thread in threads:
            thread.join(30)
        assert [type(error) for error in outcomes] == [WorkerLost] * 2
        assert pool.submit("echo", 1).result(30) == 1


def test_failure_25_told_in_time_and_replaced_in_time(rendezvous: Rendezvous, events: Watch) -> None:
    """The best of some attempts: what a busy machine adds is not the pool's."""
    told, replaced = [], []
    with Pool("harmful_tools", workers=2) as pool:
        pool.wait_ready(timeout=60)
        for _ in range(2):
            events.wait("worker_ready")
        for _ in range(ATTEMPTS):
            future = pool.submit("visit", rendezvous.port)
            guest = rendezvous.guest()
            killed_at = time.monotonic()
            kill(guest)
            assert isinstance(future.exception(30), WorkerLost)
            told.append(time.monotonic() - killed_at)
            events.wait("worker_ready", pool="pool")
            replaced.append(time.monotonic() - killed_at)
        loaded_in, pid = pool.call("where_loaded")
        assert loaded_in == pool.stats()["zygote_pid"] != pid, "what the module made is there already"
    assert min(told) < TOLD_SECONDS_MAX, told
    assert min(replaced) < TOLD_SECONDS_MAX, replaced


@pytest.mark.parametrize(
    "shape",
    [
        {"profile": "thread", "workers": 2, "threads": 4},
        {"profile": "async", "workers": 2, "tasks": 4},
        {"profile": "greenlet", "workers": 2, "tasks": 4},
    ],
    ids=lambda shape: shape["profile"],
)
def test_failure_26_exactly_those_in_flight_fail_once_each(
    rendezvous: Rendezvous, events: Watch, shape: dict[str, Any]
) -> None:
    if shape["profile"] == "greenlet":
        pytest.importorskip("gevent")
    told: list[int] = []
    with Pool("harmful_tools", **shape) as pool:
        pool.wait_ready(timeout=60)
        futures = [pool.submit("visit", rendezvous.port, str(number)) for number in range(8)]
        for number, future in enumerate(futures):
            future.add_done_callback(lambda _, number=number: told.append(number))
        guests = rendezvous.guests(8)
        queued = [pool.submit("echo", number) for number in range(100)]
        victim = guests[0].pid
        in_flight = {int(guest.word) for guest in guests if guest.pid == victim}
        assert len(in_flight) == 4
        os.kill(victim, signal.SIGKILL)
        lost, others = [], []
        for number, future in enumerate(futures):
            (lost if number in in_flight else others).append(future)
        for future in lost:
            error = future.exception(30)
            assert isinstance(error, WorkerLost) and error.pid == victim and error.signal == signal.SIGKILL
        for guest in guests:
            guest.let_go("kept")
        assert [future.result(30) for future in others] == ["kept"] * 4
        assert [future.result(30) for future in queued] == list(range(100))
        assert len(events.all("work_lost", pool="pool")) == 4
    assert sorted(told) == list(range(8))


@pytest.mark.parametrize("victims", [KILLS])
def test_failure_27_many_kills_under_load(rendezvous: Rendezvous, victims: int) -> None:
    """A hundred SIGKILLs while four callers never pause: no other call fails, and the pool has its size again."""
    stop = threading.Event()
    counts: list[int] = []
    failures: list[BaseException] = []

    def load(pool: Pool) -> None:
        count = 0
        try:
            while not stop.is_set():
                futures = [pool.submit("echo", number) for number in range(40)]
                assert pool.call("echo", count) == count
                assert list(pool.map("echo", range(20), chunksize=5)) == list(range(20))
                assert [future.result(60) for future in futures] == list(range(40))
                count += 61
        except BaseException as error:
            failures.append(error)
        counts.append(count)

    with Pool("harmful_tools", workers=4) as pool:
        pool.wait_ready(timeout=60)
        callers = [threading.Thread(target=load, args=(pool,)) for _ in range(4)]
        for caller in callers:
            caller.start()
        for _ in range(victims):
            # A worker that runs nothing but this call is killed, so that all others must succeed.
            future = pool.submit("visit", rendezvous.port)
            kill(rendezvous.guest())
            error = future.exception(30)
            assert isinstance(error, WorkerLost) and error.signal == signal.SIGKILL
        stop.set()
        for caller in callers:
            caller.join(60)
        assert failures == []
        assert len(counts) == 4 and all(counts)
        pool.wait_ready(timeout=30)
        assert pool.stats()["restarts"] == victims
        assert pool.stats()["failed"] == victims


def test_a_worker_killed_while_idle_costs_nobody_anything(events: Watch) -> None:
    with Pool("harmful_tools", name="idle", workers=2) as pool:
        pool.wait_ready(timeout=60)
        for _ in range(20):
            pids = [worker["pid"] for worker in pool.stats()["workers"]]
            for pid in pids:
                os.kill(pid, signal.SIGKILL)
            assert pool.submit("echo", 1).result(30) == 1
            for pid in pids:
                events.wait("worker_gone", pid=pid)
            pool.wait_ready(timeout=30)
        assert events.all("work_lost", pool="idle") == []


def test_large_payloads_of_a_killed_worker_are_free_again(rendezvous: Rendezvous) -> None:
    before = len(os.listdir("/proc/self/fd"))
    with Pool("harmful_tools", workers=1) as pool:
        for _ in range(10):
            future = pool.submit("visit", rendezvous.port, "x" * 50_000)
            guest = rendezvous.guest()
            queued = [pool.submit("echo", bytes(1 << 20)) for _ in range(5)]
            kill(guest)
            assert isinstance(future.exception(30), WorkerLost)
            assert not wait(queued, 30).not_done
            assert all(future.result() == bytes(1 << 20) for future in queued)
        assert len(os.listdir("/proc/self/fd")) < before + 60
