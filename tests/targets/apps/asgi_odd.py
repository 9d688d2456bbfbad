"""ASGI apps in unusual forms, and an app that uses `receive` and `send` in unusual ways, each at a path of its own."""

from __future__ import annotations

import asyncio
import gc
import types
from collections.abc import Awaitable, Callable, Coroutine, Generator
from http import HTTPStatus
from typing import Any

from asgi_app import Receive, Scope, Send, query, reply, start

from support.rendezvous import meet_async

IMPATIENT_WAITS = 500

Message = dict[str, Any]
left_behind: set[asyncio.Task[None]] = set()


class Bytes(bytes):
    """A string of bytes of its own kind."""


MESSAGES: dict[str, tuple[Any, Any]] = {
    "lists": ([[b"x-form", b"seen"]], b"body"),
    "generator": ((pair for _ in [0] for pair in [(b"x-form", b"seen")]), b"body"),
    "subclasses": ([(Bytes(b"x-form"), Bytes(b"seen"))], Bytes(b"body")),
    "views": ([(b"x-form", b"seen")], memoryview(bytearray(b"body"))),
}


async def forms(scope: Scope, receive: Receive, send: Send) -> None:
    """Messages that are mappings, and what may be in them."""
    headers, body = MESSAGES[query(scope)["form"]]
    first = {"type": "http.response.start", "status": HTTPStatus.OK, "headers": headers}
    await send(types.MappingProxyType(first))  # type: ignore[arg-type]
    await send({"type": "http.response.body", "body": body})


async def wrong_header(scope: Scope, receive: Receive, send: Send) -> None:
    """Says what is raised for a header that is none."""
    wrong: dict[str, Any] = {"text": ("x", "y"), "three": (b"x", b"y", b"z"), "one": [b"x"], "number": 1}
    try:
        await start(send, 200, wrong[query(scope)["what"]])
    except TypeError as error:
        await reply(send, str(error))


async def waits_on(scope: Scope, receive: Receive, send: Send) -> None:
    """Waits for a message in another task while its response becomes whole."""
    assert (await receive())["type"] == "http.request"
    waiting = [asyncio.ensure_future(receive()) for _ in range(2)]
    await asyncio.sleep(0)
    await reply(send, b"whole")
    told = await asyncio.gather(*waiting)
    await meet_async(int(query(scope)["port"]), " ".join(message["type"] for message in told))


async def leaves_behind(scope: Scope, receive: Receive, send: Send) -> None:
    """Returns while a task of its own waits for a message, which then says something more."""

    async def later() -> None:
        message = await receive()
        await reply(send, b"too late")
        await meet_async(int(query(scope)["port"]), message["type"])

    await receive()
    task = asyncio.create_task(later())
    left_behind.add(task)
    task.add_done_callback(left_behind.discard)
    await asyncio.sleep(0)


async def impatient(scope: Scope, receive: Receive, send: Send) -> None:
    """Gives up waiting many times; says how many futures there are for it."""
    await receive()
    for _ in range(IMPATIENT_WAITS):
        waiting = asyncio.ensure_future(receive())
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait([waiting])
    gc.collect()
    await reply(send, sum(isinstance(found, asyncio.Future) for found in gc.get_objects()))


async def from_threads(scope: Scope, receive: Receive, send: Send) -> None:
    """Sends from a thread without a loop, or with one that ends at once."""
    messages: list[Message] = [
        {"type": "http.response.start", "status": 200},
        {"type": "http.response.body", "body": b"from ", "more_body": True},
        {"type": "http.response.body", "body": b"a thread"},
    ]

    async def send_one(message: Message) -> None:
        await send(message)

    def say() -> None:
        for message in messages:
            if query(scope)["loop"] == "none":
                send(message)
            else:
                asyncio.run(send_one(message))

    await asyncio.to_thread(say)


async def part(scope: Scope, receive: Receive, send: Send) -> None:
    """Waits with a part of its body sent."""
    await start(send)
    await asyncio.sleep(0)
    await send({"type": "http.response.body", "body": b"part", "more_body": True})
    await meet_async(int(query(scope)["port"]), "sent")
    await send({"type": "http.response.body"})


async def child_exits(scope: Scope, receive: Receive, send: Send) -> None:
    """Another task of the app's ends its event loop, or tries to."""

    async def leave() -> None:
        raise SystemExit(query(scope)["code"])

    child = asyncio.ensure_future(leave())
    await asyncio.wait([child])
    await reply(send, child.exception().__class__.__name__)


async def quick(scope: Scope, receive: Receive, send: Send) -> None:
    await reply(send, b"quick")


APPS: list[Callable[[Scope, Receive, Send], Awaitable[None]]] = [
    *(forms, wrong_header, waits_on, leaves_behind, impatient, from_threads, part, child_exits, quick)
]
routes = {"/" + found.__name__: found for found in APPS}


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] != "http":
        raise NotImplementedError(scope["type"])
    await routes[scope["path"]](scope, receive, send)


# ---- forms of apps


class Later:
    """Can be awaited, and is no coroutine."""

    def __init__(self, coroutine: Coroutine[Any, Any, None]) -> None:
        self.coroutine = coroutine

    def __await__(self) -> Generator[Any, Any, None]:
        return self.coroutine.__await__()


def awaitable(scope: Scope, receive: Receive, send: Send) -> Later:
    return Later(app(scope, receive, send))


def starts_a_task(scope: Scope, receive: Receive, send: Send) -> Coroutine[Any, Any, None]:
    """A plain function that needs the running loop, and gives a coroutine."""
    if scope["type"] != "http":
        raise NotImplementedError(scope["type"])
    task = asyncio.create_task(asyncio.sleep(0, b"quick"))

    async def answer() -> None:
        await reply(send, await task)

    return answer()


class Wrapper:
    """Takes whatever comes, and has its `__call__` in a slot, as middleware of Sentry."""

    __slots__ = ("__call__", "app")

    def __init__(self) -> None:
        self.app = app
        self.__call__ = self.run

    async def run(self, *arguments: Any) -> None:
        await self.app(*arguments)


in_a_slot = Wrapper()


def anything(*arguments: Any) -> Coroutine[Any, Any, None]:
    return app(*arguments)


# ---- lifespans


async def raises_at_startup(scope: Scope, receive: Receive, send: Send) -> None:
    """Middleware whose start goes wrong, without a word of the protocol."""
    if scope["type"] == "lifespan":
        await receive()
        raise KeyError("NO_SUCH_URL")
    await app(scope, receive, send)


async def returns_at_startup(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] == "http":
        await app(scope, receive, send)


async def says_what_it_saw(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] == "lifespan":
        kinds.append("lifespan")
        raise NotImplementedError
    await reply(send, kinds)


kinds: list[str] = []
