"""Resources that this machine grants the process: CPUs, memory, descriptors.

Reads cgroup files (v2 and v1), the affinity mask and resource limits, each time anew. `root` is there for tests.
Assumes Linux.
"""

from __future__ import annotations

import math
import os
import resource
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

UNLIMITED_BYTES = 1 << 60
"""cgroup v1 says "no limit" with a number near 2**63."""
WORKER_BYTES = 128 << 20
"""What is left for each worker where their number follows the CPUs: an app with its framework has 50 to 100 MB."""


def usable_cpus(root: Path = Path("/")) -> int:
    """CPUs that work can really use: the affinity mask, or the cgroup quota (rounded up) where that is less."""
    affinity = len(os.sched_getaffinity(0))
    quota = cpu_quota(root)
    return affinity if quota is None else max(1, min(affinity, math.ceil(quota)))


def whole_cpus(root: Path = Path("/")) -> int:
    """CPUs that threads which compute all the time may fill: the quota rounded down, since beyond it the kernel stops
    all of them for the rest of each period."""
    affinity = len(os.sched_getaffinity(0))
    quota = cpu_quota(root)
    return affinity if quota is None else max(1, min(affinity, math.floor(quota)))


def cpu_quota(root: Path = Path("/")) -> float | None:
    """CPUs by the tightest quota of this process's cgroup and those above it; None: no quota."""
    quotas = [quota for folder in _folders(root, "cpu") if (quota := _quota(folder)) is not None]
    return min(quotas, default=None)


def memory_limit(root: Path = Path("/")) -> int | None:
    """Bytes by the tightest cgroup limit; None: no limit."""
    limits = [limit for folder in _folders(root, "memory") if (limit := _memory(folder)) is not None]
    return min(limits, default=None)


def workers_that_fit(root: Path = Path("/")) -> int | None:
    """As many workers of ordinary size as the memory limit of this cgroup has room for; None: no limit."""
    limit = memory_limit(root)
    return None if limit is None else max(1, limit // WORKER_BYTES)


@dataclass(frozen=True, slots=True)
class Descriptors:
    soft: int
    hard: int


def descriptors() -> Descriptors:
    return Descriptors(*resource.getrlimit(resource.RLIMIT_NOFILE))


def _quota(folder: Path) -> float | None:
    if words := _words(folder / "cpu.max"):
        return None if words[0] == "max" else int(words[0]) / int(words[1])
    quota, period = _words(folder / "cpu.cfs_quota_us"), _words(folder / "cpu.cfs_period_us")
    if quota and period and int(quota[0]) > 0:
        return int(quota[0]) / int(period[0])
    return None


def _memory(folder: Path) -> int | None:
    words = _words(folder / "memory.max") or _words(folder / "memory.limit_in_bytes")
    if not words or words[0] == "max" or int(words[0]) >= UNLIMITED_BYTES:
        return None
    return int(words[0])


def _folders(root: Path, controller: str) -> Iterator[Path]:
    """The folders of this process's cgroup that may limit `controller`, and their ancestors up to the mount."""
    own_paths = dict(_own_cgroups(root))
    for mount, mounted in _mounts(root, controller):
        path = own_paths.get(controller if mounted == "cgroup" else "", "/")
        folder = mount / path.lstrip("/")
        # In a container the path is the host's while the mount shows only this cgroup.
        if not folder.is_dir():
            folder = mount
        while True:
            yield folder
            if folder == mount:
                break
            folder = folder.parent


def _own_cgroups(root: Path) -> Iterator[tuple[str, str]]:
    for line in _lines(root / "proc/self/cgroup"):
        _, controllers, path = line.split(":", 2)
        for controller in controllers.split(","):
            yield controller, path


def _mounts(root: Path, controller: str) -> Iterator[tuple[Path, str]]:
    for line in _lines(root / "proc/self/mountinfo"):
        before, _, after = line.partition(" - ")
        kind, _, options = after.split(" ", 2)
        if kind == "cgroup2" or (kind == "cgroup" and controller in options.split(" ")[-1].split(",")):
            yield root / before.split(" ")[4].lstrip("/"), kind


def _lines(file: Path) -> list[str]:
    try:
        return file.read_text().splitlines()
    except OSError:
        return []


def _words(file: Path) -> list[str]:
    lines = _lines(file)
    return lines[0].split() if lines else []
