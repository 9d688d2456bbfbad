"""A client of WebSockets that sends what it is told to, right or wrong."""

from __future__ import annotations

import contextlib
import socket
import struct
from collections.abc import Iterator

_UPGRADE = ("Host: h.example", "Connection: Upgrade", "Upgrade: websocket")
_RIGHT = ("Sec-WebSocket-Key: MDEyMzQ1Njc4OWFiY2RlZg==", "Sec-WebSocket-Version: 13")
_MASK = b"\x11\x22\x33\x44"
_SECONDS_MAX = 20.0
_SHORT_MAX, _MIDDLE_MAX = 125, 65_535


def frame(opcode: int, payload: bytes, final: bool = True, bits: int = 0, mask: bytes | None = _MASK) -> bytes:
    """Of a client; `bits`: reserved ones of the first byte."""
    first = (0x80 if final else 0) | bits | opcode
    masked = 0x80 if mask is not None else 0
    if len(payload) <= _SHORT_MAX:
        head = struct.pack(">BB", first, masked | len(payload))
    elif len(payload) <= _MIDDLE_MAX:
        head = struct.pack(">BBH", first, masked | 126, len(payload))
    else:
        head = struct.pack(">BBQ", first, masked | 127, len(payload))
    return head + (payload if mask is None else mask + _masked(payload, mask))


def _masked(payload: bytes, mask: bytes) -> bytes:
    repeated = (mask * (len(payload) // 4 + 1))[: len(payload)]
    return (int.from_bytes(payload) ^ int.from_bytes(repeated)).to_bytes(len(payload))


def frames_of(data: bytes) -> Iterator[tuple[int, bytes]]:
    """(opcode, payload) of the whole frames of a server."""
    while len(data) >= 2:
        size, at = data[1], 2
        if size > _SHORT_MAX:
            at = 4 if size == 126 else 10
            size = int.from_bytes(data[2:at])
        if len(data) < at + size:
            return
        yield data[0] & 0x0F, data[at : at + size]
        data = data[at + size :]


def _ask(port: int, path: str, lines: tuple[str, ...]) -> tuple[socket.socket, bytes]:
    connection = socket.create_connection(("127.0.0.1", port), _SECONDS_MAX)
    connection.sendall("\r\n".join([f"GET {path} HTTP/1.1", *_UPGRADE, *lines, "", ""]).encode())
    head = b""
    while b"\r\n\r\n" not in head and (byte := connection.recv(1)):
        head += byte
    return connection, head


def handshake(port: int, path: str, *lines: str) -> int:
    """The status of one with these lines in place of the right ones."""
    connection, head = _ask(port, path, lines)
    connection.close()
    return int(head[9:12])


def open_one(port: int, path: str) -> socket.socket:
    """Accepted; the caller closes it."""
    connection, head = _ask(port, path, _RIGHT)
    if b" 101 " not in head:
        connection.close()
        raise ConnectionError(head)
    return connection


@contextlib.contextmanager
def opened(port: int, path: str) -> Iterator[socket.socket]:
    with open_one(port, path) as connection:
        yield connection


def until_closed(connection: socket.socket) -> bytes:
    """All that comes."""
    received = bytearray()
    with contextlib.suppress(ConnectionError):
        while data := connection.recv(1 << 16):
            received += data
    return bytes(received)


def until_frames(connection: socket.socket, count: int) -> bytes:
    """All that comes until so many frames are whole, or the server closes."""
    received = b""
    while len(list(frames_of(received))) < count and (data := connection.recv(1 << 16)):
        received += data
    return received
