"""A client of WebSockets over TLS, for tests that do not run on an event loop."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import threading
from collections.abc import Awaitable, Iterator
from pathlib import Path
from typing import Any

from websockets.asyncio.client import ClientConnection, connect

from support.clutch_process import WAIT_SECONDS


class SecureClient:
    """A connection of websockets' asyncio client.

    Its client for threads reads and writes a TLS connection in two of them at a time, which OpenSSL does not allow: now
    and then it waits for ever.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, connection: ClientConnection) -> None:
        self._loop = loop
        self._connection = connection

    def _wait(self, awaitable: Awaitable[Any], seconds: float) -> Any:
        async def wait() -> Any:
            return await asyncio.wait_for(awaitable, seconds)

        return asyncio.run_coroutine_threadsafe(wait(), self._loop).result()

    def send(self, message: str | bytes | list[str]) -> None:
        self._wait(self._connection.send(message), WAIT_SECONDS)

    def recv(self, seconds: float = WAIT_SECONDS) -> str | bytes:
        return self._wait(self._connection.recv(), seconds)

    def close(self, code: int) -> None:
        self._wait(self._connection.close(code), WAIT_SECONDS)

    def lose(self) -> None:
        """Drops the connection without a word."""
        self._loop.call_soon_threadsafe(self._connection.transport.abort)

    def pings(self) -> None:
        """Until its ping is answered."""
        self._wait(self._wait(self._connection.ping(), WAIT_SECONDS), WAIT_SECONDS)


@contextlib.contextmanager
def open_securely(url: str, certificate: Path) -> Iterator[SecureClient]:
    """`certificate`: of whom it trusts."""
    loop = asyncio.new_event_loop()
    runs = threading.Thread(target=loop.run_forever)
    runs.start()
    try:
        context = ssl.create_default_context(cafile=certificate)

        async def opened() -> ClientConnection:
            return await connect(
                url, ssl=context, compression=None, max_size=None, ping_interval=None, open_timeout=WAIT_SECONDS
            )

        connection = asyncio.run_coroutine_threadsafe(opened(), loop).result()
        try:
            yield SecureClient(loop, connection)
        finally:
            asyncio.run_coroutine_threadsafe(connection.close(), loop).result()
    finally:
        loop.call_soon_threadsafe(loop.stop)
        runs.join()
        loop.close()
