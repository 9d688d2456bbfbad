"""10,000 deadlines that pass at one moment, against 100: how long until the last is answered."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING

from benches import contestants, plain
from benches.harness import Contestant, Report, Scale, interleave, within
from benches.rows.scale import bounded

if TYPE_CHECKING:
    import clutch

_MANY, _FEW = 10_000, 100
_AHEAD_SECONDS = 1.0
"""Longer than it takes to submit them all."""
_LATE_MS_MAX = 50.0
_HELD_SECONDS = 3600
_SECONDS_MAX = 300


def run(scale: Scale) -> Report:
    """Milliseconds from the deadline to the last answer, of calls that wait behind one that holds the only worker."""
    with bounded(f"{_MANY:,} deadlines", _SECONDS_MAX), contestants.clutch_pool(1) as pool:
        held = pool.submit(time.sleep, _HELD_SECONDS)
        while not held.running():
            time.sleep(0.001)
        field = [Contestant(f"{count:,} at once", partial(_late_ms, pool, count)) for count in (_MANY, _FEW)]
        interleave(field, 1)
        samples = interleave(field, scale.rounds)
        pool.kill_workers()
    allowed = "allowed"
    samples[allowed] = [_LATE_MS_MAX] * scale.rounds
    report = Report(notes=["scale-deadlines: all in the queue; a caller polls for the last answer"])
    # A hundred times as many; a wake-up, which is most of it, is the same.
    report.compare(f"last of {_MANY:,} deadlines", "ms", samples, {f"{_FEW} at once": within(50), allowed: within(1)})
    return report


def _late_ms(pool: clutch.Pool, count: int) -> float:
    at = time.monotonic() + _AHEAD_SECONDS
    waiting = [pool.options(deadline=at - time.monotonic()).submit(plain.increment, number) for number in range(count)]
    assert time.monotonic() < at, "this machine is too slow for the row: some passed before the last was submitted"
    for future in waiting:
        while not future.done():
            time.sleep(0.0002)
    return (time.monotonic() - at) * 1e3
