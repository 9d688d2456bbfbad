"""Failure 37: a pool with a range of workers grows while work waits and shrinks when it is idle."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import memory_tools
import pytest

from clutch import Pool
from clutch.testing import Processes, Watch
from support.rendezvous import Rendezvous

pytestmark = pytest.mark.timeout(120)
MB = 1 << 20
MOST = 4
QUICK = {"workers": {"min": 1, "max": MOST}, "scale": {"delay": "20ms", "idle": "500ms"}}


@contextmanager
def elastic(name: str, **options: Any) -> Iterator[Pool]:
    """A pool of quick decisions. When the test fails, nobody waits for the guests that it holds."""
    with Pool("memory_tools", name=name, **{**QUICK, **options}) as pool:
        try:
            yield pool
        except BaseException:
            pool.terminate_workers()
            raise


def test_failure_37_one_to_many_and_back(rendezvous: Rendezvous, events: Watch) -> None:
    with elastic("range") as pool:
        pool.wait_ready(timeout=60)
        assert (pool.stats()["ready"], pool.stats()["target"]) == (1, 1)
        visits = [pool.submit("visit", rendezvous.port) for _ in range(3 * MOST)]
        guests = rendezvous.guests(MOST)
        assert len({guest.pid for guest in guests}) == MOST
        assert pool.stats()["target"] == MOST, "though more waits"
        for _ in range(2 * MOST):
            guests.pop(0).let_go()
            guests.append(rendezvous.guest())
        assert events.all("worker_draining", pool="range") == [], "never while work waits"
        with Processes({guest.pid for guest in guests}) as workers:
            for guest in guests:
                guest.let_go()
            assert {visit.result(30) for visit in visits} == set(workers.pids)
            events.wait("pool_scaled", pool="range", to=1)
            events.until(lambda: len(pool.stats()["workers"]) == 1)
            assert len(workers.alive()) == 1
        scaled = events.all("pool_scaled", pool="range")
        sizes = [scaled[0]["from"], *(change["to"] for change in scaled)]
        assert max(sizes) == MOST and sizes[sizes.index(MOST) :] == [4, 3, 2, 1], "up at once, down one by one"
        assert sizes[: sizes.index(MOST)] == sorted(sizes[: sizes.index(MOST)])
        for gone in events.all("worker_draining", pool="range"):
            assert gone["reason"] == "surplus"
        assert (pool.stats()["failed"], pool.stats()["restarts"]) == (0, 0)


def test_failure_37_running_work_keeps_its_worker(rendezvous: Rendezvous, events: Watch) -> None:
    """The idle ones leave; one that is told to leave while it runs something finishes that."""
    with elastic("busy") as pool:
        visits = [pool.submit("visit", rendezvous.port) for _ in range(MOST)]
        guests = rendezvous.guests(MOST)
        events.wait("pool_scaled", pool="busy", to=MOST)
        kept, others = guests[0], guests[1:]
        for guest in others:
            guest.let_go()
        events.wait("pool_scaled", pool="busy", to=1)
        events.until(lambda: [worker["pid"] for worker in pool.stats()["workers"]] == [kept.pid])
        kept.let_go()
        assert {visit.result(30) for visit in visits} == {guest.pid for guest in guests}
        assert pool.call("leak", 0)[0] == kept.pid


def test_failure_37_a_worker_that_dies_is_replaced_within_the_target(rendezvous: Rendezvous, events: Watch) -> None:
    with elastic("dying", scale={"delay": "20ms", "idle": "1h"}) as pool:
        visits = [pool.submit("visit", rendezvous.port) for _ in range(2 * MOST)]
        guests = rendezvous.guests(MOST)
        with Processes([guests[0].pid]) as victim:
            victim.send(signal.SIGKILL)
            events.wait("worker_gone", pid=guests[0].pid)
        guests += rendezvous.guests(1)
        assert pool.stats()["target"] == MOST
        for guest in guests:
            guest.let_go()
        for _ in range(MOST - 1):
            rendezvous.guest().let_go()
        assert sum(visit.exception(30) is not None for visit in visits) == 1


def test_a_pool_grows_only_as_far_as_memory_allows(rendezvous: Rendezvous, events: Watch) -> None:
    size = 20 * MB
    initializer = memory_tools.leak
    with elastic("budget", initializer=initializer, initargs=(size,), memory_max=3 * size) as pool:
        pool.wait_ready(timeout=60)
        visits = [pool.submit("visit", rendezvous.port) for _ in range(2 * MOST)]
        guests = rendezvous.guests(2)
        for _ in range(2 * MOST - 2):
            assert rendezvous.nobody_waits()
            guests.pop(0).let_go()
            guests.append(rendezvous.guest())
        for guest in guests:
            guest.let_go()
        assert len({visit.result(30) for visit in visits}) == 2, "two with a bit more each fit, three do not"
        assert max(change["to"] for change in events.all("pool_scaled", pool="budget")) == 2


def test_with_a_full_budget_the_old_worker_leaves_first(events: Watch) -> None:
    size = 20 * MB
    options = {"workers": 1, "memory_max": size + size // 2, "recycle": {"calls": 3}}
    with Pool("memory_tools", name="tight", initializer=memory_tools.leak, initargs=(size,), **options) as pool:  # type: ignore[arg-type]
        pids = [pool.call("leak", 0)[0] for _ in range(6)]
        events.wait("worker_gone", pool="tight", pid=pids[0])
        for _ in range(2):
            events.wait("worker_starting", pool="tight")
        own = [event["event"] for event in events.seen if event["pool"] == "tight"]
        order = [event for event in own if event in ("worker_starting", "worker_gone")]
        assert order[:3] == ["worker_starting", "worker_gone", "worker_starting"]
        assert "memory_max" in events.wait("pool_short", pool="tight")["reason"]
        assert len(set(pids)) >= 2
