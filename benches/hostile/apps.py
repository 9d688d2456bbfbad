"""The apps under attack: what is asked of it is in the path, and how much after the question mark."""

from __future__ import annotations

import asyncio

_PART = bytes(1 << 16)
_SECONDS_MAX = 60.0
_running: list[int] = []


async def app(scope, receive, send):
    """ASGI: HTTP, WebSockets and the lifespan."""
    if scope["type"] == "lifespan":
        await receive()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        return await send({"type": "lifespan.shutdown.complete"})
    act = _WEBSOCKET.get(scope["path"], _echo) if scope["type"] == "websocket" else _HTTP.get(scope["path"], _ping)
    return await act(float(scope["query_string"] or b"0"), receive, send)


async def _answer(send, body: bytes) -> None:
    length = str(len(body)).encode()
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", length)]})
    await send({"type": "http.response.body", "body": body})


async def _ping(amount, receive, send) -> None:
    await _answer(send, b"pong")


async def _large(amount, receive, send) -> None:
    """A body in one part."""
    await _answer(send, bytes(int(amount)))


async def _parts(amount, receive, send) -> None:
    """The same, 64 KB at a time."""
    length = str(int(amount)).encode()
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", length)]})
    for left in range(int(amount), 0, -len(_PART)):
        await send({"type": "http.response.body", "body": _PART[:left], "more_body": left > len(_PART)})


async def _sleep(amount, receive, send) -> None:
    """Answers late, and reads no body."""
    _running.append(1)
    try:
        await asyncio.sleep(min(amount, _SECONDS_MAX))
    finally:
        _running.pop()
    await _answer(send, b"late")


async def _how_many(amount, receive, send) -> None:
    """How much sleeps in this worker."""
    await _answer(send, str(len(_running)).encode())


async def _read(amount, receive, send) -> None:
    """Reads its body, and says how much it was."""
    size, more = 0, True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        size += len(message.get("body", b""))
        more = message.get("more_body", False)
    await _answer(send, str(size).encode())


async def _background(amount, receive, send) -> None:
    """Answers at once, reads nothing, and works on."""
    await _answer(send, b"soon")
    await asyncio.sleep(min(amount, _SECONDS_MAX))


async def _echo(amount, receive, send) -> None:
    """A WebSocket that sends back what it gets."""
    await receive()
    await send({"type": "websocket.accept"})
    while (message := await receive())["type"] == "websocket.receive":
        kind = "text" if message.get("text") is not None else "bytes"
        await send({"type": "websocket.send", kind: message[kind]})


async def _deaf(amount, receive, send) -> None:
    """A WebSocket that never takes a message."""
    await receive()
    await send({"type": "websocket.accept"})
    await asyncio.sleep(min(amount or _SECONDS_MAX, _SECONDS_MAX))


async def _talk(amount, receive, send) -> None:
    """A WebSocket that sends without end, as far as the client takes it."""
    await receive()
    await send({"type": "websocket.accept"})
    for _ in range(int(amount) // len(_PART)):
        await send({"type": "websocket.send", "bytes": _PART})


_HTTP = {
    "/large": _large,
    "/parts": _parts,
    "/sleep": _sleep,
    "/running": _how_many,
    "/read": _read,
    "/background": _background,
}
_WEBSOCKET = {"/deaf": _deaf, "/talk": _talk}


def wsgi(environ, start_response):
    """Reads its body, and says how much it was."""
    body = str(len(environ["wsgi.input"].read())).encode()
    start_response("200 OK", [("Content-Type", "text/plain"), ("Content-Length", str(len(body)))])
    return [body]
