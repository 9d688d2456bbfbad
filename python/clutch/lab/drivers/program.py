"""A program that a driver has started: what it prints, and its end."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence

from clutch.lab import orphans, watching

STOP_SECONDS_MAX = 8.0
SHOWN_BYTES = 4_000


class Wrong(Exception):
    """It does not start, or does not do its work as it should."""


class Program:
    """In a session of its own, as a service runs: where the scheduler shares CPUs among sessions, the number of threads
    of the load takes nothing from it."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], has_session: bool = True) -> None:
        self.output = tempfile.TemporaryFile()  # noqa: SIM115 - as long as this lives
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=self.output,
            stderr=subprocess.STDOUT,
            start_new_session=has_session,
            preexec_fn=orphans.end_with_parent,
            env={**os.environ, **environment},
        )

    @property
    def pid(self) -> int:
        return self.process.pid

    def pids(self) -> list[int]:
        """It and all that it has started."""
        return watching.below(self.pid)

    def ended(self) -> int | None:
        """With which code it has; None: it has not."""
        return self.process.poll()

    def note_tail(self, error: BaseException) -> None:
        """Add the end of what it has printed to what is raised, but for what only tells that it works."""
        self.output.seek(0, os.SEEK_END)
        self.output.seek(max(0, self.output.tell() - SHOWN_BYTES))
        lines = self.output.read().decode(errors="replace").splitlines()
        if said := "\n".join(line for line in lines if " INFO " not in line).strip():
            error.add_note(said)

    def stop(self) -> None:
        """SIGTERM, then SIGKILL to those of its session that are left."""
        left = self.pids()
        self.process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(STOP_SECONDS_MAX)
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                if os.getsid(pid) == self.pid:
                    os.kill(pid, signal.SIGKILL)
        self.process.wait()
