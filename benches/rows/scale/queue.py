"""What a submit costs with 1,000,000 calls queued, against 1,000, and what each of them weighs."""

from __future__ import annotations

import time
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING

from benches import contestants, plain
from benches.harness import Contestant, Report, Scale, interleave, within
from benches.rows.backlog import submit_ns
from benches.rows.scale import bounded

if TYPE_CHECKING:
    import clutch

_MANY, _MANY_QUICK, _FEW = 1_000_000, 100_000, 1_000
_BYTES_EACH_MAX = 2_000.0
_HELD_SECONDS = 3600
_SECONDS_MAX = 600


def run(scale: Scale) -> Report:
    """Nanoseconds of each submit, in the caller's thread; memory with the future that the caller keeps."""
    many = _MANY if scale.slow_rounds > 1 else _MANY_QUICK
    with bounded(f"{many:,} queued", _SECONDS_MAX), ExitStack() as stack:
        pools = {queued: stack.enter_context(contestants.clutch_pool(1)) for queued in (_FEW, many)}
        kept, grew = [], {}
        for queued, pool in pools.items():
            stack.callback(pool.kill_workers)
            _hold(pool)
            before = _resident_bytes()
            kept.append([pool.submit(plain.increment, number) for number in range(queued)])
            grew[queued] = (_resident_bytes() - before) / queued
        field = [
            Contestant(f"{queued:,} queued", partial(submit_ns, pools[queued], scale.calls)) for queued in (many, _FEW)
        ]
        interleave(field, 1)
        samples = interleave(field, scale.fine_rounds)
    report = Report(notes=["scale-queue: memory of the caller's process"])
    report.compare(f"submit with {many:,} queued", "ns", samples, {f"{_FEW:,} queued": within(1.3)})
    allowed = "allowed"
    weights = {f"{many:,}": [grew[many]], allowed: [_BYTES_EACH_MAX]}
    report.compare(f"memory of each of {many:,} queued", "bytes", weights, {allowed: within(1)})
    return report


def _hold(pool: clutch.Pool) -> None:
    future = pool.submit(time.sleep, _HELD_SECONDS)
    while not future.running():
        time.sleep(0.001)


def _resident_bytes() -> int:
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) << 10 for line in file if line.startswith("VmRSS:"))
