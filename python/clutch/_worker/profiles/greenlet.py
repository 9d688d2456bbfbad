"""`greenlet`: slots are gevent greenlets, for blocking code that waits on I/O. The zygote has patched the library.

`async def` tools run on one unpatched asyncio loop in a native thread while their greenlets wait.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import gevent
import gevent.event
import greenlet
from gevent import monkey
from gevent.hub import Waiter, get_hub
from gevent.lock import RLock
from gevent.pool import Group

from clutch import _core
from clutch._worker.interrupt import STACKS_MAX, stack_of_frame
from clutch._worker.profiles.base import Running, send_all_on_loop
from clutch.errors import Interrupted

Stoppable = Callable[[], contextlib.AbstractContextManager[None]]


class GreenletProfile:
    def __init__(self, tasks: int) -> None:
        self.tasks = tasks
        self.hub: Hub | None = None

    def is_held_up(self) -> bool | None:
        return self.hub is not None and self.hub.is_held_up()

    def run(self, link: _core.WorkerLink, ready: Callable[[], None]) -> None:
        hub = self.hub = Hub(link, self.tasks)
        ready()
        hub.serve()


class Hub:
    """The greenlets of one worker."""

    def __init__(self, link: _core.WorkerLink, tasks: int) -> None:
        self.link = link
        self.tasks = tasks
        self.callbacks = get_hub().loop
        self.group = Group()
        # The group itself lets go of a greenlet only some time after its end.
        self.running = 0
        self.greenlets: dict[int, tuple[greenlet.greenlet, Running]] = {}
        self.waiting: deque[_core.Call] = deque()
        self.locks: dict[Any, RLock] = {}
        self.flushing = False
        self.loop: NativeLoop | None = None

    def serve(self) -> None:
        self.link.on_cancel(self._cancel)
        self.link.on_stacks(self._stacks)
        watcher = get_hub().loop.io(self.link.fileno(), 1)
        while True:
            get_hub().wait(watcher)
            calls = self.link.poll()
            if calls is None:
                break
            self.waiting.extend(calls)
            self._start_waiting()
        self.group.join()
        self.link.flush()

    def _start_waiting(self) -> None:
        while self.waiting and self.running < self.tasks:
            call = self.waiting.popleft()
            if call.begin():
                self.running += 1
                self.group.start(gevent.Greenlet(self._run, call))

    def _cancel(self, call_id: int, wants_stacks: bool) -> None:
        found, running = self.greenlets.get(call_id, (None, None))
        if wants_stacks:
            self.link.tell_stacks(call_id, stack_of_frame(found.gr_frame) if found is not None else "")
            self.link.flush()
        if running is not None:
            running.stop()

    def _stacks(self) -> str:
        waiting = [known.gr_frame for known, _ in list(self.greenlets.values()) if known.gr_frame is not None]
        return "\n".join(map(stack_of_frame, waiting))[:STACKS_MAX]

    def is_held_up(self) -> bool | None:
        """Whether work that is to stop runs right now: while it does not switch, it hears of no kill."""
        here = gevent.getcurrent()
        found = [running for known, running in list(self.greenlets.values()) if known is here]
        return found[0].is_held_up() if found else False

    @contextlib.contextmanager
    def _stoppable(self, call: _core.Call, here: greenlet.greenlet, is_user_code: bool = True) -> Iterator[None]:
        """Around the user's code. A greenlet that is killed before it has started would never end its call."""
        if call.is_abandoned:
            raise Interrupted

        def kill() -> None:
            if self.greenlets.get(call.id) is entry:  # or the user's code has ended meanwhile, and this would hit ours
                here.throw(Interrupted)

        # Of the main thread's hub: what stops may be a coroutine in the native thread.
        stop = functools.partial(self.callbacks.run_callback, kill)
        entry = self.greenlets[call.id] = (here, Running(call, stop, is_user_code))
        try:
            yield
        finally:
            del self.greenlets[call.id]

    def _run(self, call: _core.Call) -> None:
        try:
            tool = call.tool
            if tool is None or not tool.options.serial:
                self._call(call)
                return
            lock = self.locks.setdefault(tool, RLock())
            with self._stoppable(call, gevent.getcurrent(), is_user_code=False):
                lock.acquire()
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
        stoppable = functools.partial(self._stoppable, call, gevent.getcurrent())
        with stoppable():
            if call.is_batch:
                self._batch(call)
                return
            made = call.invoke()
            if inspect.iscoroutine(made):
                made = self._on_loop(made)
        if inspect.isgenerator(made):
            self._send_all(call, made, stoppable)
        elif inspect.isasyncgen(made):
            self._on_loop(send_all_on_loop(call, made, stoppable))
        else:
            call.reply(made)

    def _batch(self, call: _core.Call) -> None:
        values: list[Any] = []
        failed: list[tuple[int, BaseException]] = []
        function = call.function
        for at, arguments in enumerate(call.items()):
            if call.is_abandoned:
                raise Interrupted
            try:
                made = function(*arguments)
                values.append(self._on_loop(made) if inspect.iscoroutine(made) else made)
            except BaseException as error:
                if call.is_abandoned:
                    raise
                values.append(None)
                failed.append((at, error))
        call.reply_batch(values, failed)

    def _send_all(self, call: _core.Call, values: Any, stoppable: Stoppable) -> None:
        credit = gevent.event.Event()
        call.open_stream()
        call.on_credit(credit.set)
        try:
            while self._wait_credit(call, credit):
                try:
                    with stoppable():
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
        """One write for all that ended in this turn of the hub; more calls may start."""
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
        return self.loop.run(coroutine)


class Signal:
    """Wakes the greenlet that made it, once, from another thread."""

    def __init__(self) -> None:
        self._waiter = Waiter()
        self._watcher = get_hub().loop.async_()
        # From now on: what is sent to a watcher that was not started is lost.
        self._watcher.start(self._waiter.switch, None)
        self.send = self._watcher.send

    def wait(self) -> None:
        """Once more after an interrupt, until it has come."""
        self._waiter.get()
        self._watcher.stop()
        self._watcher.close()


class NativeLoop:
    """One asyncio loop in a native thread, made of the library's unpatched parts."""

    def __init__(self) -> None:
        import asyncio

        # Nothing here waits, so no second greenlet comes to make another one meanwhile.
        self.loop = asyncio.SelectorEventLoop(unpatched("selectors").SelectSelector())
        monkey.get_original("_thread", "start_new_thread")(self.loop.run_forever, ())

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """Runs a coroutine over there while this greenlet waits."""
        done = Signal()
        outcome: list[Any] = []
        tasks: list[Any] = []

        async def body() -> None:
            try:
                outcome.append((True, await coroutine))
            except BaseException as error:
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


def unpatched(name: str) -> Any:
    """A module of the standard library as it is without gevent."""
    import importlib.util
    import select

    spec = importlib.util.find_spec(name)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    patched = {item: getattr(select, item) for item in ("select", "poll") if hasattr(select, item)}
    try:
        for item in patched:
            setattr(select, item, monkey.get_original("select", item))
        spec.loader.exec_module(module)
    finally:
        for item, value in patched.items():
            setattr(select, item, value)
    return module


def make(shape: dict[str, Any]) -> GreenletProfile:
    return GreenletProfile(shape["threads"] * shape["tasks"])
