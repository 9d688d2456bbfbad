"""Deadpool."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from clutch.lab.peers.calls.pool import Futures, PoolPeer

if TYPE_CHECKING:
    from clutch.lab.drivers.calls import Executor


class Deadpool(PoolPeer):
    requirements = ("deadpool-executor",)


PEERS = (Deadpool("deadpool", "Deadpool, defaults: its page names no faster settings"),)


def start(order: dict[str, Any]) -> Executor:
    deadpool: Any = importlib.import_module("deadpool")
    workers = order["options"]["workers"]
    return Futures(deadpool.Deadpool(max_workers=workers), workers)
