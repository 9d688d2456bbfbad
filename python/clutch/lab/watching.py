"""What the kernel knows of processes: CPU time, memory, context switches, the CPU that each ran on last."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from dataclasses import dataclass

NS = 1e9


@dataclass(frozen=True)
class Usage:
    """Of some processes together. `cpu_s`: seconds of CPU; `switches`: context switches, `forced`: those that the
    scheduler forced."""

    cpu_s: float
    switches: int
    forced: int

    def __sub__(self, before: Usage) -> Usage:
        return Usage(self.cpu_s - before.cpu_s, self.switches - before.switches, self.forced - before.forced)


def usage(pids: Iterable[int]) -> Usage:
    """Of all threads that live now. A thread that has ended takes its time with it."""
    cpu = switches = forced = 0
    for pid in pids:
        with contextlib.suppress(OSError):
            for task in os.listdir(f"/proc/{pid}/task"):
                with contextlib.suppress(OSError):
                    cpu += int(_read(f"/proc/{pid}/task/{task}/schedstat").split()[0])
                    for line in _read(f"/proc/{pid}/task/{task}/status").splitlines():
                        if line.startswith("voluntary_ctxt_switches"):
                            switches += int(line.split()[1])
                        elif line.startswith("nonvoluntary_ctxt_switches"):
                            forced += int(line.split()[1])
    return Usage(cpu / NS, switches, forced)


def pss_bytes(pids: Iterable[int]) -> int:
    """Memory of processes together, where each page counts once, however many share it."""
    total = 0
    for pid in pids:
        with contextlib.suppress(OSError):
            for line in _read(f"/proc/{pid}/smaps_rollup").splitlines():
                if line.startswith("Pss:"):
                    total += int(line.split()[1]) << 10
    return total


def last_cpu(pid: int) -> int | None:
    """The CPU that a process ran on last."""
    with contextlib.suppress(OSError):
        return int(_read(f"/proc/{pid}/stat").rpartition(")")[2].split()[36])
    return None


def below(pid: int) -> list[int]:
    """The process and all that it has started, as of now."""
    found = [pid]
    with contextlib.suppress(OSError):
        for task in os.listdir(f"/proc/{pid}/task"):
            with contextlib.suppress(OSError):
                for child in _read(f"/proc/{pid}/task/{task}/children").split():
                    found += below(int(child))
    return found


def _read(path: str) -> str:
    with open(path) as file:
        return file.read()
