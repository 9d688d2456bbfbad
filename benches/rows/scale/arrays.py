"""What an array costs while its caller keeps 100,000 others, against 100."""

from __future__ import annotations

import time
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING

import numpy

from benches import contestants
from benches.harness import Contestant, Report, Scale, Skipped, interleave, within
from benches.rows.scale import bounded

if TYPE_CHECKING:
    import clutch

_MANY, _MANY_QUICK, _FEW = 100_000, 10_000, 100
_BYTES = (64 << 10) + 512
"""Just above what travels inside of a message."""
_MEMORY_FACTOR = 1.2
_CALLS = 200
_SECONDS_MAX = 600


def run(scale: Scale) -> Report:
    """Microseconds of a call whose result is an array that is dropped at once."""
    many = _MANY if scale.slow_rounds > 1 else _MANY_QUICK
    needed = int(many * _BYTES * _MEMORY_FACTOR)
    if (free := _available_bytes()) < needed:
        raise Skipped(f"needs {needed >> 20:,} MB of memory, and {free >> 20:,} are available")
    with bounded(f"{many:,} arrays kept", _SECONDS_MAX), ExitStack() as stack:
        pools = {kept: stack.enter_context(contestants.clutch_pool(1)) for kept in (many, _FEW)}
        arrays = [pool.call(numpy.ones, _BYTES, numpy.uint8) for kept, pool in pools.items() for _ in range(kept)]
        field = [Contestant(f"{kept:,} kept", partial(_array_us, pool)) for kept, pool in pools.items()]
        interleave(field, 1)
        samples = interleave(field, scale.rounds)
        assert all(array.nbytes == _BYTES for array in arrays)
        del arrays
    report = Report(notes=[f"scale-arrays: {_BYTES:,} bytes each; 1 worker a pool"])
    report.compare(f"array with {many:,} kept", "µs", samples, {f"{_FEW} kept": within(1.3)})
    return report


def _array_us(pool: clutch.Pool) -> float:
    began = time.perf_counter()
    for _ in range(_CALLS):
        pool.call(numpy.ones, _BYTES, numpy.uint8)
    return (time.perf_counter() - began) / _CALLS * 1e6


def _available_bytes() -> int:
    with open("/proc/meminfo") as file:
        lines = dict(line.split(":", 1) for line in file)
    return int(lines["MemAvailable"].split()[0]) << 10
