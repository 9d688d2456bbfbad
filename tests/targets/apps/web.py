"""The apps of the tests of `clutch serve`."""

from __future__ import annotations

import json
import os
import socket
import urllib.parse
from collections.abc import Callable
from typing import Any

from support.rendezvous import meet, meet_async

Send = Callable[[dict[str, Any]], Any]


async def app(scope: dict[str, Any], receive: Any, send: Send) -> None:
    """`/`: who answers; `/meet?port=…`: waits there."""
    if scope["type"] != "http":
        return
    query = dict(urllib.parse.parse_qsl(scope["query_string"].decode()))
    if scope["path"] == "/meet":
        await meet_async(int(query["port"]))
    await answer(send, facts(scope.get("root_path")))


async def answer(send: Send, facts: dict[str, Any]) -> None:
    body = json.dumps(facts).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def facts(root_path: Any = None) -> dict[str, Any]:
    return {"pid": os.getpid(), "cwd": os.getcwd(), "root_path": root_path, "env": dict(os.environ)}


async def with_lifespan(scope: dict[str, Any], receive: Any, send: Send) -> None:
    """The same; its shutdown waits at the port that SHUTDOWN_PORT names."""
    if scope["type"] != "lifespan":
        await app(scope, receive, send)
        return
    await receive()
    await send({"type": "lifespan.startup.complete"})
    await receive()
    await meet_async(int(os.environ["SHUTDOWN_PORT"]))
    await send({"type": "lifespan.shutdown.complete"})


def make() -> Any:
    """A factory."""
    return app


def wsgi(environ: dict[str, Any], start_response: Any) -> list[bytes]:
    body = json.dumps({**facts(environ["SCRIPT_NAME"]), "multithread": environ["wsgi.multithread"]}).encode()
    start_response("200 OK", [("Content-Type", "application/json"), ("Content-Length", str(len(body)))])
    return [body]


def meets(environ: dict[str, Any], start_response: Any) -> list[bytes]:
    """WSGI: `/meet?port=…` waits there."""
    meet(int(dict(urllib.parse.parse_qsl(environ["QUERY_STRING"]))["port"]))
    return wsgi(environ, start_response)


def shout(conn: socket.socket) -> None:
    """A handler of connections."""
    while data := conn.recv(4096):
        conn.sendall(data.upper())
