"""How code that runs is stopped, and how its stacks are shown: the signals of a worker.

The native thread of the worker hears the dispatcher whatever Python does. It sends one signal to the main thread when
work is to stop, another when the stacks are wanted.
"""

from __future__ import annotations

import faulthandler
import gc
import inspect
import itertools
import os
import selectors
import signal
import sys
import threading
import types
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from clutch import _core
from clutch._worker.failure import CARRIERS
from clutch.errors import Interrupted

FRAMES_MAX = 100
STACKS_MAX = 200_000
"""Characters of the stacks of all tasks or greenlets of a worker."""
BELOW = (*CARRIERS, threading.__file__, selectors.__file__, "/gevent/", '"<string>", line 1 in <module>')
"""Parts of frames, in faulthandler's form, between a thread's start and the user's code; the last is the zygote's."""
LOOPS = os.path.dirname(selectors.__file__) + "/asyncio"
SWALLOWING = {"__del__", "_remove"}
"""Names of functions that the interpreter calls and whose exceptions it only prints; `_remove`: of a WeakSet."""


_interrupt: Callable[[types.FrameType | None], None] = lambda here: None  # noqa: E731 (a default, see `listen`)


def prepare() -> None:
    """How a worker takes signals. A zygote does it for all that it forks: once, for they share its pages."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(_core.WorkerLink.interrupt_signal(), lambda _, here: _interrupt(here))


def listen(link: _core.WorkerLink, is_held_up: Callable[[], bool | None] | None = None) -> None:
    """From now on code can be interrupted; said by the main thread. `is_held_up` is the profile's."""
    global _interrupt
    main = threading.get_ident()
    raised = landing(link)

    runs = came_meanwhile = False

    def interrupt(here: types.FrameType | None) -> None:
        nonlocal runs, came_meanwhile
        if runs:  # what it raised here would not reach the code that is to stop
            came_meanwhile = True
            return
        runs, came_meanwhile = True, False
        try:
            hit = look(here)
        finally:
            runs = False
        if came_meanwhile:
            link.interrupt_again()
        if hit:
            raise Interrupted

    def look(here: types.FrameType | None) -> bool:
        def is_safe(ident: int) -> bool:
            return lets_out(here if ident == main else sys._current_frames().get(ident))

        hit = link.interrupt(raised, is_safe)
        held_up = is_held_up() if is_held_up is not None and lets_out(here) else False
        if held_up is None or (is_held_up is not None and not lets_out(here)):
            link.interrupt_again()
        return hit or held_up is True

    _interrupt = interrupt


def show_stacks(link: _core.WorkerLink) -> None:
    """Sets up the signal that shows the stack of the thread that gets it."""
    # Each thread shows itself: what another one runs may change while it is looked at, and that has crashed workers.
    number, file = link.show_stacks(BELOW)
    faulthandler.register(number, file=file, all_threads=False, chain=True)


class LoopInterrupted(Interrupted, KeyboardInterrupt):
    """What an event loop lets out: it keeps every other exception, and the task that the loop was busy with is lost."""


def landing(link: _core.WorkerLink) -> type[BaseException]:
    """What to send to a thread. It goes on while it is looked at; only where the exception is raised does one know what
    runs there. Without a GIL that often differs.
    """
    if sys.version_info < (3, 12):
        return Interrupted  # which is made later there, where it is caught

    class Landing(Interrupted):
        def __new__(cls) -> Interrupted:  # type: ignore[misc]
            here = sys._getframe(1)
            link.landed(comes_out=not swallows(here))
            return LoopInterrupted() if is_of_loop(here) else Interrupted()

    return Landing


def lets_out(frame: types.FrameType | None) -> bool:
    """Whether an exception that is raised in this frame comes out of it."""
    return not is_of_loop(frame) and not swallows(frame)


def is_of_loop(frame: types.FrameType | None) -> bool:
    """Whether this is the machinery of an event loop."""
    return frame is not None and os.path.dirname(frame.f_code.co_filename) == LOOPS


def swallows(frame: types.FrameType | None) -> bool:
    """Whether this runs for a finalizer, or for a callback of a weak reference."""
    while frame is not None:
        if frame.f_code.co_name in SWALLOWING:
            return True
        frame = frame.f_back
    return False


def stack_of_coroutine(coroutine: Any) -> str:
    """Where a suspended coroutine stands, the innermost first, in faulthandler's form; empty once it has ended."""
    return stack_text("Task", frames_of_coroutine(coroutine))


def stack_of_frame(frame: types.FrameType | None) -> str:
    """Where a suspended greenlet stands."""
    frames = []
    while frame is not None:
        frames.append(frame)
        frame = frame.f_back
    return stack_text("Greenlet", reversed(frames))


def frames_of_coroutine(coroutine: Any) -> Iterator[types.FrameType]:
    """From the outermost in: what each one awaits."""
    while coroutine is not None:
        kind = next((kind for kind in ("cr", "gi", "ag") if hasattr(coroutine, f"{kind}_frame")), None)
        if kind is None:
            # A step of an asynchronous generator does not say by itself whose it is.
            coroutine = next((held for held in gc.get_referents(coroutine) if inspect.isasyncgen(held)), None)
            continue
        if (frame := getattr(coroutine, f"{kind}_frame")) is not None:
            yield frame
        coroutine = getattr(coroutine, "gi_yieldfrom" if kind == "gi" else f"{kind}_await")


def stack_text(what: str, frames: Iterable[types.FrameType]) -> str:
    """Of frames, the outermost first: from the user's own first one on."""
    lines = [
        f'  File "{frame.f_code.co_filename}", line {frame.f_lineno} in {frame.f_code.co_name}' for frame in frames
    ]
    users = list(itertools.dropwhile(is_carrier, lines))
    return "\n".join([f"{what} (most recent call first):", *users[: -FRAMES_MAX - 1 : -1], ""]) if users else ""


def is_carrier(line: str) -> bool:
    return any(part in line for part in BELOW)
