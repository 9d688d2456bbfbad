"""`async`: slots are asyncio tasks on loops (uvloop where it is installed); `def` tools run in an executor.

With several threads there is one loop in each; every loop takes calls off the link.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import functools
import inspect
import os
import sys
import threading
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Sequence
from typing import Any

from clutch import _core
from clutch._worker import copies
from clutch._worker.connections import around, is_django_here
from clutch._worker.delegates import LeftBehind, stack_of_task
from clutch._worker.interrupt import STACKS_MAX
from clutch._worker.profiles.base import (
    Lifecycle,
    Running,
    Served,
    Slot,
    heard_terms,
    running_of,
    send_all_on_loop,
    show,
)
from clutch._worker.profiles.blocking import allow_threads, threads_for
from clutch._worker.profiles.collector import Thresholds, watch
from clutch._worker.profiles.loop_sleep import sleep_of
from clutch.errors import ConfigError

try:
    import uvloop
except ImportError:
    uvloop = None

OTHERS_SECONDS = 0.1
"""Time that a worker's other loops have to show their tasks, while the first waits."""
LOOK_BEHIND_SECONDS = 0.1
"""Interval at which requests are looked at whose tasks may go on behind their responses."""
CUT_SHOWN_MAX = 5
"""Most requests that are named where a stop cuts off what the pool does not know."""


class AsyncProfile:
    def __init__(self, shape: dict[str, Any]) -> None:
        self.threads: int = max(1, shape["threads"])
        self.tasks: int = shape["tasks"]
        self.blocking: int = threads_for(self.tasks, shape["tasks_given"])
        """Threads of each loop for code that blocks."""
        self.new_loop = loop_factory(shape["loop"])
        self.collects_at: Thresholds = shape["collects_at"]
        self.served: Served | None = shape["served"]
        self.first: Loop | None = None

    def is_held_up(self) -> bool | None:
        return self.first is not None and self.first.is_held_up()

    def was_lost(self) -> bool:
        return self.first is not None and self.first.was_lost()

    def run(self, worker: _core.Worker, ready: Callable[[], None]) -> None:
        first = self.first = Loop(self, worker)
        first.others = [Loop(self, worker, first) for _ in range(self.threads - 1)]
        serving = ((loop.serve(), self.new_loop) for loop in first.others)
        others = [threading.Thread(target=run_loop, args=args, daemon=True) for args in serving]
        for other in others:
            other.start()
        run_loop(first.serve(ready, others), self.new_loop)


NewLoop = Callable[[], asyncio.AbstractEventLoop] | None
NESTING = "nest_asyncio"
"""Runs a loop inside of itself, which uvloop's do not bear."""


def run_loop(serving: Coroutine[Any, Any, None], new_loop: NewLoop) -> None:
    with asyncio.Runner(loop_factory=new_loop) as runner:
        loop = runner.get_loop()
        served = loop.create_task(serving)
        while not served.done():
            # A task of the app's that raised these has them as its end; a loop that is run ends with them, too.
            with contextlib.suppress(SystemExit, KeyboardInterrupt):
                loop.run_until_complete(served)
        served.result()


def loop_factory(name: str) -> NewLoop:
    """None: asyncio's own. Raises ConfigError for a library that is not installed."""
    if name == "uvloop" and uvloop is None:
        raise ConfigError('loop = "uvloop": uvloop is not installed: pip install uvloop; allowed: auto, asyncio')
    if name == "asyncio" or uvloop is None or (name == "auto" and NESTING in sys.modules):
        return None
    return uvloop.new_event_loop


class Threads(concurrent.futures.ThreadPoolExecutor):
    """If no more threads can be started, the running ones take the work; if there are none, it is refused."""

    def _adjust_thread_count(self) -> None:
        try:
            super()._adjust_thread_count()
        except RuntimeError:
            if not self._threads:
                self._work_queue.get_nowait()  # it has failed, and must not run later
                raise


