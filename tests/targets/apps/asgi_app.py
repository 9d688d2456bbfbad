"""An ASGI app that does what apps do, each at a path of its own."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import hashlib
import json
import os
import time
import urllib.parse
from collections.abc import Awaitable, Callable
from typing import Any

from support.rendezvous import meet, meet_async

Scope = dict[str, Any]
Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

PIECE = bytes(64 << 10)
routes: dict[str, App] = {}
started: list[dict[str, Any]] = []
variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="unset")


class Special(BaseException):
    """No Exception."""


EXITS = {"SystemExit": SystemExit, "KeyboardInterrupt": KeyboardInterrupt, "ValueError": ValueError, "Special": Special}


def route(app: App) -> App:
    routes["/" + app.__name__] = app
    return app


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] == "lifespan":
        await lifespan(scope, receive, send)
        return
    found = routes.get(scope["path"].removeprefix(scope["root_path"]), scope_seen)
    await found(scope, receive, send)


async def lifespan(scope: Scope, receive: Receive, send: Send) -> None:
    assert (await receive())["type"] == "lifespan.startup"
    started.append(scope)
    scope["state"]["count"] = 0
    scope["state"]["shared"] = []
    await send({"type": "lifespan.startup.complete"})
    assert (await receive())["type"] == "lifespan.shutdown"
    if port := os.environ.get("STOPPED_PORT"):
        await meet_async(int(port), "shutdown")
    await send({"type": "lifespan.shutdown.complete"})


def query(scope: Scope) -> dict[str, str]:
    return dict(urllib.parse.parse_qsl(scope["query_string"].decode()))


async def start(send: Send, status: int = 200, *headers: tuple[bytes, bytes]) -> None:
    await send({"type": "http.response.start", "status": status, "headers": list(headers)})


async def reply(send: Send, value: Any, status: int = 200) -> None:
    body = value if isinstance(value, bytes) else json.dumps(value, default=shown).encode()
    await start(send, status, (b"content-length", b"%d" % len(body)))
    await send({"type": "http.response.body", "body": body})


def shown(value: Any) -> Any:
    return {"bytes": value.decode("latin-1")} if isinstance(value, bytes) else repr(value)


async def pieces(receive: Receive) -> Any:
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        yield message["body"]
        if not message["more_body"]:
            return


@route
async def scope_seen(scope: Scope, receive: Receive, send: Send) -> None:
    await reply(send, scope)


@route
async def count(scope: Scope, receive: Receive, send: Send) -> None:
    found, size = hashlib.sha256(), 0
    async for piece in pieces(receive):
        found.update(piece)
        size += len(piece)
    await reply(send, {"size": size, "sha": found.hexdigest()})


@route
async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    """Each piece as it comes."""
    await start(send)
    async for piece in pieces(receive):
        await send({"type": "http.response.body", "body": piece, "more_body": True})
    await send({"type": "http.response.body"})


@route
async def big(scope: Scope, receive: Receive, send: Send) -> None:
    await start(send)
    for _ in range(int(query(scope)["pieces"])):
        await send({"type": "http.response.body", "body": PIECE, "more_body": True})
    await send({"type": "http.response.body", "body": b""})


@route
async def large(scope: Scope, receive: Receive, send: Send) -> None:
    """In one part."""
    await start(send)
    await send({"type": "http.response.body", "body": bytes(int(query(scope)["size"]))})


@route
async def many_headers(scope: Scope, receive: Receive, send: Send) -> None:
    await start(send, 200, *((b"x-%d" % nr, b"1") for nr in range(int(query(scope)["count"]))))
    await send({"type": "http.response.body", "body": b"body"})


@route
async def endless(scope: Scope, receive: Receive, send: Send) -> None:
    """Until the client has gone; how many pieces `send` has taken is told when somebody asks."""
    port, sent = int(query(scope)["port"]), 0

    async def tell() -> None:
        await meet_async(port, "asks")
        await meet_async(port, str(sent))

    telling = asyncio.ensure_future(tell())
    await start(send)
    gone = asyncio.ensure_future(receive_gone(receive))
    while not gone.done():
        await send({"type": "http.response.body", "body": PIECE, "more_body": True})
        sent += 1
        await asyncio.sleep(0)
    await telling
    await meet_async(port, "gone")


async def receive_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


@route
async def late_event(scope: Scope, receive: Receive, send: Send) -> None:
    """An event stream whose first event comes when somebody lets it."""
    await start(send, 200, (b"content-type", b"text/event-stream"))
    await meet_async(int(query(scope)["port"]), "started")
    await send({"type": "http.response.body", "body": b"data: 1\n\n"})


@route
async def late_part(scope: Scope, receive: Receive, send: Send) -> None:
    """A response whose first part comes when somebody lets it."""
    await start(send, 200)
    await meet_async(int(query(scope)["port"]), "started")
    await send({"type": "http.response.body", "body": b"data: 1\n"})


@route
async def late_part_after_a_wait(scope: Scope, receive: Receive, send: Send) -> None:
    """The same, started in a later step of its coroutine."""
    await asyncio.sleep(0)
    await late_part(scope, receive, send)


@route
async def answers_again(scope: Scope, receive: Receive, send: Send) -> None:
    """Returns a second response once the client of its event stream has gone, as endpoints of MCP's SDK do."""
    port = int(query(scope)["port"])
    await start(send, 200, (b"content-type", b"text/event-stream"))
    await send({"type": "http.response.body", "body": b"data: 1\n\n", "more_body": True})
    await meet_async(port, "streaming")
    await receive_gone(receive)
    await reply(send, b"second")
    await reply(send, b"third")
    await meet_async(port, "answered again")


