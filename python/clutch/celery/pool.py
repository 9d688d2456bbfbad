"""`celery worker --pool custom` with CELERY_CUSTOM_WORKER_POOL=clutch.celery:TaskPool: a worker of Celery, on whatever
broker, runs its tasks in a pool of Clutch. CLUTCH_PROFILE chooses how: process, thread, async or greenlet.

A task is handed over when a slot is free for it, so that its time limit is that of its run. What has become of it,
Celery hears in one thread and in order: that of its event loop or, for brokers without one, a thread of the pool's own.
"""

from __future__ import annotations

import contextlib
import inspect
import os
import queue
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from billiard.einfo import ExceptionInfo
from celery import Celery
from celery.app.defaults import DEFAULTS, SETTING_KEYS
from celery.concurrency import prefork
from celery.concurrency.base import BasePool
from celery.utils.log import get_logger
from celery.worker import state
from kombu.asynchronous import get_event_loop

import clutch
from clutch._worker.image import find_target
from clutch.broken import WorkerLost
from clutch.celery import NODE
from clutch.celery.steps import on_loop
from clutch.celery.tasks import Tasks, lost, traced
from clutch.errors import ClutchError, ConfigError, DeadlineExceeded

logger = get_logger(__name__)

PROFILE = "CLUTCH_PROFILE"
LOOK_SECONDS = 1.0
"""Interval at which it is looked which worker has which task."""
WAIT_SECONDS = 0.5
"""Longest wait for the end of a task at a shutdown, in which timers of Celery do not run."""
GRACE = "1d"
"""How long a restart waits for tasks that run: Celery has no limit of its own."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """How a worker comes to an app: it imports it, or makes one of the same settings and tasks, as for one of tests."""

    place: str | None
    folder: str = ""
    """Where its module was found: Celery looks in the folder that it is started in, and forgets that then."""
    main: str | None = None
    settings: dict[str, Any] = field(default_factory=dict)
    modules: tuple[str, ...] = ()
    classes: tuple[tuple[str, str], ...] = ()
    """Of tasks that are not made by importing their modules."""

    def app(self) -> Any:
        if self.place is not None:
            if self.folder and self.folder not in sys.path:
                sys.path.insert(0, self.folder)
            return find_target(self.place)[1]
        made: Any = Celery(self.main, set_as_current=True)
        made.conf.update(self.settings)
        made.set_default()
        for module in self.modules:
            made.loader.import_task_module(module)
        for module, name in self.classes:
            made.register_task(getattr(sys.modules[module], name)())
        return made


def recipe_of(app: Any) -> Recipe:
    place = place_of(app)
    if place is not None:
        return Recipe(place, folder_of(place.partition(":")[0]))
    tasks = [task for task in app.tasks.values() if is_importable(task)]
    classes = [
        type(task) for task in tasks if getattr(sys.modules[task.__module__], type(task).__name__, 0) is type(task)
    ]
    return Recipe(
        None,
        "",
        app.main,
        {name: app.conf[name] for name in SETTING_KEYS if app.conf[name] != DEFAULTS[name]},
        tuple({task.__module__ for task in tasks}),
        tuple((kind.__module__, kind.__name__) for kind in classes),
    )


def place_of(app: Any) -> str | None:
    """Where a worker can import the app: `module:name`."""
    for name, module in list(sys.modules.items()):
        names = vars(module) if hasattr(module, "__dict__") else {}
        found = next((inside for inside, value in list(names.items()) if value is app), None)
        if found is not None and name not in ("celery", "celery._state", "__main__") and not name.startswith("celery."):
            return f"{name}:{found}"
    return None


def folder_of(name: str) -> str:
    """The folder that a module's name begins in; empty: it has none."""
    file = getattr(sys.modules[name], "__file__", None)
    if not file:
        return ""
    at = Path(file).resolve()
    below = name.count(".") + (at.stem == "__init__")
    return str(at.parents[below])


def is_importable(task: Any) -> bool:
    return task is not None and "<locals>" not in getattr(task.run, "__qualname__", "")


# ---- in a worker


def start(recipe: Recipe, node: str, has_loop: bool) -> None:
    """The initializer of a worker."""
    os.environ[NODE] = node
    Tasks(recipe.app(), has_loop).start()


