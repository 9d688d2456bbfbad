"""`multiprocessing.Pool`."""

from __future__ import annotations

import multiprocessing
from typing import TYPE_CHECKING, Any

from clutch.lab.peers.calls.pool import Applied, PoolPeer

if TYPE_CHECKING:
    from clutch.lab.drivers.calls import Executor


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
