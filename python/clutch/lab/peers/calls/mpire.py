"""MPIRE."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from clutch.lab.peers.calls.pool import Applied, PoolPeer

if TYPE_CHECKING:
    from clutch.lab.drivers.calls import Executor


class Mpire(PoolPeer):
    requirements = ("mpire",)


PEERS = (
    Mpire("mpire", "WorkerPool.apply_async with callbacks; what its pages call faster (chunks, fork) is for maps"),
)


def start(order: dict[str, Any]) -> Executor:
    mpire: Any = importlib.import_module("mpire")
    workers = order["options"]["workers"]
    return Applied(mpire.WorkerPool(n_jobs=workers), workers)
