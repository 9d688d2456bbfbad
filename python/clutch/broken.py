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
        """Number of the signal that killed the worker, or None."""
        self.exit_code = exit_code
        """Exit status of the worker, or None."""
        self.output = output
        """Last output of the worker (`output_kept`)."""
        self.cause = cause
        """Reason why Clutch ended the worker itself, if it did."""