def run(soft: float | None, target: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Runs one task: whether its soft limit has passed, and what Celery's tracer says of it."""
    passed = threading.Event()
    answer = traced(target, args, kwargs, soft, lambda **_: passed.set())
    return passed.is_set(), answer


async def run_on_loop(soft: float | None, target: Callable[..., Any], args: tuple[Any, ...], kwargs: Any) -> Any:
    return await on_loop(run, soft, target, args, kwargs)


# ---- in the worker of Celery


@dataclass
class Calls:
    """Whom Celery has given to be called, as Celery names them."""

    callback: Callable[..., Any] | None = None
    accept_callback: Callable[..., Any] | None = None
    error_callback: Callable[..., Any] | None = None
    timeout_callback: Callable[..., Any] | None = None

    def begun(self) -> None:
        if self.accept_callback is not None:
            self.accept_callback(os.getpid(), time.monotonic())

    def ended(self, was_soft: bool, answer: Any, soft: float | None) -> None:
        if was_soft and self.timeout_callback is not None:
            self.timeout_callback(True, soft)
        if self.callback is not None:
            self.callback(answer)

    def failed(self, error: BaseException, hard: float | None) -> None:
        if isinstance(error, DeadlineExceeded) and self.timeout_callback is not None:
            self.timeout_callback(False, hard)
        elif self.error_callback is not None:
            self.error_callback(lost(str(error)) if isinstance(error, WorkerLost) else einfo_of(error))


CALLS = tuple(one.name for one in fields(Calls))


class Running:
    """A task on its way, as Celery's requests hold it."""

    def __init__(self, future: clutch.Future[Any], calls: Calls, limits: tuple[float | None, float | None]) -> None:
        self.future, self.calls, self.limits = future, calls, limits
        self.request: Any = getattr(calls.accept_callback, "__self__", None)

    def terminate(self, _signal: Any = None) -> None:
        self.future.cancel()

    def tell_end(self) -> None:
        if self.future.cancelled():
            return  # who has asked for it tells
        soft, hard = self.limits
        error = self.future.exception()
        if error is None:
            was_soft, answer = self.future.result()
            self.calls.ended(was_soft, answer, soft)
        else:
            self.calls.failed(error, hard)


class Room:
    """As many slots as there are; waits for one where Celery does not keep count itself."""

    def __init__(self, slots: int) -> None:
        self._slots, self._taken = slots, 0
        self._changed = threading.Condition()

    def take(self, waits: bool) -> None:
        with self._changed:
            self._changed.wait_for(lambda: not waits or self._taken < self._slots)
            self._taken += 1

    def release(self) -> None:
        with self._changed:
            self._taken -= 1
            self._changed.notify_all()

    def wait_empty(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: not self._taken)

    def grow(self) -> None:
        with self._changed:
            self._slots += 1
            self._changed.notify()

    def shrink(self) -> None:
        with self._changed:
            self._slots -= 1


class TaskPool(BasePool):
    """A pool of Clutch in the place of Celery's."""

    uses_semaphore = True
    task_join_will_block = False

    def on_start(self) -> None:
        profile: Any = os.environ.get(PROFILE, "process")
        self.limit = count = self.limit or 1
        sizes: dict[str, dict[str, Any]] = {
            "process": {"workers": count},
            "thread": {"workers": 1, "threads": count},
            "async": {"workers": 1, "tasks": count},
            "greenlet": {"workers": 1, "tasks": count},
        }
        if profile not in sizes:
            raise ConfigError(f"{PROFILE}: {profile!r}; allowed: {', '.join(sizes)}")
        self._has_loop = profile == "async"
        self._slots_of_worker = count // sizes[profile]["workers"]
        self._running: set[Running] = set()
        self._told: queue.SimpleQueue[Callable[[], object]] = queue.SimpleQueue()
        self._is_terminated = False
        self._has_hub = not self.options.get("threads", True)
        self._room: Any = self.options.get("semaphore") if self._has_hub else Room(count)
        node = self.options.get("initargs", (None, ""))[1] or ""
        self._pool = clutch.Pool(
            profile=profile,
            name="celery",
            initializer=start,
            initargs=(recipe_of(self.app), node, self._has_loop),
            recycle=self._recycling(),
            grace=GRACE,
            **sizes[profile],
        )
        self._pool.wait_ready(1)
        if not self._has_hub:
            threading.Thread(target=self._tell_on, name="clutch.celery", daemon=True).start()

    def _recycling(self) -> Any:
        calls, kilobytes = self.options.get("maxtasksperchild"), self.options.get("max_memory_per_child")
        return ({"calls": calls} if calls else {}) | ({"memory": kilobytes * 1024} if kilobytes else {})

    # ---- tasks

    def on_apply(  # type: ignore[override]  # pyright: ignore[reportIncompatibleMethodOverride]
        self,
        target: Callable[..., Any],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
        soft_timeout: float | None = None,
        timeout: float | None = None,
        waitforslot: bool = False,
        **options: Any,
    ) -> Running:
        if not self._has_hub:
            self._room.take(waits=waitforslot)
        soft = soft_timeout or self.options.get("soft_timeout")
        hard = timeout or self.options.get("timeout")
        future = self.submit(args[0] if args else "", hard, soft, target, args, kwargs or {})
        calls = Calls(**{name: options.get(name) for name in CALLS})
        running = Running(future, calls, (soft, hard))
        self._running.add(running)
        self._tell(calls.begun)
        future.add_done_callback(lambda _: self._tell(lambda: self._ended(running)))
        return running

    def submit(self, name: str, seconds: float | None, *args: Any) -> Any:
        """Runs a task with these arguments of `run`; its future."""
        app: Any = self.app
        task = app.tasks.get(name) if self._has_loop else None
        runner = run_on_loop if task is not None and inspect.iscoroutinefunction(task.run) else run
        return self._pool.options(deadline=seconds, retry=0).submit(runner, *args)

    def _ended(self, running: Running) -> None:
        try:
            if not self._is_terminated:
                running.tell_end()
        finally:
            self._running.discard(running)
            self._room.release()

    def terminate_job(self, pid: int, signal: Any = None) -> None:
        """Requests end their own."""

    # ---- telling Celery

    def _tell(self, what: Callable[[], object]) -> None:
        self._told.put(what)
        hub: Any = get_event_loop() if self._has_hub else None
        if hub is not None:
            hub.call_soon(self._tell_all)

    def _tell_all(self, wait: float = 0) -> None:
        """Tells what there is to tell. `wait`: how long for the first."""
        with contextlib.suppress(queue.Empty):
            what = self._told.get(timeout=wait) if wait else self._told.get_nowait()
            while True:
                try:
                    what()
                except Exception as error:
                    logger.critical("cannot tell what has become of a task: %r", error, exc_info=True)
                what = self._told.get_nowait()

    def _tell_on(self) -> None:
        """The thread without an event loop."""
        while self._state != self.TERMINATE:
            self._tell_all(LOOK_SECONDS)
            self._look()

    def register_with_event_loop(self, loop: Any) -> None:
        loop.call_repeatedly(LOOK_SECONDS, self._look)
        loop.call_soon(self._tell_all)

    def _look(self) -> None:
        """Tells requests which process runs them: remote control asks them."""
        unknown = [one for one in self._running if getattr(one.request, "worker_pid", None) == os.getpid()]
        if not unknown:
            return
        with contextlib.suppress(ClutchError):
            pids = {call["id"]: call["pid"] for calls in self._pool.running().values() for call in calls}
            for one in unknown:
                pid = pids.get(getattr(one.future, "work_id", None))
                if pid is not None:
                    one.request.worker_pid = pid

    # ---- its size and its end

    def grow(self, n: int = 1) -> None:
        for _ in range(n):
            self._room.grow()
        self._resize(n)

    def shrink(self, n: int = 1) -> None:
        n = min(n, self.limit - 1)
        for _ in range(n):
            self._room.shrink()
        self._resize(-n)

    def _resize(self, by: int) -> None:
        self.limit += by
        self._pool.scale(-(-self.limit // self._slots_of_worker))

    def restart(self) -> None:
        """Replaces the workers, whose tasks end first; Celery goes on meanwhile."""
        threading.Thread(target=self._reload, name="clutch.celery restart", daemon=True).start()

    def _reload(self) -> None:
        try:
            self._pool.reload()
        except ClutchError as error:
            logger.error("the pool is not restarted: %s", error)

    def on_stop(self) -> None:
        self._pool.shutdown(wait=False)
        if state.should_terminate:
            # Celery has cancelled what it knows of; its signal may have come while it handed one over.
            for running in list(self._running):
                running.terminate()
        if not self._has_hub:
            self._room.wait_empty()
        while self._running:
            self._tell_all(WAIT_SECONDS)
            self._run_loop_of_celery()
        if state.should_terminate:
            self._pool.kill_workers()  # the pool may have one that is not in `_running` yet
        self._pool.shutdown(wait=True)

    def _run_loop_of_celery(self) -> None:
        """At a shutdown its loop has ended; heartbeats and acknowledgements go on."""
        hub: Any = get_event_loop()
        if hub is not None:
            hub.fire_timers()
            prefork._run_ready_callbacks(hub)

    def on_terminate(self) -> None:
        self._is_terminated = True
        self._pool.kill_workers()

    @property
    def num_processes(self) -> int:
        return self.limit

    def _get_info(self) -> dict[str, Any]:
        return {
            **super()._get_info(),
            "profile": os.environ.get(PROFILE, "process"),
            "processes": [worker["pid"] for worker in self._pool.stats()["workers"]],
            "max-tasks-per-child": self.options.get("maxtasksperchild") or "N/A",
            "put-guarded-by-semaphore": True,
            "timeouts": (self.options.get("soft_timeout") or 0, self.options.get("timeout") or 0),
        }


def einfo_of(error: BaseException) -> ExceptionInfo:
    try:
        raise error
    except BaseException:
        return ExceptionInfo()
