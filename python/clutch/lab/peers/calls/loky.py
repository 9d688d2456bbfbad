"""loky."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from clutch.lab.peers.calls.pool import Futures, PoolPeer

if TYPE_CHECKING:
    from clutch.lab.drivers.calls import Executor


class Loky(PoolPeer):
    requirements = ("loky",)


PEERS = (
    Loky(
        "loky",
        "ProcessPoolExecutor; set_loky_pickler('pickle'), which its page on serialization calls faster than "
        "cloudpickle for what can be imported",
    ),
)


def start(order: dict[str, Any]) -> Executor:
    loky: Any = importlib.import_module("loky")
    loky.set_loky_pickler("pickle")
    workers = order["options"]["workers"]
    return Futures(loky.ProcessPoolExecutor(workers), workers)
