"""Failure 35: workers whose memory grows are replaced in time, and only those. Failure 66: shared memory goes back."""

from __future__ import annotations

import contextlib
import os
from collections import Counter
from typing import Any

import memory_tools
import pytest

from clutch import Pool
from clutch.testing import Watch
from support.clutch_process import soon
from support.rendezvous import Rendezvous

pytestmark = pytest.mark.timeout(120)
MB = 1 << 20
LIMIT = 40 * MB
GROWTH = 8 * MB
OVERHEAD = MB
"""What a call needs beside what it leaks: its frames, its reading of /proc."""
CALLS = 40


def by_pid(pool: Pool) -> dict[int, dict[str, Any]]:
    return {worker["pid"]: worker for worker in pool.stats()["workers"]}


def test_failure_35_a_leaking_tool_is_bounded_and_its_siblings_stay(rendezvous: Rendezvous, events: Watch) -> None:
    with Pool("memory_tools", workers=2, recycle={"memory": LIMIT}) as pool:
        pool.wait_ready(timeout=60)
        innocent = pool.submit("visit", rendezvous.port)
        guest = rendezvous.guest()
        seen = [pool.call("leak", GROWTH) for _ in range(CALLS)]
        assert max(private for _, private in seen) <= LIMIT + GROWTH + OVERHEAD
        calls = Counter(pid for pid, _ in seen)
        assert len(calls) >= CALLS * GROWTH // (LIMIT + GROWTH) and guest.pid not in calls
        for pid in list(calls)[:-1]:
            assert events.wait("worker_draining", pid=pid)["reason"] == "memory"
            assert "exited with code 0" in events.wait("worker_gone", pid=pid)["cause"]
        # As large as the limit with what it shares, and by far below it without.
        events.until(lambda: by_pid(pool)[guest.pid]["rss"] is not None)
        assert by_pid(pool)[guest.pid]["rss"] > memory_tools.SHARED_BYTES > LIMIT
        assert memory_tools.private_bytes(guest.pid) < LIMIT / 2
        guest.let_go()
        assert innocent.result(30) == guest.pid
        assert guest.pid in by_pid(pool) and not events.all("worker_draining", pid=guest.pid)
        assert (pool.stats()["failed"], pool.stats()["restarts"]) == (0, 0)


def test_failure_35_each_slot_adds_one_call_at_most(rendezvous: Rendezvous, events: Watch) -> None:
    slots = 3
    with Pool("memory_tools", profile="thread", workers=1, threads=slots, recycle={"memory": LIMIT}) as pool:
        seen = []
        for _ in range(8):
            futures = [pool.submit("leak_together", GROWTH, rendezvous.port) for _ in range(slots)]
            for _ in range(slots):
                rendezvous.guest().let_go()
            seen += [future.result(30) for future in futures]
        assert max(private for _, private in seen) <= LIMIT + slots * (GROWTH + OVERHEAD)
        first = seen[0][0]
        assert events.wait("worker_draining", pid=first)["reason"] == "memory"


def test_failure_35_memory_that_grows_between_calls_is_seen(rendezvous: Rendezvous, events: Watch) -> None:
    with Pool("memory_tools", workers=1, recycle={"memory": LIMIT}) as pool:
        pid = pool.call("leak_later", LIMIT, rendezvous.port)
        rendezvous.guest().let_go()
        assert events.wait("worker_draining", pid=pid)["reason"] == "memory"
        assert pool.call("leak", 0)[0] != pid


def test_the_reason_of_a_replacement_is_told(events: Watch) -> None:
    with Pool("memory_tools", name="by_calls", workers=1, recycle={"calls": 2}) as pool:
        for _ in range(5):
            pool.call("leak", 0)
        assert events.wait("worker_draining", pool="by_calls")["reason"] == "calls"
    with Pool("memory_tools", name="by_age", workers=1, recycle={"age": 0.05}) as pool:
        assert events.wait("worker_draining", pool="by_age")["reason"] == "age"


def test_memory_is_known_only_where_it_is_limited(events: Watch) -> None:
    with Pool("memory_tools", workers=1) as pool:
        pool.wait_ready(timeout=60)
        (worker,) = pool.stats()["workers"]
        assert (worker["rss"], worker["private"]) == (None, None)


def regions() -> int:
    """Pieces of shared memory that this process has open."""
    found = 0
    for descriptor in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):
            found += "clutch-region" in os.readlink(f"/proc/self/fd/{descriptor}")
    return found


def test_failure_66_shared_memory_of_arguments_goes_back_when_nothing_comes() -> None:
    with Pool(2) as pool:
        futures = [pool.submit(len, b"x" * MB) for _ in range(8)]
        assert [future.result(60) for future in futures] == [MB] * 8
        assert regions() > 0
        soon(lambda: regions() == 0)
        assert pool.call(len, b"x" * MB) == MB
        assert regions() > 0
    assert regions() == 0, "at the pool's end at the latest"
