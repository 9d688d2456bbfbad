"""Processes that would outlive whoever started them: adopted, found by their session, and ended.

A peer may start processes that start others, in sessions of their own. The runner adopts all that loses its parent, so
that whatever is below it at its end is its own, and nothing of it is left.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import time
from collections.abc import Collection, Iterable

from clutch.lab import watching

LIBC = ctypes.CDLL(None, use_errno=True)
# prctl(2)
PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
END_SECONDS_MAX = 5.0
LOOK_SECONDS = 0.01


def adopt() -> None:
    """Descendants of this process whose parents end become its children."""
    LIBC.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def end_with_parent() -> None:
    """A `preexec_fn`: the kernel sends SIGTERM once the parent is gone, also when that was killed."""
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)


def end_below() -> None:
    """Kill all descendants of this process, also those that they start meanwhile."""
    until = time.monotonic() + END_SECONDS_MAX
    while left := watching.below(os.getpid())[1:]:
        for pid in left:
            kill(pid)
        reap()
        if time.monotonic() > until:
            return
        time.sleep(LOOK_SECONDS)


def end_sessions(leaders: Collection[int]) -> None:
    """Kill the processes of sessions. The number of one stays taken while a process of it lives."""
    for name in os.listdir("/proc"):
        if name.isdecimal() and session(int(name)) in leaders:
            kill(int(name))


def sessions(pids: Iterable[int]) -> set[int]:
    """But not the session of this process."""
    found = {session(pid) for pid in pids} - {os.getsid(0)}
    return {leader for leader in found if leader is not None}


def reap() -> None:
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def session(pid: int) -> int | None:
    with contextlib.suppress(OSError):
        return os.getsid(pid)
    return None


def kill(pid: int) -> None:
    send(pid, signal.SIGKILL)


def send(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
