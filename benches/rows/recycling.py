"""What recycling costs those who call: each worker replaced every 500 calls, against workers that stay.

The load is open-loop: calls come at 70 % of what the pool can do, whether earlier ones are answered or not, and each
one's latency counts from the moment at which it was due.
"""

from __future__ import annotations

import statistics
import threading
import time
from concurrent.futures import wait
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from benches import contestants, plain
from benches.harness import Contestant, Report, Scale, interleave, more, within

if TYPE_CHECKING:
    import clutch

_WORKERS = 2
_RECYCLE_CALLS = 500
_CALL_SECONDS = 0.001
_LOAD = 0.7
_SECONDS_FACTOR = 8
_IN_FLIGHT = 8
_STAY = "workers that stay"


@dataclass
class _Load:
    """Takes samples of one pool: calls a second; keeps the p99 of each, and what failed."""

    pool: clutch.Pool
    steps: int
    rate: float
    seconds: float
    p99_ms: list[float] = field(default_factory=list)
    failures: list[BaseException] = field(default_factory=list)

    def sample(self) -> float:
        count = round(self.rate * self.seconds)
        latencies: list[float] = []
        all_ended = threading.Semaphore(0)
        began = time.perf_counter()
        for number in range(count):
            due = began + number / self.rate
            while (early := due - time.perf_counter()) > 0:
                time.sleep(early)
            self._submit(due, latencies, all_ended)
        for _ in range(count):
            all_ended.acquire()
        spent = time.perf_counter() - began
        self.p99_ms.append(statistics.quantiles(latencies, n=100)[98] * 1_000)
        return count / spent

    def _submit(self, due: float, latencies: list[float], ended: threading.Semaphore) -> None:
        def note(future: clutch.Future) -> None:
            latencies.append(time.perf_counter() - due)
            if (error := future.exception()) is not None:
                self.failures.append(error)
            ended.release()

        self.pool.submit(plain.spin, self.steps).add_done_callback(note)


def run(scale: Scale) -> Report:
    """Throughput and p99 of two pools, loaded in turn; a call that fails fails the row."""
    steps, seconds = _steps(), scale.seconds * _SECONDS_FACTOR
    with ExitStack() as stack:
        recycled = stack.enter_context(contestants.clutch_pool(_WORKERS, recycle={"calls": _RECYCLE_CALLS}))
        stays = stack.enter_context(contestants.clutch_pool(_WORKERS))
        capacity = _capacity(stays, steps, seconds)
        ours, peer = (_Load(pool, steps, _LOAD * capacity, seconds) for pool in (recycled, stays))
        contest = [Contestant("recycled", ours.sample), Contestant(_STAY, peer.sample)]
        interleave(contest, 1)
        for load in (ours, peer):
            load.p99_ms.clear()
        rates = interleave(contest, scale.rounds)
        generation = {worker["nr"]: worker["calls"] for worker in recycled.stats()["workers"]}
        assert all(calls <= _RECYCLE_CALLS for calls in generation.values()), f"not recycled: {generation}"
    assert not ours.failures and not peer.failures, f"calls failed: {ours.failures[:3]} {peer.failures[:3]}"
    report = Report(notes=[_note(capacity)])
    report.compare(f"recycled each {_RECYCLE_CALLS} calls, throughput", "/s", rates, {_STAY: more(0.99)})
    p99 = {"recycled": ours.p99_ms, _STAY: peer.p99_ms}
    report.compare(f"recycled each {_RECYCLE_CALLS} calls, p99", "ms", p99, {_STAY: within(1.2)})
    return report


def _note(capacity: float) -> str:
    return (
        f"recycle: {_WORKERS} process workers, calls of {_CALL_SECONDS * 1000:g} ms of CPU, open loop at "
        f"{_LOAD:.0%} of the {capacity:,.0f}/s that they can do; 0 failures in all"
    )


def _steps() -> int:
    """So many take about as long as a call should."""
    steps = 10_000
    took = []
    for _ in range(20):
        began = time.perf_counter()
        plain.spin(steps)
        took.append(time.perf_counter() - began)
    return round(steps * _CALL_SECONDS / statistics.median(took))


def _capacity(pool: clutch.Pool, steps: int, seconds: float) -> float:
    """Calls a second when there is always one to do."""
    began = time.perf_counter()
    done, running = 0, set()
    while time.perf_counter() - began < seconds:
        running |= {pool.submit(plain.spin, steps) for _ in range(_IN_FLIGHT - len(running))}
        finished, running = wait(running, return_when="FIRST_COMPLETED")
        done += len(finished)
    rate = done / (time.perf_counter() - began)
    wait(running)
    return rate
