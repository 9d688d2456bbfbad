"""Start 600 workers against 100, and stop them. Each sample is a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass, field

from benches.harness import Contestant, Report, Scale, interleave, within

_MANY, _FEW = 600, 100
_GRACE_SECONDS = 2.0
_STOP_SECONDS_MAX = _GRACE_SECONDS + 2
_SAMPLE_SECONDS_MAX = 90


@dataclass
class _Workers:
    """Samples of so many: seconds until all are ready; keeps the seconds of their ends."""

    count: int
    stop_s: list[float] = field(default_factory=list)

    def sample(self) -> float:
        command = [sys.executable, "-m", "benches.many_workers", str(self.count), str(_GRACE_SECONDS)]
        try:
            done = subprocess.run(command, check=True, stdout=subprocess.PIPE, timeout=_SAMPLE_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            raise RuntimeError(f"{self.count} workers had not started and stopped in {_SAMPLE_SECONDS_MAX} s") from None
        found = json.loads(done.stdout.splitlines()[-1])
        self.stop_s.append(found["stop_s"])
        return found["ready_s"]


def run(scale: Scale) -> Report:
    """Seconds. Six times the workers may take eight times as long."""
    many, few = _Workers(_MANY), _Workers(_FEW)
    fewer = f"{_FEW} workers"
    ready = interleave([Contestant(f"{_MANY}", many.sample), Contestant(fewer, few.sample)], scale.slow_rounds)
    allowed = "the grace and 2 s"
    stops = {f"{_MANY}": many.stop_s, allowed: [_STOP_SECONDS_MAX] * len(many.stop_s)}
    report = Report(
        notes=[f"scale-start: {scale.slow_rounds} pair(s), intervals are the range; idle workers are stopped"]
    )
    report.compare(f"{_MANY} workers ready", "s", ready, {fewer: within(8)})
    report.compare(f"{_MANY} workers stopped", "s", stops, {allowed: within(1)})
    return report
