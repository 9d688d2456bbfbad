"""A served app under tight limits, and clients of it that keep to no rules of HTTP."""

from __future__ import annotations

import contextlib
import json
import re
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from support.clutch_process import WAIT_SECONDS
from support.serve_process import ANY_PORT, Serving

HOST = "Host: a\r\n"
LAST = f"{HOST}Connection: close\r\n"
GROWTH_BYTES_MAX = 64 << 20
"""What the dispatcher may grow by, whatever is sent."""

LIMITS = {
    "head_max": "8KB",
    "headers_max": "20",
    "head_timeout": "1s",
    "body_max": "100KB",
    "body_timeout": "1s",
    "write_timeout": "1s",
    "keep_alive": "2s",
    "timeout": "2s",
    "silence": "2s",
    "connections_max": "30",
    "access_log": "-",
    "access_log_format": "json",
}


class Served:
    """A server, and clients of it that keep to no rules."""

    def __init__(self, serving: Serving, logs: bool = True) -> None:
        """`logs`: its access log is JSON on standard output."""
        self.serving = serving
        self.address = serving.address
        self.pids = serving.workers()
        self.asked = 0
        if logs:
            self.logged()
        self.bytes_before = resident(serving.process.pid)

    @contextlib.contextmanager
    def client(self) -> Iterator[socket.socket]:
        host, _, port = self.address.rpartition(":")
        with self.connect(host, port) as connection:
            yield connection

    @staticmethod
    def connect(host: str, port: str) -> socket.socket:
        return socket.create_connection((host, int(port)), timeout=WAIT_SECONDS)

    def say(self, *pieces: bytes | str) -> bytes:
        """Sends all of it, and returns what comes until the server closes."""
        with self.client() as connection:
            for piece in pieces:
                with contextlib.suppress(ConnectionError):
                    connection.sendall(piece.encode("latin-1") if isinstance(piece, str) else piece)
            return rest(connection)

    def get(self, path: str) -> bytes:
        return self.say(f"GET {path} HTTP/1.1\r\n{LAST}\r\n")

    def logged(self) -> list[dict[str, Any]]:
        """Lines of the access log since the last time, those of checks left out."""
        number = self.asked
        self.asked += 1
        assert status(self.get(f"/line-{number}")) == 200
        self.serving.out.wait(f'"path":"/line-{number}"')
        lines = [json.loads(line) for line in self.serving.out.lines if line.startswith("{")]
        # One says how many others were left out, where they come faster than they are written.
        marks = [at for at, line in enumerate(lines) if str(line.get("path")).startswith("/line-")]
        return lines[marks[-2] + 1 if len(marks) > 1 else 0 : marks[-1]]

    def check(self) -> None:
        """Others are served as before, by the same workers, and memory has not grown."""
        self.logged()
        assert all(Path(f"/proc/{pid}").exists() for pid in self.pids)
        assert resident(self.serving.process.pid) - self.bytes_before < GROWTH_BYTES_MAX


def resident(pid: int) -> int:
    found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found
    return int(found[1]) * 1024


def rest(connection: socket.socket) -> bytes:
    """All until the server closes, or has cut the connection off."""
    received = bytearray()
    with contextlib.suppress(ConnectionError):
        while piece := connection.recv(1 << 16):
            received += piece
    return bytes(received)


def status(response: bytes) -> int:
    """0: there is no response."""
    return int(response[9:12]) if response else 0


def body(response: bytes) -> Any:
    return json.loads(response.partition(b"\r\n\r\n")[2])


@contextlib.contextmanager
def serve(folder: Path, target: str, **options: str) -> Iterator[Served]:
    settings = [f"fronts.serve.{name}={value}" for name, value in {**LIMITS, **options}.items()]
    flags = [flag for setting in settings for flag in ("--set", setting)]
    with Serving(folder, target, "-w", "1", "-b", ANY_PORT, *flags) as serving:
        serving.wait_ready("web")
        yield Served(serving, logs=options.get("access_log", "-") == "-")
