"""How code that runs is stopped, and how its stacks are shown: the signals of a worker.

The native thread of the worker hears the dispatcher whatever Python does. It sends one signal to the main thread when
work is to stop, another when the stacks are wanted.
"""

from __future__ import annotations

import faulthandler
import signal
import types
from collections.abc import Callable, Iterator
from typing import Any

from clutch import _core
from clutch._worker.image import gil_is_enabled
from clutch.errors import Interrupted

FRAMES_MAX = 100


def listen(link: _core.WorkerLink, also: Callable[[], None] | None = None) -> None:
    """Sets up both signals, in the main thread. `also()` interrupts what is bound to no thread (tasks, greenlets)."""

    def interrupt(*_: Any) -> None:
        here = link.interrupt(Interrupted)
        if also is not None:
            also()
        if here:
            raise Interrupted

    signal.signal(link.interrupt_signal(), interrupt)
    shows_all = gil_is_enabled()
    number, file = link.show_stacks(shows_all)
    faulthandler.register(number, file=file, all_threads=shows_all, chain=True)


def stack_of_coroutine(coroutine: Any) -> str:
    """Where a suspended coroutine stands, the innermost first, in faulthandler's form."""
    return stack_text("Task", reversed(list(frames_of_coroutine(coroutine))))


def stack_of_frame(frame: types.FrameType | None) -> str:
    """Where a suspended greenlet stands."""
    frames = []
    while frame is not None:
        frames.append(frame)
        frame = frame.f_back
    return stack_text("Greenlet", iter(frames))


def frames_of_coroutine(coroutine: Any) -> Iterator[types.FrameType]:
    """From the outermost in: what each one awaits."""
    while coroutine is not None:
        kind = next((kind for kind in ("cr", "gi", "ag") if hasattr(coroutine, f"{kind}_frame")), None)
        if kind is None:
            return
        if (frame := getattr(coroutine, f"{kind}_frame")) is not None:
            yield frame
        coroutine = getattr(coroutine, "gi_yieldfrom" if kind == "gi" else f"{kind}_await")


def stack_text(what: str, frames: Iterator[types.FrameType]) -> str:
    lines = [
        f'  File "{frame.f_code.co_filename}", line {frame.f_lineno} in {frame.f_code.co_name}' for frame in frames
    ]
    return "\n".join([f"{what} (most recent call first):", *lines[:FRAMES_MAX], ""])
