"""Where the code of a task runs when the task itself only waits: in threads of executors, in tasks that it has started.

Frameworks run `def` endpoints so: anyio's and asgiref's threads, `asyncio.to_thread`, task groups. The future that the
task waits for is known to the thread that will settle it, so no library is asked. A thread goes on when its task is
cancelled: until it has ended, the work has not.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import socket
import sys
import types
from collections import deque
from collections.abc import Iterable, Iterator, Set
from typing import Any

from clutch._worker.interrupt import frames_of_coroutine, stack_of_frame, stack_text

TASKS_MAX = 20
"""Most tasks whose stacks are shown for one."""
FOUND_MAX = 10_000
"""Most tasks, and values of theirs, that are looked at for one."""
GROUPS = {"asyncio.taskgroups", "anyio._backends._asyncio"}
"""Modules whose task groups keep their tasks as `_tasks`."""
RESOLVERS = {socket.getaddrinfo, socket.getnameinfo}
"""What event loops have threads do for them: no code of the user's."""
RUNNERS = ("/concurrent/futures/thread.py", "/anyio/_backends/_asyncio.py")
"""Files whose frames, in a thread, hold the future of what runs there."""
LOOK_SECONDS, LOOK_SECONDS_MAX = 0.005, 0.25
"""Interval at which threads that were left behind are looked at; it doubles from the first to the second."""


class Delegates:
    """The threads that run code for a task, or for those that it waits for, at this moment."""

    def __init__(self, task: asyncio.Task[Any], most: int = TASKS_MAX) -> None:
        self.tasks: list[list[types.FrameType]] = []
        """Frames of the task and of those that it waits for, outermost first."""
        self.futures: set[Any] = set()
        seen: set[asyncio.Task[Any]] = set()
        waiting = deque([task])
        while waiting and len(seen) < most:
            one = waiting.popleft()
            if one in seen or one.done():
                continue
            seen.add(one)
            frames = list(frames_of_coroutine(one.get_coro()))
            self.tasks.append(frames)
            values = (value for frame in frames for value in frame.f_locals.values())
            for future in futures_of([getattr(one, "_fut_waiter", None), *values]):
                if is_a(future, asyncio.Task):
                    waiting.append(future)
                else:
                    self.futures.add(future)

    def stacks(self) -> str:
        """The stacks of the threads, and of the tasks."""
        return "\n".join(filter(None, [*threads_for(self.futures), *(stack_text("Task", one) for one in self.tasks)]))


class LeftBehind:
    """Threads that go on although what a task waited for was cancelled with it.

    Made of the task before that. Whatever was not cancelled is somebody else's, too: a service of the app's that the
    task knows of, or what the app shields.
    """

    def __init__(self, task: asyncio.Task[Any]) -> None:
        awaited = (future for future in Delegates(task, FOUND_MAX).futures if is_a(future, asyncio.Future))
        self._awaited = {future: set(futures_of([future])) for future in awaited}

    def __bool__(self) -> bool:
        return next(self._threads(), None) is not None

    def stacks(self) -> str:
        return "\n".join(self._threads())

    def _threads(self) -> Iterator[str]:
        cancelled = [settled for future, settled in self._awaited.items() if future.cancelled()]
        return threads_for(set().union(*cancelled), without=RESOLVERS) if cancelled else iter(())

    async def end(self) -> None:
        """Wait until all have ended."""
        pause = LOOK_SECONDS
        while self:
            await asyncio.sleep(pause)
            pause = min(2 * pause, LOOK_SECONDS_MAX)


def stack_of_task(task: asyncio.Task[Any]) -> str:
    """The stacks of the threads that run code for a task or for those that it waits for, and of these tasks."""
    return Delegates(task).stacks()


def futures_of(held: Iterable[Any]) -> Iterator[Any]:
    """Futures, asyncio's and the standard executors', that these values are or stand for."""
    seen: set[int] = set()
    left = deque(held)
    while left and len(seen) < FOUND_MAX:
        value = left.popleft()
        if id(value) in seen:
            continue
        seen.add(id(value))
        if is_a(value, concurrent.futures.Future):
            yield value
        elif is_a(value, asyncio.Future):
            yield value
            if not is_a(value, asyncio.Task):
                left.extend(getattr(value, "_children", ()))  # of `gather`
                left.extend(cell for call, _ in getattr(value, "_callbacks", None) or () for cell in cells_of(call))
        elif type(value).__module__ in GROUPS:
            left.extend(getattr(value, "_tasks", ()))


def is_a(value: Any, kind: type) -> bool:
    """As `isinstance`, by the real type: a value of the user's may answer for its class, and does so by code."""
    return issubclass(type(value), kind)


def cells_of(function: Any) -> Iterator[Any]:
    """Values that a callback was made with: one of `shield` and `wrap_future` knows the future behind the other."""
    for cell in getattr(function, "__closure__", None) or ():
        try:
            yield cell.cell_contents
        except ValueError:  # it has none yet
            continue


def threads_for(futures: Set[Any], without: Set[Any] = frozenset()) -> Iterator[str]:
    """The stacks of the threads that settle any of these futures, but for those that run one of these functions."""
    frames = sys._current_frames()
    try:
        for ident, frame in frames.items():
            if any(future in futures and function not in without for future, function in settled_by(frame)):
                yield stack_of_frame(frame, f"Thread 0x{ident:016x}")
    finally:
        frames.clear()  # this call's own is among them


def settled_by(frame: types.FrameType | None) -> Iterator[tuple[Any, Any]]:
    """The futures that a thread settles when what it runs has ended, each with the function that it runs."""
    while frame is not None:
        if frame.f_code.co_filename.endswith(RUNNERS) and frame.f_code.co_name == "run":
            names = dict(frame.f_locals)
            if sys.version_info < (3, 13):
                # A copy that the frame keeps: it would hold what the thread has done until somebody looks again.
                frame.f_locals.clear()
            item = names.get("self")
            future = names.get("future") or getattr(item, "future", None)
            if is_a(future, asyncio.Future) or is_a(future, concurrent.futures.Future):
                yield future, names.get("func") or getattr(item, "fn", None)
        frame = frame.f_back
