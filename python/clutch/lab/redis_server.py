"""A Redis of the lab's own: a temporary folder, a free port of loopback, nothing written to disk; ended by its pid."""

from __future__ import annotations

import contextlib
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator

from clutch.errors import ClutchError

START_SECONDS_MAX = 10.0
STOP_SECONDS_MAX = 10.0
LOOK_SECONDS = 0.02
FLAGS = ("--save", "", "--appendonly", "no")


@contextlib.contextmanager
def redis_server() -> Iterator[str]:
    """The URL of a server, from its first PONG to its end. Raises ClutchError."""
    program = shutil.which("redis-server") or shutil.which("valkey-server")
    if program is None:
        raise ClutchError("there is no redis-server here; install it with: sudo apt-get install redis-server")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with tempfile.TemporaryDirectory(prefix="clutch-lab-redis-") as folder:
        command = [program, "--port", str(port), "--bind", "127.0.0.1", "--dir", folder, *FLAGS]
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, start_new_session=True)
        try:
            wait(port, process)
            yield f"redis://127.0.0.1:{port}/0"
        finally:
            process.terminate()
            try:
                process.wait(STOP_SECONDS_MAX)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def wait(port: int, process: subprocess.Popen[bytes]) -> None:
    """Until it answers."""
    end = time.monotonic() + START_SECONDS_MAX
    while time.monotonic() < end and process.poll() is None:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1) as connection:
            connection.sendall(b"PING\r\n")
            if connection.recv(64).startswith(b"+PONG"):
                return
        time.sleep(LOOK_SECONDS)
    raise ClutchError(f"redis-server does not answer on port {port}")
