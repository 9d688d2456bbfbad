"""Failures 33 and 34: workers are replaced by policy and by command, and nobody notices."""

from __future__ import annotations

import os
import signal
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from clutch import ConfigError, Pool, PoolClosed
from clutch.testing import Event, Watch
from support.changing_code import Code
from support.rendezvous import Rendezvous

pytestmark = pytest.mark.timeout(120)
CALLS = 10_000
CALLS_OF_A_WORKER = 100


def most_out(events: list[Event]) -> int:
    """How many were out at a time: told to drain, and not gone."""
    out: set[int] = set()
    most = 0
    for event in events:
        if event["event"] == "worker_draining":
            out.add(event["pid"])
        elif event["event"] == "worker_gone":
            out.discard(event["pid"])
        most = max(most, len(out))
    return most


def fewest_ready(events: list[Event]) -> int:
    """Of the workers that were to serve, after all had been ready."""
    ready: set[int] = set()
    counts = []
    for event in events:
        if event["event"] == "worker_ready":
            ready.add(event["pid"])
        elif event["event"] in {"worker_draining", "worker_gone"}:
            ready.discard(event["pid"])
        counts.append(len(ready))
    return min(counts[counts.index(max(counts)) :])


@pytest.mark.parametrize(
    "shape",
    [{"profile": "process", "workers": 4}, {"profile": "thread", "workers": 2, "threads": 3}],
    ids=lambda shape: shape["profile"],
)
def test_failure_33_each_worker_recycled_each_100_calls(events: Watch, shape: dict[str, Any]) -> None:
    def load(number: int) -> list[int]:
        called = [pool.call("pid") for _ in range(CALLS // 8)]
        return called + [future.result(60) for future in [pool.submit("pid") for _ in range(CALLS // 8)]]

    with Pool("harmful_tools", recycle={"calls": CALLS_OF_A_WORKER}, **shape) as pool:
        pool.wait_ready(timeout=60)
        with ThreadPoolExecutor(4) as callers:
            pids = Counter(pid for called in callers.map(load, range(4)) for pid in called)
        assert pids.total() == CALLS and pool.stats()["failed"] == 0
        assert max(pids.values()) <= CALLS_OF_A_WORKER, "a promise"
        assert len(pids) >= CALLS // CALLS_OF_A_WORKER
        assert pool.stats()["restarts"] == 0
        assert {event["reason"] for event in events.all("worker_draining")} == {"calls"}


@pytest.mark.parametrize("together", [1, 3])
def test_failure_34_all_due_at_once_leave_in_turn(events: Watch, together: int) -> None:
    recycle = {"age": 0.3, "jitter": 0, "together": together}
    with Pool("harmful_tools", workers=6, recycle=recycle) as pool:
        pool.wait_ready(timeout=60)
        first = {worker["pid"] for worker in pool.stats()["workers"]}
        while first & {worker["pid"] for worker in pool.stats()["workers"]}:
            assert pool.call("echo", 1) == 1
            events.wait("worker_gone")
        seen = [event for event in events.seen if event.get("pool") == "pool"]
        assert most_out(seen) <= together
        assert fewest_ready(seen) >= 6
        assert {event["reason"] for event in events.all("worker_draining")} == {"age"}
        pool.kill_workers()


def test_failure_33_what_runs_is_finished_first(rendezvous: Rendezvous, events: Watch) -> None:
    with Pool("harmful_tools", workers=2) as pool:
        pool.wait_ready(timeout=60)
        running = pool.submit("visit", rendezvous.port)
        guest = rendezvous.guest()
        nr = next(worker["nr"] for worker in pool.stats()["workers"] if worker["pid"] == guest.pid)
        command = threading.Thread(target=pool.recycle, args=(nr,))
        command.start()
        events.wait("worker_draining", pid=guest.pid, reason="recycle")
        assert pool.stats()["ready"] == 2, "its replacement is there already"
        assert pool.call("echo", 1) == 1
        assert command.is_alive()
        guest.let_go("kept")
        assert running.result(30) == "kept"
        command.join(30)
        assert not command.is_alive()
        assert "exited with code 0" in events.wait("worker_gone", pid=guest.pid)["cause"]
        assert len(events.all("worker_gone")) == 1 and pool.stats()["restarts"] == 0


def test_recycling_all_workers_by_command(events: Watch) -> None:
    with Pool("harmful_tools", workers=3) as pool:
        pool.wait_ready(timeout=60)
        before = {worker["nr"]: worker["pid"] for worker in pool.stats()["workers"]}
        pool.recycle()
        after = {worker["nr"]: worker["pid"] for worker in pool.stats()["workers"]}
        assert after.keys() == before.keys() and not set(after.values()) & set(before.values())
        assert len(events.all("worker_gone")) == 3 and most_out(events.seen) == 1
        with pytest.raises(ValueError, match="no worker 7; allowed: 0, 1, 2"):
            pool.recycle(7)
    with pytest.raises(PoolClosed):
        pool.recycle()


FAILS_WHEN_TOLD = """
import os
@clutch.on_start
def begin():
    if os.path.exists({flag!r}):
        raise ValueError('no database')
"""


def test_failure_34_a_replacement_that_fails_to_start_leaves_the_old_one(code: Code, events: Watch) -> None:
    flag = code.folder / "fail"
    code.write(1, FAILS_WHEN_TOLD.format(flag=str(flag)))
    with Pool("written_code", workers=2) as pool:
        pool.wait_ready(timeout=60)
        before = pool.stats()["workers"]
        flag.touch()
        with pytest.raises(ConfigError, match="no database"):
            pool.recycle(timeout=60)
        assert [pool.call("version") for _ in range(10)] == [1] * 10
        assert [worker["pid"] for worker in pool.stats()["workers"]] == [worker["pid"] for worker in before]
        assert events.all("worker_draining") == [] and pool.stats()["state"] == "ready"
        flag.unlink()
        pool.recycle(timeout=60)
        assert not {worker["pid"] for worker in before} & {worker["pid"] for worker in pool.stats()["workers"]}


def test_failure_34_by_age_the_old_one_stays_until_a_replacement_starts(code: Code, events: Watch) -> None:
    flag = code.folder / "fail"
    code.write(1, FAILS_WHEN_TOLD.format(flag=str(flag)))
    with Pool("written_code", name="aging", workers=1, recycle={"age": 0.3, "jitter": 0}) as pool:
        pool.wait_ready(timeout=60)
        flag.touch()
        failed = 0
        while failed < 3:
            # One that was ready before the flag was there may still take over.
            failed += "no database" in events.wait("worker_gone", pool="aging")["cause"]
            assert pool.call("version") == 1
        flag.unlink()
        while "code 0" not in events.wait("worker_gone", pool="aging")["cause"]:
            pass
        assert pool.call("version") == 1
        pool.kill_workers()


def test_too_many_deaths_in_a_minute_let_the_next_starts_wait(events: Watch) -> None:
    with Pool("harmful_tools", workers=1, restarts_max=2) as pool:
        for _ in range(3):
            pool.wait_ready(timeout=60)
            pid = pool.call("pid")
            os.kill(pid, signal.SIGKILL)
            events.wait("worker_gone", pid=pid)
        assert "restarts_max = 2" in events.wait("pool_failing")["reason"]
        stats = pool.stats()
        assert stats["state"] == "failing" and "restarts_max = 2" in stats["reason"]
        with pytest.raises(Exception, match="restarts_max = 2"):
            pool.call("pid")
