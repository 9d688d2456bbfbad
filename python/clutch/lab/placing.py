"""Where workers compute: each in turn on each CPU, the same for all contenders of a round.

A CPU may be slower than another for as long as a process stays there: its core is shared with others, whom a virtual
machine does not see. A worker that is left alone stays where it is, so that one contender would have the better CPU in
all rounds. It is moved, not pinned: what it may run on stays as it is.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Sequence
from types import TracebackType

from clutch.lab import watching

MOVES_SECONDS = (0.004, 0.012)
"""After the begin of a measurement: a process that sleeps is not moved, so it is tried twice."""


class Placed:
    """While it is entered, workers are moved to the CPUs of this turn, if there are more of these than of them."""

    def __init__(self, pids: Sequence[int], turn: int) -> None:
        self.pids, self.turn = pids, turn
        self.cpus = sorted(os.sched_getaffinity(0))
        self.is_over = threading.Event()
        self.mover = threading.Thread(target=self.move, daemon=True)

    def __enter__(self) -> None:
        if 0 < len(self.pids) < len(self.cpus):
            self.mover.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.is_over.set()
        if self.mover.ident is not None:
            self.mover.join()

    def move(self) -> None:
        waited = 0.0
        for after in MOVES_SECONDS:
            if self.is_over.wait(after - waited):
                return
            waited = after
            for nr, pid in enumerate(self.pids):
                for task in watching.tasks(pid):
                    move(task, self.cpus[(nr + self.turn) % len(self.cpus)])


def move(task: int, cpu: int) -> None:
    """A thread goes to a CPU if it runs, and may leave it at once."""
    with contextlib.suppress(OSError):
        allowed = os.sched_getaffinity(task)
        if cpu in allowed and len(allowed) > 1:
            os.sched_setaffinity(task, {cpu})
            os.sched_setaffinity(task, allowed)
