"""Apps whose requests run until somebody lets them go, or ends them, in each of the ways in which they may wait."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import time
import urllib.parse
from typing import Any

from support.rendezvous import meet, meet_async


async def app(scope: dict[str, Any], receive: Any, send: Any) -> None:
    if scope["type"] != "http":
        await lifespan(receive, send)
        return
    port = int(dict(urllib.parse.parse_qsl(scope["query_string"].decode())).get("port", 0))
    match scope["path"]:
        case "/waits":
            await meet_async(port)
        case ("/blocks" | "/blocks-until") as path:
            BLOCKING[path](port)
        case "/blocks-later":
            await asyncio.sleep(0)
            look_busy(port)
        case ("/thread" | "/thread-waits") as path:
            await asyncio.to_thread(IN_THREAD[path], port)
        case "/stubborn":
            while True:
                try:
                    look_busy(port)
                    break
                except BaseException:
                    port = 0
        case ("/begun" | "/events") as path:
            await PARTED[path](receive, send, port)
            return
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"4")]})
    await send({"type": "http.response.body", "body": b"done"})
    await go_on(scope["path"], port)


async def begin(_: Any, send: Any, port: int) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"begun", "more_body": True})
    await meet_async(port)
    await send({"type": "http.response.body", "body": b", and done"})


async def stream_events(receive: Any, send: Any, port: int) -> None:
    """Until it is told that its worker is to end; then somebody is to let it go."""
    headers = [(b"content-type", b"text/event-stream")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b"data: 1\n\n", "more_body": True})
    while (await receive())["type"] != "http.disconnect":
        pass
    await meet_async(port)


async def go_on(path: str, port: int) -> None:
    """Behind the response, as a background task does; a deaf one does not stop when it is told to."""
    if not path.endswith("behind"):
        return
    try:
        await meet_async(port)
    finally:
        print("finally of what goes on", flush=True)
        if path == "/deaf-behind":
            await asyncio.Event().wait()
    print("whole", flush=True)


async def lifespan(receive: Any, send: Any) -> None:
    await receive()
    await send({"type": "lifespan.startup.complete"})
    await receive()
    print("shut down", flush=True)
    await send({"type": "lifespan.shutdown.complete"})


def wsgi(environ: dict[str, Any], start_response: Any) -> list[bytes]:
    port = int(dict(urllib.parse.parse_qsl(environ["QUERY_STRING"])).get("port", 0))
    match environ["PATH_INFO"]:
        case "/waits":
            meet(port)
        case "/blocks":
            look_busy(port)
        case "/stubborn":
            while True:
                try:
                    look_busy(port)
                    break
                except BaseException:
                    port = 0
    start_response("200 OK", [("Content-Length", "4")])
    return [b"done"]


def look_busy(port: int) -> None:
    """Tells that it is here, and computes for ever."""
    with contextlib.ExitStack() as stack:
        if port:
            there = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
            there.sendall(f"{os.getpid()} \n".encode())
        while True:
            time.monotonic()


PARTED = {"/begun": begin, "/events": stream_events}
IN_THREAD = {"/thread": look_busy, "/thread-waits": meet}
BLOCKING = {"/blocks": look_busy, "/blocks-until": meet}
"""What holds the event loop up: for ever, or until it is let go."""
