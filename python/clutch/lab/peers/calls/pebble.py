"""Pebble."""

from __future__ import annotations

import concurrent.futures
import importlib
import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from clutch.lab import watching
from clutch.lab.peers.calls.pool import WARM_UP_SECONDS, PoolPeer, plain

if TYPE_CHECKING:
    from clutch.lab.drivers.calls import Executor


class Pebble(PoolPeer):
    requirements = ("pebble",)


PEERS = (Pebble("pebble", "ProcessPool.schedule, defaults: its page names no faster settings"),)


class Scheduled:
    """Its own call, as `submit` of its pool takes a time limit first."""

    def __init__(self, workers: int) -> None:
        pebble: Any = importlib.import_module("pebble")
        self.pool = pebble.ProcessPool(max_workers=workers)
        concurrent.futures.wait([self.submit(time.sleep, WARM_UP_SECONDS) for _ in range(workers)])

    def submit(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> concurrent.futures.Future[Any]:
        return self.pool.schedule(plain(function), args=args, kwargs=kwargs)

    def pids(self) -> list[int]:
        return watching.below(os.getpid())[1:]

    def spent(self) -> tuple[float, float] | None:
        return None

    def cpu_s(self) -> float | None:
        return None

    def end(self) -> None:
        self.pool.stop()


def start(order: dict[str, Any]) -> Executor:
    return Scheduled(order["options"]["workers"])
