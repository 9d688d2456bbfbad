"""stdout and stderr are one pipe that is full and that nobody reads: signals are obeyed as ever."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from clutch.testing import Processes
from support.clutch_process import COMMAND, WAIT_SECONDS, environment

pytestmark = pytest.mark.timeout(120)
CONFIG = '[pools.a]\ntarget = "http_tools"\nworkers = 1\n[pools.b]\ntarget = "http_tools"\nworkers = 1\n'
COMMANDS = {
    "run": ["run", "clutch.toml"],
    "serve": ["serve", "web:app", "--bind", "127.0.0.1:0", "--access-logfile", "-"],
}


@pytest.fixture
def full() -> Iterator[int]:
    unread, full = os.pipe()
    os.set_blocking(full, False)
    try:
        while True:
            os.write(full, bytes(4096))
    except BlockingIOError:
        os.set_blocking(full, True)
    yield full
    os.close(unread)
    os.close(full)


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[socket.socket]:
    """What hears of the life of a dispatcher whose log tells nothing."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.settimeout(WAIT_SECONDS)
        manager.bind(str(tmp_path / "notify"))
        yield manager


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("signals", [1, 2])
def test_term_ends_it(tmp_path: Path, full: int, manager: socket.socket, command: str, signals: int) -> None:
    (tmp_path / "clutch.toml").write_text(CONFIG)
    process = subprocess.Popen(
        [*COMMAND, *COMMANDS[command]],
        cwd=tmp_path,
        env=environment() | {"NOTIFY_SOCKET": str(tmp_path / "notify")},
        stdout=full,
        stderr=full,
    )
    with process, Processes([process.pid]) as itself:
        try:
            hear(manager, b"READY=1")
            below = Processes.below(process.pid)
            process.terminate()
            if signals == 2:
                hear(manager, b"STOPPING=1")
                process.send_signal(signal.SIGINT)  # another one: it is not taken for the first
            # The second may come when all is stopped.
            assert process.wait(WAIT_SECONDS) in ((0,) if signals == 1 else (0, 128 + signal.SIGINT))
            below.wait_ended()
        finally:
            itself.send(signal.SIGKILL)


def hear(manager: socket.socket, word: bytes) -> None:
    while word not in manager.recv(4096).splitlines():
        pass
