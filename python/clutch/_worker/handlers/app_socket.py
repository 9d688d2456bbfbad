"""Sockets in the environ of WSGI apps, for those that speak a protocol of their own after an upgrade.

An app has one end of a socketpair; the dispatcher carries what passes there to the client and back. A socket counts as
taken when the app writes to it: from then on the app's response is what it writes, and what it returns is for nobody.
When the worker is to end, a socket that was taken gives what has come, then the end of input. All are closed with their
requests.
"""

from __future__ import annotations

import functools
import socket
from typing import TYPE_CHECKING, Any

from clutch import _core
from clutch._worker.handlers import tcp

__all__ = ["close", "put"]

Base = socket.socket if TYPE_CHECKING else object
NAMES = ("gunicorn.socket", "werkzeug.socket")
"""Keys under which libraries look for it: simple-websocket, python-engineio, eventlet, dwebsocket."""


def put(environ: dict[str, Any], request: _core.StartResponse, descriptor: _core.Descriptor) -> AppSocket:
    """Put the socket into the environ of a request, and return it. Raises OSError if it was lost on its way."""
    given = tcp.taken(descriptor, kind(socket.socket))
    given.setblocking(True)
    given.request = request
    given.client = environ["REMOTE_ADDR"], int(environ.get("REMOTE_PORT", 0))
    given.server = environ["SERVER_NAME"], int(environ["SERVER_PORT"])
    environ.update(dict.fromkeys(NAMES, given))
    return given


def close(given: AppSocket) -> None:
    """Close the socket, and let go of its request, which holds it where the garbage collector does not look."""
    given.request = None
    tcp.close(given)


@functools.cache
def kind(base: type[socket.socket]) -> type[AppSocket]:
    """The class of an app's sockets; `base` is what `socket.socket` is here: gevent may have replaced it."""
    return type("AppSocket", (AppSocket, base), {})


class AppSocket(Base):
    """A socket that looks like one that was accepted from the client."""

    request: _core.StartResponse | None = None
    """None in copies of it."""
    client: tuple[str, int] = "", 0
    server: tuple[str, int] = "", 0
    is_taken = False

    def take(self) -> None:
        if self.request is not None and not self.is_taken:
            self.is_taken = True
            self.request.take_socket(functools.partial(tcp.end_input, self))

    def send(self, *args: Any) -> int:
        self.take()
        return super().send(*args)

    def sendall(self, *args: Any) -> None:
        self.take()
        super().sendall(*args)

    def sendmsg(self, *args: Any) -> int:
        self.take()
        return super().sendmsg(*args)

    def dup(self) -> Any:
        self.take()
        return super().dup()

    def detach(self) -> int:
        self.take()
        return super().detach()

    def getpeername(self) -> tuple[str, int]:
        return self.client

    def getsockname(self) -> tuple[str, int]:
        return self.server

    def setsockopt(self, level: int, *args: Any) -> None:
        """Options of TCP and IP are for the connection itself, which the dispatcher has."""
        if level not in (socket.IPPROTO_TCP, socket.IPPROTO_IP, socket.IPPROTO_IPV6):
            super().setsockopt(level, *args)
