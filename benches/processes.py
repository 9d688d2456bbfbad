"""What the kernel says of a process and all below it: who they are, CPU time, memory, the CPUs they may use; and how
they end with whoever started them.

Reads /proc, so that one way of asking serves every contestant. Processes that end meanwhile count as nothing.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import time
from collections.abc import Collection, Iterator
from pathlib import Path

_GONE = (FileNotFoundError, ProcessLookupError)
# With it the complement of a pid is the number of that process's clock: clock_getcpuclockid(3), and the macros
# MAKE_PROCESS_CPUCLOCK and CPUCLOCK_SCHED of Linux.
_CPUCLOCK_SCHED = 2
_LIBC = ctypes.CDLL(None)
_PR_SET_PDEATHSIG = 1  # prctl(2)


def die_with_parent() -> None:
    """A `preexec_fn`: the kernel sends SIGTERM when the parent is gone, also when that was killed."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def tree(root_pid: int | None = None) -> list[int]:
    """The pids of a process (this one, if none is given) and of all its descendants."""
    found = [root_pid or os.getpid()]
    for pid in found:
        found.extend(_children(pid))
    return found


def _children(pid: int) -> Iterator[int]:
    for task in tasks(pid):
        with contextlib.suppress(*_GONE):
            yield from map(int, Path(f"/proc/{pid}/task/{task}/children").read_text().split())


def tasks(pid: int) -> list[int]:
    """The threads of a process."""
    try:
        return [int(name) for name in os.listdir(f"/proc/{pid}/task")]
    except _GONE:
        return []


def cpu_ns(pids: Collection[int]) -> int:
    """Nanoseconds on a CPU, user and system, of all threads that `pids` have or had."""
    return sum(map(_process_cpu_ns, pids))


def _process_cpu_ns(pid: int) -> int:
    with contextlib.suppress(OSError):
        return time.clock_gettime_ns(~pid << 3 | _CPUCLOCK_SCHED)
    return 0


def pss_bytes(pids: Collection[int]) -> int:
    """Proportional set size: each page counted once, divided among those who map it."""
    return sum(_process_pss_bytes(pid) for pid in pids)


def _process_pss_bytes(pid: int) -> int:
    try:
        rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except _GONE:
        return 0
    return next((int(line.split()[1]) * 1024 for line in rollup.splitlines() if line.startswith("Pss:")), 0)


def parent(pid: int) -> int:
    """The pid of the parent; of a worker that is its zygote."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def pin(pids: Collection[int], cpus: Collection[int]) -> None:
    """Let every thread of `pids` run on `cpus` only; threads and processes they start inherit it."""
    for pid in pids:
        for task in tasks(pid):
            with contextlib.suppress(*_GONE):
                os.sched_setaffinity(task, cpus)
