"""The handler of requests for ASGI apps: what their scopes have in common, how they are run, and their lifespan."""

from __future__ import annotations

import asyncio
import functools
import inspect
import mmap
from collections.abc import Callable, Coroutine
from typing import Any

from clutch import _core
from clutch._worker.failure import SaysItAll, users_frames

# Not 2.4: from there on frameworks take it that `send` raises when the client has gone, and do not listen for
# `http.disconnect`. Here the app is told, and goes on.
VERSIONS = {"version": "3.0", "spec_version": "2.3"}

SAID = mmap.mmap(-1, 1)
"""True if a missing lifespan was told. Made in the zygote: all workers of an image share it, for once is enough."""

Run = Callable[[Any, Any, Any], Coroutine[Any, Any, None]]


def template(root_path: str) -> dict[str, Any]:
    """The part that the scopes of all requests share; the rest is added natively. `asgi` is copied for each."""
    return {
        "type": "http",
        "asgi": VERSIONS,
        "http_version": "1.1",
        "scheme": "http",
        "root_path": root_path,
        # Each request has its own. A copy of a dict with room for them is cheaper than one that grows.
        "path": "",
        "raw_path": b"",
        "query_string": b"",
        "client": None,
        "server": None,
        "headers": [],
        "extensions": {},
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


def is_coroutine_function(app: Any) -> bool:
    """Returns whether the app, or its `__call__`, is an `async def`. `__call__` may be an attribute of the instance."""
    while isinstance(app, functools.partial):
        app = app.func
    return any(map(inspect.iscoroutinefunction, (app, getattr(app, "__call__", None))))  # noqa: B004


class LifespanFailed(SaysItAll):
    """The app said that it cannot start."""


class NotForLifespan(RuntimeError):
    """The app sent a message of another protocol: it treats its lifespan as a request."""


class Lifespan:
    """The life of an app on one event loop: started before its first request, shut down after its last.

    An app that raises before it has said anything goes without, which is told; in the mode `on` it cannot start. In the
    mode `off` it is never asked.
    """

    def __init__(self, run: Run, log: Callable[[BaseException | str], None], mode: str = "auto") -> None:
        self._run = run
        self._log = log
        self._mode = mode
        self._state: dict[str, Any] = {}
        self._told: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._changed = asyncio.Event()
        self._has_started = False
        self._failure: str | None = None
        self._error: BaseException | None = None
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Raises LifespanFailed with the reason that the app gives."""
        if self._mode == "off":
            return
        self._task = asyncio.get_running_loop().create_task(self._live())
        await self._ask("lifespan.startup")
        if self._failure is not None:
            raise LifespanFailed(self._failure or "the app sent lifespan.startup.failed")
        if self._has_started:
            return
        if self._mode == "on":
            did = f"raised {self._error!r}" if self._error else "returned before lifespan.startup.complete"
            raise LifespanFailed(f'lifespan = "on", and at lifespan.startup the app {did}') from self._error
        if self._error is not None:
            self._tell_without(self._error)

    def share(self) -> None:
        """Scopes that this thread makes have the app's state, if it has a lifespan."""
        _core.share_state(self._state if self._has_started else None)

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
        scope = {"type": "lifespan", "asgi": dict(VERSIONS), "state": self._state}
        try:
            await self._run(scope, self._told.get, self._send)
        except BaseException as error:
            if self._has_started or self._failure is not None:
                if not self._has_told(error):
                    self._log(error)
            else:
                self._error = error.with_traceback(users_frames(error))
        finally:
            self._changed.set()

    def _has_told(self, error: BaseException) -> bool:
        """Returns whether the app has also sent this error as its reason, as frameworks do with the traceback."""
        return self._failure is not None and type(error).__name__ in self._failure and str(error) in self._failure

    def _tell_without(self, error: BaseException) -> None:
        """Log why the app runs without a lifespan. It usually does not support one, but its startup may have failed."""
        if not is_refusal(error):
            self._log(error)
        elif not _core.test_and_set(SAID):
            text = f"at lifespan.startup the app raised {error!r}, and is served without a lifespan"
            self._log(f'info: {text}; lifespan = "on" makes that fatal, "off" does not send it')

    async def _send(self, message: dict[str, Any]) -> None:
        kind = message["type"]
        if kind == "lifespan.startup.complete":
            self._has_started = True
        elif kind in ("lifespan.startup.failed", "lifespan.shutdown.failed"):
            self._failure = message.get("message", "")
        elif kind != "lifespan.shutdown.complete":
            raise NotForLifespan(f"{kind!r} is not allowed in a lifespan")
        self._changed.set()


def is_refusal(error: BaseException) -> bool:
    """Returns whether an app may have raised because it does not support lifespan."""
    return isinstance(error, (NotForLifespan, AssertionError, KeyError, NotImplementedError, TypeError, ValueError))
