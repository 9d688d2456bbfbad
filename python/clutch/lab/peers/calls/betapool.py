"""BetaPool: threads whose number follows the share of time that calls wait."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from clutch.lab.peers.calls.pool import Futures, PoolPeer

WORKERS_MAX = 64
"""Of its own default."""

if TYPE_CHECKING:
    from clutch.lab.drivers.calls import Executor


class BetaPool(PoolPeer):
    requirements = ("betapool",)


class Adaptive(Futures):
    def end(self) -> None:
        self.executor.shutdown(wait=False)


PEERS = (
    BetaPool(
        "betapool",
        f"AdaptiveThreadPoolExecutor: from the workers up to {WORKERS_MAX} threads of the program that calls, as it "
        "sees fit",
    ),
)


def start(order: dict[str, Any]) -> Executor:
    betapool: Any = importlib.import_module("betapool")
    workers = order["options"]["workers"]
    pool = betapool.AdaptiveThreadPoolExecutor(min_workers=workers, max_workers=max(workers, WORKERS_MAX))
    return Adaptive(pool, workers)
