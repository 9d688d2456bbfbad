"""The sleep of asyncio's own loop: what Clutch reads is served within it, and other threads end it once for all that
they ask of the loop.

A turn of its own code takes longer than a small request: Python code selects, makes callbacks of what is ready, queues
and runs them. Its `call_soon_threadsafe` writes to a socket each time: for an app whose `def` endpoints run in threads
that is a write, a read, and often a turn of the loop for every request.
"""

from __future__ import annotations

import selectors
from typing import TYPE_CHECKING, Any

from clutch import _core

if TYPE_CHECKING:
    import asyncio


def sleep_of(loop: asyncio.AbstractEventLoop) -> _core.LoopSleep | None:
    """Take over the sleep of a loop. Loops of other libraries, and of an asyncio of another make, stay as they are."""
    import asyncio  # which workers without loops do without

    selector, ready = getattr(loop, "_selector", None), getattr(loop, "_ready", None)
    write, keys = getattr(loop, "_write_to_self", None), getattr(selector, "_fd_to_key", None)
    if not isinstance(loop, asyncio.SelectorEventLoop) or type(selector) is not selectors.EpollSelector:
        return None
    if ready is None or write is None or not isinstance(keys, dict):
        return None
    sleep = _core.LoopSleep(loop, selector.fileno(), keys, ready, write)

    def select(timeout: float | None = None) -> Any:
        return sleep.select(timeout)  # in a frame of this file, by which one sees that the loop sleeps

    selector.select = select  # type: ignore[method-assign]
    loop._write_to_self = sleep.wake  # type: ignore[attr-defined]
    return sleep
