"""A command on a terminal of its own: what is shown there, and what is typed."""

from __future__ import annotations

import codecs
import contextlib
import io
import os
import pty
import re
import subprocess
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO

from clutch.testing import Processes
from support.clutch_process import WAIT_SECONDS, environment, take_terminal


class Terminal:
    """Standard input, output and error of the command are one pseudo-terminal, and it is in the foreground there."""

    def __init__(self, folder: Path, command: Sequence[str], term: str = "dumb") -> None:
        self._ours, theirs = pty.openpty()
        self.process = subprocess.Popen(
            command,
            cwd=folder,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
            preexec_fn=take_terminal,
            env=environment() | {"TERM": term, "PYTHON_BASIC_REPL": "1"},
        )
        os.close(theirs)
        self._text, self._seen = "", 0
        self._changed, self._ended = threading.Condition(), False
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        utf8 = codecs.getincrementaldecoder("utf-8")(errors="replace")
        whole = io.IncrementalNewlineDecoder(utf8, translate=False)  # a read may end in mid-character, and before a \n
        with contextlib.suppress(OSError):  # nobody has it any more
            while more := os.read(self._ours, 4096):
                with self._changed:
                    self._text += whole.decode(more).replace("\r\n", "\n")
                    self._changed.notify_all()
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    @property
    def text(self) -> str:
        """All that was shown."""
        with self._changed:
            return self._text

    def wait(self, pattern: str) -> re.Match[str]:
        """Until this is shown, behind what was waited for before."""
        with self._changed:
            found = None

            def is_shown() -> bool:
                nonlocal found
                found = re.compile(pattern).search(self._text, self._seen)
                return self._ended or found is not None

            self._changed.wait_for(is_shown, WAIT_SECONDS)
            if found is None:
                raise TimeoutError(
                    f"{pattern!r} is not in:\n{self._text[self._seen :]}\nwhat came before:\n{self._text}"
                )
            self._seen = found.end()
            return found

    def type(self, text: str) -> None:
        os.write(self._ours, text.encode())

    @property
    def descriptor(self) -> int:
        return self._ours

    def foreground(self) -> int:
        """The group that has it."""
        return os.tcgetpgrp(self._ours)

    def interrupt(self) -> None:
        """Ctrl-C."""
        self.type("\x03")

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_: object) -> None:
        with Processes.below(self.process.pid) as left:
            if self.process.poll() is None:
                self.process.kill()
                self.process.wait(WAIT_SECONDS)
            left.wait_ended()
        self._reader.join(WAIT_SECONDS)
        os.close(self._ours)


@contextlib.contextmanager
def asking(url: str, *arguments: str) -> Iterator[IO[str]]:
    """curl, whose answer is read when it comes."""
    command = ["curl", "-sS", "--max-time", str(WAIT_SECONDS), "-w", "\n%{http_code}", *arguments, url]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as curl:
        assert curl.stdout is not None
        yield curl.stdout
