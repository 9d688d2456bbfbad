"""Start 100 process workers with numpy imported, all answering, and what they weigh then.

Each sample is a process of its own (`benches.crowd`), so that one contestant never carries the other's memory.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass, field

import numpy

from benches import contestants
from benches.harness import Contestant, Report, Scale, faster, interleave, within

_WORKERS = 100
_PEER = f"{contestants.EXECUTOR}(spawn)"
_SAMPLE_SECONDS_MAX = 180


@dataclass
class _Crowd:
    """Takes samples of one contestant: seconds to start; keeps the megabytes seen with each."""

    name: str
    megabytes: list[float] = field(default_factory=list)

    def sample(self) -> float:
        command = [sys.executable, "-m", "benches.crowd", self.name, str(_WORKERS)]
        environment = os.environ | {"OPENBLAS_NUM_THREADS": "1"}
        printed = subprocess.run(
            command, check=True, stdout=subprocess.PIPE, env=environment, timeout=_SAMPLE_SECONDS_MAX
        ).stdout
        found = json.loads(printed.splitlines()[-1])
        self.megabytes.append(found["pss_bytes"] / 1e6)
        return found["seconds"]


def run(scale: Scale) -> Report:
    """Seconds and PSS against ProcessPoolExecutor(spawn) with an initializer that imports numpy."""
    ours, peer = _Crowd("clutch"), _Crowd("executor")
    seconds = interleave([Contestant("clutch", ours.sample), Contestant(_PEER, peer.sample)], scale.slow_rounds)
    megabytes = {"clutch": ours.megabytes, _PEER: peer.megabytes}
    report = Report(notes=[_note(scale.slow_rounds)])
    report.compare(f"start {_WORKERS} workers with numpy, all answering", "s", seconds, {_PEER: faster(10)})
    report.compare(f"memory of {_WORKERS} workers, PSS", "MB", megabytes, {_PEER: within(0.25)})
    return report


def _note(rounds: int) -> str:
    return (
        f"start: {rounds} pair(s), intervals are the range; parent, zygote and workers counted; "
        f"OPENBLAS_NUM_THREADS=1 for both; numpy {numpy.__version__}; {contestants.standard_library()} but spawn"
    )
