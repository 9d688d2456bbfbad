"""`multiprocessing.Pool`."""

from __future__ import annotations

import multiprocessing
from typing import Any

from clutch.lab.drivers.calls import Executor
from clutch.lab.peers.calls.pool import Applied, PoolPeer


class MultiprocessingPool(PoolPeer):
    pass


PEERS = (
    MultiprocessingPool(
        "multiprocessing.Pool", "apply_async with callbacks, as Python has it; a chunk size is for maps"
    ),
)


def start(order: dict[str, Any]) -> Executor:
    workers = order["options"]["workers"]
    return Applied(multiprocessing.Pool(workers), workers)