@route
async def told(scope: Scope, receive: Receive, send: Send) -> None:
    """Goes on when its client has gone."""
    port = int(query(scope)["port"])
    await meet_async(port, "here")
    await receive_gone(receive)
    await meet_async(port, "told")


@route
async def stopped(scope: Scope, receive: Receive, send: Send) -> None:
    port = int(query(scope)["port"])
    try:
        await meet_async(port, "here")
        await asyncio.Event().wait()
    finally:
        await meet_async(port, "finally")


@route
async def unread(scope: Scope, receive: Receive, send: Send) -> None:
    await reply(send, b"not read")


@route
async def status(scope: Scope, receive: Receive, send: Send) -> None:
    """A body that the status or the method does not have."""
    await start(send, int(query(scope)["code"]), (b"x-seen", b"1"))
    await send({"type": "http.response.body", "body": b"body", "more_body": True})
    await send({"type": "http.response.body", "body": b" and more"})


@route
async def background(scope: Scope, receive: Receive, send: Send) -> None:
    await reply(send, b"whole")
    await meet_async(int(query(scope)["port"]), "after")


@route
async def computes(scope: Scope, receive: Receive, send: Send) -> None:
    """Holds its loop until the test lets it go, and for a millisecond at least: in its first step or in a later one."""
    asked = query(scope)
    if asked["when"] == "later":
        await asyncio.sleep(0)
    until = time.perf_counter() + 0.001
    meet(int(asked["port"]), asked["name"])
    while time.perf_counter() < until:
        pass
    await reply(send, b"computed")


@route
async def fails(scope: Scope, receive: Receive, send: Send) -> None:
    """Raises `kind`, at `when`: in its first step, in a later one, in its body or after it."""
    asked = query(scope)
    kind, when = EXITS[asked["kind"]], asked["when"]
    if when != "first":
        await asyncio.sleep(0)
    if when in ("body", "after"):
        await start(send)
        await send({"type": "http.response.body", "body": b"part", "more_body": when == "body"})
    raise kind("as asked")


@route
async def wrong(scope: Scope, receive: Receive, send: Send) -> None:
    """Misuse of the protocol."""
    how = query(scope)["how"]
    if how == "returns":
        return
    if how == "body_first":
        await send({"type": "http.response.body", "body": b""})
    await start(send, 200, (b"content-length", b"3"))
    if how == "twice":
        await start(send)
    await send({"type": "http.response.body", "body": b"1234" if how == "too_long" else b"12"})


