"""A Redis of the comparison's own: a temporary folder, a free port, nothing written to disk."""

from __future__ import annotations

import contextlib
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from clutch.errors import ClutchError
from clutch.lab import orphans
from clutch.lab.drivers.served import HOST, free_port

PROGRAM = "redis-server"
FLAGS = ("--save", "", "--appendonly", "no")
START_SECONDS_MAX = 10.0
STOP_SECONDS_MAX = 5.0
LOOK_SECONDS = 0.02


class RedisServer:
    """It answers once it is there. Raises RuntimeError where it does not."""

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        place = ["--port", str(self.port), "--bind", HOST, "--dir", str(folder)]
        self.process = subprocess.Popen(
            [PROGRAM, *place, *FLAGS],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
            preexec_fn=orphans.end_with_parent,
        )
        until = time.monotonic() + START_SECONDS_MAX
        while not self.answers():
            if self.process.poll() is not None or time.monotonic() > until:
                self.end()
                raise RuntimeError(f"{PROGRAM} does not answer on port {self.port}")
            time.sleep(LOOK_SECONDS)

    @property
    def url(self) -> str:
        return f"redis://{HOST}:{self.port}/0"

    def answers(self) -> bool:
        with contextlib.suppress(OSError), socket.create_connection((HOST, self.port), 1) as connection:
            connection.sendall(b"PING\r\n")
            return connection.recv(16).startswith(b"+PONG")
        return False

    def end(self) -> None:
        self.process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(STOP_SECONDS_MAX)
        self.process.kill()
        self.process.wait()


@contextlib.contextmanager
def running() -> Iterator[str]:
    """The URL of a server, from its first answer to its end. Raises ClutchError where there is none here."""
    if (reason := lacks()) is not None:
        raise ClutchError(reason)
    with tempfile.TemporaryDirectory(prefix="clutch-lab-redis-") as folder:
        server = RedisServer(Path(folder))
        try:
            yield server.url
        finally:
            server.end()


def lacks() -> str | None:
    """Why there is none here."""
    return None if shutil.which(PROGRAM) else f"there is no {PROGRAM}; install it with: sudo apt-get install {PROGRAM}"


def version() -> str:
    words = subprocess.run([PROGRAM, "--version"], capture_output=True, text=True, check=True).stdout.split()
    return next(word.removeprefix("v=") for word in words if word.startswith("v="))
