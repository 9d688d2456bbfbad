"""What pools of calls have in common, here and in the runner."""

from __future__ import annotations

import asyncio
import concurrent.futures
import functools
import inspect
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from clutch.lab import watching
from clutch.lab.peers.seam import Face, Peer
from clutch.lab.work import Calls, Work

WARM_UP_SECONDS = 0.05


class PoolPeer(Peer):
    """A pool; its file is also what the runner starts it by."""

    faces = ("calls",)
    options: dict[str, Any]

    def __init__(self, name: str, settings: str, **options: Any) -> None:
        self.name, self.settings, self.options = name, settings, options

    def order(self, work: Work, face: Face, workers: int) -> dict[str, Any]:
        assert isinstance(work, Calls)
        return {
            "kind": "calls",
            **asdict(work),
            "executor": type(self).__module__,
            "options": {**self.options, "workers": workers},
            "slots": workers,
        }


class Started(ABC):
    """A pool of somebody else, all of whose workers have started: they do so with their first calls."""

    def __init__(self, workers: int) -> None:
        concurrent.futures.wait([self.submit(time.sleep, WARM_UP_SECONDS) for _ in range(workers)])

    @abstractmethod
    def submit(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> concurrent.futures.Future[Any]: ...

    @abstractmethod
    def end(self) -> None: ...

    def pids(self) -> list[int]:
        """All that it has started, helpers too; none for threads, whose CPU time is the calling program's."""
        return watching.below(os.getpid())[1:]

    def spent(self) -> tuple[float, float] | None:
        return None

    def cpu_s(self) -> float | None:
        return None


class Futures(Started):
    """An executor of anything with the `submit` and `shutdown` of `concurrent.futures`."""

    def __init__(self, executor: concurrent.futures.Executor, workers: int) -> None:
        self.executor = executor
        super().__init__(workers)

    def submit(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> concurrent.futures.Future[Any]:
        return self.executor.submit(plain(function), *args, **kwargs)

    def end(self) -> None:
        self.executor.shutdown(wait=False, cancel_futures=True)


class Applied(Started):
    """An executor of anything with the `apply_async` and `terminate` of `multiprocessing.Pool`."""

    def __init__(self, pool: Any, workers: int) -> None:
        self.pool = pool
        super().__init__(workers)

    def submit(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> concurrent.futures.Future[Any]:
        future: concurrent.futures.Future[Any] = concurrent.futures.Future()
        self.pool.apply_async(
            plain(function), args, kwargs, callback=future.set_result, error_callback=future.set_exception
        )
        return future

    def end(self) -> None:
        self.pool.terminate()


@functools.lru_cache
def plain(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function as pools can run it that know no `async def`."""
    return functools.partial(run, function) if inspect.iscoroutinefunction(function) else function


def run(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    return asyncio.run(function(*args, **kwargs))
