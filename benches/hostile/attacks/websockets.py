"""WebSockets that ping and do not read, or send what nobody takes."""

from __future__ import annotations

import time

from benches.hostile import websocket
from benches.hostile.attack import Attack, Bounds, Target
from benches.hostile.clients import flood, is_closed_within, ticks
from benches.hostile.websocket import frame

_TEXT, _BINARY, _PING = 1, 2, 9
_BYTES_MAX = 400 << 20
_DEAF = 40


def pings_unread(target: Target) -> str:
    """The server has to stop reading when its pongs are not taken."""
    with websocket.opened(target.port, "/echo") as connection:
        sent = flood(connection, frame(_PING, b"p" * 125) * 500, target.seconds, _BYTES_MAX)
        return f"{sent / 1e6:.1f} MB taken"


def echoes_unread(target: Target) -> str:
    with websocket.opened(target.port, "/echo") as connection:
        sent = flood(connection, frame(_BINARY, b"x" * 60_000) * 4, target.seconds, _BYTES_MAX)
        return f"{sent / 1e6:.1f} MB taken"


def talk_unread(target: Target) -> str:
    """An app that sends on, to a client that takes nothing."""
    with websocket.opened(target.port, "/talk?1000000000") as connection:
        time.sleep(target.seconds)
        closed = is_closed_within(connection, 2.0)
        assert closed is not None, "not cut off"
        return "cut off"


def never_received(target: Target) -> str:
    """Messages of 1 MB to an app that takes none."""
    sent = 0
    message = frame(_BINARY, bytes(1 << 20))
    connections = [websocket.open_one(target.port, f"/deaf?{target.seconds}") for _ in range(_DEAF)]
    for connection in connections:
        connection.setblocking(False)
    begun = dict.fromkeys(connections, 0)
    for _ in ticks(target.seconds, 0.02):
        for connection in connections:
            try:
                done = connection.send(message[begun[connection] :])
            except OSError:
                continue
            begun[connection] = (begun[connection] + done) % len(message)
            sent += done
    for connection in connections:
        connection.close()
    return f"{sent / 1e6:.0f} MB taken, {sent / 1e6 / _DEAF:.1f} each"


def fragments(target: Target) -> str:
    """A message in fragments of a byte."""
    with websocket.opened(target.port, "/echo") as connection:
        connection.sendall(frame(_TEXT, b"x", final=False))
        sent = flood(connection, frame(0, b"x", final=False) * 2_000, target.seconds, 3_000_000)
        return f"{sent / 7 / 1e6:.1f} M fragments"


ATTACKS = [
    Attack("WebSocket pings, pongs unread", pings_unread, quick=True),
    Attack("WebSocket echoes unread", echoes_unread),
    Attack("WebSocket messages unread", talk_unread, quick=True),
    Attack("WebSocket messages not received", never_received, Bounds(dispatcher_mb=160, workers_mb=400, left_mb=160)),
    Attack("WebSocket fragments of a byte", fragments),
]
