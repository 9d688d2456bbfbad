"""What the fronts of these tests hand work to, in workers: tools, an app, a handler of connections.

Each can be held at a gate, a unix socket of the test's: the test sees that the work runs, and lets it go on.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable
from typing import Any

from clutch import tool

LARGE_BYTES = 16 << 20
"""More than any two sockets keep for a client that does not read."""


@tool
def hold(gate: str) -> str:
    """Returns when the test lets it go."""
    with socket.socket(socket.AF_UNIX) as there:
        there.connect(gate)
        there.recv(1)
    return "let go"


@tool
def greet() -> str:
    return "served"


@tool
def large() -> str:
    return "x" * LARGE_BYTES


def app(environ: dict[str, Any], start_response: Callable[..., object]) -> Iterable[bytes]:
    body = {"/hold": lambda: hold(environ["QUERY_STRING"]), "/large": large}.get(environ["PATH_INFO"], greet)()
    start_response("200 OK", [("Content-Type", "text/plain"), ("Content-Length", str(len(body)))])
    return [body.encode()]


def lines(connection: socket.socket) -> None:
    """Answers each line."""
    with connection, connection.makefile("rb") as received:
        for line in received:
            word, _, rest = line.decode(errors="replace").strip().partition(" ")
            answer = {"hold": lambda rest=rest: hold(rest), "large": large}.get(word, greet)()
            connection.sendall(f"{answer}\n".encode())
