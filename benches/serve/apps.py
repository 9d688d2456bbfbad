"""Bare apps, so that what is measured is the server: ASGI, WSGI, a WebSocket that echoes."""

_SMALL = b"Hello, world!"
_LARGE = b"\xa5" * 1_000_000
_PLAIN = b"text/plain"


async def noop_asgi(scope, receive, send):
    """Thirteen bytes, whatever is asked for."""
    if scope["type"] == "lifespan":
        return await _live(receive, send)
    headers = [(b"content-type", _PLAIN), (b"content-length", b"13")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    return await send({"type": "http.response.body", "body": _SMALL})


async def reading_asgi(scope, receive, send):
    """The same, once all of the request has come."""
    more = scope["type"] == "http"
    while more:
        more = (await receive()).get("more_body", False)
    return await noop_asgi(scope, receive, send)


async def echo_websocket(scope, receive, send):
    """Each text comes back as it went; a plain request gets the answer of `noop_asgi`, so that readiness shows."""
    if scope["type"] != "websocket":
        return await noop_asgi(scope, receive, send)
    await receive()
    await send({"type": "websocket.accept"})
    while (message := await receive())["type"] == "websocket.receive":
        await send({"type": "websocket.send", "text": message["text"]})
    return None


async def _live(receive, send):
    await receive()
    await send({"type": "lifespan.startup.complete"})
    await receive()
    await send({"type": "lifespan.shutdown.complete"})


def noop_wsgi(environ, start_response):
    """Thirteen bytes, or a megabyte at a path that ends in `large`."""
    body = _LARGE if environ["PATH_INFO"].endswith("large") else _SMALL
    start_response("200 OK", [("Content-Type", _PLAIN.decode()), ("Content-Length", str(len(body)))])
    return [body]
