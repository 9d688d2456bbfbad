"""The file with the dispatcher's pid (`--pid`), for scripts that send it signals."""

from __future__ import annotations

import os
from pathlib import Path

from clutch.control.sockets import is_alive


class Pidfile:
    """Made by `write`, gone after `remove`. A file of a process that is alive is left alone."""

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()

    def write(self) -> None:
        """Raises OSError, also when another process that lives has its pid there."""
        other = self._pid_within()
        if other is not None and other != os.getpid() and is_alive(other):
            raise OSError(f"pid file {self.path}: process {other} is already running")
        # Whoever reads it sees a whole pid or none.
        whole = self.path.with_name(f"{self.path.name}.{os.getpid()}")
        whole.write_text(f"{os.getpid()}\n")
        whole.replace(self.path)

    def remove(self) -> None:
        """Unless somebody else has put a pid there."""
        if self._pid_within() == os.getpid():
            self.path.unlink(missing_ok=True)

    def _pid_within(self) -> int | None:
        try:
            text = self.path.read_text().strip()
        except FileNotFoundError:
            return None
        return int(text) if text.isdecimal() else None
