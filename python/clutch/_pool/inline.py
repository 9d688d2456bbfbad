"""`clutch.testing.InlinePool`: a pool without workers, for tests of code that uses one.

Everything runs in the caller's thread, in the order of the calls. What does not hang on processes is as in a `Pool`:
options are checked, tools are found and run by the same code as in a worker, and arguments and results are pickled on
their way, so that what would not travel fails here too.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import contextvars
import inspect
import os
import pickle
import sys
import threading
import time
import weakref
from collections.abc import Callable, Coroutine, Generator, Iterator
from typing import Any, NamedTuple, Self

from clutch import _core
from clutch._pickle import dumps
from clutch._pool.calls import Calls
from clutch._pool.future import Future, Stream
from clutch._worker.failure import traceback_of, type_name
from clutch._worker.image import Image, LoadError, gil_is_enabled
from clutch.config import PoolSpec
from clutch.errors import BadArguments, ConfigError, Draining, RemoteError
from clutch.insights import Insights
from clutch.pool import Pool, closed_error

# What an item of a map is said to have taken: so much that each is a batch of its own.
MAP_NS = 1_000_000_000
_standard = concurrent.futures.Future


class InlineFuture(Future):
    """A `clutch.Future` without a worker behind it: the standard library's, and it can be awaited."""

    def __init__(self) -> None:
        _standard.__init__(self)
        _standard.set_running_or_notify_cancel(self)

    done = _standard.done  # type: ignore[assignment]
    running = _standard.running  # type: ignore[assignment]
    cancelled = _standard.cancelled  # type: ignore[assignment]
    cancel = _standard.cancel  # type: ignore[assignment]
    result = _standard.result  # type: ignore[assignment]
    exception = _standard.exception  # type: ignore[assignment]

    def __await__(self) -> Generator[Any, None, Any]:
        if self.done():
            return self.result()
        return (yield from asyncio.wrap_future(self).__await__())

    def settle(self, run: Callable[[], Any]) -> None:
        """Ends it with what `run` returns or raises. Ctrl-C is the caller's own."""
        try:
            value = run()
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            _standard.set_exception(self, error)
        else:
            _standard.set_result(self, value)


class InlineStream(Stream):
    """The values of a generator, each produced when it is asked for."""

    def __init__(self, pool: InlinePool, made: Any, context: contextvars.Context) -> None:
        self._pool = pool
        self._values = made
        self._context = context

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        if inspect.isasyncgen(self._values):
            try:
                value = self._pool._wait(anext(self._values), self._context)  # type: ignore[arg-type]
            except StopAsyncIteration:
                raise StopIteration from None
        else:
            value = self._context.run(next, self._generator())
        return self._pool._result(value)

    async def __anext__(self) -> Any:
        if inspect.isasyncgen(self._values):
            return self._pool._result(await anext(self._values))
        try:
            return next(self)
        except StopIteration:
            raise StopAsyncIteration from None

    def close(self) -> None:
        if inspect.isasyncgen(self._values):
            self._pool._wait(self._values.aclose(), self._context)
        elif inspect.isgenerator(self._values):
            self._context.run(self._values.close)
        self._values = iter(())

    async def aclose(self) -> None:
        if inspect.isasyncgen(self._values):
            await self._values.aclose()
            self._values = iter(())
        self.close()

    def _generator(self) -> Any:
        if not hasattr(self._values, "__next__"):
            self._values = iter(())
            raise BadArguments("stream() needs a tool that is a generator; this one returned one value: use call()")
        return self._values


