"""Which CPU each thread of a server ran on, over time: samples of /proc, and how they are shown.

A thread is shown in a sample if it got CPU time since the one before; the CPU is the one it was last on.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from benches import processes

_INTERVAL_SECONDS = 0.05
# Positions in /proc/PID/task/TID/stat after the name, which may hold spaces; man 5 proc_pid_stat counts from 3 there.
_PROCESSOR = 39 - 3
_GONE = (FileNotFoundError, ProcessLookupError)
_SHARE_MIN = 0.2
_IDLE = "·"

Seen = dict[tuple[int, int], tuple[int, int]]


@dataclass
class Placement:
    """For each thread that ever ran, (pid, tid): its CPU in each sample, None while it did not run."""

    samples: int = 0
    cpus: dict[tuple[int, int], list[int | None]] = field(default_factory=dict)

    def add(self, before: Seen, after: Seen) -> None:
        """Take one sample: by thread its CPU time in nanoseconds and its CPU, then and now."""
        for thread, (spent_ns, cpu) in after.items():
            has_run = spent_ns > before.get(thread, (spent_ns, cpu))[0]
            self.cpus.setdefault(thread, [None] * self.samples).append(cpu if has_run else None)
        self.samples += 1
        for seen in self.cpus.values():
            seen.extend([None] * (self.samples - len(seen)))

    def busy(self) -> dict[tuple[int, int], list[int | None]]:
        """Threads that ran in a good part of the samples."""
        needed = max(1, self.samples * _SHARE_MIN)
        return {thread: seen for thread, seen in self.cpus.items() if sum(cpu is not None for cpu in seen) >= needed}


def shown(seen: list[int | None]) -> str:
    """A CPU for each sample, a dot where the thread did not run."""
    return "".join(_IDLE if cpu is None else format(cpu, "x")[-1] for cpu in seen)


def processor(stat: str) -> int:
    """The CPU that a thread was last on, from its stat file."""
    return int(stat.rpartition(")")[2].split()[_PROCESSOR])


@contextlib.contextmanager
def watched(root_pid: int) -> Iterator[Placement]:
    """Samples of all threads of a process tree, taken until the block ends."""
    placement, is_over = Placement(), threading.Event()

    def watch() -> None:
        before = _seen(root_pid)
        while not is_over.wait(_INTERVAL_SECONDS):
            after = _seen(root_pid)
            placement.add(before, after)
            before = after

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield placement
    finally:
        is_over.set()
        watcher.join()


def _seen(root_pid: int) -> Seen:
    found: Seen = {}
    for pid in processes.tree(root_pid):
        for task in processes.tasks(pid):
            with contextlib.suppress(*_GONE):
                folder = Path(f"/proc/{pid}/task/{task}")
                spent_ns = int((folder / "schedstat").read_text().split()[0])
                found[pid, task] = (spent_ns, processor((folder / "stat").read_text()))
    return found
