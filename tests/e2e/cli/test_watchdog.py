"""systemd's watchdog: a dispatcher that works says so, one that is stuck does not."""

from __future__ import annotations

import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.clutch_process import WAIT_SECONDS
from support.serve_process import ANY_PORT, Serving

INTERVAL_SECONDS = 0.2


@pytest.fixture
def manager(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(WAIT_SECONDS)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        monkeypatch.setenv("WATCHDOG_USEC", str(int(INTERVAL_SECONDS * 1e6)))
        yield manager


def wait_for(manager: socket.socket, word: bytes) -> None:
    while word not in manager.recv(4096).splitlines():
        pass


def test_it_is_told_while_the_dispatcher_works(tmp_path: Path, manager: socket.socket) -> None:
    with Serving(tmp_path, "web:app", "-w", "1", "-b", ANY_PORT) as serving:
        serving.wait_ready("web")
        for _ in range(3):
            wait_for(manager, b"WATCHDOG=1")
        assert not {"WATCHDOG_USEC", "NOTIFY_SOCKET"} & set(serving.get().json["env"]), "workers do not speak"
        serving.send(signal.SIGSTOP)
        manager.settimeout(5 * INTERVAL_SECONDS)
        with pytest.raises(TimeoutError):
            while True:
                manager.recv(4096)
        manager.settimeout(WAIT_SECONDS)
        serving.send(signal.SIGCONT)
        wait_for(manager, b"WATCHDOG=1")
        serving.terminate()
        assert serving.wait() == 0


def test_another_process_is_meant(tmp_path: Path, manager: socket.socket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WATCHDOG_PID", "1")
    with Serving(tmp_path, "web:app", "-w", "1", "-b", ANY_PORT) as serving:
        wait_for(manager, b"READY=1")
        serving.terminate()
        assert serving.wait() == 0
    manager.setblocking(False)
    told = b""
    while True:
        try:
            told += manager.recv(4096)
        except BlockingIOError:
            break
    assert b"WATCHDOG" not in told