class Sent(NamedTuple):
    """The arguments as they arrive in the worker."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    by_name: bool


class InlinePool(Pool):
    """A `Pool` that runs everything in the caller's thread, for tests.

    Takes what `Pool` takes. Exceptions come as they are raised, with their own traceback; those of the target's import
    and of the initializer come from the constructor. Deadlines, priorities, retries and limits of the queue have no
    effect. `copies=False` leaves out the pickling of arguments and results.
    """

    def __init__(self, target: str | int | None = None, *arguments: Any, copies: bool = True, **options: Any) -> None:
        self._copies = copies
        super().__init__(target, *arguments, **options)

    def _start(self, spec: PoolSpec, initializer: Callable[..., object] | None, initargs: tuple[Any, ...]) -> None:
        self.name = spec.name
        self._is_copy = self._is_draining = False
        self._maps = weakref.WeakSet()
        self._context = contextvars.Context()
        self._threads = threading.local()
        self._runners: list[asyncio.Runner] = []
        self._aside = concurrent.futures.ThreadPoolExecutor(1, "clutch-inline")
        self._done = self._failed = 0
        self._since, self._run_seconds = time.monotonic(), 0.0
        launch = {"target": spec.values["target"], "preload": False}
        self._image = Image({"start": "spawn", "launch": launch, "shape": spec.core["shape"]})
        if initializer is not None:
            function, arguments = self._carried((initializer, initargs), initializer)
            self._context.run(function, *arguments)
        try:
            self._context.run(self._image.start)
        except LoadError as error:
            raise ConfigError(f"pool {spec.name!r}: {error}") from error
        self._shut = False

    # ---- work

    call, submit = Calls.call, Calls.submit

    def _call_with(self, options: object, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return self._finished(self._sent(function, args, kwargs))

    def _submit_with(self, options: object, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Done when it returns; an `async def` tool of a caller with a running event loop is a task of that loop."""
        sent = self._sent(function, args, kwargs)
        future = InlineFuture()
        loop = asyncio._get_running_loop()
        if loop is None or not inspect.iscoroutinefunction(sent.function):
            future.settle(lambda: self._finished(sent))
        else:
            task = loop.create_task(self._awaited(sent), context=self._context.copy())
            task.add_done_callback(lambda task: future.settle(task.result))
        return future

    def _stream_with(self, options: object, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        context = self._context.copy()
        return InlineStream(self, self._made(self._sent(function, args, kwargs), context), context)

    def _submit_batch(
        self, options: object, function: _core.MapFunction, spread: bool, batch: Any
    ) -> BadArguments | None:
        """Runs one batch of a map and answers as a worker would."""
        fn = function.function
        try:
            sent = [self._sent(fn, tuple(item) if spread else (item,), {}) for item in batch.items]
        except BadArguments as error:
            self._sent(fn, (), {})  # raises where that is the function's fault
            return error
        values: list[Any] = [None] * len(sent)
        failures: list[tuple[int, BaseException]] = []
        for at, one in enumerate(sent):
            try:
                values[at] = self._finished(one)
            except Exception as error:
                failures.append((at, error))
        future = InlineFuture()
        future.settle(lambda: (values, failures, MAP_NS))
        batch.future = future
        return None

    # ---- from the arguments to the result

    def _sent(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Sent:
        self._check_open()
        if self._is_draining:
            raise Draining(f"pool {self.name!r} is draining and takes no more work", pool=self.name)
        if isinstance(function, str):
            tool = self._image.tool(function).function
            args, kwargs = self._carried((packed_views(args), kwargs), function)
            return Sent(tool, args, kwargs, True)
        if not callable(function):
            raise BadArguments(f"{function!r} is neither callable nor the name of a tool")
        function, args, kwargs = self._carried((function, packed_views(args), kwargs), function)
        return Sent(function, args, kwargs, False)

    def _carried(self, what: Any, function: object) -> Any:
        """The value as it arrives in a worker."""
        if not self._copies:
            return what
        try:
            body = dumps(what)
        except Exception as error:
            message = f"the arguments of {function!r} cannot be sent to a worker: {error}"
            raise BadArguments(message) from error
        try:
            return pickle.loads(body)
        except Exception as error:
            message = f"the arguments cannot be read in the worker: {type(error).__name__}: {error}"
            raise BadArguments(f"{message}; what they refer to must be importable there") from error

    def _made(self, sent: Sent, context: contextvars.Context) -> Any:
        """The return value of the function: a value, a coroutine or a generator."""
        try:
            return context.run(sent.function, *sent.args, **sent.kwargs)
        except TypeError as error:
            # Raised by the call itself, before any line of the function ran: the arguments do not fit.
            if sent.by_name and error.__traceback__ is not None and error.__traceback__.tb_next is None:
                raise BadArguments(str(error)) from error
            raise

    def _finished(self, sent: Sent) -> Any:
        with self._counted():
            context = self._context.copy()
            made = self._made(sent, context)
            if inspect.iscoroutine(made):
                made = self._wait(made, context)
            return self._result(made)

    async def _awaited(self, sent: Sent) -> Any:
        with self._counted():
            return self._result(await sent.function(*sent.args, **sent.kwargs))

    def _result(self, value: Any) -> Any:
        """The value as it comes back to the caller."""
        if inspect.isgenerator(value) or inspect.isasyncgen(value):
            raise BadArguments("this tool is a generator: use stream()")
        if not self._copies:
            return value
        try:
            body = dumps(*packed_views((value,)))
        except Exception as error:
            raise remote_error("encode", str(error), error) from error
        try:
            return pickle.loads(body)
        except Exception as error:
            raise remote_error("decode", f"the result cannot be read here: {error}", error) from error

    def _wait(self, coroutine: Coroutine[Any, Any, Any], context: contextvars.Context) -> Any:
        """Runs it on this thread's own loop; where one runs already, on that of a thread beside it."""
        if asyncio._get_running_loop() is not None:
            return self._aside.submit(self._wait, coroutine, context).result()
        runner = getattr(self._threads, "runner", None)
        if runner is None:
            runner = self._threads.runner = asyncio.Runner()
            self._runners.append(runner)
        return runner.run(coroutine, context=context)

    @contextlib.contextmanager
    def _counted(self) -> Iterator[None]:
        began = time.monotonic()
        try:
            yield
        except BaseException:
            self._failed += 1
            raise
        else:
            self._done += 1
        finally:
            self._run_seconds += time.monotonic() - began

    # ---- the pool itself

    def stats(self) -> dict[str, Any]:
        """Returns the statistics of a `Pool`: one worker, this process."""
        state = "closed" if self._shut else "draining" if self._is_draining else "ready"
        calls = self._done + self._failed
        worker = {"nr": 0, "pid": os.getpid(), "generation": 1, "state": "ready", "calls": calls, "sent": 0}
        worker |= {"rss": None, "private": None}
        nothing = dict.fromkeys(("queued", "blocked", "sent", "restarts"), 0)
        one = dict.fromkeys(("slots", "ready", "target", "min", "max", "generation"), 1)
        tools = sorted(self._image.known) if self._image.options["target"] else None
        image = {"tools": tools, "warnings": [], "python": sys.version.split()[0], "gil": gil_is_enabled()}
        counts = {"done": self._done, "failed": self._failed, "drained": 0, "queued_s": 0.0, "gave_up": 0, "ends": {}}
        known = {"name": self.name, "state": state, "reason": None, "zygote_pid": None, "image": image}
        # CPU time is that of the program, too: it is not known apart.
        known |= {"run_s": self._run_seconds, "cpu_s": None, "company": []}
        known["shape"] = {"profile": "process", "workers": 1, "threads": 1, "tasks": 1}
        return {**known, **nothing, **one, **counts, "workers": [] if self._shut else [worker]}

    def _slots(self) -> int:
        return 1

    def wait_ready(self, count: int | None = None, timeout: float | None = None) -> None:
        """Returns at once: this process is the worker."""
        self._check_open()

    def drain(self) -> None:
        self._check_open()
        self._is_draining = True

    def resume(self) -> None:
        self._check_open()
        self._is_draining = False

    def reload(self, timeout: float | None = None) -> None:
        """Without effect: the code is that of this process."""
        self._check_open()

    def recycle(self, nr: int | None = None, timeout: float | None = None, *, kill: bool = False) -> None:
        """Without effect, as there are no workers."""
        self._check_open()

    def scale(self, workers: int | None = None, *, min: int | None = None, max: int | None = None) -> None:  # noqa: A002
        """Without effect, as there are no workers."""
        self._check_open()

    def insights(self) -> Insights:
        """Returns insights of one worker, this process; slow calls are not recorded."""
        run = self._run_seconds
        wait = max(0.0, time.monotonic() - self._since - run)
        return Insights(self.name, 1, 0.0, wait, run, ())

    def running(self) -> dict[str, list[dict[str, Any]]]:
        """Nothing: what runs here runs in the caller's own thread."""
        self._check_open()
        return {}

    def cancel(self, call: int) -> bool:
        """False: what was submitted is done."""
        self._check_open()
        return False

    def stacks(self, worker: int | None = None, *, call: int | None = None) -> dict[str, str]:
        """Nothing: what runs here runs in the caller's own thread."""
        self._check_open()
        return {}

    def _check_open(self) -> None:
        if self._shut:
            raise closed_error(self.name)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Run the stop hooks; there is nothing to wait for."""
        if self._shut:
            return
        self._refuse_more(with_maps=not cancel_futures)
        self._context.run(self._image.run_hooks, "stop")
        self._aside.shutdown()
        for runner in self._runners:
            runner.close()

    def terminate_workers(self) -> None:
        self.shutdown(cancel_futures=True)

    def _close(self) -> None:
        """There is no core to close."""

    def __exit__(self, *_: object) -> None:
        self.shutdown()

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self.shutdown)

    def __del__(self) -> None:
        """Dropping the pool ends it silently."""

    def __repr__(self) -> str:
        return f"<clutch.testing.InlinePool {self.name!r}>"


class View:
    """A memoryview on its way: it travels as an argument or a result, though not inside of one."""

    def __init__(self, view: memoryview) -> None:
        self._bytes = bytes(view)

    def __reduce__(self) -> tuple[type[memoryview], tuple[bytes]]:
        return memoryview, (self._bytes,)


def packed_views(values: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(View(value) if isinstance(value, memoryview) else value for value in values)


def remote_error(kind: str, message: str, error: Exception) -> RemoteError:
    return RemoteError(message, kind=kind, type_name=type_name(error), remote_traceback=traceback_of(error))
