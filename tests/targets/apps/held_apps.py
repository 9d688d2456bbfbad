"""Apps whose responses have all kinds of shapes, for tests of connections that workers hold."""

from __future__ import annotations

import asyncio
import json
import time
import urllib.parse
from collections.abc import Callable, Iterator
from typing import Any

from support.rendezvous import meet, meet_async

Send = Callable[[dict[str, Any]], Any]

LARGE = 5_000_000

MEDIUM = 16_000


async def app(scope: dict[str, Any], receive: Any, send: Send) -> None:
    if scope["type"] == "http":
        query = dict(urllib.parse.parse_qsl(scope["query_string"].decode()))
        await ROUTES.get(scope["path"], facts)(scope, query, receive, send)


async def facts(scope: dict[str, Any], query: dict[str, str], receive: Any, send: Send) -> None:
    """What the app was told. `lines`: so many header lines of 1,000 bytes."""
    told = {key: scope[key] for key in ("method", "scheme", "client", "root_path", "path")}
    body = (await receive())["body"].decode()
    await start(send, *[(b"x", b"y" * 1000)] * int(query.get("lines", 0)))
    await part(send, json.dumps({**told, "body": body}).encode())


async def in_parts(scope: Any, query: dict[str, str], receive: Any, send: Send) -> None:
    await start(send)
    for nr in range(3):
        await part(send, b"part %d," % nr, more=True)
        await meet_async(int(query["port"]))
    await part(send, b"end")


async def endless(scope: Any, query: Any, receive: Any, send: Send) -> None:
    await start(send)
    await receive()
    while (await receive())["type"] != "http.disconnect":
        await part(send, b"more,", more=True)


async def ready(scope: Any, query: Any, receive: Any, send: Send) -> None:
    await start(send)
    await part(send, b"ready")


async def blocks(scope: Any, query: dict[str, str], receive: Any, send: Send) -> None:
    meet(int(query["port"]))
    await start(send)
    await part(send, b"blocked")


async def behind(scope: Any, query: dict[str, str], receive: Any, send: Send) -> None:
    await start(send)
    await part(send, b"answered")
    await meet_async(int(query["port"]))


async def late(scope: Any, query: Any, receive: Any, send: Send) -> None:
    await start(send)
    await part(send, b"begun", more=True)
    raise RuntimeError("too late")


async def gone(scope: Any, query: dict[str, str], receive: Any, send: Send) -> None:
    await receive()
    await meet_async(int(query["port"]))
    if (await receive())["type"] == "http.disconnect":
        await meet_async(int(query["port"]))


async def large(scope: Any, query: Any, receive: Any, send: Send) -> None:
    await start(send)
    await part(send, b"x" * LARGE)


async def medium(scope: Any, query: Any, receive: Any, send: Send) -> None:
    await start(send, (b"content-length", str(MEDIUM).encode()))
    await part(send, b"x" * MEDIUM)


async def works_and_waits(scope: Any, query: dict[str, str], receive: Any, send: Send) -> None:
    """As a framework does, on a loop that is busy."""
    for _ in range(2):
        ends = time.thread_time() + 0.0003
        while time.thread_time() < ends:
            pass
        await asyncio.sleep(0.005)
    await start(send, (b"content-length", b"4"))
    await part(send, b"done")


async def events(scope: Any, query: Any, receive: Any, send: Send) -> None:
    """Until its client has gone, or the worker is to end."""
    await unended_events(scope, query, receive, send)
    await part(send, b"data: ended\n\n")


async def unended_events(scope: Any, query: Any, receive: Any, send: Send) -> None:
    """As Starlette, which returns when it is told of the end."""
    await start(send, (b"content-type", b"text/event-stream"))
    await part(send, b"data: begun\n\n", more=True)
    await receive()
    while (await receive())["type"] != "http.disconnect":
        pass


async def deaf_events(scope: Any, query: Any, receive: Any, send: Send) -> None:
    """Until it is cancelled: it hears of nothing."""
    await start(send, (b"content-type", b"text/event-stream"))
    await part(send, b"data: begun\n\n", more=True)
    await asyncio.Event().wait()


async def start(send: Send, *headers: tuple[bytes, bytes]) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": list(headers)})


async def part(send: Send, body: bytes, more: bool = False) -> None:
    await send({"type": "http.response.body", "body": body, "more_body": more})


ROUTES: dict[str, Callable[..., Any]] = {
    "/events": events,
    "/unended-events": unended_events,
    "/deaf-events": deaf_events,
    "/parts": in_parts,
    "/endless": endless,
    "/ready": ready,
    "/blocks": blocks,
    "/behind": behind,
    "/late": late,
    "/gone": gone,
    "/large": large,
    "/medium": medium,
    "/works-and-waits": works_and_waits,
}


def wsgi(environ: dict[str, Any], start_response: Any) -> Any:
    query = dict(urllib.parse.parse_qsl(environ["QUERY_STRING"]))
    if environ["PATH_INFO"] == "/late":
        start_response("200 OK", [])(b"begun")
        raise RuntimeError("too late")
    if environ["PATH_INFO"] == "/short":
        start_response("200 OK", [("Content-Length", "5")])
        return [b"abc"]
    if environ["PATH_INFO"] == "/large-part":
        start_response("200 OK", [("Content-Length", str(LARGE))])
        return iter([b"x" * LARGE])
    if environ["PATH_INFO"] in STREAMS:
        kind, made = STREAMS[environ["PATH_INFO"]]
        start_response("200 OK", [("Content-Type", kind)])
        return made(int(query["port"]))
    start_response("200 OK", [("Content-Type", "text/plain")])
    match environ["PATH_INFO"]:
        case "/ready":
            return [b"ready"]
        case "/blocks":
            meet(int(query["port"]))
            return [b"blocked"]
        case "/large":
            return [b"x" * LARGE]
        case "/medium":
            return [b"x" * MEDIUM]
        case path:
            for _ in range(int(query.get("turns", 0))):
                pass
            facts = {"path": path, "method": environ["REQUEST_METHOD"], "scheme": environ["wsgi.url_scheme"]}
            facts |= {"client": environ["REMOTE_ADDR"], "body": environ["wsgi.input"].read().decode()}
            return [json.dumps(facts).encode()]


def parts(port: int) -> Iterator[bytes]:
    for nr in range(3):
        yield b"part %d," % nr
        meet(port)
    yield b"end"


def endless(port: int) -> Iterator[bytes]:
    """Until it is closed, which it tells."""
    try:
        while True:
            yield b": \n\n"
            time.sleep(0.01)
    finally:
        meet(port, "closed")


STREAMS = {
    "/parts": ("text/plain", parts),
    "/endless": ("text/plain", endless),
    "/events": ("text/event-stream", endless),
}
