"""Tools that have something to do when they are stopped, or make it hard to stop them."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import faulthandler
import os
import selectors
import signal
import socket
import sys
import threading
import time
import types
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

from profile_tools import echo, staying, visit, visit_alone, visit_async  # noqa: F401 (tools of this target, too)

from clutch import _core, tool
from support.rendezvous import meet, meet_async


@tool(serial=True)
def alone(value: Any) -> Any:
    return value


@tool(main_thread=True)
def visit_main(port: int, word: str = "") -> str:
    return meet(port, word)


# Clean-up that takes its time.


@tool
def spin_then_tidy(port: int) -> None:
    try:
        with staying(port):
            while True:
                pass
    finally:
        meet(port, "tidying")
        meet(port, "tidy")


@tool
async def spin_async_then_tidy(port: int) -> None:
    try:
        with staying(port):
            while True:
                pass
    finally:
        await meet_async(port, "tidying")
        await meet_async(port, "tidy")


@tool
async def sleep_async_then_tidy(port: int) -> None:
    try:
        with staying(port):
            await asyncio.sleep(300)
    finally:
        await meet_async(port, "tidying")
        await meet_async(port, "tidy")


@tool
async def leave_a_thread(port: int) -> None:
    try:
        await asyncio.to_thread(meet, port, "thread")
    finally:
        await meet_async(port, "task")


@tool
async def close_and_leave(port: int) -> None:
    """As code does that catches nothing, where an interrupt comes: its loop ends at once."""
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"{os.getpid()} \n".encode())
    writer.close()
    raise KeyboardInterrupt


@tool
def stream_then_tidy(port: int) -> Iterator[int]:
    try:
        yield 1
        with staying(port):
            while True:
                pass
    finally:
        meet(port, "tidying")
        meet(port, "tidy")


@tool
async def stream_async_then_tidy(port: int) -> AsyncIterator[int]:
    try:
        yield 1
        with staying(port):
            await asyncio.sleep(300)
    finally:
        await meet_async(port, "tidying")
        await meet_async(port, "tidy")


def swallow(port: int) -> str:
    """An item of a batch that ends as if nothing had been."""
    with contextlib.suppress(BaseException), staying(port):
        while True:
            pass
    return "swallowed"


async def swallow_async(port: int) -> str:
    with contextlib.suppress(BaseException), staying(port):
        await asyncio.sleep(300)
    return "swallowed"


# Code in which an interrupt may come where the interpreter only prints exceptions.


def spin_a_while() -> None:
    end = time.monotonic() + 0.02
    while time.monotonic() < end:
        pass


def rows() -> Iterator[int]:
    try:
        yield 1
    finally:
        spin_a_while()


@tool
def take_first_rows(port: int) -> None:
    """Each generator is dropped with its `finally` to run."""
    with staying(port):
        while True:
            for _ in rows():
                break
            spin_a_while()


class Registry:
    def _remove(self) -> None:
        """Is called as what the standard library calls when a weak reference ends."""
        while True:
            pass


@tool
def remove_from_registry(port: int) -> None:
    with staying(port):
        Registry()._remove()


@tool
def spin_traced(port: int) -> None:
    """As under coverage, or in a debugger."""
    sys.settrace(lambda *_: None)
    try:
        with staying(port):
            while True:
                pass
    finally:
        sys.settrace(None)


# Code that is somewhere else when an interrupt comes than when it was looked at.


class Moving:
    """Stands where an interrupt comes through. Who looks at it sees this, and that lets it go on; if it `waits` then,
    the look ends when it does."""

    def __init__(self, waits: bool = False) -> None:
        self.waits = waits
        self.ident = threading.get_ident()
        self.was_seen = threading.Event()
        self.has_moved = threading.Event()

    def __enter__(self) -> Moving:
        self.current_frames, sys._current_frames = sys._current_frames, self.look
        return self

    def __exit__(self, *_: object) -> None:
        sys._current_frames = self.current_frames

    def look(self) -> dict[int, types.FrameType]:
        """In place of `sys._current_frames`: once, an answer that is old when it is given."""
        sys._current_frames = self.current_frames
        seen = self.current_frames()
        self.was_seen.set()
        self.has_moved.wait()
        while self.waits and self.current_frames()[self.ident].f_code.co_filename != selectors.__file__:
            pass
        return seen

    def stand(self) -> None:
        while not self.was_seen.is_set():
            pass


@tool
def move_into_finalizer(port: int) -> None:
    class Finalized:
        def __del__(self) -> None:
            moving.has_moved.set()
            end = time.monotonic() + 0.2
            while time.monotonic() < end:
                pass

    with Moving() as moving, staying(port):
        moving.stand()
        Finalized()
        while True:
            pass


def machinery(moving: Moving) -> Callable[..., Any]:
    """A function of asyncio's that takes long."""
    scope: dict[str, Any] = {"moving": moving}
    code = "def machinery(*held, **named):\n    moving.has_moved.set()\n    while True:\n        pass"
    exec(compile(code, f"{os.path.dirname(asyncio.__file__)}/machinery.py", "exec"), scope)
    return scope["machinery"]


