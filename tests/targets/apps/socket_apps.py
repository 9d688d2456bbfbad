"""A WSGI app that takes over the socket of a request, in ways of its own at each path."""

from __future__ import annotations

import functools
import gc
import os
import urllib.parse
from collections.abc import Callable, Iterable
from typing import Any

from support.rendezvous import meet

Environ = dict[str, Any]
Start = Callable[..., Callable[[bytes], object]]

SWITCH = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: shout\r\nConnection: Upgrade\r\nX-App: yes\r\n\r\n"
FLOOD_BYTES = 8 << 20
NAMES = ("gunicorn.socket", "werkzeug.socket")
routes: dict[str, Callable[[Environ, Start], Any]] = {}


def route(app: Callable[[Environ, Start], Any]) -> Callable[[Environ, Start], Any]:
    routes["/" + app.__name__] = app
    return app


def app(environ: Environ, start: Start) -> Any:
    return routes[environ["PATH_INFO"]](environ, start)


def port_of(environ: Environ) -> int:
    return int(dict(urllib.parse.parse_qsl(environ["QUERY_STRING"]))["port"])


@route
def plain(_environ: Environ, start: Start) -> Iterable[bytes]:
    """Knows nothing of sockets."""
    start("200 OK", [("Content-Length", "5")])
    return [b"plain"]


@route
def names(environ: Environ, start: Start) -> Iterable[bytes]:
    found = [name for name in NAMES if name in environ]
    body = ", ".join(found).encode()
    start("200 OK", [("Content-Length", str(len(body)))])
    return [body]


@route
def left(_environ: Environ, start: Start) -> Iterable[bytes]:
    """Number of sockets of requests that are in memory."""
    gc.collect()
    body = str(sum(type(one).__name__ == "AppSocket" for one in gc.get_objects())).encode()
    start("200 OK", [("Content-Length", str(len(body)))])
    return [body]


@route
def shout(environ: Environ, _start: Start) -> Any:
    """Echoes in capitals, up to the end of input; then as under gunicorn."""
    connection = environ["gunicorn.socket"]
    connection.sendall(SWITCH)
    while piece := connection.recv(4096):
        connection.sendall(piece.upper())
    raise StopIteration


@route
def facts(environ: Environ, start: Start) -> Iterable[bytes]:
    """Sets options, tells what it sees, and answers as if the socket had not been used, as under Werkzeug."""
    import socket

    connection = environ["werkzeug.socket"]
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    peer = f"{connection.getpeername()[0]} {connection.gettimeout()}"
    with connection.makefile("rwb") as file:
        file.write(SWITCH + peer.encode())
        file.flush()
    start("200 OK", [("Content-Type", "text/plain")])
    return (part for part in [b"never", b"seen"])


@route
def flood(environ: Environ, _start: Start) -> Any:
    connection = environ["gunicorn.socket"]
    connection.sendall(SWITCH)
    connection.sendall(bytes(FLOOD_BYTES))
    return []


@route
def hold(environ: Environ, _start: Start) -> Any:
    """Meets the test when it has granted, then when its input has ended."""
    connection = environ["gunicorn.socket"]
    connection.sendall(SWITCH)
    meet(port_of(environ), "granted")
    while connection.recv(4096):
        pass
    meet(port_of(environ), "ended")
    connection.sendall(b"bye")


@route
def refuse(environ: Environ, _start: Start) -> Any:
    body = b"not you" * 5000
    head = f"HTTP/1.1 403 Not You\r\nConnection: close\r\nContent-Length: {len(body)}\r\nX-App: yes\r\n\r\n"
    environ["gunicorn.socket"].sendall(head.encode() + body)
    raise StopIteration


@route
def unmeasured(environ: Environ, _start: Start) -> Any:
    environ["gunicorn.socket"].sendall(b"HTTP/1.1 200 OK\r\n\r\none ")
    environ["gunicorn.socket"].sendall(b"two")
    return []


def written(text: bytes, environ: Environ, _start: Start) -> Any:
    environ["gunicorn.socket"].sendall(text)
    return []


ODD = {
    "/cut": b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf",
    "/garbage": b"\x00hello\r\n\r\n",
    "/length": b"HTTP/1.1 200 OK\r\nContent-Length: two\r\n\r\nhi",
}
routes.update({path: functools.partial(written, text) for path, text in ODD.items()})


@route
def lost(environ: Environ, _start: Start) -> Any:
    """The worker dies before the head is whole."""
    environ["gunicorn.socket"].sendall(b"HTTP/1.1 101 Swi")
    os._exit(3)


@route
def stuck(environ: Environ, _start: Start) -> Any:
    """Holds until the client leaves."""
    environ["gunicorn.socket"].sendall(b"HTTP/1.1 101 Swi")
    environ["gunicorn.socket"].recv(1)
    return []


@route
def broken(environ: Environ, _start: Start) -> Any:
    environ["gunicorn.socket"].sendall(SWITCH)
    raise ValueError("after the upgrade")


@route
def unused(_environ: Environ, _start: Start) -> Any:
    """An error of its own, as of a database that is not there."""
    raise ConnectionRefusedError("no database")


@route
def nothing(_environ: Environ, _start: Start) -> Any:
    return []
