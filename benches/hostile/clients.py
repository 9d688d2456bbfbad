"""Hostile clients: one that goes on sending, and crowds that mostly wait."""

from __future__ import annotations

import contextlib
import socket
import time
from collections import Counter
from collections.abc import Iterator
from typing import Self

from benches.hostile.seen import statuses

_CONNECT_SECONDS = 5.0
_PIECE = 1 << 16
_KEPT_BYTES = 4096


def get(path: str, *lines: str, host: str = "h.example") -> bytes:
    return ("\r\n".join([f"GET {path} HTTP/1.1", f"Host: {host}", *lines]) + "\r\n\r\n").encode()


def post(path: str, *lines: str) -> bytes:
    return get(path, *lines).replace(b"GET", b"POST", 1)


def connect(port: int, receive_bytes: int | None = None) -> socket.socket:
    """`receive_bytes`: a small buffer, for a client that reads nothing."""
    connection = socket.socket()
    if receive_bytes is not None:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
    connection.settimeout(_CONNECT_SECONDS)
    connection.connect(("127.0.0.1", port))
    return connection


def ticks(seconds: float, each: float) -> Iterator[None]:
    """One now, and one after each so many seconds, until the time is over."""
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        yield
        time.sleep(min(each, left))


class Crowd:
    """Connections that send together, and look now and then whether they are still wanted."""

    def __init__(self, port: int, count: int, receive_bytes: int | None = None) -> None:
        self.refused = 0
        self.open: list[socket.socket] = []
        self.closed = 0
        self.received: dict[socket.socket, bytes] = {}
        """The first bytes of each."""
        self.received_bytes: Counter[socket.socket] = Counter()
        for _ in range(count):
            try:
                connection = connect(port, receive_bytes)
            except OSError:
                self.refused += 1
                continue
            connection.setblocking(False)
            self.open.append(connection)

    def say(self, data: bytes) -> int:
        """As much of it as fits on each; how many bytes that was."""
        sent = 0
        for connection in list(self.open):
            try:
                sent += connection.send(data)
            except BlockingIOError:
                pass
            except OSError:
                self._is_closed(connection)
        return sent

    def hear(self) -> None:
        """Takes all that has come."""
        for connection in list(self.open):
            try:
                while data := connection.recv(_PIECE):
                    self.received_bytes[connection] += len(data)
                    self.received[connection] = (self.received.get(connection, b"") + data)[:_KEPT_BYTES]
                self._is_closed(connection)
            except BlockingIOError:
                pass
            except OSError:
                self._is_closed(connection)

    def _is_closed(self, connection: socket.socket) -> None:
        self.open.remove(connection)
        self.closed += 1
        connection.close()

    def wait_closed(self, seconds: float) -> None:
        for _ in ticks(seconds, 0.1):
            self.hear()
            if not self.open:
                return

    def __str__(self) -> str:
        found = Counter(status for data in self.received.values() for status in statuses(data))
        answered = ", ".join(f"{count} × {status}" for status, count in sorted(found.items()))
        parts = [answered, f"{self.closed} closed", f"{len(self.open)} open"]
        parts += [f"{self.refused} not connected"] if self.refused else []
        return ", ".join(part for part in parts if part)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for connection in self.open:
            connection.close()


def flood(connection: socket.socket, piece: bytes, seconds: float, bytes_max: int, reads: bool = False) -> int:
    """Sends the piece again and again until the time is over, so much is sent, or the server closes; bytes sent."""
    sent, at, end = 0, 0, time.monotonic() + seconds
    connection.setblocking(False)
    while time.monotonic() < end and sent < bytes_max:
        if reads:
            with contextlib.suppress(BlockingIOError):
                if not connection.recv(_PIECE):
                    break
        try:
            done = connection.send(piece[at:])
        except BlockingIOError:
            time.sleep(0.005)
            continue
        except OSError:
            break
        sent += done
        at = (at + done) % len(piece)
    connection.settimeout(_CONNECT_SECONDS)
    return sent


def is_closed_within(connection: socket.socket, seconds: float) -> float | None:
    """After how long the server closed; what comes is thrown away. None: it did not."""
    began = time.monotonic()
    connection.settimeout(0.1)
    for _ in ticks(seconds, 0.0):
        try:
            if not connection.recv(_PIECE):
                return time.monotonic() - began
        except TimeoutError:
            continue
        except OSError:
            return time.monotonic() - began
    return None


def answers(connection: socket.socket, seconds: float) -> list[int]:
    """Statuses that come in this time, or until the server closes."""
    received = b""
    connection.settimeout(seconds)
    with contextlib.suppress(OSError):
        while data := connection.recv(_PIECE):
            received += data
    return statuses(received)
