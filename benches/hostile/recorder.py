"""Apps that write down what they were given, so that a verdict rests on what an app saw, not on a status.

Each request is two lines of JSON in the file that RECORD names: one when it reaches the app, one when its body has come
to its end. A request without the second line was broken off. The client is known by its address: each case has its own.
"""

from __future__ import annotations

import itertools
import json
import os
from typing import Any

VARIABLE = "CLUTCH_BENCH_RECORD"
ANSWER = b"seen\n"
_numbers = itertools.count()


def _write(entry: dict[str, Any]) -> None:
    """One line, written at once: processes and threads share the file."""
    file = os.open(os.environ[VARIABLE], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(file, (json.dumps(entry) + "\n").encode())
    finally:
        os.close(file)


def _begin(client: str, method: str, target: str, headers: list[tuple[str, str]]) -> str:
    key = f"{os.getpid()}-{next(_numbers)}"
    _write({"key": key, "client": client, "method": method, "target": target, "headers": headers})
    return key


def _end(key: str, body: bytes) -> None:
    _write({"key": key, "body": body.decode("latin-1")})


async def asgi(scope, receive, send):
    """Answers when the body is whole; not at all when it was broken off."""
    if scope["type"] == "lifespan":
        return await _live(receive, send)
    target = scope["raw_path"] + (b"?" + scope["query_string"] if scope["query_string"] else b"")
    headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in scope["headers"]]
    key = _begin(scope["client"][0], scope["method"], target.decode("latin-1"), headers)
    body, more = b"", True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        body += message.get("body", b"")
        more = message.get("more_body", False)
    _end(key, body)
    length = str(len(ANSWER)).encode()
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", length)]})
    return await send({"type": "http.response.body", "body": ANSWER})


async def _live(receive, send):
    await receive()
    await send({"type": "lifespan.startup.complete"})
    await receive()
    await send({"type": "lifespan.shutdown.complete"})


def wsgi(environ, start_response):
    """The same; a body that was broken off is an exception or too short for its length."""
    headers = [(name[5:].replace("_", "-").lower(), value) for name, value in environ.items() if name[:5] == "HTTP_"]
    for name in ("CONTENT_TYPE", "CONTENT_LENGTH"):
        headers += [(name.replace("_", "-").lower(), environ[name])] if environ.get(name) else []
    query = f"?{environ['QUERY_STRING']}" if environ.get("QUERY_STRING") else ""
    key = _begin(environ["REMOTE_ADDR"], environ["REQUEST_METHOD"], environ["PATH_INFO"] + query, headers)
    body = environ["wsgi.input"].read()
    if len(body) >= int(environ.get("CONTENT_LENGTH") or 0):
        _end(key, body)
    start_response("200 OK", [("Content-Type", "text/plain"), ("Content-Length", str(len(ANSWER)))])
    return [ANSWER]
