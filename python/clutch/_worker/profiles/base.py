"""Protocol of a profile, and what the slots of all profiles share.

A profile has one method: `run(worker, ready)` makes its slots, calls `ready()`, and returns when the worker is told to
end and nothing runs any more. What runs in threads of slots is interrupted natively; a profile whose slots are
something else also says, by `is_held_up` and `was_lost`, when code that is to stop holds up the main thread.
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
import inspect
import os
import signal
import threading
import types
from collections.abc import AsyncGenerator, Callable, Generator, Iterator
from typing import TYPE_CHECKING, Any, Protocol

from clutch import _core
from clutch._worker.interrupt import came_in_wait
from clutch.errors import Interrupted

if TYPE_CHECKING:
    import asyncio

    from clutch._worker.delegates import LeftBehind
    from clutch._worker.handlers.call import Turns

LOOK_AGAIN_SECONDS = 0.05
"""Interval at which a call that waits for its turn checks whether it was cancelled."""


class Profile(Protocol):
    """Strategy that makes the slots of a worker."""

    is_held_up: Callable[[], bool | None] | None
    """Called in the main thread, in a signal's handler: whether the task or greenlet that runs right now is to stop by
    an exception. None: ask again soon."""
    was_lost: Callable[[], bool] | None
    """Called in the main thread: the exception in what runs there came where nobody hears one. Whether it was that of
    `is_held_up`, which is to come again."""

    def run(self, worker: _core.Worker, ready: Callable[[], None]) -> None: ...


class Lifecycle(Protocol):
    """An object that lives on an event loop while work runs there, such as the lifespan of an app."""

    async def start(self) -> None:
        """Called on the loop before the first work. An exception fails the start of the worker."""

    def share(self) -> None:
        """Called in the thread that reads work for the loop, once the object is started."""

    async def stop(self) -> None: ...


@contextlib.contextmanager
def heard_terms(then: Callable[[], object]) -> Iterator[list[int]]:
    """SIGTERM does not cut off what is started meanwhile, such as the lifespan of an app; the caller is to stop it in
    order. To be held until the dispatcher's first frame: until then its SIGTERM and the word that this worker is ready
    may cross. Yields the signals that have come; `then` is called after each. A handler of the user's stays, and
    threads other than the main hear none.
    """
    heard: list[int] = []
    own = os.getpid()

    def hear(number: int, _: object) -> None:
        if os.getpid() == own:
            heard.append(number)
            then()
            return
        # In a child that was forked meanwhile: it ends, as it would without this.
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)

    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield heard
        return
    signal.signal(signal.SIGTERM, hear)
    try:
        yield heard
    finally:
        if signal.getsignal(signal.SIGTERM) is hear:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)


class Served(Protocol):
    """Properties of an app or handler that a profile with event loops needs."""

    lifecycle: Callable[[], Lifecycle] | None
    is_eager: bool


def hold_in_slots(worker: _core.Worker, served: Served | None, is_shared: bool) -> None:
    """Have slots take turns at connections that a front passes, where it is served so. `is_shared`: several do."""
    if getattr(served, "is_held_in_slots", False):
        hold = functools.partial(_core.hold_in_slots, worker, served)
        worker.link.on_channel(lambda channel: hold(channel, is_shared))


class Running:
    """Around a call's code in `who`, a task or a greenlet: meanwhile it is among those `known` by their calls' ids, and
    may be stopped.

    `stop_it(call id, who)` ends the code. `run_there(function)` runs a function between its steps, whatever thread asks
    for it: only there is seen whether it has ended meanwhile. Raises `interrupted` where nobody wants the call any
    more.
    """

    def __init__(
        self,
        known: dict[int, Running],
        call: _core.Call | _core.AdoptedRequest,
        who: Any,
        stop_it: Callable[[int, Any], object],
        run_there: Callable[[Callable[[], object]], object],
        interrupted: type[BaseException],
        is_user_code: bool = True,
    ) -> None:
        self.who = who
        self._known = known
        self._call = call
        self._stop_it = stop_it
        self._run_there = run_there
        self._interrupted = interrupted
        self._is_user_code = is_user_code
        self._is_told = False
        self._was_seen = False

    def __enter__(self) -> None:
        if self._call.is_abandoned:
            raise self._interrupted
        self._known[self._call.id] = self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: object) -> None:
        del self._known[self._call.id]

    def stop(self) -> None:
        """Interrupt it once: its clean-up is not interrupted."""
        if not self._is_told:
            self._is_told = True
            self._run_there(self._stop_if_there)

    def show(self, tell: Callable[[Any], object]) -> None:
        """Calls `tell(who)` between its steps: without a GIL, frames that run may be freed while they are looked at."""
        self._run_there(lambda: tell(self.who))

    def _stop_if_there(self) -> None:
        if self._known.get(self._call.id) is self:  # or this would hit our code, or the clean-up of the user's
            self._stop_it(self._call.id, self.who)

    def is_held_up(self) -> bool | None:
        """Returns whether to raise in it while it runs. None: ask again soon, it may reach an await or a switch."""
        if self._is_told or not self._is_user_code or not self._call.is_abandoned:
            return False
        if not self._was_seen:
            self._was_seen = True
            return None
        self._is_told = True
        return True

    def was_lost(self) -> bool:
        """Called when an exception did not come out of it. Returns whether one was raised: it will be raised again."""
        was_told, self._is_told = self._is_told, False
        return was_told


def running_of(known: dict[int, Running], who: Any) -> Running | None:
    """The call in this task or greenlet."""
    return next((running for running in list(known.values()) if running.who is who), None)


class Slot:
    """A thread that runs one call at a time. `_core.serve` calls these methods if a call is not a plain function."""

    def __init__(self, slots: _core.Slots, main: Callable[[_core.Call], None] | None = None) -> None:
        self._loop = OwnLoop(slots)
        self._main = main
        """Runs a call in the worker's main thread; None if this is the main thread."""
        self.wait = functools.partial(slots.outside, self._loop.run)
        """Runs a coroutine of a batch. Native, so that an interrupt cannot lose it."""

    def special(self, call: _core.Call) -> None:
        """Run a tool that is serial or bound to the main thread."""
        try:
            tool = call.tool
            if tool is not None and tool.options.serial:
                with turn(call, tool.turns):
                    self._placed(call, tool)
            else:
                self._placed(call, tool)
        except BaseException as error:
            call.fail(error)

    def _placed(self, call: _core.Call, tool: Any) -> None:
        if tool is not None and tool.options.main_thread and self._main is not None:
            call.await_turn(True)
            self._main(call)
        else:
            self.run(call)

    def run(self, call: _core.Call) -> None:
        """Run one call, from its arguments to its end."""
        try:
            call.enter()
            call.await_turn(False)
            if call.is_batch:
                call.run_batch(self)
                return
            self.finish(call, call.invoke())
        except BaseException as error:
            call.fail(error)

    def finish(self, call: _core.Call, made: Any) -> None:
        """Ends a call whose function made a coroutine, a generator, or a value. The thread has left the call: it is
        interrupted again while the user's code goes on."""
        if call.shown is None:
            self._finish(call, made)
        else:
            contextvars.copy_context().run(self._show_and_finish, call, made)

    def _show_and_finish(self, call: _core.Call, made: Any) -> None:
        show(call)
        self._finish(call, made)

    def _finish(self, call: _core.Call, made: Any) -> None:
        try:
            if inspect.iscoroutine(made):
                made = self._loop.run(call.word, made)
            if inspect.isgenerator(made):
                send_all(call, made)
            elif inspect.isasyncgen(made):
                self._loop.run(call.word, send_all_async(call, made))
            else:
                call.enter()
                call.reply(made)
        except BaseException as error:
            call.fail(error)

    def close(self) -> None:
        self._loop.close()


