"""The life of a process that serves: begun, ended by a signal, hurried by a second one.

Owns the order. The main thread waits for signals alone, and the end runs in a thread of its own, so that a further
signal always gets through.
"""

from __future__ import annotations

import threading
import time
from typing import Protocol

from clutch._process.inbox import NEVER_READY, STOPPED, Inbox

ONE_SIGNAL_SECONDS = 0.5
"""A signal that comes again within this time is the same one: `timeout`, service managers and the first process of a
container send it both to the process and to its group."""


class Life(Protocol):
    """A life that is begun and ended. All methods but `end` are called in the main thread."""

    def begin(self) -> None: ...

    def carry_out(self, number: int) -> bool:
        """Does what a signal asks for. Returns whether that is to end."""
        ...

    def ending(self, reason: int) -> None:
        """Called when the end is decided, before `end`. `reason`: a signal or NEVER_READY."""
        ...

    def end(self) -> None:
        """Stops what was begun, also after a `begin` that failed. Called once, in another thread; must not raise."""
        ...

    def hurry(self, number: int) -> None:
        """Called for each further signal, and for AT_ONCE, that arrives while `end` runs."""
        ...


def run_until_signal(life: Life, inbox: Inbox) -> None:
    """Runs a life to its end. Raises what `begin` raises, after `end`."""
    byte = NEVER_READY
    try:
        life.begin()
        while (byte := inbox.next()) != NEVER_READY and not life.carry_out(byte):
            pass
        life.ending(byte)
    finally:
        ender = threading.Thread(target=_end, args=(life, inbox), name="clutch-end", daemon=True)
        ended_by, again_from = byte, time.monotonic() + ONE_SIGNAL_SECONDS
        ender.start()
        while (byte := inbox.next()) != STOPPED:
            if byte != ended_by or time.monotonic() >= again_from:
                life.hurry(byte)
        ender.join()


def _end(life: Life, inbox: Inbox) -> None:
    try:
        life.end()
    finally:
        inbox.say(STOPPED)
