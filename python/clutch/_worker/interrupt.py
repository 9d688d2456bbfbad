"""The signals of a worker: how running code is interrupted, and how its stacks are shown.

The native thread of the worker hears the dispatcher whatever Python does. It sends one signal to the main thread when
work is to stop, another when the stacks are wanted.
"""

from __future__ import annotations

import _weakrefset
import contextlib
import faulthandler
import functools
import gc
import inspect
import itertools
import os
import selectors
import signal
import sys
import threading
import types
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from clutch import _core
from clutch._worker.failure import CARRIERS
from clutch._worker.image import gil_is_enabled
from clutch._worker.profiles import loop_sleep
from clutch.errors import Interrupted

FRAMES_MAX = 100
STACKS_MAX = 200_000
"""Maximum length of the stacks of all tasks or greenlets of a worker, in characters."""
BELOW = (*CARRIERS, threading.__file__, selectors.__file__, "/gevent/", '"<string>", line 1 in <module>')
"""Parts of frames, in faulthandler's form, between a thread's start and the user's code; the last is the zygote's."""
SLEEPS = (selectors.__file__, loop_sleep.__file__)
"""Files with the frames in which an event loop waits."""
LOOPS = os.path.dirname(selectors.__file__) + "/asyncio"
STEPS = inspect.CO_COROUTINE | inspect.CO_ITERABLE_COROUTINE | inspect.CO_ASYNC_GENERATOR
UNHEARD = {
    ("__del__", None),
    ("_remove", _weakrefset.__file__),
    ("remove", weakref.__file__),
    ("hear_unraisable", __file__),
}
"""Functions, with their files, that the interpreter calls and whose exceptions it only prints: they are spared."""

_interrupt: Callable[[types.FrameType | None], None] = lambda here: None  # noqa: E731 (a default, see `Signals.listen`)
_send_again: Callable[[], bool] = lambda: False  # noqa: E731
_print_unraisable = sys.unraisablehook


def prepare() -> None:
    """Sets how a worker takes signals. A zygote does it once for all that it forks: they share its pages."""
    global _print_unraisable
    _print_unraisable, sys.unraisablehook = sys.unraisablehook, hear_unraisable
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(_core.Slots.interrupt_signal(), hear)


def show_stacks_of_load() -> None:
    """To be called before any code of the user's: the dispatcher has the stacks written that this process is killed at,
    when its import takes too long. A worker takes the signal for its own stacks."""
    faulthandler.register(_core.Slots.stacks_signal(), file=2, all_threads=True)


def heed_dispatcher_alone() -> None:
    """To be called before any code of the user's: this process heeds the dispatcher's SIGTERM only, also with handlers
    of the user's. Other senders mean the whole service, whose dispatcher ends it in order."""
    if signal.getsignal(signal.SIGTERM) is signal.SIG_IGN:  # as it was for the dispatcher
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
    _core.guard_from_signals()
    set_handler, guarded = signal.signal, (signal.SIGTERM, _core.own_term())

    @functools.wraps(set_handler)
    def set_guarded(signalnum: Any, handler: Any) -> Any:
        before = set_handler(signalnum, handler)
        if signalnum in guarded:
            _core.guard_from_term()
        return before

    signal.signal = set_guarded


def hear(_: int, here: types.FrameType | None) -> None:
    _interrupt(here)


class Signals:
    """The two signals of a worker: one interrupts code, the other makes the thread that receives it write its stack."""

    def __init__(self, slots: _core.Slots) -> None:
        self.slots = slots
        self.stacks, self.file = slots.show_stacks(BELOW, stacks_of_threads if gil_is_enabled() else None)
        self.known = signal.getsignal(self.stacks)
        self._show_stacks()

    def listen(
        self, is_held_up: Callable[[], bool | None] | None = None, was_lost: Callable[[], bool] | None = None
    ) -> None:
        """Allow interrupts from now on. Called in the main thread; both callbacks are the profile's."""
        global _interrupt, _send_again
        _interrupt = interrupt_of(self.slots, is_held_up)
        _send_again = send_again_of(self.slots, was_lost)
        self._take_back()

    def _show_stacks(self) -> None:
        # It was registered for the zygote's, and does not notice that user code has set another handler since.
        faulthandler.unregister(self.stacks)
        # Each thread writes its own stack: that of another one may change meanwhile.
        faulthandler.register(self.stacks, file=self.file, all_threads=False)
        self.slots.show_stacks_apart()

    def _take_back(self) -> None:
        """Set the handlers again: user code may have replaced or blocked all signals since `prepare`."""
        interrupts = self.slots.interrupt_signal()
        if signal.getsignal(interrupts) is not hear:
            signal.signal(interrupts, hear)
        if signal.getsignal(self.stacks) is not self.known:
            faulthandler.unregister(self.stacks)
            self._show_stacks()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [interrupts, self.stacks])


