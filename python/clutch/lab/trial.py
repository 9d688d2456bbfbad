"""Work that has been started in a process of its own: asked for measurements, and ended with all it has started."""

from __future__ import annotations

import contextlib
import json
import math
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from types import TracebackType
from typing import Any, Self

from clutch.errors import ClutchError
from clutch.lab import orphans, watching
from clutch.lab.load import Figures, Load
from clutch.lab.runner import STACK_SIGNAL

START_SECONDS_MAX = 120.0
LATE_SECONDS = 60.0
"""Time that a measurement may take beyond its own."""
END_SECONDS_MAX = 10.0
STACK_SECONDS_MAX = 2.0
STACK_BYTES_MAX = 4_000
IMPORTING = '  while it is imported: what a module does then belongs below `if __name__ == "__main__":`'
OURS = os.path.dirname(__file__)
TOLD_SECONDS = 5.0
"""Time after which it is told that a start takes long."""


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
        tell: Callable[[str], object] = lambda _: None,
        until: float = math.inf,
    ) -> None:
        """Start it. Raises TrialFailed where it does not start, or where its first unit fails. `tell`: takes a line for
        people while that takes long. `until`: when nobody waits for it any more, by the monotonic clock."""
        self.name = name
        self._tell, self._until = tell, until
        self._rest = b""
        self._is_asked = False
        self._sessions: set[int] = set()
        self._stack = tempfile.TemporaryFile()  # noqa: SIM115 - as long as this lives
        stack = self._stack.fileno()
        self._process = subprocess.Popen(
            [python, "-m", "clutch.lab.runner", str(stack)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            pass_fds=[stack],
            preexec_fn=prepare,
            env={**os.environ, "PYTHONSAFEPATH": "1", **(environment or {})},
        )
        try:
            self.hello = self._ask(order, START_SECONDS_MAX, TOLD_SECONDS)
        except BaseException:
            self.end()
            raise
        self.start_s: float = self.hello["start_s"]
        self.check_s: float = self.hello["check_s"]
        self.least_s: float = self.hello.get("least_s", 0.0)
        """Shorter windows are made as long as this."""
        self.is_async: bool = self.hello.get("is_async", False)

    def measure(self, load: Load, seconds: float, turn: int = 0) -> Figures:
        """Put it under load for so long. `turn`: which CPUs it computes on, see placing. Raises TrialFailed."""
        patience = 4 * seconds + 40 * self.check_s + LATE_SECONDS
        return Figures.of_data(self._ask({"load": asdict(load), "seconds": seconds, "turn": turn}, patience))

    def pids(self) -> list[int]:
        """Processes that the trial has started, as of now."""
        return watching.below(self._process.pid)[1:]

    def memory(self) -> int:
        """Bytes of all its processes together, that of the calling program included."""
        return watching.pss_bytes(watching.below(self._process.pid))

    def _ask(self, what: dict[str, Any], seconds: float, told_seconds: float | None = None) -> dict[str, Any]:
        """`told_seconds`: how long it may take before it is told where it is."""
        assert self._process.stdin
        self._is_asked, began = True, time.monotonic()
        seconds = max(0.0, min(seconds, self._until - began))
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps(what).encode() + b"\n")
            self._process.stdin.flush()
        told = told_seconds is not None and told_seconds < seconds
        line = self._line(began + (told_seconds if told and told_seconds else seconds))
        if line is None and told:
            self._tell(f"{self.name} is not ready after {told_seconds:.0f} s{self._place()}")
            line = self._line(began + seconds)
        if line is None:
            raise TrialFailed(f"it has not answered within {seconds:.0f} s{self._place()}")
        self._is_asked = False
        self._sessions |= orphans.sessions(watching.below(self._process.pid))
        answer = json.loads(line) if line else {"error": f"its process ended with {self._process.wait()}"}
        if "error" in answer:
            notes = answer["notes"] if line else [self._said()]
            raise TrialFailed("\n".join([answer["error"], *filter(None, notes)]))
        return answer

    def _place(self) -> str:
        return f"; it is at\n{where}" if (where := self._where()) else ""

    def _where(self) -> str:
        """The stack of its process, as it says it when it is asked."""
        self._process.send_signal(STACK_SIGNAL)
        until = time.monotonic() + STACK_SECONDS_MAX
        while not (said := self._said()) and time.monotonic() < until and self._process.poll() is None:
            time.sleep(0.01)
        return theirs(said)

    def _said(self) -> str:
        """What its process has said of its stack, or of its end."""
        self._stack.seek(0)
        return self._stack.read(STACK_BYTES_MAX).decode(errors="replace").strip()

    def _line(self, until: float) -> bytes | None:
        """The next line; empty at the end; None when it has not come in time."""
        assert self._process.stdout
        answers = select.poll()  # any descriptor: a program may have thousands
        answers.register(self._process.stdout, select.POLLIN)
        while b"\n" not in self._rest:
            if not answers.poll(max(0.0, until - time.monotonic()) * 1000):
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


def prepare() -> None:
    """In the child, before it is another program."""
    orphans.end_with_parent()
    # Until it can answer with its stack.
    signal.signal(STACK_SIGNAL, signal.SIG_IGN)


def theirs(stack: str) -> str:
    """A stack as `faulthandler` writes it, of a module that is being imported: without what is the lab's or Python's
    own. Else nothing, as it is somebody else who takes so long."""
    if "in import_module" not in stack:
        return ""  # it waits for others
    lines = [line for line in stack.splitlines() if "<frozen " not in line and OURS not in line]
    lines = [line for line in lines if not line.endswith("in import_module")]
    return "\n".join([*lines, IMPORTING])
