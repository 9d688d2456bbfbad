"""The client's side of a case: an address of its own, some bytes, and what comes back."""

from __future__ import annotations

import contextlib
import ipaddress
import socket
from collections.abc import Iterable

CANARY = "/canary"
_FIRST = ipaddress.IPv4Address("127.64.0.1")
SECONDS_MAX = 8.0


def address(nr: int) -> str:
    """By it the app knows the case; all of 127.0.0.0/8 is this machine."""
    return str(_FIRST + nr)


def connect(port: int, source: str, seconds_max: float = SECONDS_MAX) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), seconds_max, (source, 0))


def say(port: int, source: str, pieces: Iterable[bytes], seconds_max: float = SECONDS_MAX) -> tuple[bytes, bool]:
    """All that the server answered, and whether it closed; else the client has waited long enough."""
    received = bytearray()
    with connect(port, source, seconds_max) as connection:
        for piece in pieces:
            with contextlib.suppress(ConnectionError):
                connection.sendall(piece)
        try:
            while data := connection.recv(1 << 16):
                received += data
        except TimeoutError:
            return bytes(received), False
        except ConnectionError:
            pass
    return bytes(received), True
