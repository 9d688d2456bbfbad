"""Apps that do what apps should not, and one that says what it was given, for the tests of bad input."""

from __future__ import annotations

import json
import os
import urllib.parse
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from support.rendezvous import meet, meet_async

Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]
PART = b"x" * 65536


async def app(scope: dict[str, Any], receive: Receive, send: Send) -> None:
    if scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.accept"})
        if scope["path"] == "/deaf":
            await meet_async(port_of(scope), "deaf")
        while (await receive())["type"] != "websocket.disconnect":
            pass
        return
    if scope["type"] != "http":
        raise NotImplementedError
    act = ACTS.get(scope["path"].strip("/"), told)
    await act(scope, receive, send)


async def start(send: Send, *headers: tuple[bytes, bytes], status: int = 200) -> None:
    await send({"type": "http.response.start", "status": status, "headers": list(headers)})


async def part(send: Send, body: bytes = b"part", more: bool = False) -> None:
    await send({"type": "http.response.body", "body": body, "more_body": more})


def port_of(scope: dict[str, Any]) -> int:
    return int(urllib.parse.parse_qs(scope["query_string"].decode())["port"][0])


async def told(scope: dict[str, Any], receive: Receive, send: Send) -> None:
    """What the app was given."""
    size = 0
    while (message := await receive())["type"] == "http.request":
        size += len(message["body"])
        if not message["more_body"]:
            break
    given = {
        "pid": os.getpid(),
        "size": size,
        "whole": message["type"] == "http.request",
        "headers": [[name.decode("latin-1"), value.decode("latin-1")] for name, value in scope["headers"]],
        "path": scope["path"],
        "client": scope["client"],
        "scheme": scope["scheme"],
    }
    await start(send)
    await part(send, json.dumps(given).encode())


async def raises_before(scope: dict[str, Any], receive: Receive, send: Send) -> None:
    raise ValueError("before")


async def raises_during(scope: dict[str, Any], receive: Receive, send: Send) -> None:
    await start(send)
    await part(send, more=True)
    raise ValueError("during")


async def raises_after(scope: dict[str, Any], receive: Receive, send: Send) -> None:
    await start(send)
    await part(send)
    raise ValueError("after")


async def too_much(scope: dict[str, Any], receive: Receive, send: Send) -> None:
    await start(send, (b"content-length", b"6"))
    await part(send, more=True)
    await part(send)


async def too_little(scope: dict[str, Any], receive: Receive, send: Send) -> None:
    await start(send, (b"content-length", b"6"))
    await part(send, more=True)
    await part(send, b"")


async def unfinished(scope: dict[str, Any], receive: Receive, send: Send) -> None:
    await start(send)
    await part(send, more=True)


async def nothing(scope: dict[str, Any], receive: Receive, send: Send) -> None:
    pass


async def silent(scope: dict[str, Any], receive: Receive, send: Send) -> None:
    await meet_async(port_of(scope))


async def silent_later(scope: dict[str, Any], receive: Receive, send: Send) -> None:
    await start(send)
    await part(send, more=True)
    await meet_async(port_of(scope))


async def splits(scope: dict[str, Any], receive: Receive, send: Send) -> None:
    await start(send, (b"location", b"/\r\nSet-Cookie: stolen=1"))
    await part(send)


async def two_lengths(scope: dict[str, Any], receive: Receive, send: Send) -> None:
    """Those of the query; for HEAD as frameworks do it, which add that of what they send."""
    await start(send, *[(b"content-length", value) for value in scope["query_string"].split(b"&")])
    await part(send, b"" if scope["method"] == "HEAD" else b"part")


async def of_connection(scope: dict[str, Any], receive: Receive, send: Send) -> None:
    lines = {b"connection": b"keep-alive, x", b"transfer-encoding": b"gzip", b"keep-alive": b"1", b"upgrade": b"h2c"}
    await start(send, (b"x-own", b"1"), *lines.items())
    await part(send, more=True)
    await part(send)


async def endless(scope: dict[str, Any], receive: Receive, send: Send) -> None:
    """Says when it has begun, and when it has ended."""
    await start(send)
    try:
        while True:
            await part(send, PART, more=True)
            if (await_end := await gone_now(receive)) is not None:
                await meet_async(port_of(scope), await_end)
                return
    except Exception:
        await meet_async(port_of(scope), "raised")