@route
async def marks(scope: Scope, receive: Receive, send: Send) -> None:
    """Says which of its dicts another request has marked, and marks them."""
    inner = [scope["asgi"], scope["extensions"], scope["state"]]
    await reply(send, ["mark" in found for found in inner])
    for found in inner:
        found["mark"] = True


@route
async def state(scope: Scope, receive: Receive, send: Send) -> None:
    """Its own copy is changed, what is in it is shared."""
    found = scope["state"]
    found["count"] += 1
    found["shared"].append(1)
    seen = {"count": found["count"], "shared": len(found["shared"]), "lifespans": len(started)}
    await reply(send, {**seen, "is_lifespans": any(found["shared"] is other["state"]["shared"] for other in started)})


@route
async def first_step(scope: Scope, receive: Receive, send: Send) -> None:
    """Nothing of this is awaited before it is used."""
    await reply(send, await CHECKS[query(scope)["what"]]())


async def timeout() -> bool:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(0.001):
            await asyncio.Event().wait()
        return False
    return True


async def task_group() -> bool:
    async def one(value: int) -> int:
        await asyncio.sleep(0)
        return value

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(one(value)) for value in range(3)]
    return [task.result() for task in tasks] == [0, 1, 2]


async def to_thread() -> bool:
    import threading

    import anyio.to_thread

    there = await anyio.to_thread.run_sync(threading.get_ident)
    return there != threading.get_ident()


async def cancel_scope() -> bool:
    import anyio

    with anyio.move_on_after(0.001) as scope:
        await anyio.sleep_forever()
    return scope.cancelled_caught


async def current_task() -> bool:
    before = asyncio.current_task()
    await asyncio.sleep(0)
    return before is not None and before is asyncio.current_task()


async def all_tasks() -> bool:
    await asyncio.sleep(0)
    return asyncio.current_task() in asyncio.all_tasks()


async def create_task() -> bool:
    made = asyncio.create_task(asyncio.sleep(0, "done"))
    return not made.done() and await made == "done"


async def call_soon() -> bool:
    called = asyncio.Event()
    asyncio.get_running_loop().call_soon(called.set)
    is_late = not called.is_set()
    await called.wait()
    return is_late


async def variables() -> bool:
    """Each request has a context of its own, which stays the same over its waits."""
    before = variable.get()
    variable.set("set")
    await asyncio.sleep(0)
    return (before, variable.get()) == ("unset", "set")


async def no_wait_variables() -> bool:
    before = variable.get()
    variable.set("set")
    return before == "unset"


CHECKS: dict[str, Callable[[], Awaitable[bool]]] = {
    check.__name__: check
    for check in (
        *(timeout, task_group, to_thread, cancel_scope, current_task, all_tasks, create_task, call_soon),
        *(variables, no_wait_variables),
    )
}


class Two:
    """ASGI 2."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope

    async def __call__(self, receive: Receive, send: Send) -> None:
        if self.scope["type"] != "http":
            raise ValueError(self.scope["type"])
        await reply(send, {"type": self.scope["type"]})


async def cannot_start(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] == "lifespan":
        await receive()
        await send({"type": "lifespan.startup.failed", "message": "the database is away"})


def middleware() -> Any:
    """Starlette with its BaseHTTPMiddleware, which reads and sends in tasks of its own."""
    from starlette.applications import Starlette
    from starlette.middleware import Middleware
    from starlette.middleware.base import BaseHTTPMiddleware
    from starlette.requests import Request
    from starlette.responses import JSONResponse, Response
    from starlette.routing import Route

    class Marks(BaseHTTPMiddleware):
        async def dispatch(self, request: Request, call_next: Any) -> Response:
            response = await call_next(request)
            response.headers["x-marked"] = "yes"
            return response

    async def size(request: Request) -> JSONResponse:
        return JSONResponse(len(await request.body()))

    return Starlette(routes=[Route("/", size, methods=["POST"])], middleware=[Middleware(Marks)])
