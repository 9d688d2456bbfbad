"""`greenlet`: slots are gevent greenlets, for blocking code that waits on I/O. The zygote has patched the library.

`async def` tools run on one unpatched asyncio loop in a native thread while their greenlets wait.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections import deque
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

import gevent
import gevent.event
import greenlet
from gevent import monkey
from gevent.hub import Waiter, get_hub
from gevent.lock import RLock
from gevent.pool import Group

from clutch import _core
from clutch._worker import copies
from clutch._worker.interrupt import STACKS_MAX, stack_of_frame, stack_text
from clutch._worker.profiles.base import (
    LOOK_AGAIN_SECONDS,
    Lifecycle,
    Running,
    Served,
    heard_terms,
    running_of,
    send_all_on_loop,
    show,
)
from clutch._worker.profiles.blocking import allow_threads, threads_for
from clutch.errors import Interrupted

if TYPE_CHECKING:
    import asyncio


class GreenletProfile:
    def __init__(self, tasks: int, served: Served | None) -> None:
        self.tasks = tasks
        self.served = served
        self.hub: Hub | None = None

    def is_held_up(self) -> bool | None:
        return self.hub is not None and self.hub.is_held_up()

    def was_lost(self) -> bool:
        return self.hub is not None and self.hub.was_lost()

    def run(self, worker: _core.Worker, ready: Callable[[], None]) -> None:
        copies.current = gevent.getcurrent
        hub = self.hub = Hub(worker, self.tasks, self.served)
        hub.serve(ready)


class Hub:
    """The greenlets of one worker."""

    def __init__(self, worker: _core.Worker, tasks: int, served: Served | None) -> None:
        self.worker = worker
        self.link = worker.link
        self.tasks = tasks
        self.served = served
        self.callbacks = get_hub().loop
        self.group = Group()
        # The group itself lets go of a greenlet only some time after its end.
        self.running = 0
        self.greenlets: dict[int, Running] = {}
        self.coroutines: dict[greenlet.greenlet, Coroutine[Any, Any, Any]] = {}
        """Coroutines on the native loop, by the greenlet that waits for each."""
        self.waiting: deque[_core.Call] = deque()
        self.locks: dict[Any, RLock] = {}
        self.flushing = False
        self.loop: NativeLoop | None = None

    def serve(self, ready: Callable[[], None]) -> None:
        self.link.on_cancel(self._cancel)
        self.link.on_stacks(self._stacks)
        self.link.wait_with(self._wait)
        watcher = get_hub().loop.io(self.link.fileno(), 1)
        was_told = gevent.event.Event()
        with heard_terms(was_told.set) as terms:
            life = self._start_life()
            if not terms:
                ready()
            watcher.start(was_told.set)
            was_told.wait()
            watcher.stop()
        # The word to end may come right behind calls that the dispatcher has taken back; nothing comes after it.
        while not terms and not self.link.is_draining():
            self.waiting.extend(self._poll(watcher))
            self._start_waiting()
        # Running work may wait for frames of the link.
        reader = gevent.spawn(self._poll_on, watcher)
        self.group.join()
        reader.kill()
        if life is not None:
            self._on_loop(life.stop())
        self.link.flush()

    def _poll(self, watcher: Any) -> list[_core.Call]:
        get_hub().wait(watcher)
        return _core.poll(self.worker)

    def _poll_on(self, watcher: Any) -> None:
        while True:
            self._poll(watcher)

    def _start_life(self) -> Lifecycle | None:
        """The lifecycle of an event loop belongs to the native loop, where coroutines run."""
        if self.served is None or self.served.lifecycle is None:
            return None
        life = self.served.lifecycle()

        async def start() -> None:
            allow_threads(threads_for(self.tasks, is_given=True))  # they are greenlets
            await life.start()

        self._on_loop(start())
        life.share()
        return life

    def _wait(self, call_id: int) -> None:
        """Let other greenlets run until something arrives for a call."""
        came = gevent.event.Event()
        self.link.listen_to(call_id, came.set)
        try:
            came.wait(LOOK_AGAIN_SECONDS)
        finally:
            self.link.listen_to(call_id, None)

    def _start_waiting(self) -> None:
        while self.waiting and self.running < self.tasks:
            self.running += 1
            self.group.start(gevent.Greenlet(self._run, self.waiting.popleft()))

    def _cancel(self, call_id: int, wants_stacks: bool) -> None:
        running = self.greenlets.get(call_id)
        try:
            if wants_stacks:
                self.link.tell_stacks(call_id, self._stack(running.who) if running is not None else "")
                self.link.flush()
        finally:
            if running is not None:
                running.stop()

    def _stacks(self) -> str:
        stacks = [self._stack(running.who) for running in list(self.greenlets.values())]
        return "\n".join(filter(None, stacks))[:STACKS_MAX]

    def _stack(self, who: greenlet.greenlet) -> str:
        """Returns the stack of a greenlet, or of the coroutine that it waits for."""
        coroutine = self.coroutines.get(who)
        if coroutine is None:
            return stack_of_frame(who.gr_frame)
        from clutch._worker.delegates import frames_of  # which needs asyncio

        return stack_text("Task", frames_of(coroutine))

    def is_held_up(self) -> bool | None:
        """Returns whether work that is to stop runs right now: a kill reaches it only when it switches."""
        running = running_of(self.greenlets, gevent.getcurrent())
        return running.is_held_up() if running else False

    def was_lost(self) -> bool:
        running = running_of(self.greenlets, gevent.getcurrent())
        return running is not None and running.was_lost()

    def _stoppable(self, call: _core.Call, here: greenlet.greenlet, is_user_code: bool = True) -> Running:
        """Around user code in a greenlet. A greenlet that is killed before it starts would never end its call."""
        return Running(self.greenlets, call, here, kill, self.callbacks.run_callback, Interrupted, is_user_code)

    def _stoppable_on_loop(self, call: _core.Call, here: greenlet.greenlet) -> Running:
        """Around user code in a coroutine of the native thread; the greenlet `here` waits for it."""
        import asyncio

        task = asyncio.current_task()
        assert task is not None
        run_there = task.get_loop().call_soon_threadsafe
        return Running(self.greenlets, call, here, lambda *_: task.cancel(), run_there, Interrupted)

    def _run(self, call: _core.Call) -> None:
        try:
            if not call.begin():
                return
            if not call.is_known:
                with self._stoppable(call, gevent.getcurrent()):
                    call.find()
            tool = call.tool
            if tool is None or not tool.options.serial:
                self._call(call)
                return
            lock = self.locks.setdefault(tool, RLock())
            with self._stoppable(call, gevent.getcurrent(), is_user_code=False):
                call.await_turn(True)
                lock.acquire()
                call.await_turn(False)
            try:
                self._call(call)
            finally:
                lock.release()
        except BaseException as error:
            call.fail(error)
        finally:
            self.running -= 1
            self._flush_soon()

    def _call(self, call: _core.Call) -> None:
        here = gevent.getcurrent()
        with self._stoppable(call, here):
            if call.is_batch:
                self._batch(call)
                return
            made = call.invoke()
            show(call)  # to the rest of this greenlet
            if inspect.iscoroutine(made):
                made = self._on_loop(made)
        if inspect.isgenerator(made):
            self._send_all(call, made, here)
        elif inspect.isasyncgen(made):
            self._on_loop(send_all_on_loop(call, made, functools.partial(self._stoppable_on_loop, call, here)))
            call.end_stream()
        else:
            call.reply(made)

    def _batch(self, call: _core.Call) -> None:
        function = call.function
        for arguments in call.items():
            call.item_begins()
            if call.is_abandoned:  # asked last: what has not begun by then is submitted again
                raise Interrupted
            try:
                made = function(*arguments)
                value = self._on_loop(made) if inspect.iscoroutine(made) else made
                copies.leave_if_copy()
            except BaseException as error:
                copies.leave_if_copy(error)
                if call.is_abandoned:
                    raise
                call.item_failed(error)
            else:
                call.item_done(value)
        call.end_batch()

    def _send_all(self, call: _core.Call, values: Any, here: greenlet.greenlet) -> None:
        credit = gevent.event.Event()
        call.open_stream()
        call.on_credit(credit.set)
        try:
            while self._wait_credit(call, credit):
                try:
                    with self._stoppable(call, here):
                        value = next(values)
                except StopIteration:
                    break
                call.chunk(value)
        finally:
            call.on_credit(None)
            values.close()
        call.end_stream()

    def _wait_credit(self, call: _core.Call, credit: Any) -> bool:
        while True:
            credit.clear()
            taken = call.take_credit()
            if taken is not False:
                return taken is True
            credit.wait()

    def _flush_soon(self) -> None:
        """Write all results of this turn of the hub at once; more calls may start."""
        if not self.flushing:
            self.flushing = True
            get_hub().loop.run_callback(self._flush)

    def _flush(self) -> None:
        self.flushing = False
        self.link.flush()
        self._start_waiting()

    def _on_loop(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        if self.loop is None:
            self.loop = NativeLoop()
        here = gevent.getcurrent()
        self.coroutines[here] = coroutine
        try:
            return self.loop.run(coroutine)
        finally:
            del self.coroutines[here]


def kill(_: int, here: greenlet.greenlet) -> None:
    here.throw(Interrupted)


class Signal:
    """Wakes the greenlet that made it, once, from another thread."""

    def __init__(self) -> None:
        self._waiter = Waiter()
        self._watcher = get_hub().loop.async_()
        # From now on: what is sent to a watcher that was not started is lost.
        self._watcher.start(self._waiter.switch, None)
        self.send = self._watcher.send

    def wait(self) -> None:
        """Wait for the signal. Call it again after an interrupt."""
        self._waiter.get()
        self._watcher.stop()
        self._watcher.close()


class NativeLoop:
    """Asyncio loop in a native thread. It waits in a hub of its own: what code on it takes for threads (executors,
    anyio's) are greenlets there, and run while the loop waits."""

    loop: asyncio.AbstractEventLoop

    def __init__(self) -> None:
        import asyncio

        from gevent.selectors import GeventSelector

        start, lock = (monkey.get_original("_thread", name) for name in ("start_new_thread", "allocate_lock"))
        missing = lock()
        missing.acquire()

        def run() -> None:
            self.loop = asyncio.SelectorEventLoop(GeventSelector())
            missing.release()
            while True:
                # A task of the user's that raised these has them as its end; the loop ends with them, too.
                with contextlib.suppress(SystemExit, KeyboardInterrupt):
                    self.loop.run_forever()

        # Nothing here waits in the hub, so no second greenlet comes to make another loop meanwhile.
        start(run, ())
        missing.acquire()

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """Run a coroutine on the native loop while this greenlet waits."""
        done = Signal()
        outcome: list[Any] = []
        tasks: list[Any] = []

        async def body() -> None:
            try:
                outcome.append((True, await coroutine))
                copies.leave_if_copy()
            except BaseException as error:
                copies.leave_if_copy(error)
                outcome.append((False, error))

        def start() -> None:
            tasks.append(self.loop.create_task(body()))
            # Not by `body`: a task that is cancelled before its first step never comes there.
            tasks[0].add_done_callback(lambda _: done.send())

        def stop() -> None:
            if tasks:
                tasks[0].cancel()
            else:  # interrupted before it was on its way
                done.send()

        try:
            self.loop.call_soon_threadsafe(start)
            done.wait()
        except Interrupted:
            # In order behind the other: the task is there, or never will be.
            self.loop.call_soon_threadsafe(stop)
            done.wait()
        if not outcome:
            coroutine.close()
            raise Interrupted
        succeeded, value = outcome[0]
        if succeeded:
            return value
        raise value


def make(shape: dict[str, Any]) -> GreenletProfile:
    return GreenletProfile(shape["threads"] * shape["tasks"], shape["served"])