async def gone_now(receive: Receive) -> str | None:
    """What `receive` says at once."""
    import asyncio

    task = asyncio.ensure_future(receive())
    await asyncio.sleep(0)
    if not task.done():
        task.cancel()
        return None
    message = task.result()
    return message["type"] if message["type"] == "http.disconnect" else None


async def waits_for_disconnect(scope: dict[str, Any], receive: Receive, send: Send) -> None:
    await meet_async(port_of(scope), "begun")
    while (await receive())["type"] != "http.disconnect":
        pass
    await meet_async(port_of(scope), "gone")


async def large(scope: dict[str, Any], receive: Receive, send: Send) -> None:
    await start(send)
    await part(send, bytes(1 << 20))


async def unread(scope: dict[str, Any], receive: Receive, send: Send) -> None:
    """Answers without a look at the body, and goes on."""
    await start(send, (b"content-length", b"4"))
    await part(send)
    await meet_async(port_of(scope), "answered")


async def head_first(scope: dict[str, Any], receive: Receive, send: Send) -> None:
    """Begins its response before it reads the body."""
    await start(send)
    await part(send, b"a", more=True)
    size = 0
    while (message := await receive())["type"] == "http.request":
        size += len(message["body"])
        if not message["more_body"]:
            break
    await part(send, str(size).encode())


async def reads_and_hangs(scope: dict[str, Any], receive: Receive, send: Send) -> None:
    await receive()
    await meet_async(port_of(scope), "hangs")


async def padded(scope: dict[str, Any], receive: Receive, send: Send) -> None:
    await start(send, (b"x-padded", b" \tvalue "))
    await part(send)


async def quiet_events(scope: dict[str, Any], receive: Receive, send: Send) -> None:
    await start(send, (b"content-type", b"text/event-stream"))
    await part(send, b"data: 1\n\n", more=True)
    await meet_async(port_of(scope), "quiet")
    await part(send, b"data: 2\n\n")


async def deaf(scope: dict[str, Any], receive: Receive, send: Send) -> None:
    """Goes on, whatever becomes of its client."""
    await meet_async(port_of(scope), "begun")
    await start(send)
    for _ in range(100):
        await part(send, PART, more=True)
    await part(send)
    await meet_async(port_of(scope), "done")


ACTS = {
    "raises-before": raises_before,
    "raises-during": raises_during,
    "raises-after": raises_after,
    "too-much": too_much,
    "too-little": too_little,
    "unfinished": unfinished,
    "nothing": nothing,
    "silent": silent,
    "silent-later": silent_later,
    "splits": splits,
    "two-lengths": two_lengths,
    "of-connection": of_connection,
    "endless": endless,
    "waits-for-disconnect": waits_for_disconnect,
    "deaf": deaf,
    "large": large,
    "unread": unread,
    "quiet-events": quiet_events,
    "head-first": head_first,
    "reads-and-hangs": reads_and_hangs,
    "padded": padded,
}


def wsgi(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
    path, headers = environ["PATH_INFO"], []
    if path == "/raises-before":
        raise ValueError("before")
    if path == "/splits":
        headers = [("Location", "/\r\nSet-Cookie: stolen=1")]
    if path in ("/too-much", "/too-little"):
        headers = [("Content-Length", "6")]
    if path == "/two-lengths":
        headers = [("Content-Length", value) for value in environ["QUERY_STRING"].split("&")]
        start_response("200 OK", headers)
        return [b"" if environ["REQUEST_METHOD"] == "HEAD" else b"part"]
    if path == "/nothing":
        return []
    if path == "/iterator":
        start_response("200 OK", [("Content-Length", "4")])
        return iter([b"part"])
    if path == "/silent":
        meet(int(environ["QUERY_STRING"].removeprefix("port=")))
    if path == "/read":
        try:
            body = str(len(environ["wsgi.input"].read())).encode()
        except OSError:
            body = b"gone"
        start_response("200 OK", [])
        return [body]
    start_response("200 OK", headers)
    return parts(path)


def parts(path: str) -> Iterable[bytes]:
    yield b"part"
    if path == "/raises-during":
        raise ValueError("during")
    if path == "/too-much":
        yield b"part"
