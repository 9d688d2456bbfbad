"""Inbox of the main thread of a dispatcher: signals, and messages of its other threads."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable

# Above all signal numbers.
NEVER_READY = 200
STOPPED = 201
AT_ONCE = 202


class Inbox:
    """Signals, and what our threads say, as one byte each.

    A signal that arrives just before a thread blocks in a lock does not wake it; a byte in a pipe does.
    """

    def __init__(self, numbers: Iterable[int]) -> None:
        self.reader, self.writer = os.pipe()
        os.set_blocking(self.writer, False)
        self.replaced = signal.set_wakeup_fd(self.writer, warn_on_full_buffer=False)
        self.handlers = {number: signal.signal(number, lambda *_: None) for number in numbers}

    def say(self, byte: int) -> None:
        os.write(self.writer, bytes([byte]))

    def next(self) -> int:
        return os.read(self.reader, 1)[0]

    def restore(self) -> None:
        """Signals mean what they meant before."""
        for number, handler in self.handlers.items():
            if handler is not None:  # else it was no handler of Python's
                signal.signal(number, handler)

    def close(self) -> None:
        signal.set_wakeup_fd(self.replaced)
        os.close(self.reader)
        os.close(self.writer)
