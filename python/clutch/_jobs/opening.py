"""Opens the store of a `Jobs` on first use, in each process anew."""

from __future__ import annotations

import asyncio
import os
import threading
from concurrent.futures import Future

from clutch import _core
from clutch.errors import ConfigError

STORES_INSTEAD: dict[str, str] = {}
"""By the URL of a store, the one that is used. Of `clutch.testing`, and empty elsewhere."""


def offers_of(url: str) -> dict[str, bool]:
    """Returns what the store at a URL can do beyond what all do: `keywords`, `ticks`, `results`, `transactions`.

    Raises `ConfigError` for what is not the URL of a store. The store need not exist.
    """
    try:
        return _core.JobStore.offers(url)
    except ValueError as error:
        raise ConfigError(str(error)) from None


class LazyStore:
    """A store that need not be open yet.

    A `Jobs` and its copies with other options have one together, so that what they enqueue at a time shares its trip.
    """

    def __init__(self, url: str, strategy: str, connections: int) -> None:
        self._url, self._strategy, self._connections = url, strategy, connections
        self._opened: tuple[int, str, _core.JobStore] | None = None
        self._opening: tuple[int, str, Future[_core.JobStore]] | None = None

    @property
    def url(self) -> str:
        return STORES_INSTEAD.get(self._url, self._url)

    @property
    def opened(self) -> _core.JobStore | None:
        """If it is open, in this process."""
        opened = self._opened
        return None if opened is None or opened[0] != os.getpid() or opened[1] != self.url else opened[2]

    def open(self) -> _core.JobStore:
        """Raises `StoreUnavailable` and `StoreError`."""
        if (store := self.opened) is None:
            url = self.url
            store = _core.JobStore(url, self._strategy, self._connections)
            self._opened = (os.getpid(), url, store)
        return store

    async def open_soon(self) -> _core.JobStore:
        """To open is to connect, which takes seconds where the server hangs: all who want that wait together."""
        if (store := self.opened) is not None:
            return store
        opening = self._opening
        if opening is None or opening[:2] != (os.getpid(), self.url) or opening[2].done():
            opening = self._opening = (os.getpid(), self.url, Future())
            threading.Thread(target=self._open_into, args=(opening[2],), name="clutch-open").start()
        return await asyncio.shield(asyncio.wrap_future(opening[2]))

    def _open_into(self, future: Future[_core.JobStore]) -> None:
        try:
            future.set_result(self.open())
        except BaseException as error:
            future.set_exception(error)