def interrupt_of(
    slots: _core.Slots, is_held_up: Callable[[], bool | None] | None
) -> Callable[[types.FrameType | None], None]:
    """Handle the signal that interrupts code; `here` is the frame that it interrupted."""
    main = threading.get_ident()
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
            slots.interrupt_again()
        if hit:
            raise Interrupted

    def look(here: types.FrameType | None) -> bool:
        def is_safe(ident: int) -> bool:
            if ident == main:
                return lets_out(here)
            # Without a GIL the frames of a thread that runs may be freed meanwhile; `Landing` looks where it lands.
            return not gil_is_enabled() or lets_out(sys._current_frames().get(ident))

        hit = slots.interrupt(SENT, is_safe)
        held_up = is_held_up() if is_held_up is not None and lets_out(here) else False
        if held_up is None or (is_held_up is not None and not lets_out(here)):
            slots.interrupt_again()
        return hit or held_up is True

    return interrupt


class LoopInterrupted(Interrupted, KeyboardInterrupt):
    """Interrupt that an event loop lets out: it keeps every other exception, and the task of the moment is lost."""


class Landing(Interrupted):
    """Exception sent to a thread. The thread continues meanwhile, above all without a GIL: what runs there is known
    only where the exception is raised, and made.
    """

    def __new__(cls) -> Interrupted:  # type: ignore[misc]
        here = sys._getframe(1)
        if not is_of_loop(here):
            return Interrupted()
        with contextlib.suppress(Exception):  # whatever is odd about the loop: the code is to be interrupted
            give_back(here)
        return LoopInterrupted()


def give_back(frame: types.FrameType | None) -> None:
    """Puts back what a loop took from its queue and has not begun, or was about to put there: a task without its next
    step never ends, and whoever cancels it waits for ever, as `asyncio.run` does at its end."""
    import asyncio  # which workers without loops do without

    lost = None
    while frame is not None and frame.f_code.co_name != "_run_once":
        lost = callback_of(frame) or lost
        frame = frame.f_back
    loop: Any = None if frame is None else frame.f_locals.get("self")
    # Others may wrap what they put into the line: then it is not known there.
    if getattr(getattr(loop, "call_soon", None), "__func__", None) is not asyncio.BaseEventLoop.call_soon:
        return
    ready = ready_of(loop)
    if lost is not None:
        callback, args, context = lost
        if not any(handle._callback is callback and handle._args is args for handle in ready):
            loop.call_soon(callback, *args, context=context)
    in_line: set[Any] = {getattr(handle._callback, "__self__", None) for handle in ready}
    tasks: set[Any] = asyncio.all_tasks(loop) - in_line
    for task in tasks:
        give_step_back(task, loop)


def callback_of(frame: types.FrameType) -> tuple[Any, Any, Any] | None:
    """The callback, with its arguments and context, that this frame of asyncio's is about to plan or to begin. Not the
    step of a task: that may be half made."""
    import asyncio

    planned = None
    if frame.f_code is asyncio.BaseEventLoop.call_soon.__code__:
        planned = frame.f_locals["callback"], frame.f_locals["args"], frame.f_locals["context"]
    elif frame.f_code is asyncio.Handle._run.__code__ and frame.f_lineno == frame.f_code.co_firstlineno:
        handle = frame.f_locals["self"]
        planned = handle._callback, handle._args, handle._context
    return None if planned is None or isinstance(getattr(planned[0], "__self__", None), asyncio.Future) else planned


def ready_of(loop: Any) -> list[Any]:
    """A copy of the callbacks that are queued in the loop."""
    while True:
        try:
            return list(loop._ready)
        except RuntimeError:
            """Another thread has added a callback meanwhile."""


def give_step_back(task: Any, loop: Any) -> None:
    """Queue a step again for a task that can continue and has none queued."""
    awaited = task._fut_waiter
    if (awaited is not None and not awaited.done()) or getattr(task.get_coro(), "cr_running", True):
        return
    step = next(filter(None, (step_of(held, awaited) for held in gc.get_referrers(task))), None)
    if step is not None:
        loop.call_soon(*step, context=task.get_context())


