"""The error for what the standard library calls a broken process pool.

A file of its own, loaded on first use: its base class comes with all of multiprocessing, which takes longer to import
than the rest of Clutch's errors together.
"""

from __future__ import annotations

from concurrent.futures.process import BrokenProcessPool

from clutch.errors import ClutchError


class WorkerLost(ClutchError, BrokenProcessPool):
    """The worker died while it ran this work. Other work of the pool is not affected."""

    def __init__(
        self,
        message: str = "",
        *,
        pid: int | None = None,
        signal: int | None = None,
        exit_code: int | None = None,
        output: str = "",
        cause: str | None = None,
    ) -> None:
        super().__init__(message)
        self.pid = pid
        self.signal = signal
        """The signal that ended it, or None."""
        self.exit_code = exit_code
        """What it exited with, or None."""
        self.output = output
        """The last of what the worker wrote to stdout and stderr."""
        self.cause = cause
        """Why Clutch ended the worker itself, when it did."""
