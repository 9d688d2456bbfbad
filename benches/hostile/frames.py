"""HTTP/2 by hand: frames that no library would send."""

from __future__ import annotations

import contextlib
import socket
import struct
import time
from collections.abc import Iterator

from benches.hostile.clients import connect

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = 0, 1, 2, 3, 4, 6, 7, 8, 9
END_STREAM, END_HEADERS = 1, 4
INITIAL_WINDOW_SIZE = 4
_GET, _POST, _HEAD_BYTES = b"\x82", b"\x83", 9
_ERRORS = ("NO_ERROR", "PROTOCOL_ERROR", "INTERNAL_ERROR", "FLOW_CONTROL_ERROR", "SETTINGS_TIMEOUT", "STREAM_CLOSED")
_ERRORS += ("FRAME_SIZE_ERROR", "REFUSED_STREAM", "CANCEL", "COMPRESSION_ERROR", "CONNECT_ERROR", "ENHANCE_YOUR_CALM")


def frame(kind: int, flags: int = 0, stream: int = 0, payload: bytes = b"") -> bytes:
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


def window(size: int) -> bytes:
    """A setting: how much may be sent on a stream at first."""
    return frame(SETTINGS, payload=struct.pack(">HI", INITIAL_WINDOW_SIZE, size))


def head(stream: int, path: str, posts: bool = False) -> bytes:
    """A request's; of a POST the body follows. HPACK: static fields, literals without an index."""
    target = path.encode()
    packed = (_POST if posts else _GET) + b"\x86\x01\x01a\x04" + bytes([len(target)]) + target
    return frame(HEADERS, END_HEADERS | (0 if posts else END_STREAM), stream, packed)


@contextlib.contextmanager
def opened(port: int, settings: bytes = b"", receive_bytes: int | None = None) -> Iterator[socket.socket]:
    with connect(port, receive_bytes) as connection:
        connection.sendall(PREFACE + (settings or frame(SETTINGS)))
        yield connection


def frames_of(data: bytes) -> Iterator[tuple[int, int, int, bytes]]:
    """(kind, flags, stream, payload) of the whole ones."""
    at = 0
    while len(data) >= at + _HEAD_BYTES and len(data) >= (end := at + _HEAD_BYTES + int.from_bytes(data[at : at + 3])):
        yield data[at + 3], data[at + 4], int.from_bytes(data[at + 5 : at + 9]), data[at + _HEAD_BYTES : end]
        at = end


def ended(connection: socket.socket, seconds: float) -> str:
    """How the server ended the connection, if it does so in this time."""
    received = b""
    end = time.monotonic() + seconds
    try:
        while (left := end - time.monotonic()) > 0:
            connection.settimeout(left)
            if not (data := connection.recv(1 << 16)):
                break
            received += data
        else:
            return "stays open"
    except TimeoutError:
        return "stays open"
    except OSError:
        pass
    for kind, _, _, payload in frames_of(received):
        if kind == GOAWAY:
            code = int.from_bytes(payload[4:8])
            name = _ERRORS[code] if code < len(_ERRORS) else str(code)
            return f"GOAWAY {name} {payload[8:].decode(errors='replace')}".strip()
    return "closed"
