"""How long a killed worker is missing: from SIGKILL until its replacement is ready, with numpy preloaded."""

from __future__ import annotations

import os
import signal
import statistics
import time
from typing import TYPE_CHECKING

from benches.harness import Report, Scale, within

if TYPE_CHECKING:
    import clutch
    from clutch.testing import Watch

_LIMIT = "the limit"
_LIMIT_MS = 100.0
_KILLS_FACTOR = 6
_HELD_SECONDS = 3600


def run(scale: Scale) -> Report:
    """One worker, killed again and again: idle, and while it runs something."""
    import clutch
    from clutch.testing import watch

    kills = _KILLS_FACTOR * scale.rounds
    report = Report(notes=[f"replacement: 1 process worker of benches.numpy_target, {kills} kills of each kind"])
    with watch() as events, clutch.Pool("benches.numpy_target", profile="process", workers=1) as pool:
        events.wait("worker_ready")
        for kind, is_busy in (("an idle", False), ("a busy", True)):
            took = [_replaced_ms(pool, events, is_busy) for _ in range(kills)]
            work = f"replace {kind} worker that was killed"
            report.compare(work, "ms", {work: took, _LIMIT: [_LIMIT_MS] * kills}, {_LIMIT: within(1)})
            last = statistics.quantiles(took, n=100, method="inclusive")[98]
            report.compare(f"{work}, p99", "ms", {work: [last], _LIMIT: [_LIMIT_MS]}, {_LIMIT: within(1)})
    return report


def _replaced_ms(pool: clutch.Pool, events: Watch, is_busy: bool) -> float:
    (worker,) = pool.stats()["workers"]
    held = [pool.submit(time.sleep, _HELD_SECONDS)] if is_busy else []
    while not all(future.running() for future in held):
        time.sleep(0.001)
    began = time.perf_counter()
    os.kill(worker["pid"], signal.SIGKILL)
    events.wait("worker_ready")
    took = time.perf_counter() - began
    assert all(future.exception() is not None for future in held), "a call outlived its worker"
    return took * 1_000
