"""Answers of a pool in this process: `Future` and `Stream`, and the bridge that passes them to an event loop."""

from __future__ import annotations

import concurrent.futures
import sys
import threading
import weakref
from collections.abc import Generator
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from clutch import _core
from clutch.errors import PoolClosed

if TYPE_CHECKING:
    import asyncio

T = TypeVar("T")


class Future(_core.Completion, concurrent.futures.Future[T]):
    """The result of a submitted call: a `concurrent.futures.Future` that can be awaited; `cancel` stops running work.

    The value is decoded in the thread that asks for it. What the standard library's own machinery needs of a future
    (its condition, its waiters, callbacks) is made only when that is used.
    """

    def __init__(self) -> None:
        """Nothing: the base class's attributes are made by `_become_standard`, when something asks for them."""

    def __getattr__(self, name: str) -> Any:
        if name in {"_condition", "_state", "_result", "_exception", "_waiters", "_done_callbacks"}:
            self._become_standard()
            return self.__dict__[name]
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def _become_standard(self) -> None:
        with _becoming:
            if "_condition" not in self.__dict__:
                # All at once: a signal's handler may ask for one of them meanwhile.
                half = vars(concurrent.futures.Future())
                self.__dict__.update(half)
                _standard.add(self)
                try:
                    self._watch()
                except OSError:  # no thread can be started that would end it: nobody is to wait for that
                    _standard.discard(self)
                    for name in half:
                        del self.__dict__[name]
                    raise

    def _settle(self) -> None:
        """End the standard half. Called on the completion thread when the answer has arrived."""
        standard = concurrent.futures.Future
        if self.cancelled():
            standard.cancel(self)
            standard.set_running_or_notify_cancel(self)
            return
        try:
            error = self.exception()
        except PoolClosed as closed:  # forked meanwhile, and the answer goes to the parent
            error = closed
        if error is None:
            standard.set_result(self, self.result())
        else:
            standard.set_exception(self, error)

    def _leave_to_the_parent(self) -> None:
        """In a forked child: the holder of the condition is not in it, and the callbacks belong to the parent."""
        self._condition = threading.Condition()
        if not concurrent.futures.Future.done(self):
            self._waiters, self._done_callbacks = [], []
            self._settle()

    if TYPE_CHECKING:

        def result(self, timeout: float | None = None) -> T: ...

    def __await__(self) -> Generator[Any, None, T]:
        import asyncio  # which programs without loops do without

        if not self.done():
            waiter = asyncio.get_running_loop().create_future()
            self._subscribe(bridge_of_running_loop(), waiter)
            try:
                yield from waiter
            except asyncio.CancelledError:
                self.cancel()
                raise
        if self.cancelled():
            raise asyncio.CancelledError
        return self.result()

    def _wait_for_room(self) -> None:
        """Waits for room in a full pool that blocks. A running event loop does not: awaiting the future is its wait."""
        events = sys.modules.get("asyncio.events")
        if events is None or events._get_running_loop() is None:
            self._wait_admitted()

    def __repr__(self) -> str:
        states = {"cancelled": self.cancelled, "finished": self.done, "running": self.running}
        state = next((state for state, is_so in states.items() if is_so()), "pending")
        return f"<clutch.Future {state}>"


_becoming = threading.RLock()
_standard: weakref.WeakSet[Future] = weakref.WeakSet()
"""Futures with a standard half."""
_bridges: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _core.Bridge] = weakref.WeakKeyDictionary()


def bridge_of_running_loop() -> _core.Bridge:
    """Return the bridge that passes completions to the running event loop; there is one for each loop."""
    import asyncio

    loop = asyncio.get_running_loop()
    bridge = _bridges.get(loop)
    if bridge is None:
        # One with waiters left refers to its loop and would stay for ever.
        for closed in [known for known in list(_bridges) if known.is_closed()]:
            _bridges.pop(closed, None)
        bridge = _bridges[loop] = _core.Bridge()
        loop.add_reader(bridge.fileno(), bridge.drain)
    return bridge


class Stream(_core.StreamCore, Generic[T]):
    """Iterator and async iterator over the values of a generator in a worker. Closing it closes the generator."""

    if TYPE_CHECKING:

        def __next__(self) -> T: ...

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T:
        import asyncio

        while True:
            try:
                there, value = self._poll()
            except StopIteration:
                raise StopAsyncIteration from None
            if there:
                return value
            waiter = asyncio.get_running_loop().create_future()
            self._subscribe(bridge_of_running_loop(), waiter)
            await waiter

    async def aclose(self) -> None:
        self.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()


def leave_to_the_parent() -> None:
    """In a forked child: what futures wait for comes to the parent alone."""
    global _becoming
    _becoming = threading.RLock()
    _bridges.clear()
    for future in list(_standard):
        future._leave_to_the_parent()
    _standard.clear()
