"""A Python program of its own with pools in it: a dispatcher that tests may kill, and look at from outside."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from clutch.testing import Processes
from support.clutch_process import WAIT_SECONDS, Output, environment


def run_script(folder: Path, text: str, *arguments: str, **more: Any) -> subprocess.CompletedProcess[str]:
    """A program that ends by itself."""
    (folder / "script.py").write_text(text)
    command = [sys.executable, "script.py", *arguments]
    more = {"env": environment(), "timeout": WAIT_SECONDS, **more}
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, **more)


class Script:
    """A program under way. It is told things by lines on its standard input and tells by lines on its output."""

    def __init__(self, folder: Path, text: str, *arguments: str) -> None:
        (folder / "script.py").write_text(text)
        self.process = subprocess.Popen(
            [sys.executable, "-u", "script.py", *arguments],
            cwd=folder,
            env=environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            bufsize=1,
        )
        assert self.process.stdout and self.process.stderr
        self.out, self.err = Output(self.process.stdout), Output(self.process.stderr)

    def hear(self, pattern: str) -> str:
        """Waits for a line of its output and returns the pattern's first group, or all that fits."""
        try:
            found = self.out.wait(pattern)
        except TimeoutError as error:
            raise TimeoutError(f"{error}\nstderr:\n{self.err.text}") from None
        return found[found.re.groups and 1]

    def tell(self, line: str = "") -> None:
        assert self.process.stdin
        self.process.stdin.write(line + "\n")

    def below(self) -> Processes:
        """Its zygotes, their workers and what those have started, as of now."""
        return Processes.below(self.process.pid)

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(WAIT_SECONDS)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        with self.below() as left:
            if self.process.poll() is None:
                self.kill()
            left.send(signal.SIGKILL)
            left.wait_ended()
