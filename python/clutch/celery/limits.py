"""Soft time limits of Celery's tasks, wherever they run: in the main thread, in others, greenlets and coroutines."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import functools
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from celery.exceptions import SoftTimeLimitExceeded

from clutch.celery.steps import Step, here, is_gevent_here


@dataclass(frozen=True, slots=True)
class SoftLimit:
    """`at`: when it passes, by the monotonic clock. `watch`: what interrupts the task then, until it is closed."""

    at: float
    tell: Callable[[], None]
    watch: contextlib.ExitStack


SOFT: ContextVar[SoftLimit | None] = ContextVar("clutch.celery.soft", default=None)
"""The soft limit of the task."""


class Limited:
    """A coroutine in which SoftTimeLimitExceeded is raised, where it waits, when the limit passes."""

    def __init__(self, coroutine: Any, soft: SoftLimit) -> None:
        self._coroutine = coroutine
        self._soft = soft
        self._is_due = False

    def __await__(self) -> Any:
        task: Any = asyncio.current_task()
        cancelled_before = task.cancelling()
        seconds = max(0.0, self._soft.at - time.monotonic())
        timer = task.get_loop().call_later(seconds, self._interrupt, task)
        step = functools.partial(self._coroutine.send, None)
        try:
            while True:
                waited = step()
                try:
                    value = yield waited
                except BaseException as error:
                    step = functools.partial(self._coroutine.throw, error)
                else:
                    step = functools.partial(self._coroutine.send, value)
                if self._is_due:
                    self._is_due = False
                    if task.uncancel() <= cancelled_before:  # nobody else has cancelled it
                        self._soft.tell()
                        step = functools.partial(self._coroutine.throw, SoftTimeLimitExceeded())
        except StopIteration as end:
            return end.value
        finally:
            timer.cancel()

    def _interrupt(self, task: asyncio.Task[Any]) -> None:
        self._is_due = True
        task.cancel()


async def within_soft_limit(coroutine: Any, soft: SoftLimit | None) -> Any:
    return await (coroutine if soft is None else Limited(coroutine, soft))


@contextlib.contextmanager
def soft_limit(seconds: float | None, on_timeout: Callable[..., Any] | None) -> Iterator[None]:
    """Raises SoftTimeLimitExceeded in the code inside when this time has passed. What waits outside of Python is
    interrupted in the main thread and in greenlets; in other threads when it comes back."""
    if not seconds:
        yield
        return

    def tell() -> None:
        if on_timeout is not None:
            on_timeout(soft=True, timeout=seconds)

    with contextlib.ExitStack() as watch:
        watch.enter_context(interrupted(seconds, tell))
        token = SOFT.set(SoftLimit(time.monotonic() + seconds, tell, watch))
        try:
            yield
        finally:
            SOFT.reset(token)


@contextlib.contextmanager
def interrupted(seconds: float, tell: Callable[[], None]) -> Iterator[None]:
    if isinstance(here(), Step):
        yield  # what waits there is a coroutine, which has the limit
    elif is_gevent_here():
        import gevent

        limit = gevent.Timeout.start_new(seconds, SoftTimeLimitExceeded())
        told = gevent.spawn_later(seconds, tell)
        try:
            yield
        finally:
            limit.close()
            told.kill(block=False)
    elif threading.current_thread() is threading.main_thread():
        with by_signal(seconds, tell):
            yield
    else:
        with by_exception(seconds, tell):
            yield


@contextlib.contextmanager
def by_signal(seconds: float, tell: Callable[[], None]) -> Iterator[None]:
    def passed(*_: Any) -> None:
        tell()
        raise SoftTimeLimitExceeded

    before = signal.signal(signal.SIGALRM, passed)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@contextlib.contextmanager
def by_exception(seconds: float, tell: Callable[[], None]) -> Iterator[None]:
    ident, lock, is_over = threading.get_ident(), threading.Lock(), False

    def passed() -> None:
        with lock:
            if is_over:
                return
            tell()
            set_exception(ctypes.c_ulong(ident), ctypes.py_object(SoftTimeLimitExceeded))

    timer = threading.Timer(seconds, passed)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        with lock:
            is_over = True
            set_exception(ctypes.c_ulong(ident), None)  # what has come too late
        timer.cancel()


set_exception = ctypes.pythonapi.PyThreadState_SetAsyncExc
