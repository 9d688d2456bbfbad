"""Pebble."""

from __future__ import annotations

import concurrent.futures
import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from clutch.lab.peers.calls.pool import PoolPeer, Started, plain

if TYPE_CHECKING:
    from clutch.lab.drivers.calls import Executor


class Pebble(PoolPeer):
    requirements = ("pebble",)


PEERS = (Pebble("pebble", "ProcessPool.schedule, defaults: its page names no faster settings"),)


class Scheduled(Started):
    """Its own call, as `submit` of its pool takes a time limit first."""

    def __init__(self, workers: int) -> None:
        pebble: Any = importlib.import_module("pebble")
        self.pool = pebble.ProcessPool(max_workers=workers)
        super().__init__(workers)

    def submit(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> concurrent.futures.Future[Any]:
        return self.pool.schedule(plain(function), args=args, kwargs=kwargs)

    def end(self) -> None:
        self.pool.stop()


def start(order: dict[str, Any]) -> Executor:
    return Scheduled(order["options"]["workers"])
