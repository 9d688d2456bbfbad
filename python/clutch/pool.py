"""The Python API of a pool: `Pool`, `Future`, `Stream`.

A `Pool` is a `concurrent.futures.Executor` that runs functions, by name or directly, in workers. The fast paths are
native (`_core`); this file interprets arguments.
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
import datetime
import functools
import json
import os
import sys
import warnings
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Self, TypeVar

from clutch import _core, config
from clutch._pickle import pass_descriptors
from clutch._pickle.shared import Shared, share
from clutch._pool.caller import (
    IMPORTED,
    caller_path,
    encode_initializer,
    importing_module,
    imports_of_main,
    is_patched,
    log_level,
    main_of_caller,
    own_authkey,
    refuse_in_place_of_zygote,
    refuse_in_subinterpreter,
)
from clutch._pool.calls import Calls
from clutch._pool.ends import FORGOTTEN, POOLS, wait_over, watch_forks
from clutch._pool.future import Future, Stream
from clutch._pool.map import Batches, Limits
from clutch._pool.values import values_of_program
from clutch._worker import settings
from clutch._worker.surroundings import ZYGOTE_OF
from clutch.control.program import program
from clutch.errors import ConfigError, PoolClosed
from clutch.insights import Insights, SlowCall, described

if TYPE_CHECKING:
    from typing import Unpack

    from clutch.config.pool_options import PoolOptions, Workers

T = TypeVar("T")

INSTEAD_OF = {
    "apply": "call(function, *arguments)",
    "apply_async": "submit(function, *arguments)",
    "map_async": "map(function, items), which returns at once",
    "imap": "map(function, items)",
    "imap_unordered": "map(function, items, ordered=False)",
    "starmap": "map(function, *zip(*rows))",
    "starmap_async": "map(function, *zip(*rows)), which returns at once",
    "close": "shutdown(), or a `with` block",
    "join": "shutdown(), or a `with` block",
    "terminate": "terminate_workers()",
}
"""For methods of `multiprocessing.Pool`."""


class Pool(Calls, _core.PoolCore, concurrent.futures.Executor):  # type: ignore[misc]
    """Run functions in worker processes.

    `target` is `package.module` or `package.module:object` with tools that can be called by name; without one, any
    picklable function runs. `Pool(4)` is a pool of 4 workers, as for `ProcessPoolExecutor`. The other options are
    those of a pool in clutch.toml (docs/config.md), by keyword. Raises `ConfigError` naming every wrong option.
    """

    future_class, stream_class = Future, Stream
    if not TYPE_CHECKING:  # what is native is faster
        call, submit = _core.PoolCore.call, _core.PoolCore.submit

        def __getattr__(self, name: str) -> Any:
            """Names of `multiprocessing.Pool` are told what stands for them here."""
            text = f"{type(self).__name__!r} object has no attribute {name!r}"
            text += f"; use {INSTEAD_OF[name]}" if name in INSTEAD_OF else ""
            raise AttributeError(text, name=name, obj=self)

    def __new__(cls, *_args: Any, **_kwargs: Any) -> Self:
        """Makes a pool; in a program that gevent has patched, one whose waits let the hub run."""
        return super().__new__(_in_hub() if cls is Pool and is_patched() else cls)  # type: ignore[arg-type]

    def __init__(
        self,
        target: str | int | None = None,
        mp_context: object = None,
        initializer: Callable[..., object] | None = None,
        initargs: tuple[Any, ...] = (),
        *,
        name: str = "pool",
        workers: int | Workers | None = None,
        max_workers: int | None = None,
        max_tasks_per_child: int | None = None,
        **options: Unpack[PoolOptions],
    ) -> None:
        """`max_workers` is `workers`; `max_tasks_per_child` is `recycle = {"calls": …}`; `mp_context` has no effect."""
        if isinstance(target, int):
            target, max_workers = None, target
        if max_tasks_per_child is not None:
            calls = check_count("max_tasks_per_child", max_tasks_per_child)
            options["recycle"] = {**(options.get("recycle") or {}), "calls": calls}
        if max_workers is not None:
            if workers is not None:
                raise TypeError(f"workers={workers!r} and max_workers={max_workers!r} are the same option: give one")
            workers = check_count("max_workers", max_workers)
        if initializer is not None and not callable(initializer):
            raise TypeError("initializer must be a callable")
        spec = config.resolve(name, target=target, workers=workers, **options)
        for warning in spec.warnings if importing_module() is None else ():
            warnings.warn(f"pool {name!r}: {warning}", stacklevel=2)
        self._start(spec, initializer, initargs)

    @classmethod
    def from_spec(cls, spec: config.PoolSpec) -> Self:
        """Create a pool from a loaded configuration."""
        pool = cls.__new__(cls)
        pool._start(spec, None, ())
        return pool

    _is_over = True
    _is_cut = _is_copy = _shut = False
    _has_main = True
    """True if workers find this program's `__main__`."""
    _item_limits = Limits()
    _options = _core.CallOptions()

    def _start(
        self, spec: config.PoolSpec, initializer: Callable[..., object] | None, initargs: tuple[Any, ...]
    ) -> None:
        self.name = spec.name
        module = importing_module()
        if module is not None:
            self._is_copy = True  # to end it does nothing
            self._never_open(IMPORTED.format(pool=spec.name, module=module))
            return
        refuse_in_subinterpreter()
        refuse_in_place_of_zygote()
        watch_forks()
        self._grace = spec.core["grace_ms"] / 1000
        deadline_ms = spec.core["deadline_ms"]
        calls, payload_bytes = spec.core["recycle_calls"], spec.core["payload_bytes_max"]
        self._item_limits = Limits(deadline_ms and deadline_ms / 1000, calls, payload_bytes)
        workers = spec.values["workers"]
        self._slots_given, self._scales = spec.slots, workers.min < workers.max
        self._shut, self._is_copy = True, False
        self._maps: weakref.WeakSet[Batches] = weakref.WeakSet()
        core = dict(spec.core)
        main = main_of_caller() if spec.folder is None else None
        if main is not None:
            # What workers know as __mp_main__ comes back by that name.
            sys.modules["__mp_main__"] = sys.modules["__main__"]
        launch = dict(core["launch"])
        launch["sys_path"] = launch.get("sys_path") or caller_path(core["python"])
        launch["main"] = main
        launch["main_imports"] = imports_of_main() if main is not None else []
        if spec.folder is None:
            launch["argv"] = [os.fsencode(argument).decode(errors="replace") for argument in sys.argv]
            launch["authkey"] = own_authkey()
            launch["logging"] = log_level()
        by_value = spec.folder is None and main is None
        if spec.folder is None:
            launch["settings"] = settings.of_program(main is not None)
            launch["values"] = values_of_program(main is not None)
        launch["initializer"], memory = encode_initializer(initializer, initargs, not by_value)
        self._initargs = initargs, memory  # a lock among them has its name as long as it lives
        self._has_main = not by_value
        core["launch"] = launch
        tag = sys.implementation.cache_tag + getattr(sys, "abiflags", "")
        new_future = functools.partial(self.future_class.__new__, self.future_class)
        new_stream = functools.partial(self.stream_class.__new__, self.stream_class)
        pass_descriptors()
        own = tag, [*os.environ.items(), (ZYGOTE_OF, str(os.getpid()))]
        self._open(json.dumps(core), own, new_future, new_stream, by_value)
        self._shut = self._is_over = False
        POOLS.add(self)
        if spec.folder is None:
            program.show(self)

    @property
    def _core(self) -> _core.PoolCore:
        return self

    @property
    def _pool(self) -> Pool:  # type: ignore[override]
        return self

    @property
    def _max_workers(self) -> int:
        """Number of concurrent calls; for programs that read this attribute of ProcessPoolExecutor."""
        return self._slots()

    # ---- work

    def _slots(self) -> int:
        """Slots that a map fills; for a pool that scales, those of its maximum, or it would have no reason to grow."""
        slots = self.stats()["slots"] or self._slots_given
        return max(slots, self._slots_given) if self._scales else slots

    def options(
        self,
        *,
        deadline: float | str | datetime.timedelta | None = None,
        priority: int = 0,
        retry: int = 0,
        block: bool = False,
        session: str | None = None,
    ) -> Calls:
        """Return an object with `call`, `submit`, `map` and `stream` that apply these options.

        `deadline`: seconds, a `timedelta`, or text as in the config (`"90s"`), until nobody waits any more; of a map,
        for each item. `priority`: -9 to 9, larger first. `retry`: how often the work may run again when its worker
        dies. `block`: wait for room in a full queue; a map always does.
        """
        if session is not None:
            raise ConfigError("options(session=…): sessions are not in this version of clutch")
        seconds = seconds_of("deadline", deadline)
        limits = dataclasses.replace(self._item_limits, priority=priority, retry=retry)
        if seconds is not None:
            limits = dataclasses.replace(limits, deadline=seconds)
        return Calls.through(self, _core.CallOptions(seconds, priority, retry, block), limits)

    def share(self, value: T) -> Shared[T]:
        """Write `value` into memory that all workers map, once, and return a handle to send to them.

        `handle.value` is the value: here as it was given, in a worker as it was when it was shared. A worker reads it
        once; its large arrays stay in the one memory, and what a worker changes in them, it changes for itself. Keep
        the handle as long as work uses it.

            table = pool.share(frame)
            results = pool.map(functools.partial(rows_of, table), keys)
        """
        return share(value, self._has_main)

    # ---- the pool itself

    def stats(self) -> dict[str, Any]:
        """Counts and workers at this instant: queued, sent, done, failed, ready, workers (nr, pid, state, calls) …"""
        return json.loads(self._stats())

    def insights(self) -> Insights:
        """Return how the workers have spent their time, and which calls ran longest, with their arguments.

        Also after the pool has ended. `print` shows it as a table: shares of start, wait and run, seconds, CPU time.

            with Pool() as pool:
                results = list(pool.map(resize, paths))
            print(pool.insights())

        Arguments are unpickled for it when it is called.
        """
        workers, (start, wait, run, cpu), slowest = self._insights()
        calls = tuple(SlowCall(described(what, arguments), seconds) for what, seconds, arguments in slowest)
        return Insights(self.name, workers, start, wait, run, calls, cpu)

    def running(self) -> dict[str, list[dict[str, Any]]]:
        """Return what each worker is running, by worker name (`pool/0`), oldest first.

        Of each: `id` (`Future.work_id`), `what` (its function, or its request), `job` (the id of a job, else None),
        `seconds` since it began, `abandoned` (nobody waits for it any more: it was told to stop), `pid` of the worker.
        """
        return {f"{self.name}/{nr}": found for nr, found in json.loads(self._running()).items()}

    def cancel(self, call: int) -> bool:
        """Stop the waiting or running call with this `Future.work_id`. Return False if the pool does not have it."""
        return self._cancel(call)

    def stacks(self, worker: int | None = None, *, call: int | None = None) -> dict[str, str]:
        """The Python stacks of the workers as text, by name (`pool/0`), without stopping anything.

        `worker`: only the one with this number. `call`: only the one that has the work with this `Future.work_id`. A
        worker that does not answer within a second (it is stopped, or starts) is left out.
        """
        return {f"{self.name}/{nr}": text for nr, text in self._stacks(worker, call)}

    def wait_ready(self, count: int | None = None, timeout: float | None = None) -> None:
        """Wait until `count` workers (default: all) are ready. Raise why they cannot start, or TimeoutError."""
        wanted = self.stats()["target"] if count is None else count
        ready, reason = self._wait_ready(wanted, timeout)
        if ready:
            return
        if reason is not None:
            raise ConfigError(reason)
        stats = self.stats()
        if self._shut or stats["state"] == "closed":
            raise closed_error(self.name)
        raise TimeoutError(f"pool {self.name!r}: {stats['ready']} of {wanted} workers are ready after {timeout} s")

    def reload(self, timeout: float | None = None) -> None:
        """Reload the code, and wait until all workers run it.

        What runs goes on meanwhile. New workers take over in turn, `recycle.together` at a time: each is ready before
        an old one drains, whose work has the `grace` to end. Code that does not import, or whose workers do not start,
        changes nothing: `ConfigError` has the traceback, and the old workers go on. A second reload overtakes the
        first. Raises TimeoutError after `timeout` seconds (the reload goes on), `PoolClosed` when the pool is closed.
        """
        self._check_open()
        if not self._reload(timeout):
            raise TimeoutError(f"pool {self.name!r}: not all workers run the new code after {timeout} s")

    def recycle(self, nr: int | None = None, timeout: float | None = None, *, kill: bool = False) -> None:
        """Replace worker `nr`, or all workers in turn, and wait until the old ones have ended.

        Running work is waited for; with `kill` the one worker is ended at once, and what it runs is lost or, by
        `retry`, tried again. Raises `ConfigError` with the reason when a replacement does not start (the old worker
        stays), TimeoutError after `timeout` seconds (the replacing goes on).
        """
        self._check_open()
        if kill and nr is None:
            raise ValueError("kill=True ends one worker: give its nr, as in recycle(0, kill=True)")
        if not (self._kill(nr, timeout) if kill and nr is not None else self._recycle(nr, timeout)):
            raise TimeoutError(f"pool {self.name!r}: not all workers are replaced after {timeout} s")

    def scale(
        self,
        workers: int | None = None,
        *,
        min: int | None = None,  # noqa: A002 (as in the config)
        max: int | None = None,  # noqa: A002
    ) -> None:
        """Set the number of workers: `scale(8)`, or bounds: `scale(min=2, max=16)`.

        Starts missing workers; `wait_ready()` waits for them. Surplus workers take no more work and end when theirs is
        finished, idle ones first.
        """
        self._check_open()
        if (workers is None) == (min is None and max is None):
            raise ValueError("give scale() either a number of workers, or min and max")
        stats = self.stats()
        least = workers if workers is not None else min if min is not None else stats["min"]
        most = workers if workers is not None else max if max is not None else stats["max"]
        self._scale(least, most)

    def drain(self) -> None:
        """Stop taking work: new calls raise `Draining`. Running and waiting work is finished, and the workers stay."""
        self._check_open()
        self._quiet(True)

    def resume(self) -> None:
        """Take work again after `drain`."""
        self._check_open()
        self._quiet(False)

    def _check_open(self) -> None:
        if self._shut:
            raise closed_error(self.name)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Close the pool. Submitted work is still done unless `cancel_futures`; with `wait`, wait for it."""
        if self._is_copy:
            return
        self._refuse_more(with_maps=not cancel_futures)
        if cancel_futures:
            self._cancel_waiting()
        if wait:
            wait_over([self])

    def _refuse_more(self, with_maps: bool) -> None:
        """Take no more work. With `with_maps`, first submit the rest of maps that nobody has read from."""
        if with_maps and not self._shut:
            for batches in list(self._maps):
                batches.submit_rest()
        self._shut = True
        self._close()

    def terminate_workers(self) -> None:
        """Send SIGTERM to all workers, and SIGKILL after `term_grace`.

        What runs fails with `WorkerLost`, what waits is cancelled.
        """
        self._shut = self._is_cut = True
        self._cancel_waiting()
        self._terminate()

    def kill_workers(self) -> None:
        """Kill all workers at once (SIGKILL)."""
        self._shut = self._is_cut = True
        self._cancel_waiting()
        self._kill_all()

    def _stop(self, grace: float) -> None:
        """Take no more work; running work has `grace` seconds. Idle workers end gracefully even if that is 0."""
        self._is_cut = True
        super()._stop(grace)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None and issubclass(kind, KeyboardInterrupt) and not self._is_copy:
            self.terminate_workers()  # workers take no notice of Ctrl-C themselves
        self.shutdown(wait=True)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        import asyncio  # which programs without loops do without

        if kind is not None and issubclass(kind, asyncio.CancelledError) and not self._is_copy:
            self.terminate_workers()  # asyncio's form of Ctrl-C
        leaving = asyncio.ensure_future(asyncio.to_thread(self.shutdown))
        try:
            await asyncio.shield(leaving)
        except asyncio.CancelledError:
            # The thread cannot be cancelled, but what it waits for.
            if not self._is_copy:
                self.terminate_workers()
            await asyncio.wait([leaving])
            raise

    def __del__(self) -> None:
        """Submitted work is still done: the pool is kept until then, and the interpreter's end waits for it."""
        if not (self._is_over or self._is_copy):
            self._refuse_more(with_maps=False)
            FORGOTTEN.difference_update([pool for pool in FORGOTTEN if pool._wait_closed(0)])
            FORGOTTEN.add(self)

    def __repr__(self) -> str:
        return f"<clutch.Pool {self.name!r}>"

    def _repr_html_(self) -> str:
        from clutch._pool.notebook import pool_as_html

        return pool_as_html(self.stats())


@functools.cache
def _in_hub() -> type[Pool]:
    from clutch._pool.hub import WaitsInHub

    return type("HubPool", (WaitsInHub, Pool), {})


def closed_error(name: str) -> Exception:
    return PoolClosed(f"pool {name!r} is closed: cannot schedule new futures after shutdown")


def seconds_of(name: str, given: float | str | datetime.timedelta | None) -> float | None:
    """Parse a deadline in seconds. Raises ValueError."""
    if given is None:
        return None
    from clutch.config.values import CALL_TIME

    try:
        return CALL_TIME.parse(given)
    except ValueError:
        raise ValueError(f"{name}={given!r} is not a time; allowed: {CALL_TIME.allowed}") from None


def check_count(name: str, value: object) -> int:
    """Check a count; raises the same errors as ProcessPoolExecutor."""
    if not isinstance(value, int):
        raise TypeError(f"{name} must be an integer")
    if value <= 0:
        raise ValueError(f"{name} must be greater than 0" if name == "max_workers" else f"{name} must be >= 1")
    return value