class Loop:
    """Event loop with the calls on it.

    Loops of a worker share one waiting line. Tools that are serial or bound to the main thread run on the first loop.
    """

    def __init__(self, profile: AsyncProfile, worker: _core.Worker, first: Loop | None = None) -> None:
        self.worker = worker
        self.link = worker.link
        self.first = first or self
        self.others: list[Loop] = []
        self.tasks = profile.tasks
        self.collects_at = profile.collects_at
        self.blocking = profile.blocking
        self.is_only = profile.threads == 1
        self.running: set[asyncio.Task[None]] = set()
        # Calls whose code runs on a loop, and so stops when its task is cancelled. Shared, as `waiting` is.
        self.on_loop: dict[int, Running] = {} if first is None else first.on_loop
        # Threads that go on although the calls that they work for were stopped, by the calls' ids.
        self.left_behind: dict[int, LeftBehind] = {} if first is None else first.left_behind
        self.waiting: deque[_core.Call] = deque() if first is None else first.waiting
        self.loop: asyncio.AbstractEventLoop
        self.sleep: _core.LoopSleep | None
        self.ended = asyncio.Event()
        # By the dispatcher, which knows then that the worker is ready; or by its SIGTERM.
        self.was_told = asyncio.Event()
        self.started = threading.Event()
        self.failure: BaseException | None = None
        self.is_serving = False
        self.executor = Threads(self.tasks, thread_name_prefix="clutch-task")
        self.locks: dict[Any, asyncio.Lock] = {}
        self.flushing = False
        self.served = profile.served
        self.holders: list[_core.Holder] = []
        self.lines: list[_core.Lines] = []
        self.held: dict[asyncio.Task[None], _core.HeldRequest] = {}
        """Requests of connections that the worker holds, by their tasks."""
        self.looks_behind = False

    async def serve(self, ready: Callable[[], None] | None = None, others: Sequence[threading.Thread] = ()) -> None:
        """Run until the worker is told to end. The first loop outlives the others."""
        with heard_terms(lambda: self._tell(self.was_told.set)) as terms:
            try:
                life = await self._start()
            except BaseException as error:
                self.failure = error
                raise
            finally:
                self.started.set()
            self.loop.add_reader(self.link.fileno(), self._on_first_frame)
            # uvloop has made the link non-blocking; a write that finds it full would leave the rest of a result behind.
            os.set_blocking(self.link.fileno(), True)
            if ready is not None:
                watch(self.loop, self.collects_at)
                self.link.on_cancel(self._cancel)
                self.link.on_stacks(self._stacks)
                if self.is_only and self._starts_eagerly():
                    self.link.on_channel(self._hold)
                if self.is_only and self.served is not None:
                    self._take_lines()
                await self._wait_for_others()
                if not terms:
                    ready()
                    await self.was_told.wait()
        if terms:
            self._tell_all(lambda loop: loop.ended.set)
        await self.ended.wait()
        left = [self._left(holder) for holder in self.holders]
        # Running work may wait for frames of the link.
        while self.running:
            await asyncio.wait(self.running)
        for event in left:
            await event.wait()
        # What lives on each loop has its end, whatever another's takes; this loop runs tools for the others meanwhile.
        joined = (asyncio.to_thread(other.join) for other in others)
        await asyncio.gather(*joined, *([life.stop()] if life is not None else []))
        for source in (self.link, *self.holders, *self.lines):
            self.loop.remove_reader(source.fileno())
        self.is_serving = False
        self.executor.shutdown()
        self.link.flush()

    async def _start(self) -> Lifecycle | None:
        self.loop = asyncio.get_running_loop()
        self.sleep = sleep_of(self.loop)
        self.starter = _core.EagerStarter(self.loop, self.is_only)
        allow_threads(self.blocking)
        life = None
        if self.served is not None and self.served.lifecycle is not None:
            life = self.served.lifecycle()
            await life.start()
            life.share()
        self.is_serving = True
        return life

    async def _wait_for_others(self) -> None:
        for loop in self.others:
            await asyncio.to_thread(loop.started.wait)
            if loop.failure is not None:
                raise loop.failure

    # ---- taking calls

    def _on_first_frame(self) -> None:
        self._read(self.link, self._on_readable)
        self.first._tell(self.first.was_told.set)
        self._on_readable()

    def _read(self, source: _core.WorkerLink | _core.Holder | _core.Lines, callback: Callable[[], object]) -> None:
        self.loop.add_reader(source.fileno(), callback)
        if self.sleep is not None:
            self.sleep.serve(source.fileno(), callback)

    def _on_readable(self) -> None:
        self.waiting.extend(self._poll())
        self._start_waiting()
        self.link.flush()
        if self.waiting:
            self._tell_all(lambda loop: loop._start_waiting)
        # The word to end may have come right behind calls that the dispatcher has taken back; nothing comes after it.
        if self.link.is_draining():
            self._tell_all(lambda loop: loop.ended.set)

    def _tell_all(self, what: Callable[[Loop], Callable[[], object]]) -> None:
        for loop in (self.first, *self.first.others):
            loop._tell(what(loop))

    def _tell(self, what: Callable[[], object]) -> None:
        """Run a callback on this loop, from any other loop."""
        if self.is_serving:
            with contextlib.suppress(RuntimeError):  # it has ended meanwhile
                self.loop.call_soon_threadsafe(what)

    def _start_waiting(self) -> None:
        while len(self.running) < self.tasks and self.is_serving:
            try:
                call = self.waiting.popleft()
            except IndexError:
                return
            task = asyncio.create_task(self._run(call))
            self.running.add(task)
            task.add_done_callback(self._ended)

    def _poll(self) -> list[_core.Call]:
        """Return calls that have arrived and not started. Those that may start at once have, and most have ended."""
        if not self._starts_eagerly():
            return _core.poll(self.worker)
        started, later = _core.poll_eagerly(self.worker, self.starter, self.tasks - len(self.running))
        for call, task in started:
            self._wait_for(call, task)
        return later

    def _starts_eagerly(self) -> bool:
        # What starts here is inside of this turn's callback, which a loop that is run again within would enter again.
        return self.served is not None and self.served.is_eager and NESTING not in sys.modules

    def _wait_for(self, call: _core.Call, task: asyncio.Task[None]) -> None:
        """Add a call whose coroutine has started and is waiting."""
        self.running.add(task)
        self.on_loop[call.id] = self._in_task(call, task)
        task.add_done_callback(functools.partial(self._has_ended, call))

    def _has_ended(self, call: _core.Call | _core.AdoptedRequest, task: asyncio.Task[None]) -> None:
        self.on_loop.pop(call.id, None)
        if call.id in self.left_behind:
            waiting = self.loop.create_task(self._threads_end(call))
            self.running.add(waiting)
            waiting.add_done_callback(functools.partial(self._end_task, call, task))
            self.running.discard(task)
        else:
            self._end_task(call, task, task)

    def _end_task(
        self, call: _core.Call | _core.AdoptedRequest, task: asyncio.Task[None], last: asyncio.Task[None]
    ) -> None:
        """End a call with the outcome of its task. `last`: the task that ended last for it."""
        call.end_task(task)
        self._ended(last)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self.running.discard(task)
        self._start_waiting()
        self._flush_soon()

    def _flush_soon(self) -> None:
        """Write all results of this turn of the loop at once."""
        if not self.flushing:
            self.flushing = True
            self.loop.call_soon(self._flush)

    def _flush(self) -> None:
        self.flushing = False
        self.link.flush()

    # ---- connections that the worker holds

    def _hold(self, channel: int) -> None:
        """Hold the connections that a front passes by this socket."""
        assert self.served is not None
        wait_for = self._wait_for_held
        args = (self.worker, self.starter, self.served, wait_for, self.running, self.tasks, channel)
        holder = _core.Holder(*args)
        self._read(holder, holder)
        self.worker.slots.on_drain(lambda: self._tell(holder.end_endless))
        self.holders.append(holder)

    def _wait_for_held(self, held: _core.HeldRequest, task: asyncio.Task[None]) -> None:
        self.running.add(task)
        self.held[task] = held
        task.add_done_callback(self._held_ended)
        if not self.looks_behind:
            self.looks_behind = True
            self.loop.call_later(LOOK_BEHIND_SECONDS, self._look_behind)

    def _look_behind(self) -> None:
        """Have the pool know the tasks that go on behind responses."""
        self.looks_behind = bool(self.held)
        if self.looks_behind:
            self.loop.call_later(LOOK_BEHIND_SECONDS, self._look_behind)
        for held in list(self.held.values()):
            held.look_behind(now=False)

    def _cut_off(self) -> None:
        """Stop the tasks that the pool does not know: those that it knows it stops itself."""
        told: list[str] = []
        for task, held in list(self.held.items()):
            if (what := held.cut_off()) is not None:
                task.cancel()
                told += [what] if what else []
        if told:
            more = f" and {len(told) - CUT_SHOWN_MAX} more" if len(told) > CUT_SHOWN_MAX else ""
            next(iter(self.held.values())).log(
                f"told to stop, as this worker is to end: {', '.join(told[:CUT_SHOWN_MAX])}{more}"
            )

    def _held_ended(self, task: asyncio.Task[None]) -> None:
        held = self.held.pop(task)
        if (call := held.adopted) is None:
            held.end_task(task)
            self._ended(task)
        else:
            self._has_ended(call, task)

    def _take_lines(self) -> None:
        """Read and write the sockets of WebSockets here that fronts lend."""
        lines = _core.Lines(self.link, self.loop)
        self.lines.append(lines)
        self._read(lines, lines)

    def _running_held(self, is_it: Callable[[asyncio.Task[None], _core.AdoptedRequest], bool]) -> Running | None:
        """The first of these requests for which that holds, among those that the pool knows."""
        for task, held in list(self.held.items()):
            if (call := held.adopted) is not None and is_it(task, call):
                return self.on_loop.setdefault(call.id, self._in_task(call, task))
        return None

    def _left(self, holder: _core.Holder) -> asyncio.Event:
        """Hand back all connections; the event is set when the last has left."""
        left = asyncio.Event()
        # What ends soon the pool can be told of only as long as the front is there.
        for held in list(self.held.values()):
            held.look_behind(now=True)
        holder.leave(left.set)
        return left

    # ---- stopping calls

    def _cancel(self, call_id: int, wants_stacks: bool) -> None:
        """Stop work, as the link tells any loop; of id 0, all that the pool does not know. Code that runs in a thread
        is stopped natively, not by the loop.
        """
        if call_id == 0:
            self._cut_off()
            return
        running = self.on_loop.get(call_id) or self._running_held(lambda _, call: call.id == call_id)
        try:
            if wants_stacks and running is not None:
                running.show(lambda task: self._tell_stacks(call_id, stack_of_task(task)))
            elif wants_stacks:
                self._tell_stacks(call_id)
        finally:
            if running is not None:
                running.stop()

    def _tell_stacks(self, call_id: int, text: str = "") -> None:
        self.link.tell_stacks(call_id, text)
        self.link.flush()

    def _stop(self, call_id: int, task: asyncio.Task[Any]) -> None:
        """Cancel the task of a call. Its slot is taken until the threads that it waits for have ended, too."""
        with contextlib.suppress(Exception):  # whatever is odd about what the task holds: it is cancelled
            self.left_behind[call_id] = LeftBehind(task)
        task.cancel()

    async def _threads_end(self, call: _core.Call | _core.AdoptedRequest) -> None:
        """Wait until no thread works any more for a call that was stopped."""
        if (threads := self.left_behind.get(call.id)) is not None:
            await threads.end()
            self.left_behind.pop(call.id, None)

    def _stacks(self) -> str:
        """Those of all loops, but for others that are blocked: what runs there is on the stack of its thread."""
        asked = [loop._shown() for loop in self.others]
        threads = [threads.stacks() for threads in list(self.left_behind.values())]
        own = map(stack_of_task, list(self.running))
        told = [one.result() for one in concurrent.futures.wait(asked, OTHERS_SECONDS).done]
        return "\n".join(filter(None, [*threads, *own, *told]))[:STACKS_MAX]

    def _shown(self) -> concurrent.futures.Future[str]:
        """The stacks of this loop's tasks, read between their steps: see `Running.show`."""
        shown: concurrent.futures.Future[str] = concurrent.futures.Future()
        self._tell(lambda: shown.set_result("\n".join(map(stack_of_task, list(self.running)))))
        return shown

    def is_held_up(self) -> bool | None:
        """Returns whether work that is to stop blocks the main thread's loop, so that a cancel does not reach it."""
        if running := self._running_here():
            return running.is_held_up()
        return self.worker.slots.is_step_to_stop() or any(holder.is_step_to_stop() for holder in self.holders)

    def was_lost(self) -> bool:
        running = self._running_here()
        return running is not None and running.was_lost()

    def _running_here(self) -> Running | None:
        here = asyncio.current_task(self.loop) if self.is_serving else None
        return running_of(self.on_loop, here) or self._running_held(lambda task, _: task is here)

    def _stoppable(self, call: _core.Call, is_user_code: bool = True) -> Running:
        task = asyncio.current_task()
        assert task is not None
        return self._in_task(call, task, is_user_code)

    def _in_task(
        self, call: _core.Call | _core.AdoptedRequest, task: asyncio.Task[Any], is_user_code: bool = True
    ) -> Running:
        return Running(self.on_loop, call, task, self._stop, self._tell, asyncio.CancelledError, is_user_code)

    # ---- one call

    async def _run(self, call: _core.Call) -> None:
        try:
            if not call.begin():
                return
            if not call.is_known:
                with self._stoppable(call):
                    call.find()
            tool = call.tool
            if tool is None or tool.simple:
                await self._call(call, tool)
            elif self is self.first:
                await self._special(call, tool)
            else:
                there = asyncio.run_coroutine_threadsafe(self.first._special(call, tool), self.first.loop)
                await asyncio.wrap_future(there)
        except BaseException as error:
            await self._threads_end(call)
            call.fail(error)
            if isinstance(error, asyncio.CancelledError) and self.ended.is_set():
                raise

    async def _special(self, call: _core.Call, tool: Any) -> None:
        if not tool.options.serial:
            await self._call(call, tool)
            return
        lock = self.locks.setdefault(tool, asyncio.Lock())
        with self._stoppable(call, is_user_code=False):
            call.await_turn(True)
            await lock.acquire()
            call.await_turn(False)
        try:
            await self._call(call, tool)
        finally:
            await self._threads_end(call)
            lock.release()

    async def _call(self, call: _core.Call, tool: Any) -> None:
        if tool is None:
            with self._stoppable(call):
                is_async = is_async_function(call.function)
        else:
            is_async = tool.is_async
        if is_async or (tool is not None and tool.options.main_thread):
            await self._on_loop(call)
        else:
            await self.loop.run_in_executor(self.executor, self._in_thread, call)

    async def _on_loop(self, call: _core.Call) -> None:
        with self._stoppable(call):
            if call.is_batch:
                await self._batch(call)
                return
            made = call.invoke()
            show(call)  # to the rest of this task
            if inspect.isawaitable(made):
                made = await made
        if inspect.isgenerator(made):
            made = in_steps(made)
        if inspect.isasyncgen(made):
            await send_all_on_loop(call, made, lambda: self._stoppable(call))
        # Of one that was stopped, and has returned nevertheless.
        await self._threads_end(call)
        if inspect.isasyncgen(made):
            call.end_stream()
        else:
            call.reply(made)

    def _in_thread(self, call: _core.Call) -> None:
        slot = Slot(self.worker.slots)
        try:
            slot.run(call)
        finally:
            slot.close()

    async def _batch(self, call: _core.Call) -> None:
        function = call.function
        for arguments in call.items():
            call.item_begins()
            if call.is_abandoned:  # asked last: what has not begun by then is submitted again
                raise asyncio.CancelledError
            try:
                made = function(*arguments)
                if is_django_here() and inspect.iscoroutine(made):
                    made = around(made)
                value = await made if inspect.isawaitable(made) else made
                copies.leave_if_copy()
            except BaseException as error:
                copies.leave_if_copy(error)
                if call.is_abandoned:
                    raise
                call.item_failed(error)
            else:
                call.item_done(value)
        await self._threads_end(call)
        call.end_batch()


def is_inside(task: asyncio.Task[Any]) -> bool:
    """Returns whether its own code runs now, not code of the loop on its behalf, which an exception would break."""
    return getattr(task.get_coro(), "cr_running", False)


async def in_steps(values: Generator[Any, Any, Any]) -> AsyncGenerator[Any, None]:
    """The values of a generator that runs on a loop: that of a tool bound to the main thread."""
    with contextlib.closing(values):
        for value in values:
            yield value


def is_async_function(function: Any) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function)


def make(shape: dict[str, Any]) -> AsyncProfile:
    return AsyncProfile(shape)
