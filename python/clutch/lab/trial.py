"""Work that has been started in a process of its own: asked for measurements, and ended with all it has started."""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict
from types import TracebackType
from typing import Any, Self

from clutch.errors import ClutchError
from clutch.lab import orphans, watching
from clutch.lab.load import Figures, Load

START_SECONDS_MAX = 120.0
LATE_SECONDS = 60.0
"""Time that a measurement may take beyond its own."""
END_SECONDS_MAX = 10.0


class TrialFailed(ClutchError):
    """The work fails, or does not start. The text says which, with the traceback."""


class Trial:
    """One start of something, to its end. `hello`: what it said once it was ready."""

    def __init__(
        self,
        name: str,
        order: dict[str, Any],
        environment: Mapping[str, str] | None = None,
        python: str = sys.executable,
    ) -> None:
        """Start it. Raises TrialFailed where it does not start, or where its first unit fails."""
        self.name = name
        self._rest = b""
        self._is_asked = False
        self._sessions: set[int] = set()
        self._process = subprocess.Popen(
            [python, "-m", "clutch.lab.runner"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            preexec_fn=orphans.end_with_parent,
            env={**os.environ, "PYTHONSAFEPATH": "1", **(environment or {})},
        )
        try:
            self.hello = self._ask(order, START_SECONDS_MAX)
        except BaseException:
            self.end()
            raise
        self.start_s: float = self.hello["start_s"]
        self.check_s: float = self.hello["check_s"]
        self.is_async: bool = self.hello.get("is_async", False)

    def measure(self, load: Load, seconds: float) -> Figures:
        """Put it under load for so long. Raises TrialFailed."""
        patience = 4 * seconds + 40 * self.check_s + LATE_SECONDS
        return Figures.of_data(self._ask({"load": asdict(load), "seconds": seconds}, patience))

    def pids(self) -> list[int]:
        """Processes that the trial has started, as of now."""
        return watching.below(self._process.pid)[1:]

    def memory(self) -> int:
        """Bytes of all its processes together, that of the calling program included."""
        return watching.pss_bytes(watching.below(self._process.pid))

    def _ask(self, what: dict[str, Any], seconds: float) -> dict[str, Any]:
        assert self._process.stdin
        self._is_asked = True
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps(what).encode() + b"\n")
            self._process.stdin.flush()
        line = self._line(time.monotonic() + seconds)
        if line is None:
            raise TrialFailed(f"{self.name} has not answered within {seconds:.0f} s")
        self._is_asked = False
        self._sessions |= orphans.sessions(watching.below(self._process.pid))
        answer = json.loads(line) if line else {"error": f"its process ended with {self._process.wait()}"}
        if "error" in answer:
            raise TrialFailed("\n".join([f"{self.name}: {answer['error']}", *answer.get("notes", [])]))
        return answer

    def _line(self, until: float) -> bytes | None:
        """The next line; empty at the end; None when it has not come in time."""
        assert self._process.stdout
        while b"\n" not in self._rest:
            if not select.select([self._process.stdout], [], [], max(0.0, until - time.monotonic()))[0]:
                return None
            if not (more := os.read(self._process.stdout.fileno(), 1 << 16)):
                return b""
            self._rest += more
        line, _, self._rest = self._rest.partition(b"\n")
        return line

    def end(self) -> None:
        """End it and all that it has started, also when this is interrupted."""
        left = watching.below(self._process.pid)
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with contextlib.suppress(BrokenPipeError):
                    stream.close()
        if self._is_asked:
            self._process.terminate()
        try:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(END_SECONDS_MAX)
        finally:
            if self._process.poll() is None:
                for pid in left:
                    orphans.kill(pid)
                self._process.wait()
            if self._process.returncode < 0:  # it could not end what it had started
                orphans.end_sessions(self._sessions | {self._process.pid})

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.end()
