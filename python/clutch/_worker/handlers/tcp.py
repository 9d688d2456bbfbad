"""The handler of connections: the user's function gets the accepted socket itself.

Its form is seen from its parameters: `def handler(conn)` with a blocking socket, `async def handler(reader, writer)`
with asyncio's streams, `async def handler(conn)` with a socket for the event loop. A connection is closed when its
handler has ended, however it did. When the worker is to end, the reading sides of all connections are shut down: a
handler that reads gets what has come, then the end of input.
"""

from __future__ import annotations

import _socket
import asyncio
import contextlib
import functools
import inspect
import os
import socket
import sys
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from clutch import _core
from clutch._worker.failure import traceback_of
from clutch._worker.handlers.call import Tool
from clutch._worker.handlers.kind import TargetKind
from clutch.errors import ConfigError, Interrupted
from clutch.tools import options_of

FORMS = "def handler(conn), async def handler(reader, writer), async def handler(conn), or an object that is called so"

Kind = TypeVar("Kind", bound=socket.socket)
Serving = Callable[[_core.Descriptor], Any]


def find(_target: str, found: Any, is_factory: bool) -> Any:
    """Return the target, or the result of a factory."""
    found = found() if is_factory else found
    form(found)
    return found


def entry(app: Any, _options: dict[str, Any], _profile: str, worker: _core.Worker) -> Tool:
    """Return the tool that runs for each connection. Raises ConfigError if the target cannot be a handler."""
    connections = Connections()
    worker.slots.on_drain(connections.end_input)
    return Tool("", serving(app, connections), options_of(app))


def serving(app: Any, connections: Connections) -> Serving:
    """The function that a call with a descriptor runs."""
    takes_streams, is_async = form(app)
    if takes_streams:
        return with_streams(app, connections)
    return with_socket_of_loop(app, connections) if is_async else with_blocking_socket(app, connections)


def form(app: Any) -> tuple[bool, bool]:
    """Return (takes reader and writer, is asynchronous). A class is judged by its instances."""
    if isinstance(app, type):
        app = functools.partial(vars_of_class(app).get("__call__", None) or not_callable(app), None)
    if not callable(app):
        not_callable(app)
    is_async = any(map(inspect.iscoroutinefunction, (app, getattr(app, "__call__", None))))  # noqa: B004
    required = required_parameters(app)
    if required == 1 or (required == 2 and is_async):
        return required == 2, is_async
    raise ConfigError(f"{app!r} cannot be a handler of connections: allowed are {FORMS}")


def vars_of_class(kind: type) -> dict[str, Any]:
    return {name: value for base in reversed(kind.__mro__) for name, value in vars(base).items()}


def not_callable(app: Any) -> Any:
    name = f"the module {app.__name__!r}" if inspect.ismodule(app) else repr(app)
    raise ConfigError(f"{name} cannot be called; name the handler of connections: package.module:handler ({FORMS})")


def required_parameters(app: Callable[..., Any]) -> int | None:
    """Number of required arguments, or None if unknown or if some are keyword-only."""
    try:
        parameters = inspect.signature(app).parameters.values()
    except (TypeError, ValueError):
        return None
    required = [parameter for parameter in parameters if parameter.default is parameter.empty]
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    if any(parameter.kind is parameter.KEYWORD_ONLY for parameter in required):
        return None
    return sum(parameter.kind in positional for parameter in required)


class Connections:
    """The open connections of a worker."""

    def __init__(self) -> None:
        # No lock: each side writes what is its own, then looks at the other's. (gevent's locks belong to one thread.)
        self._open: set[socket.socket] = set()
        self._is_ending = False

    @contextlib.contextmanager
    def opened(self, descriptor: _core.Descriptor, kind: type[socket.socket]) -> Iterator[socket.socket]:
        """Runs the handler, prints what it raises, and closes the connection."""
        conn = None
        try:
            conn = taken(descriptor, kind)
            self._open.add(conn)
            if self._is_ending:
                end_input(conn)
            yield conn
        except (Interrupted, asyncio.CancelledError):
            raise
        except BaseException as error:
            print(f"the handler of a connection failed:\n{traceback_of(error)}", file=sys.stderr, end="", flush=True)
            raise
        finally:
            if conn is not None:
                self._open.discard(conn)
                close(conn)

    def end_input(self) -> None:
        """Shut down the reading side of all connections, from any thread. Data that has arrived can still be read."""
        self._is_ending = True
        for conn in list(self._open):
            end_input(conn)


def taken(descriptor: _core.Descriptor, kind: type[Kind]) -> Kind:
    number = descriptor.take()
    try:
        return kind(fileno=number)
    except BaseException:
        os.close(number)
        raise


def end_input(conn: socket.socket) -> None:
    """Use the system call: gevent's method makes waiting readers fail, and works in its hub's thread only."""
    with contextlib.suppress(OSError, TypeError):  # closed meanwhile
        _socket.socket.shutdown(getattr(conn, "_sock", conn), socket.SHUT_RD)


def close(conn: socket.socket) -> None:
    """Shut the connection down, so that the peer sees its end even if a file or a forked process holds a copy."""
    with contextlib.suppress(OSError):
        conn.shutdown(socket.SHUT_WR)
    with contextlib.suppress(OSError):
        conn.close()


def native_socket() -> type[socket.socket]:
    """Returns `socket` as it is without gevent: the event loop of a greenlet worker runs in a native thread."""
    monkey = sys.modules.get("gevent.monkey")
    return socket.socket if monkey is None else monkey.get_original("socket", "socket")


def with_blocking_socket(handler: Callable[..., Any], connections: Connections) -> Serving:
    def serve(descriptor: _core.Descriptor) -> None:
        with connections.opened(descriptor, socket.socket) as conn:
            conn.setblocking(True)
            made = handler(conn)
            if inspect.iscoroutine(made):
                made.close()
                raise TypeError(f"{handler!r} is no async def, but returned a coroutine: allowed are {FORMS}")

    return serve


def with_socket_of_loop(handler: Callable[..., Any], connections: Connections) -> Serving:
    async def serve(descriptor: _core.Descriptor) -> None:
        with connections.opened(descriptor, native_socket()) as conn:
            conn.setblocking(False)
            await handler(conn)

    return serve


def with_streams(handler: Callable[..., Any], connections: Connections) -> Serving:
    async def serve(descriptor: _core.Descriptor) -> None:
        with connections.opened(descriptor, native_socket()) as conn:
            conn.setblocking(False)
            reader, writer = await open_streams(conn)
            try:
                await handler(reader, writer)
            except asyncio.CancelledError:
                writer.transport.abort()
                raise
            finally:
                await close_stream(writer)

    return serve


async def open_streams(conn: socket.socket) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(loop=loop)
    protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
    transport, _ = await loop.connect_accepted_socket(lambda: protocol, conn)
    return reader, asyncio.StreamWriter(transport, protocol, reader, loop)


async def close_stream(writer: asyncio.StreamWriter) -> None:
    """Wait until all written data is sent."""
    writer.close()
    try:
        await writer.wait_closed()
    except ConnectionError:
        pass  # the peer has gone, and says so once more
    except BaseException:
        writer.transport.abort()
        raise


CONNECTIONS = TargetKind(find, entry, has_instances=True)
