"""Where the code of a task runs when the task itself only waits: in threads of executors, in tasks that it has started.

Frameworks run `def` endpoints so: anyio's and asgiref's threads, `asyncio.to_thread`, task groups. The future that the
task waits for is known to the thread that will settle it, so no library is asked. A thread goes on when its task is
cancelled: until it has ended, the work has not.

What is looked at is the user's, and may be hostile: it is told apart by its real type and by identity, never hashed or
compared, and no code of its classes is asked for attributes. What is odd nevertheless is left out.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import inspect
import itertools
import socket
import sys
import threading
import types
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any

from clutch._worker.image import gil_is_enabled
from clutch._worker.interrupt import frames_of_coroutine, stack_of_frame, stack_text

TASKS_MAX = 20
"""Most tasks whose stacks are shown for one."""
FOUND_MAX = 10_000
"""Most tasks, and values and frames of theirs, that are looked at for one."""
PY_TASK: type = asyncio.tasks._PyTask  # pyright: ignore[reportAttributeAccessIssue]
PY_FUTURE: type = asyncio.futures._PyFuture  # pyright: ignore[reportAttributeAccessIssue]
TASKS = (asyncio.Task, PY_TASK)
FUTURES = (*TASKS, asyncio.Future, PY_FUTURE)
NATIVE = (types.GetSetDescriptorType, types.MemberDescriptorType)
"""Types of the attributes that classes have without any code in Python."""
GROUPS = (
    ("asyncio.taskgroups", "TaskGroup"),
    ("anyio._backends._asyncio", "TaskGroup"),
    ("anyio._backends._asyncio", "CancelScope"),
)
"""Classes, with their modules, that keep tasks as `_tasks`."""
RESOLVERS = (socket.getaddrinfo, socket.getnameinfo)
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
        self.futures: dict[int, Any] = {}
        """By their ids."""
        seen: dict[int, Any] = {}
        waiting: deque[Any] = deque([task])
        while waiting and len(seen) < most:
            one = waiting.popleft()
            kind = kind_of(one)
            if id(one) in seen or kind not in TASKS or kind.done(one):
                continue
            seen[id(one)] = one
            frames = frames_of(kind.get_coro(one))
            self.tasks.append(frames)
            values = (value for frame in frames for value in values_of(frame))
            for future in futures_of([kept(one, "_fut_waiter"), *values]):
                if is_a(future, TASKS):
                    waiting.append(future)
                else:
                    self.futures[id(future)] = future

    def stacks(self) -> str:
        """The stacks of the threads, and of the tasks."""
        return "\n".join(filter(None, [*threads_for(self.futures), *(stack_text("Task", one) for one in self.tasks)]))


class LeftBehind:
    """Threads that go on although what a task waited for was cancelled with it.

    Made of the task before that. Whatever was not cancelled is somebody else's, too: a service of the app's that the
    task knows of, or what the app shields.
    """

    def __init__(self, task: asyncio.Task[Any]) -> None:
        awaited = [future for future in Delegates(task, FOUND_MAX).futures.values() if is_a(future, FUTURES)]
        self._awaited = [(future, {id(one): one for one in futures_of([future])}) for future in awaited]

    def __bool__(self) -> bool:
        with contextlib.suppress(Exception):  # who asks ends the call after that
            return next(self._threads(), None) is not None
        return False

    def stacks(self) -> str:
        with contextlib.suppress(Exception):  # as `stack_of_task`
            return "\n".join(self._threads())
        return ""

    def _threads(self) -> Iterator[str]:
        cancelled = [settled for future, settled in self._awaited if kind_of(future).cancelled(future)]
        futures = {key: future for settled in cancelled for key, future in settled.items()}
        return threads_for(futures, without=RESOLVERS) if futures else iter(())

    async def end(self) -> None:
        """Wait until all have ended."""
        pause = LOOK_SECONDS
        while self:
            await asyncio.sleep(pause)
            pause = min(2 * pause, LOOK_SECONDS_MAX)


def stack_of_task(task: asyncio.Task[Any]) -> str:
    """The stacks of the threads that run code for a task or for those that it waits for, and of these tasks."""
    with contextlib.suppress(Exception):  # who asks is about to stop the task, or shows those of others, too
        return Delegates(task).stacks()
    return ""


def frames_of(coroutine: Any) -> list[types.FrameType]:
    """The frames of a coroutine and of what it awaits, outermost first, as far as these are the interpreter's."""
    frames: list[types.FrameType] = []
    with contextlib.suppress(Exception):  # what is awaited may be an object that has any attribute, or raises for it
        for frame in itertools.islice(frames_of_coroutine(coroutine), FOUND_MAX):
            if type(frame) is not types.FrameType:
                break
            frames.append(frame)
    return frames


def values_of(frame: types.FrameType) -> list[Any]:
    with contextlib.suppress(Exception):  # those of compiled text may be in a mapping of the user's
        return list(frame.f_locals.values())
    return []


