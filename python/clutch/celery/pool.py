"""`celery worker --pool custom` with CELERY_CUSTOM_WORKER_POOL=clutch.celery:TaskPool: a worker of Celery, on whatever
broker, runs its tasks in a pool of Clutch. CLUTCH_PROFILE chooses how: process, thread, async or greenlet."""

from __future__ import annotations

import inspect
import os
import sys
import time
from collections.abc import Callable
from typing import Any

from celery.concurrency.base import BasePool

import clutch
from clutch.celery import NODE
from clutch.celery.tasks import Tasks, lost, on_loop, traced
from clutch.errors import ConfigError, DeadlineExceeded

PROFILE = "CLUTCH_PROFILE"


def place_of(app: Any) -> str:
    """Where a worker finds the app: `module:name`. Raises ConfigError if no module has it under a name."""
    for name, module in list(sys.modules.items()):
        names = vars(module) if hasattr(module, "__dict__") else {}
        found = next((inside for inside, value in list(names.items()) if value is app), None)
        if found is not None and name not in ("celery", "celery._state", "__main__") and not name.startswith("celery."):
            return f"{name}:{found}"
    raise ConfigError(f"no module has {app!r} under a name, so its workers cannot import it: give it one")


def start(place: str, node: str, has_loop: bool) -> None:
    """The initializer of a worker."""
    from clutch._worker.image import find_target

    os.environ[NODE] = node
    _, app = find_target(place)
    Tasks(app, has_loop).start()


def run(soft: float | None, target: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Runs one task."""
    return traced(target, args, kwargs, soft, None)


async def run_on_loop(soft: float | None, target: Callable[..., Any], args: tuple[Any, ...], kwargs: Any) -> Any:
    return await on_loop(run, soft, target, args, kwargs)


class Running:
    """A task on its way, as Celery's requests hold it."""

    def __init__(self, future: clutch.Future[Any]) -> None:
        self._future = future

    def terminate(self, _signal: Any = None) -> None:
        self._future.cancel()


class TaskPool(BasePool):
    """A pool of Clutch in the place of Celery's."""

    task_join_will_block = False

    def on_start(self) -> None:
        profile: Any = os.environ.get(PROFILE, "process")
        self._has_loop = profile == "async"
        count = self.limit or 1
        sizes = {
            "process": {"workers": count},
            "thread": {"workers": 1, "threads": count},
            "async": {"workers": 1, "tasks": count},
            "greenlet": {"workers": 1, "tasks": count},
        }
        if profile not in sizes:
            raise ConfigError(f"{PROFILE}: {profile!r}; allowed: {', '.join(sizes)}")
        recycle: Any = {}
        if self.options.get("maxtasksperchild"):
            recycle["calls"] = self.options["maxtasksperchild"]
        if self.options.get("max_memory_per_child"):
            recycle["memory"] = self.options["max_memory_per_child"] * 1024
        node = self.options.get("initargs", (None, ""))[1] or ""
        self._pool = clutch.Pool(
            profile=profile,
            name="celery",
            initializer=start,
            initargs=(place_of(self.app), node, self._has_loop),
            recycle=recycle,
            **sizes[profile],
        )

    def on_stop(self) -> None:
        self._pool.shutdown(wait=True)

    def on_terminate(self) -> None:
        self._pool.kill_workers()

    def on_apply(  # type: ignore[override]  # pyright: ignore[reportIncompatibleMethodOverride]
        self,
        target: Callable[..., Any],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
        callback: Callable[..., Any] | None = None,
        accept_callback: Callable[..., Any] | None = None,
        error_callback: Callable[..., Any] | None = None,
        timeout_callback: Callable[..., Any] | None = None,
        soft_timeout: float | None = None,
        timeout: float | None = None,
        **_: Any,
    ) -> Running:
        pool: Any = self._pool.options(deadline=timeout, retry=0) if timeout else self._pool.options(retry=0)
        name = args[0] if args else ""
        app: Any = self.app
        task = app.tasks.get(name)
        is_coroutine = self._has_loop and task is not None and inspect.iscoroutinefunction(task.run)
        if accept_callback is not None:
            accept_callback(os.getpid(), time.monotonic())
        future = pool.submit(run_on_loop if is_coroutine else run, soft_timeout, target, args, kwargs or {})

        def ended(done: Any) -> None:
            error = None if done.cancelled() else done.exception()
            if done.cancelled():
                return  # who has asked for it tells
            if error is None and callback is not None:
                callback(done.result())
            elif isinstance(error, DeadlineExceeded) and timeout_callback is not None:
                timeout_callback(False, timeout)
            elif error_callback is not None:
                error_callback(lost(str(error)))

        future.add_done_callback(ended)
        return Running(future)

    def terminate_job(self, pid: int, signal: Any = None) -> None:
        """Requests end their own."""

    def grow(self, n: int = 1) -> None:
        self._pool.scale(self._pool._max_workers + n)

    def shrink(self, n: int = 1) -> None:
        self._pool.scale(max(1, self._pool._max_workers - n))

    def restart(self) -> None:
        self._pool.reload()

    @property
    def num_processes(self) -> int:
        return self.limit or 1

    def _get_info(self) -> dict[str, Any]:
        stats = self._pool.stats()
        return {"max-concurrency": self.num_processes, "processes": [], "clutch": stats.get("state")}