def show(call: _core.Call) -> None:
    """Sets, in the current context, what the code of this call is to find there: headers, its job."""
    if call.shown is not None:
        variable, value = call.shown
        variable.set(value)


class OwnLoop:
    """The event loop of one thread, made when a coroutine first needs it."""

    def __init__(self, slots: _core.Slots) -> None:
        self._slots = slots
        self._runner: asyncio.Runner | None = None

    def run(self, word: int, coroutine: types.CoroutineType[Any, Any, Any]) -> Any:
        """Runs a coroutine of the call with this word, where an interrupt cancels it. The thread has left the call, and
        enters it for the coroutine's own code: neither that nor the loop is ever left half made."""
        import asyncio  # which workers without loops do without

        with contextlib.closing(coroutine):
            self._runner = self._runner or asyncio.Runner()
            loop = self._runner.get_loop()
            task = Stoppable(coroutine, loop, self._slots)
            self._slots.set_waker(task)
            try:
                self._slots.enter(word)
                return task.run()
            finally:
                self._slots.leave()
                if task.threads is not None:
                    loop.run_until_complete(task.threads.end())
                self._slots.set_waker(None)
                if task.is_left_behind:
                    self.close()
                elif task.is_loop_cut:
                    loop.call_soon(loop.stop)
                    loop.run_forever()

    def close(self) -> None:
        runner, self._runner = self._runner, None
        if runner is not None:
            runner.close()