@tool
async def move_into_loop(port: int) -> None:
    with Moving() as moving, staying(port):
        asyncio.get_running_loop().call_soon(machinery(moving))
        moving.stand()
        await asyncio.sleep(300)


@tool
def move_to_where_a_step_is_planned(port: int) -> None:
    async def take_steps() -> None:
        loop = asyncio.get_running_loop()

        def call_soon(*args: Any, **options: Any) -> None:
            del loop.call_soon  # type: ignore[method-assign]
            machinery(moving)(*args, **options)

        with Moving() as moving, staying(port):
            loop.call_soon = call_soon  # type: ignore[method-assign]
            moving.stand()
            await asyncio.sleep(0)

    asyncio.run(take_steps())


@tool
def move_to_where_a_callback_is_planned(port: int) -> None:
    async def clean_up_after_it() -> None:
        loop = asyncio.get_running_loop()
        first, second = loop.create_future(), loop.create_future()
        first.add_done_callback(lambda _: second.set_result(None))

        def call_soon(*args: Any) -> None:
            del loop._call_soon  # type: ignore[attr-defined]
            machinery(moving)(*args)

        def end_first() -> None:
            loop._call_soon = call_soon  # type: ignore[attr-defined]
            first.set_result(None)

        with Moving() as moving, staying(port):
            moving.stand()
            loop.call_soon(end_first)
            try:
                await asyncio.sleep(300)
            finally:
                await second

    asyncio.run(clean_up_after_it())


@tool
def move_to_where_a_step_is_taken(port: int) -> None:
    class Line(collections.deque[Any]):
        def popleft(self) -> Any:
            loop._ready = collections.deque(self)  # type: ignore[attr-defined]
            machinery(moving)(loop._ready.popleft())  # type: ignore[attr-defined]

    async def take_steps() -> None:
        with moving, staying(port):
            loop._ready = Line(loop._ready)  # type: ignore[attr-defined]
            moving.stand()
            await asyncio.sleep(0)

    with asyncio.Runner() as runner:
        loop, moving = runner.get_loop(), Moving()
        runner.run(take_steps())


@tool
async def move_into_callback(port: int) -> None:
    def callback() -> None:
        moving.has_moved.set()
        while True:
            pass

    with Moving() as moving, staying(port):
        asyncio.get_running_loop().call_soon(callback)
        moving.stand()
        await asyncio.sleep(300)


@tool
async def move_into_wait(port: int) -> None:
    with Moving(waits=True) as moving, staying(port):
        asyncio.get_running_loop().call_soon(moving.has_moved.set)
        moving.stand()
        await asyncio.sleep(300)


@tool
async def spin_where_signals_meet(port: int) -> None:
    """While one interrupt is being dealt with comes the next."""
    loop = asyncio.get_running_loop()

    def meet_another(*args: Any) -> Any:
        signal.raise_signal(_core.Slots.interrupt_signal())
        return type(loop).call_soon_threadsafe(loop, *args)

    loop.call_soon_threadsafe = meet_another  # type: ignore[method-assign]
    try:
        with staying(port):
            while True:
                pass
    finally:
        del loop.call_soon_threadsafe


# Short work of every kind, for storms.


@tool
def spin_for(seconds: float) -> str:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass
    return "spun"


@tool
def sleep_for(seconds: float) -> str:
    time.sleep(seconds)
    return "slept"


@tool
async def sleep_async_for(seconds: float) -> str:
    await asyncio.sleep(seconds)
    return "slept"


@tool
async def spin_async_for(seconds: float) -> str:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        await asyncio.sleep(0)
    return "spun"


@tool(serial=True)
def spin_alone_for(seconds: float) -> str:
    return spin_for(seconds)


@tool(serial=True)
async def sleep_alone_for(seconds: float) -> str:
    return await sleep_async_for(seconds)


@tool(main_thread=True)
def spin_in_main_for(seconds: float) -> str:
    return spin_for(seconds)


# Code that meddles with what stopping is made of.


@tool
def start_threads(count: int) -> int:
    """Threads that wait as long as the worker lives."""
    for _ in range(count):
        threading.Thread(target=threading.Event().wait, daemon=True).start()
    return threading.active_count()


@tool
def alarm_later(port: int) -> None:
    """A handler of the user's own that raises when the call is long over."""
    kept = socket.create_connection(("127.0.0.1", port))
    kept.sendall(f"{os.getpid()} \n".encode())

    def raise_it(*_: Any) -> None:
        kept.close()
        raise TimeoutError("the user's own alarm")

    signal.signal(signal.SIGALRM, raise_it)
    signal.setitimer(signal.ITIMER_REAL, 0.3)


@tool
def block_signals_and_stay(port: int) -> None:
    with staying(port):
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        while True:
            pass


@tool
def use_faulthandler(how: str) -> None:
    uses: dict[str, Callable[[], Any]] = {
        "enable": lambda: faulthandler.enable(sys.stderr),
        "disable": faulthandler.disable,
        "later": lambda: faulthandler.dump_traceback_later(3600, file=sys.stderr),
        "another signal": lambda: faulthandler.register(signal.SIGUSR1, file=sys.stderr, all_threads=True),
    }
    uses[how]()
