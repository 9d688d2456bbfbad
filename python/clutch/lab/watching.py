"""What the kernel knows of processes: CPU time, memory, context switches, the CPU that each ran on last."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable, Iterator
from dataclasses import astuple, dataclass

# With it the complement of a pid is the number of that process's clock: clock_getcpuclockid(3) of Linux.
CPUCLOCK_SCHED = 2
LISTENS = "0A"
"""State of a socket in /proc/net/tcp."""
TICKS = os.sysconf("SC_CLK_TCK")
BUSY_FIELDS = (0, 1, 2, 5, 6)
"""Of a CPU in /proc/stat: user, nice, system, irq, softirq. What a guest uses is in user already; what was stolen is
others'."""
IDLE_FIELDS = (3, 4)


@dataclass(frozen=True)
class Usage:
    """Of some processes together. `cpu_s`: seconds of CPU; `delayed_s`: seconds for which threads could have run and
    had no CPU; `switches`: context switches, `forced`: those that the scheduler forced."""

    cpu_s: float
    delayed_s: float
    switches: int
    forced: int

    def as_figures(self, part: float = 1.0) -> dict[str, float]:
        """The fields of figures. `part`: of the times, that belongs to them."""
        times = {"cpu_s": self.cpu_s * part, "delayed_s": self.delayed_s * part}
        return {**times, "switches": self.switches, "forced": self.forced}

    def __sub__(self, before: Usage) -> Usage:
        return Usage(
            max(0.0, self.cpu_s - before.cpu_s),
            max(0.0, self.delayed_s - before.delayed_s),
            # Of threads that have ended nobody knows them any more.
            max(0, self.switches - before.switches),
            max(0, self.forced - before.forced),
        )


@dataclass(frozen=True)
class Machine:
    """Seconds of the CPUs that this process may use, together."""

    busy_s: float
    idle_s: float
    stolen_s: float

    def __sub__(self, before: Machine) -> Machine:
        # Time that waited for disks may become less, as Linux counts it.
        pairs = zip(astuple(self), astuple(before), strict=True)
        return Machine(*(max(0.0, after - earlier) for after, earlier in pairs))


Usages = dict[int, Usage]
"""By process."""


def usages(pids: Iterable[int]) -> Usages:
    return {pid: usage(pid) for pid in pids}


def used(before: Usages, after: Usages) -> Usage:
    """Of processes that live at the end: of those that have come meanwhile all, of the others what has been added."""
    nothing = Usage(0.0, 0.0, 0, 0)
    parts = [usage - before.get(pid, nothing) for pid, usage in after.items()]
    return Usage(
        sum(one.cpu_s for one in parts),
        sum(one.delayed_s for one in parts),
        sum(one.switches for one in parts),
        sum(one.forced for one in parts),
    )


def usage(pid: int) -> Usage:
    """CPU time of all threads that a process has or had; the rest of those that live."""
    delayed = 0.0
    switches = forced = 0
    for task in tasks(pid):
        with contextlib.suppress(OSError, ValueError, IndexError):
            delayed += int(_read(f"/proc/{pid}/task/{task}/schedstat").split()[1]) / 1e9
            for line in _read(f"/proc/{pid}/task/{task}/status").splitlines():
                if line.startswith("voluntary_ctxt_switches"):
                    switches += int(line.split()[1])
                elif line.startswith("nonvoluntary_ctxt_switches"):
                    forced += int(line.split()[1])
    return Usage(cpu_s(pid), delayed, switches, forced)


def cpu_s(pid: int) -> float:
    with contextlib.suppress(OSError):
        return time.clock_gettime(~pid << 3 | CPUCLOCK_SCHED)
    return 0.0


def children_cpu_s(pid: int) -> float:
    """CPU time of those that a process has started and waited for, in whole ticks."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        fields = _read(f"/proc/{pid}/stat").rpartition(")")[2].split()
        return (int(fields[13]) + int(fields[14])) / TICKS
    return 0.0


def task_cpu_s(pid: int, task: int) -> float | None:
    """CPU time of one thread; None: it has ended."""
    with contextlib.suppress(OSError, ValueError):
        return int(_read(f"/proc/{pid}/task/{task}/schedstat").split()[0]) / 1e9
    return None


def is_there(pid: int) -> bool:
    """Whether its clock can be read: a process that has ended, and was waited for, has none."""
    try:
        time.clock_gettime(~pid << 3 | CPUCLOCK_SCHED)
    except OSError:
        return False
    return True


def machine() -> Machine:
    """Of the CPUs that this process may use."""
    mine = {f"cpu{nr}" for nr in os.sched_getaffinity(0)}
    busy = idle = stolen = 0
    with contextlib.suppress(OSError):
        for line in _read("/proc/stat").splitlines():
            name, *fields = line.split()
            if name in mine:
                ticks = list(map(int, fields))
                busy += sum(ticks[nr] for nr in BUSY_FIELDS)
                idle += sum(ticks[nr] for nr in IDLE_FIELDS)
                stolen += ticks[7] if len(ticks) > 7 else 0
    return Machine(busy / TICKS, idle / TICKS, stolen / TICKS)


def free_bytes() -> int:
    """Memory that this machine can still give, as the kernel estimates it."""
    with contextlib.suppress(OSError):
        for line in _read("/proc/meminfo").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) << 10
    return 1 << 62


def pss_bytes(pids: Iterable[int]) -> int:
    """Memory of processes together, where each page counts once, however many share it."""
    total = 0
    for pid in pids:
        with contextlib.suppress(OSError):
            for line in _read(f"/proc/{pid}/smaps_rollup").splitlines():
                if line.startswith("Pss:"):
                    total += int(line.split()[1]) << 10
    return total


def last_cpu(pid: int, task: int | None = None) -> int | None:
    """The CPU that a process, or one thread of it, ran on last."""
    with contextlib.suppress(OSError):
        where = f"/proc/{pid}/stat" if task is None else f"/proc/{pid}/task/{task}/stat"
        return int(_read(where).rpartition(")")[2].split()[36])
    return None


def tasks(pid: int) -> list[int]:
    """The threads of a process."""
    with contextlib.suppress(OSError):
        return list(map(int, os.listdir(f"/proc/{pid}/task")))
    return []


def below(pid: int) -> list[int]:
    """The process and all that it has started, as of now."""
    found = [pid]
    for parent in found:
        for task in tasks(parent):
            with contextlib.suppress(OSError):
                found += map(int, _read(f"/proc/{parent}/task/{task}/children").split())
    return found


def listeners(port: int) -> list[int]:
    """Processes of this machine that have a listening socket of this port, as far as this one may see."""
    inodes = set()
    for path in ("/proc/net/tcp", "/proc/net/tcp6"):
        with contextlib.suppress(OSError):
            for line in _read(path).splitlines()[1:]:
                fields = line.split()
                if fields[3] == LISTENS and int(fields[1].rpartition(":")[2], 16) == port:
                    inodes.add(f"socket:[{fields[9]}]")
    return [pid for pid in map(int, filter(str.isdecimal, os.listdir("/proc"))) if inodes & set(_links(pid))]


def _links(pid: int) -> Iterator[str]:
    with contextlib.suppress(OSError):
        for name in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):
                yield os.readlink(f"/proc/{pid}/fd/{name}")


def _read(path: str) -> str:
    with open(path) as file:
        return file.read()