class Stoppable:
    """A coroutine as a task of a loop that runs it alone. From any thread it is cancelled, also before it has started,
    and shown."""

    def __init__(
        self, coroutine: types.CoroutineType[Any, Any, Any], loop: asyncio.AbstractEventLoop, slots: _core.Slots
    ) -> None:
        self._coroutine = coroutine
        self._slots = slots
        self._loop = loop
        self._task: asyncio.Task[Any] | None = None
        self.is_left_behind = False
        """True if an exception stopped the loop that did not come from this task; perhaps another task raised it."""
        self.is_loop_cut = False
        """True if an exception stopped the loop at once: what the task's end has planned there, such as to close a
        connection, has not run."""
        self.threads: LeftBehind | None = None
        """Threads that run code for it still, although it was cancelled."""
        self._is_told = self._is_cancelled = self._is_by_exception = False

    def run(self) -> Any:
        task = self._task = self._loop.create_task(self._coroutine, context=contextvars.copy_context())
        try:
            try:
                return self._loop.run_until_complete(task)
            except Interrupted as error:
                if task.done() or not came_in_wait(error):
                    raise
            # It was meant for code that has gone to wait just before.
            task.cancel()
            return self._loop.run_until_complete(task)
        except BaseException as error:
            self.is_left_behind = not task.done() or not (task.cancelled() or task.exception() is error)
            self.is_loop_cut = isinstance(error, (KeyboardInterrupt, SystemExit))
            raise

    def stop(self) -> bool:
        """Cancel it. True: it was cancelled before and blocks its loop, so that only an exception can stop it."""
        was_told, self._is_told = self._is_told, True
        is_held_up = was_told and not self._is_cancelled and self._coroutine.cr_running
        wants_cancel = not was_told or (self._is_by_exception and not is_held_up)
        # Before the loop hears of it: it looks, and may be quicker.
        self._is_by_exception = is_held_up
        if wants_cancel:
            self._call_soon(self._cancel)
        return is_held_up

    def wake(self) -> None:
        """Wake the loop: an exception that was sent to its thread is raised when it leaves the kernel."""
        self._call_soon(lambda: None)

    def show(self, tell: Callable[[str], object]) -> None:
        """Tells where it waits; not before it does: until then it is on the stack of its thread."""
        self._call_soon(lambda: tell(self._stack()))

    def _stack(self) -> str:
        from clutch._worker.delegates import stack_of_task

        left = self.threads.stacks() if self.threads is not None else ""
        return left or (stack_of_task(self._task) if self._task is not None else "")

    def _call_soon(self, what: Callable[[], object]) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile
            self._loop.call_soon_threadsafe(what)

    def _cancel(self) -> None:
        if self._task is not None and not self._is_by_exception and self._slots.is_inside():
            from clutch._worker.delegates import LeftBehind

            self._is_cancelled = True  # once: what runs from here on cleans up
            with contextlib.suppress(Exception):  # whatever is odd about what the task holds: it is cancelled
                self.threads = LeftBehind(self._task)
            self._task.cancel()


@contextlib.contextmanager
def turn(call: _core.Call, turns: Turns) -> Iterator[None]:
    """Hold the turn. A waiting call is not interrupted, which could lose the turn: it checks for a cancel itself."""
    if (mine := turns.ask()) is not None:
        call.await_turn(True)
        while not mine.acquire(timeout=LOOK_AGAIN_SECONDS):
            if call.is_abandoned:
                turns.give_up(mine)
                raise Interrupted
        call.await_turn(False)
    try:
        yield
    finally:
        turns.release()


def send_all(call: _core.Call, values: Generator[Any, Any, Any]) -> None:
    """Send the values of a generator, each produced only when there is credit. Close it if the reader has gone."""
    call.open_stream()
    context = contextvars.copy_context()
    with contextlib.closing(values):
        while call.wait_credit():
            try:
                value = context.run(next, values)
            except StopIteration:
                break
            call.chunk(value)
    call.end_stream()


async def send_all_async(call: _core.Call, values: AsyncGenerator[Any, Any]) -> None:
    """The same for an asynchronous generator that is alone on this thread's loop."""
    call.open_stream()
    async with contextlib.aclosing(values):
        while call.wait_credit():
            try:
                value = await anext(values)
            except StopAsyncIteration:
                break
            call.chunk(value)
    call.end_stream()


async def send_all_on_loop(
    call: _core.Call, values: AsyncGenerator[Any, Any], around_step: Callable[[], Running]
) -> None:
    """The same on a loop that others share: waiting for credit blocks nobody. The link is read elsewhere. The caller
    ends the stream.

    `around_step()` is around the user's code alone: who waits for credit is closed, not cancelled.
    """
    import asyncio

    loop = asyncio.get_running_loop()
    credit = asyncio.Event()
    call.open_stream()
    call.on_credit(lambda: loop.call_soon_threadsafe(credit.set))
    try:
        async with contextlib.aclosing(values):
            while await wait_credit_on_loop(call, credit):
                try:
                    with around_step():
                        value = await anext(values)
                except StopAsyncIteration:
                    break
                call.chunk(value)
    finally:
        call.on_credit(None)


async def wait_credit_on_loop(call: _core.Call, credit: asyncio.Event) -> bool:
    while True:
        credit.clear()
        taken = call.take_credit()
        if taken is not False:
            return taken is True
        await credit.wait()