def futures_of(held: Iterable[Any]) -> Iterator[Any]:
    """Futures, asyncio's and the standard executors', that these values are or stand for."""
    groups = {id(getattr(sys.modules.get(module), name, None)) for module, name in GROUPS}
    seen: dict[int, Any] = {}
    left = deque(held)
    while left and len(seen) < FOUND_MAX:
        value = left.popleft()
        if id(value) in seen:
            continue
        seen[id(value)] = value
        if is_a(value, concurrent.futures.Future):
            yield value
        elif is_a(value, FUTURES):
            yield value
            if not is_a(value, TASKS):
                left.extend(items_of(value, "_children"))  # of `gather`
                left.extend(cell for call, *_ in items_of(value, "_callbacks") for cell in cells_of(call))
        elif id(type(value)) in groups:
            left.extend(items_of(value, "_tasks"))


def is_a(value: Any, kinds: type | tuple[type, ...]) -> bool:
    """As `isinstance`, by the real type: a value of the user's may answer for its class, and does so by code."""
    return issubclass(type(value), kinds)


def kind_of(value: Any) -> Any:
    """The class of asyncio's that a task or future is of: its methods are called, whatever a subclass makes of them."""
    for kind in FUTURES:
        if is_a(value, kind):
            return kind
    return None


def kept(value: Any, name: str) -> Any:
    """An attribute that is kept in the object itself, or None: no property or other code of its class is run."""
    kind = kind_of(value)
    if kind is type(value):
        return getattr(value, name, None)
    found = getattr(kind, name, value)
    if type(found) not in NATIVE:
        found = inspect.getattr_static(type(value), name, value)
    with contextlib.suppress(AttributeError, TypeError):  # not set yet, or another class's
        if type(found) in NATIVE:
            return found.__get__(value)
        if found is value:  # its class has no such name: this looks into the object alone, which may have no `__dict__`
            return object.__getattribute__(value, name)
    return None


def items_of(value: Any, name: str) -> list[Any]:
    """A copy of the list or set that the object keeps by this name."""
    items = kept(value, name)
    return list(items) if type(items) in (list, set) else []


def cells_of(function: Any) -> Iterator[Any]:
    """Values that a callback was made with: one of `shield` and `wrap_future` knows the future behind the other."""
    if type(function) is types.MethodType:
        function = function.__func__
    for cell in (type(function) is types.FunctionType and function.__closure__) or ():
        try:
            yield cell.cell_contents
        except ValueError:  # it has none yet
            continue


def threads_for(futures: dict[int, Any], without: tuple[Any, ...] = ()) -> Iterator[str]:
    """The stacks of the threads that settle any of these futures, but for those that run one of these functions."""
    if not gil_is_enabled():
        yield from executors_for(futures)
        return
    frames = sys._current_frames()
    try:
        for ident, frame in frames.items():
            if any(
                id(future) in futures and not any(function is one for one in without)
                for future, function in settled_by(frame)
            ):
                yield stack_of_frame(frame, f"Thread 0x{ident:016x}")
    finally:
        frames.clear()  # this call's own is among them


def executors_for(futures: dict[int, Any]) -> Iterator[str]:
    """The same without a GIL, where the frames of a thread that runs may be freed while they are looked at. Only the
    futures of the standard executors tell themselves whether a thread runs for them."""
    for future in futures.values():
        if is_a(future, concurrent.futures.Future) and concurrent.futures.Future.running(future):
            yield "Thread of an executor, whose stack is not read without a GIL\n"


def settled_by(frame: types.FrameType | None) -> Iterator[tuple[Any, Any]]:
    """The futures that a thread settles when what it runs has ended, each with the function that it runs."""
    while frame is not None:
        if frame.f_code.co_filename.endswith(RUNNERS) and frame.f_code.co_name == "run":
            names = names_of(frame)
            # anyio keeps both in variables, the standard library in an object with the method.
            item = names.get("self")
            future, function = (
                (names["future"], names.get("func")) if "future" in names else (kept(item, "future"), function_of(item))
            )
            if is_a(future, (*FUTURES, concurrent.futures.Future)):
                yield future, function
        frame = frame.f_back


def function_of(item: Any) -> Any:
    """What an item of an executor runs. It keeps that as `fn`; since 3.14, in a tuple with its arguments."""
    task = kept(item, "task")
    return task[0] if type(task) is tuple and task else kept(item, "fn")


def names_of(frame: types.FrameType) -> dict[str, Any]:
    """The variables of a function that runs in another thread.

    Before 3.13 they are a copy that the frame keeps: it would hold what the thread has done until somebody looks again.
    A thread that is traced takes its variables from that copy, so there it stays.
    """
    names = dict(frame.f_locals)
    is_traced = any(trace is not None for trace in (frame.f_trace, threading.gettrace(), threading.getprofile()))
    if sys.version_info < (3, 13) and not is_traced:
        frame.f_locals.clear()
    return names
