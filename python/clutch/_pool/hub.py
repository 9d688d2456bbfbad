"""Pools of a program that gevent has patched: waiting for an answer lets the hub run.

A native thread without a hub, and the hub itself, wait as anywhere else.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable
from typing import Any, TypeVar

from gevent import getcurrent, monkey
from gevent._hub_local import get_hub_if_exists  # the public one makes a hub for each thread that asks
from gevent.event import Event
from gevent.threadpool import ThreadPool

from clutch import _core
from clutch._pool.calls import Calls
from clutch._pool.future import Future, Stream

T = TypeVar("T")


class HubFuture(Future):
    def result(self, timeout: float | None = None) -> Any:
        return super().result(left_of(timeout, self))

    def exception(self, timeout: float | None = None) -> BaseException | None:
        return super().exception(left_of(timeout, self))


class HubStream(Stream):
    def __next__(self) -> Any:
        while True:
            there, value = self._poll()
            if there:
                return value
            if not wait(self._subscribe, None):
                return super().__next__()


class WaitsInHub:
    """Part of a pool in such a program, put before `Pool` among its bases."""

    future_class, stream_class = HubFuture, HubStream

    call = Calls.call

    def _call_with(self: Any, options: _core.CallOptions, function: Any, args: Any, kwargs: Any) -> Any:
        return result_of(self._submit_with(options, function, args, kwargs))


def result_of(future: Future) -> Any:
    """Returns the result. A waiter that is killed cancels the call, since nobody else waits for it."""
    try:
        return future.result()
    except BaseException:
        future.cancel()
        raise


def left_of(timeout: float | None, future: Future) -> float | None:
    """The rest of a timeout after the hub has run."""
    is_over = timeout is not None and not timeout > 0
    return timeout if is_over or future.done() or not wait(future._subscribe, timeout) else 0


class Carrier:
    """Passes completions to one hub, and keeps the loop of the hub alive while a greenlet waits."""

    def __init__(self, hub: Any) -> None:
        self.bridge = _core.Bridge()
        self.waiting = 0
        self._watcher = hub.loop.io(self.bridge.fileno(), 1, ref=False)
        self._watcher.start(self.bridge.drain)

    def count(self, more: int) -> None:
        self.waiting += more
        self._watcher.ref = self.waiting > 0


class Waiter:
    """Stands for a future of asyncio: a bridge completes it."""

    def __init__(self) -> None:
        self.came = Event()

    def done(self) -> bool:
        return False

    def set_result(self, _: None) -> None:
        self.came.set()


THREADS = 10
"""Maximum calls of one hub that wait for their stores at a time; more wait for these."""

_alone = monkey.get_original("_thread", "allocate_lock")()
"""For native threads: one of gevent's would want a hub in each."""
_threads: weakref.WeakKeyDictionary[Any, ThreadPool] = weakref.WeakKeyDictionary()
_carriers: weakref.WeakKeyDictionary[Any, Carrier] = weakref.WeakKeyDictionary()


def wait(subscribe: Callable[[_core.Bridge, Any], object], timeout: float | None) -> bool:
    """Wait while the hub runs. Returns False if there is no hub to wait in."""
    hub = get_hub_if_exists()
    if hub is None or getcurrent() is hub:
        return False
    carrier = _carriers.get(hub)
    if carrier is None:
        carrier = _carriers[hub] = Carrier(hub)
    waiter = Waiter()
    carrier.count(1)
    try:
        subscribe(carrier.bridge, waiter)
        waiter.came.wait(timeout)
    finally:
        carrier.count(-1)
    return True


def aside(function: Callable[[], T], alone: bool = False) -> T:
    """Call a function in a native thread while the hub runs; here, if there is no hub to wait in.

    `alone`: one such function at a time.
    """
    hub = get_hub_if_exists()
    if hub is None or getcurrent() is hub:
        return function()
    threads = _threads.get(hub)
    if threads is None:
        # Its own: names of hosts are looked up by the hub's, also while all these wait.
        threads = _threads[hub] = ThreadPool(THREADS, hub)

    def called() -> tuple[T | None, BaseException | None]:
        try:
            with _alone if alone else contextlib.nullcontext():
                return function(), None
        except BaseException as error:  # the hub would print it
            return None, error

    value, error = threads.apply(called)
    if error is not None:
        raise error
    return value  # type: ignore[no-any-return]