def step_of(held: Any, awaited: Any) -> tuple[Any, ...] | None:
    """The callback that continues a task, with its arguments, if `held` is one."""
    kind = type(held)  # of what is not the interpreter's own, nothing is asked
    name = held.__name__ if kind in (types.BuiltinMethodType, types.MethodType) else kind.__name__
    if awaited is not None and name in ("task_wakeup", "__wakeup"):
        return held, awaited
    return (held,) if name in ("TaskStepMethWrapper", "__step") else None


SENT = Landing if sys.version_info >= (3, 12) else Interrupted
"""Class that is raised: before 3.12 an exception is created only where it is caught."""


def send_again_of(slots: _core.Slots, was_lost: Callable[[], bool] | None) -> Callable[[], bool]:
    """Handle an interrupt that was lost in this thread. Returns False if it was not for the code that runs here."""

    def send_again() -> bool:
        if slots.interrupt_lost():
            return True
        if was_lost is None or not was_lost():
            return False
        slots.interrupt_again()
        return True

    return send_again


def hear_unraisable(unraisable: sys.UnraisableHookArgs) -> None:
    """An interrupt that is raised where the interpreter only prints exceptions is not printed, but sent again."""
    if not (issubclass(unraisable.exc_type, Interrupted) and _send_again()):
        _print_unraisable(unraisable)


def lets_out(frame: types.FrameType | None) -> bool:
    """Returns whether an exception raised in this frame propagates out of it."""
    return not is_of_loop(frame) and not swallows(frame)


def is_of_loop(frame: types.FrameType | None) -> bool:
    """Returns whether this is machinery of an event loop, or a callback of one: the loop keeps what is raised there."""
    if frame is not None and frame.f_code.co_filename in SLEEPS:
        return False
    while frame is not None and frame.f_code.co_filename != selectors.__file__:
        if os.path.dirname(frame.f_code.co_filename) == LOOPS:
            return True
        if frame.f_code.co_flags & STEPS:
            return False
        frame = frame.f_back
    return False


def came_in_wait(error: BaseException) -> bool:
    """Returns whether this was raised while an event loop waited: the loop is whole, and can go on."""
    at = error.__traceback__
    while at is not None and at.tb_next is not None:
        at = at.tb_next
    return at is not None and at.tb_frame.f_code.co_filename in SLEEPS


def swallows(frame: types.FrameType | None) -> bool:
    """Returns whether this frame runs for a finalizer or a weak reference callback."""
    while frame is not None:
        code = frame.f_code
        if (code.co_name, None) in UNHEARD or (code.co_name, code.co_filename) in UNHEARD:
            return True
        frame = frame.f_back
    return False


def stack_of_coroutine(coroutine: Any) -> str:
    """The stack of a suspended coroutine, innermost first, in faulthandler's format; empty once it has ended."""
    return stack_text("Task", frames_of_coroutine(coroutine))


def stack_of_frame(frame: types.FrameType | None, what: str = "Greenlet") -> str:
    """The stack of a suspended greenlet or of a thread."""
    frames = []
    while frame is not None:
        frames.append(frame)
        frame = frame.f_back
    return stack_text(what, reversed(frames))


def stacks_of_threads(idents: Iterable[int]) -> str:
    """The stacks of threads, by their `threading.get_ident()`, of those that run any code."""
    frames = sys._current_frames()
    try:
        return "".join(stack_of_frame(frames.get(ident), f"Thread 0x{ident:016x}") for ident in idents)
    finally:
        frames.clear()  # this call's own is among them: what the others hold would wait for the garbage collector


def frames_of_coroutine(coroutine: Any) -> Iterator[types.FrameType]:
    """The frames of a coroutine and of what it awaits, outermost first."""
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
    """The stack as text, without the frames below user code. `frames`: outermost first."""
    lines = [
        f'  File "{frame.f_code.co_filename}", line {frame.f_lineno} in {frame.f_code.co_name}' for frame in frames
    ]
    users = list(itertools.dropwhile(is_carrier, lines))
    return "\n".join([f"{what} (most recent call first):", *users[: -FRAMES_MAX - 1 : -1], ""]) if users else ""


def is_carrier(line: str) -> bool:
    return any(part in line for part in BELOW)
