"""Slow work, such as an import, is done by one thread or greenlet at a time.

Owns the wait of the others. Promises that an interrupt reaches them there, and that none leaves it held by nobody.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
LOOK_AGAIN_SECONDS = 0.05
"""Interval at which a waiting thread runs Python code, so that an exception sent to it is raised."""


class Exclusive:
    """A lock that no interrupt loses, wherever it comes: an exception for a thread may be raised behind every call."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        """Held for a moment only."""
        self._holder: int | None = None
        self._was_left = threading.Event()

    @property
    def is_mine(self) -> bool:
        """Returns whether this thread or greenlet holds the lock."""
        return self._holder == threading.get_ident()

    def run(self, function: Callable[[], T]) -> T:
        """Call the function while holding the lock. Not reentrant."""
        me = threading.get_ident()
        try:
            while not self._enter(me):
                self._was_left.wait(LOOK_AGAIN_SECONDS)
            return function()
        finally:
            if self._holder == me:  # no call stands before this
                self._holder = None
                self._was_left.set()

    def _enter(self, me: int) -> bool:
        with self._lock:
            if self._holder is None:
                self._was_left.clear()
                self._holder = me
        return self._holder == me
