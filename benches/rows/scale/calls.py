"""What a call costs, and a worker weighs, among 1,000 workers against 2.

Pinned: whether the scheduler puts caller and worker on one CPU changes a call by six times, whatever their number.
"""

from __future__ import annotations

import os
import time
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING

from benches import contestants, plain, processes
from benches.harness import Contestant, Report, Scale, interleave, within
from benches.rows.scale import bounded

if TYPE_CHECKING:
    import clutch

_MANY, _FEW = 1_000, 2
_TEXT = "hello, clutch"
_SECONDS_MAX = 180


def run(scale: Scale) -> Report:
    """One caller, blocking calls; both pools are there all the time."""
    with bounded(f"{_MANY:,} workers", _SECONDS_MAX), ExitStack() as stack:
        pools = {count: stack.enter_context(contestants.clutch_pool(count)) for count in (_MANY, _FEW)}
        field = [
            Contestant(f"{count:,} workers", partial(_call_us, pool, scale.calls)) for count, pool in pools.items()
        ]
        every_cpu = os.sched_getaffinity(0)
        processes.pin(processes.tree(), {max(every_cpu)})
        interleave(field, 1)
        samples = interleave(field, scale.rounds)
        processes.pin(processes.tree(), every_cpu)
        weights = {f"{count:,} workers": [_worker_mb(pool)] for count, pool in pools.items()}
    report = Report(notes=["scale-calls: pinned to one CPU; memory is the PSS of workers, without the zygote"])
    report.compare(f"echo among {_MANY:,} workers", "µs", samples, {f"{_FEW} workers": within(1.3)})
    report.compare(f"memory of each of {_MANY:,} workers", "MB", weights, {f"{_FEW} workers": within(1.3)})
    return report


def _call_us(pool: clutch.Pool, calls: int) -> float:
    began = time.perf_counter()
    for _ in range(calls):
        pool.call(plain.echo, _TEXT)
    return (time.perf_counter() - began) / calls * 1e6


def _worker_mb(pool: clutch.Pool) -> float:
    pids = [worker["pid"] for worker in pool.stats()["workers"]]
    return processes.pss_bytes(pids) / len(pids) / 1e6
