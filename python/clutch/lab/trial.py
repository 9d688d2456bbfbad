"""A setting that runs, in a process of its own, and what a measurement of it has shown."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

from clutch.errors import ClutchError
from clutch.lab import watching
from clutch.lab.setting import Setting

START_SECONDS_MAX = 90.0
LATE_SECONDS = 30.0
"""Time that a measurement may take beyond its own."""


class TrialFailed(ClutchError):
    """The work fails, or the pool does not start. The text says which, with the traceback."""


@dataclass(frozen=True)
class Work:
    """A function and its arguments, as JSON can say them."""

    module: str
    name: str
    args: list[Any] = field(default_factory=list)
    kwargs: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.module}:{self.name}"


@dataclass(frozen=True)
class Figures:
    """Of one measurement. Times in seconds; `cpu_s` of the workers, `load_cpu_s` of the program that calls them."""

    units: int
    wall_s: float
    cpu_s: float
    load_cpu_s: float
    errors: dict[str, int]
    latency_s: dict[str, float]
    """By percentile, `"50"` to `"99.9"`: from the call to its result, with the wait for a slot."""
    switches: int
    forced: int
    pss_bytes: int
    cpus: list[int | None]

    @property
    def rate(self) -> float:
        """Calls a second."""
        return self.units / self.wall_s if self.wall_s > 0 else 0.0

    @property
    def cpu_each_s(self) -> float:
        return self.cpu_s / self.units if self.units else 0.0

    @property
    def cpu_share(self) -> float:
        """CPUs that the workers used."""
        return self.cpu_s / self.wall_s if self.wall_s > 0 else 0.0


class Trial:
    """One pool of a setting, from its start to its end."""

    def __init__(self, work: Work, setting: Setting, options: dict[str, Any] | None = None) -> None:
        """Start it. Raises TrialFailed where the pool does not start, or the work fails."""
        self.setting = setting
        self._process = subprocess.Popen(
            [sys.executable, "-m", "clutch.lab.runner"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            bufsize=1,
            start_new_session=True,
            env={**os.environ, "PYTHONSAFEPATH": "1"},
        )
        order = {"module": work.module, "name": work.name, "args": work.args, "kwargs": work.kwargs}
        try:
            found = self._ask({**order, "options": {**setting.options(), **(options or {})}}, START_SECONDS_MAX)
        except BaseException:
            self.end()
            raise
        self.start_s: float = found["start_s"]
        self.check_s: float = found["check_s"]
        self.is_async: bool = found["is_async"]

    def measure(self, callers: int, seconds: float) -> Figures:
        """Keep so many calls under way for so long."""
        return Figures(**self._ask({"callers": callers, "seconds": seconds}, seconds + LATE_SECONDS))

    def _ask(self, what: dict[str, Any], seconds: float) -> dict[str, Any]:
        assert self._process.stdin and self._process.stdout
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps(what) + "\n")
        until = time.monotonic() + seconds
        if not select.select([self._process.stdout], [], [], max(0.0, until - time.monotonic()))[0]:
            raise TrialFailed(f"{self.setting} has not answered within {seconds:.0f} s")
        line = self._process.stdout.readline()
        answer = json.loads(line) if line else {"error": f"it ended with {self._process.wait()}"}
        if "error" in answer:
            raise TrialFailed("\n".join([f"{self.setting}: {answer['error']}", *answer.get("notes", [])]))
        return answer

    def end(self) -> None:
        """End the pool and all that it has started."""
        left = watching.below(self._process.pid)
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with contextlib.suppress(BrokenPipeError):
                    stream.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(2)
        if self._process.poll() is None:
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self._process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.end()
