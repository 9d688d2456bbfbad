"""A loop of asyncio's that other threads wake once for all that they ask of it, and only while it sleeps.

Its own `call_soon_threadsafe` writes to a socket each time: for an app whose `def` endpoints run in threads that is a
write, a read, and often a turn of the loop for every request.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from typing import Any


def wake_once(loop: asyncio.AbstractEventLoop) -> None:
    """Loops of other libraries, and of an asyncio of another make, stay as they are."""
    selector, ready = getattr(loop, "_selector", None), getattr(loop, "_ready", None)
    wake = getattr(loop, "_write_to_self", None)
    # Without a GIL nothing orders what one thread writes before what it reads.
    has_gil = getattr(sys, "_is_gil_enabled", lambda: True)()
    if isinstance(loop, asyncio.SelectorEventLoop) and has_gil and selector is not None and ready is not None and wake:
        sleeper = Sleeper(ready, selector.select, wake)
        selector.select = sleeper.select
        loop._write_to_self = sleeper.wake  # type: ignore[attr-defined]


class Sleeper:
    """`ready`: what the loop is to run. `select`: its sleep. `write`: ends that.

    A thread adds to `ready` and then looks whether the loop sleeps; the loop says that it sleeps and then looks at
    `ready`. So one of them sees the other.
    """

    def __init__(self, ready: Any, select: Callable[[float | None], Any], write: Callable[[], object]) -> None:
        self.ready = ready
        self.wait = select
        self.write = write
        self.sleep: object | None = None
        """This one; None: it runs."""
        self.ended: object | None = None
        """The last one that somebody has ended."""
        self.nests = False
        """It has run within its own sleep, by a signal's handler: it is woken each time from then on."""

    def select(self, timeout: float | None = None) -> Any:
        self.nests |= self.sleep is not None
        self.sleep = object()
        try:
            return self.wait(0 if self.ready else timeout)
        finally:
            self.sleep = None

    def wake(self) -> None:
        sleep = self.sleep
        if (sleep is None or sleep is self.ended) and not self.nests:
            return
        self.write()
        # Not before, as a thread may be interrupted anywhere; and not the loop's next one, which it may be in by now.
        self.ended = sleep
