"""Start 100 process workers with numpy imported, all answering, and what they weigh then.

Each sample is a process of its own (`benches.crowd`), so that one contestant never carries the other's memory.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from dataclasses import dataclass, field

import numpy

from benches import contestants
from benches.harness import Contestant, Report, Scale, faster, interleave, within

_WORKERS = 100
_PEERS = {"spawn": within(0.2), "fork": within(0.25)}
"""Start methods of the peer, and what Clutch may weigh beside it."""
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
    """Seconds and PSS against ProcessPoolExecutor, spawned and forked, with an initializer that imports numpy."""
    peers = {f"{contestants.EXECUTOR}({method})": _Crowd(method) for method in _PEERS}
    crowds = {"clutch": _Crowd("clutch")} | peers
    seconds = interleave([Contestant(name, crowd.sample) for name, crowd in crowds.items()], scale.slow_rounds)
    megabytes = {name: crowd.megabytes for name, crowd in crowds.items()}
    report = Report(notes=[_note(scale.slow_rounds)])
    report.compare(
        f"start {_WORKERS} workers with numpy, all answering", "s", seconds, {name: faster(14) for name in peers}
    )
    weights = {name: _PEERS[crowd.name] for name, crowd in peers.items()}
    report.compare(f"memory of {_WORKERS} workers, PSS", "MB", megabytes, weights)
    return report


def _note(rounds: int) -> str:
    return (
        f"start: {rounds} pair(s), intervals are the range; parent, zygote and workers counted; "
        f"OPENBLAS_NUM_THREADS=1 for all; numpy {numpy.__version__}; CPython {platform.python_version()}"
    )
