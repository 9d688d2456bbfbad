"""Responses that nobody reads."""

from __future__ import annotations

import contextlib
import struct

from benches.hostile.attack import Attack, Bounds, Target
from benches.hostile.clients import Crowd, get, is_closed_within, ticks
from benches.hostile.frames import END_HEADERS, END_STREAM, HEADERS, WINDOW_UPDATE, frame, head, opened, window

_PATIENCE = 2.5
_DRAIN_SECONDS_MAX = 40.0


def parts(target: Target) -> str:
    """Large, in parts."""
    return _unread(target, 20, "/parts", 100_000_000)


def one_part(target: Target) -> str:
    """Large, in one part."""
    return _unread(target, 5, "/large", 50_000_000)


def _unread(target: Target, count: int, path: str, size: int) -> str:
    """Nothing is read until the time is over. Then all that comes is: a client that was cut off gets what the kernel
    held, and no more, however long that takes through a small buffer."""
    with Crowd(target.port, count, receive_bytes=4096) as crowd:
        crowd.say(get(f"{path}?{size}"))
        for _ in ticks(target.seconds, 0.5):
            pass
        crowd.wait_closed(_DRAIN_SECONDS_MAX)
        most = max(crowd.received_bytes.values(), default=0)
        assert not crowd.open and most < size, f"not cut off: {crowd}, {most} of {size} bytes at most"
        return f"cut off: {crowd}"


def read_whole(target: Target) -> str:
    """No attack: three large bodies are read whole, one after another. Their memory is given back."""
    with Crowd(target.port, 1) as crowd:
        for _ in range(3):
            crowd.say(get("/large?50000000"))
            for _ in ticks(target.seconds / 4, 0.01):
                crowd.hear()
        return str(crowd)


def small_window(target: Target, size: int) -> str:
    """Ninety streams, and now and then a request that resets no clock."""
    with opened(target.port, window(size)) as connection:
        connection.sendall(b"".join(head(stream, "/large?1000000") for stream in range(1, 181, 2)))
        stream, closed = 181, None
        for _ in ticks(target.seconds, 1.0):
            with contextlib.suppress(OSError):
                connection.sendall(frame(HEADERS, END_HEADERS | END_STREAM, stream, b"\x82\x86\x84\x01\x01a"))
            stream += 2
            if (closed := is_closed_within(connection, 0.5)) is not None:
                break
        assert closed is not None, f"open after {target.seconds} s"
        return "closed"


def no_window(target: Target) -> str:
    return small_window(target, 0)


def window_of_a_byte(target: Target) -> str:
    return small_window(target, 1)


def large_windows(target: Target) -> str:
    """Five connections of fifty streams, with windows that let all come, and none read."""
    ended = 0
    with contextlib.ExitStack() as stack:
        connections = []
        for _ in range(5):
            connection = stack.enter_context(opened(target.port, window((1 << 31) - 1), receive_bytes=4096))
            connection.sendall(frame(WINDOW_UPDATE, payload=struct.pack(">I", (1 << 31) - 65_536)))
            connection.sendall(b"".join(head(stream, "/parts?10000000") for stream in range(1, 101, 2)))
            connections.append(connection)
        for _ in ticks(target.seconds, 0.5):
            pass
        ended = sum(is_closed_within(connection, _PATIENCE / 5) is not None for connection in connections)
    assert ended == len(connections), f"{ended} of {len(connections)} cut off"
    return f"{ended} cut off"


_UNREAD = Bounds(failed_max=20)
ATTACKS = [
    Attack("unread, in parts", parts, _UNREAD, quick=True),
    Attack("unread, in one part", one_part, Bounds(failed_max=20, workers_mb=700, left_mb=96)),
    Attack("read, in one part", read_whole, Bounds(failed_max=20, workers_mb=250, left_mb=96)),
    Attack("HTTP/2 window of 0", no_window, Bounds(workers_mb=160), seconds=8, quick=True),
    Attack("HTTP/2 window of 1", window_of_a_byte, Bounds(workers_mb=160), seconds=8, quick=True),
    Attack("HTTP/2 large windows", large_windows, Bounds(dispatcher_mb=160, failed_max=60, left_mb=160)),
]
