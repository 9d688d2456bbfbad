"""The handler of requests for ASGI apps: what their scopes have in common, how they are run, and their lifespan."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Coroutine
from typing import Any

from clutch import _core

# Not 2.4: from there on frameworks take it that `send` raises when the client has gone, and do not listen for
# `http.disconnect`. Here the app is told, and goes on.
VERSIONS = {"version": "3.0", "spec_version": "2.3"}

Run = Callable[[Any, Any, Any], Coroutine[Any, Any, None]]


def template(root_path: str) -> dict[str, Any]:
    """What the scopes of all requests have in common; the rest is put in natively. `asgi` is copied for each."""
    return {
        "type": "http",
        "asgi": VERSIONS,
        "http_version": "1.1",
        "scheme": "http",
        "root_path": root_path,
    }


def runner(app: Callable[..., Any], kind: str) -> Run:
    """An app as a coroutine function of three arguments: none of its code runs before the coroutine does."""
    if kind == "asgi2":

        async def run(scope: Any, receive: Any, send: Any) -> None:
            await app(scope)(receive, send)

    elif is_coroutine_function(app):
        return app

    else:

        async def run(scope: Any, receive: Any, send: Any) -> None:
            await app(scope, receive, send)

    return run


def is_coroutine_function(app: Callable[..., Any]) -> bool:
    """Itself, or its class by `async def __call__`."""
    return inspect.iscoroutinefunction(app) or is_called_async(type(app))


def is_called_async(kind: type) -> bool:
    return inspect.iscoroutinefunction(getattr(kind, "__call__", None))  # noqa: B004


class LifespanFailed(Exception):
    """The app said that it cannot start."""


class NotForLifespan(RuntimeError):
    """A message of another protocol: the app takes its lifespan for a request."""


class Lifespan:
    """The life of an app on one event loop: started before its first request, shut down after its last.

    An app that raises when it is asked has none, and goes without.
    """

    def __init__(self, run: Run, log: Callable[[BaseException | str], None]) -> None:
        self._run = run
        self._log = log
        self._state: dict[str, Any] = {}
        self._told: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._changed = asyncio.Event()
        self._has_started = False
        self._failure: str | None = None
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Raises LifespanFailed with what the app gives as the reason."""
        self._task = asyncio.get_running_loop().create_task(self._live())
        await self._ask("lifespan.startup")
        if self._failure is not None:
            raise LifespanFailed(self._failure or "the app sent lifespan.startup.failed")
        if self._has_started:
            # Where the coroutines run; who makes the scopes elsewhere shares it there.
            _core.share_state(self._state)

    @property
    def state(self) -> dict[str, Any] | None:
        """What the app keeps for its requests; None: it has no lifespan."""
        return self._state if self._has_started else None

    async def stop(self) -> None:
        if self._has_started and self._task is not None and not self._task.done():
            await self._ask("lifespan.shutdown")
            await asyncio.wait([self._task])
        if self._failure:
            self._log(f"the app's shutdown failed: {self._failure}")

    async def _ask(self, kind: str) -> None:
        self._changed.clear()
        self._told.put_nowait({"type": kind})
        await self._changed.wait()

    async def _live(self) -> None:
        scope = {"type": "lifespan", "asgi": VERSIONS, "state": self._state}
        try:
            await self._run(scope, self._told.get, self._send)
        except BaseException as error:
            # Before it has said anything: it knows no lifespan. (The protocol wants it so.)
            if self._has_started or self._failure is not None or not is_refusal(error):
                self._log(error)
        finally:
            self._changed.set()

    async def _send(self, message: dict[str, Any]) -> None:
        kind = message["type"]
        if kind == "lifespan.startup.complete":
            self._has_started = True
        elif kind in ("lifespan.startup.failed", "lifespan.shutdown.failed"):
            self._failure = message.get("message", "")
        elif kind != "lifespan.shutdown.complete":
            raise NotForLifespan(f"{kind!r} is not for a lifespan")
        self._changed.set()


def is_refusal(error: BaseException) -> bool:
    """Whether an app raised because it knows no lifespan, and not because its start failed."""
    return isinstance(error, (NotForLifespan, AssertionError, KeyError, NotImplementedError, TypeError, ValueError))
