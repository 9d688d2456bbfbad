"""What a call costs with 10,000 under way in one worker, against 100: asyncio tasks that wait."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

from benches import contestants, processes
from benches.harness import Contestant, Report, Scale, interleave, within
from benches.rows.scale import bounded

if TYPE_CHECKING:
    import clutch

_MANY, _FEW = 10_000, 100
_NAP_SECONDS = 1.0
"""Longer than it takes to submit them all, so that all wait at once."""
_SECONDS_MAX = 300


def run(scale: Scale) -> Report:
    """CPU time of all processes for each call; the waiting costs none."""
    with bounded(f"{_MANY:,} slots", _SECONDS_MAX), contestants.clutch_pool(1, profile="async", tasks=_MANY) as pool:
        field = [Contestant(f"{count:,} under way", partial(_cpu_us, pool, count)) for count in (_MANY, _FEW)]
        interleave(field, 1)
        samples = interleave(field, scale.rounds)
    report = Report(notes=[f"scale-slots: 1 async worker of {_MANY:,} tasks; each call sleeps {_NAP_SECONDS:g} s"])
    report.compare(f"CPU time of a call among {_MANY:,}", "µs", samples, {f"{_FEW} under way": within(1.5)})
    return report


def _cpu_us(pool: clutch.Pool, count: int) -> float:
    tree = processes.tree()
    before = processes.cpu_ns(tree)
    futures = [pool.submit(asyncio.sleep, _NAP_SECONDS, _NAP_SECONDS) for _ in range(count)]
    assert all(future.result(60) == _NAP_SECONDS for future in futures)
    return (processes.cpu_ns(tree) - before) / count / 1_000
