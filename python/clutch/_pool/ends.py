"""Ends of pools: all at the interpreter's end, those of a forked child, those that nobody refers to."""

from __future__ import annotations

import atexit
import functools
import os
import select
import sys
import weakref
from collections.abc import Collection
from typing import Any, Protocol, TextIO

from clutch import _core
from clutch._pool.future import leave_to_the_parent
from clutch.control.program import program


class EndablePool(Protocol):
    """A pool, as far as its end needs one."""

    name: str
    _is_over: bool
    _is_cut: bool
    _is_copy: bool
    _shut: bool
    _maps: Any

    def _refuse_more(self, with_maps: bool) -> None: ...
    def _wait_closed(self, timeout: float | None = None) -> bool: ...
    def _kill_all(self) -> None: ...


PRINTED_SECONDS = 2.0
"""Time for which the end of terminated pools waits until the output of their workers is read."""
LOOK_SECONDS = 0.1
"""Interval at which that end checks whether the pools were terminated meanwhile."""

POOLS: weakref.WeakSet[EndablePool] = weakref.WeakSet()
FORGOTTEN: set[EndablePool] = set()
"""Pools without references that still have work."""


def wait_over(pools: Collection[EndablePool]) -> bool:
    """Wait for their last processes, then once for all their output. Returns False if not all output was read."""
    for pool in pools:
        pool._wait_closed()
    is_printed = not pools or _wait_printed(pools)
    for pool in pools:
        pool._is_over = True
    POOLS.difference_update(pools)
    program.hide_closed()
    return is_printed


def _wait_printed(pools: Collection[EndablePool]) -> bool:
    printed, left = _core.PrintedByNow(), PRINTED_SECONDS
    while left > 0:
        if printed.wait(LOOK_SECONDS):
            return True
        # Looked at each time: another thread may cut short what this one waits for.
        left -= LOOK_SECONDS if all(pool._is_cut for pool in pools) else 0
    return False


def _leave_to_the_parent() -> None:
    """In a forked child: the pools are the parent's, and ending their copies here does nothing."""
    for pool in [*POOLS, *FORGOTTEN]:
        pool._shut = pool._is_copy = True
        for batches in list(pool._maps):
            batches.leave_to_the_parent()
    program.leave_to_the_parent()
    POOLS.clear()
    FORGOTTEN.clear()
    leave_to_the_parent()


@functools.cache
def watch_forks() -> None:
    """Register the fork hook, with the first pool: in zygotes it would cost each worker memory."""
    os.register_at_fork(after_in_child=_leave_to_the_parent)


@atexit.register
def _end_pools() -> None:
    """At the interpreter's end, finish submitted work, as the standard library does; not after Ctrl-C."""
    pools = {*POOLS, *FORGOTTEN}
    # At a prompt, what was interrupted was one of its lines.
    was_interrupted = getattr(sys, "last_type", None) is KeyboardInterrupt and not hasattr(sys, "ps1")
    try:
        if was_interrupted:
            raise KeyboardInterrupt
        for pool in pools:
            pool._refuse_more(with_maps=True)
        wait_over(pools)
    except KeyboardInterrupt:
        if not was_interrupted:
            _core.interrupt_at_exit()  # so that whoever started the program learns of it
        dropped = _drop_rest(pools)
    else:
        dropped = []
    program.close()
    _core.finish_callbacks()
    if dropped and not was_interrupted and _is_read(sys.stderr):
        sys.stderr.write("".join(f"clutch: interrupted while {what}; the rest was dropped\n" for what in dropped))


def _drop_rest(pools: Collection[EndablePool]) -> list[str]:
    """End the pools at once. Returns what was still running."""
    at_work = sorted(pool.name for pool in pools if not pool._wait_closed(0))
    for pool in pools:
        pool._is_cut = True
        pool._kill_all()
    try:
        is_printed = wait_over(pools)
    except KeyboardInterrupt:  # asked twice: now
        is_printed = False
    dropped = [f"pools still worked: {', '.join(at_work)}"] if at_work else []
    return dropped if is_printed else [*dropped, "the output of workers waited for a reader"]


def _is_read(stream: TextIO | None) -> bool:
    """Returns whether a line can be written without blocking: it may be a pipe that nobody reads."""
    if stream is None:
        return False
    try:
        room = select.poll()
        room.register(stream, select.POLLOUT)
        return bool(room.poll(0))
    except (OSError, TypeError, ValueError):  # it has no descriptor
        return True
