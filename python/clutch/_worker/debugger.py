"""pdb at the terminal of the dispatcher.

A worker is a process group of its own, so it may neither read the terminal nor hear its Ctrl-C. While the prompt is
open its group is that in the foreground, and standard input and output are the terminal, so that lines can be edited;
then all is as before. The dispatcher is told: meanwhile nothing is late, and this worker is not ended. A lock on the
terminal has one prompt open at a time, whichever worker or thread asks.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import pdb
import signal
import struct
import sys
import termios
import threading
import time
import types
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from clutch import _core

WRITTEN_LOOKS = 100
LOOK_SECONDS = 0.002
"""Interval, and maximum time, of the prompt's wait until the dispatcher has read earlier output."""
BACKGROUND = (
    "breakpoint() needs the terminal, and the server is not in its foreground: bring it there with `fg`, or start it "
    "without &"
)
ELSEWHERE = b"\n(the debugger keeps the terminal: c goes on, q ends this request; then Ctrl-C stops the server)\n"

_asking: tuple[int, int] | None = None
"""The thread with the prompt, and the terminal."""


def take_signals() -> None:
    """Handle the signals that the terminal sends to its foreground group. Called in the main thread."""
    signal.signal(signal.SIGINT, hear_interrupt)
    # Nobody could continue a worker that was stopped so: the shell does not know it.
    signal.signal(signal.SIGTSTP, signal.SIG_IGN)


def hear_interrupt(_: int, __: types.FrameType | None) -> None:
    if _asking is None:
        return
    thread, terminal = _asking
    if thread == threading.get_ident():
        raise KeyboardInterrupt
    os.write(terminal, ELSEWHERE)


class Debugger(pdb.Pdb):
    """Debugger of one `breakpoint()` and the steps from there on."""

    def __init__(self, link: _core.WorkerLink, terminal: str, group: int) -> None:
        """`group`: process group of the dispatcher, the usual owner of the terminal."""
        super().__init__(nosigint=True)
        self._link = link
        self._terminal = terminal
        self._group = group
        self._early: list[str] = []
        self._is_open = False

    def begin(self, frame: types.FrameType, *, header: str | None = None, **more: Any) -> None:
        """Raises RuntimeError, before anything is traced, if the terminal is not available."""
        with self._opened():
            pass
        if header is not None:
            self.message(header)
        self.set_trace(frame, **more)

    def message(self, msg: str, end: str = "\n") -> None:
        """Keeps a message that comes before the prompt, to show it with that."""
        if self._is_open:
            print(msg, end=end, file=sys.stdout)
        else:
            self._early.append(msg)

    def error(self, msg: str) -> None:
        self.message(f"*** {msg}")

    def interaction(self, *arguments: Any, **more: Any) -> None:
        with self._opened() as terminal, self._lent(terminal), self._as_standard(terminal):
            self._is_open = True
            try:
                while self._early:
                    self.message(self._early.pop(0))
                super().interaction(*arguments, **more)
            finally:
                self._is_open = False

    @contextlib.contextmanager
    def _opened(self) -> Iterator[int]:
        """Wait until no other prompt is open."""
        try:
            terminal = os.open(self._terminal, os.O_RDWR | os.O_NOCTTY)
        except OSError as error:
            raise RuntimeError(f"breakpoint() needs the terminal {self._terminal}: {error.strerror}") from error
        try:
            fcntl.flock(terminal, fcntl.LOCK_EX)
            if os.tcgetpgrp(terminal) != self._group:
                raise RuntimeError(BACKGROUND)
            yield terminal
        finally:
            # gevent closes it when its loop comes by.
            fcntl.flock(terminal, fcntl.LOCK_UN)
            os.close(terminal)

    @contextlib.contextmanager
    def _lent(self, terminal: int) -> Iterator[None]:
        global _asking
        wait_written()
        modes = termios.tcgetattr(terminal)
        self._link.debugging(True)
        to_foreground(terminal, os.getpgrp())
        _asking = threading.get_ident(), terminal
        try:
            yield
        finally:
            _asking = None
            termios.tcsetattr(terminal, termios.TCSADRAIN, modes)
            to_foreground(terminal, self._group)
            self._link.debugging(False)

    @contextlib.contextmanager
    def _as_standard(self, terminal: int) -> Iterator[None]:
        """Make descriptors 0 and 1, and the streams on them, the terminal, so that `input()` offers line editing."""
        kept = [os.dup(number) for number in (0, 1)]
        streams = sys.stdin, sys.stdout
        try:
            for number in (0, 1):
                os.dup2(terminal, number)
            sys.stdin, sys.stdout = open(0, closefd=False), open(1, "w", buffering=1, closefd=False)  # noqa: SIM115 (only views)
            self.stdin, self.stdout = sys.stdin, sys.stdout
            yield
        finally:
            with contextlib.suppress(OSError):
                self.stdout.flush()
            sys.stdin, sys.stdout = streams
            for number, descriptor in enumerate(kept):
                os.dup2(descriptor, number)
                os.close(descriptor)


def to_foreground(terminal: int, group: int) -> None:
    """Change the foreground group. A background process that does so is stopped by SIGTTOU unless that is blocked."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTTOU])
    try:
        os.tcsetpgrp(terminal, group)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def wait_written() -> None:
    """Wait until earlier output, which goes through the dispatcher, is shown, so that it comes before the prompt."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    for _ in range(WRITTEN_LOOKS):
        if not any(unread(number) for number in (1, 2)):
            return
        time.sleep(LOOK_SECONDS)


def unread(pipe: int) -> int:
    """Number of bytes in a pipe that its reader has not read yet."""
    try:
        count: int = struct.unpack("i", fcntl.ioctl(pipe, termios.FIONREAD, b"\0\0\0\0"))[0]
    except OSError:
        return 0
    return count
