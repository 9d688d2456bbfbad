"""What a signal asks of a dispatcher: one table for each command; and the number of workers, one more or one less."""

from __future__ import annotations

import enum
import signal
from collections.abc import Mapping
from typing import Any

from clutch.cli import logs
from clutch.errors import ClutchError
from clutch.options import WORKERS_MAX


class Order(enum.Enum):
    STOP = "stop in order, running work having its grace"
    STOP_QUICKLY = "stop in order, without a grace"
    RELOAD = "load the code anew"
    MORE = "one worker more"
    FEWER = "one worker less"
    REOPEN = "open the log files anew"
    NONE = "nothing: it is a signal of gunicorn's that has no meaning here"


ENDS = frozenset({Order.STOP, Order.STOP_QUICKLY})

Orders = Mapping[int, Order]

OF_RUN: Orders = {
    signal.SIGINT: Order.STOP,
    signal.SIGTERM: Order.STOP,
    signal.SIGHUP: Order.RELOAD,
    signal.SIGUSR1: Order.REOPEN,
}
OF_SERVE: Orders = {
    signal.SIGINT: Order.STOP_QUICKLY,
    signal.SIGQUIT: Order.STOP_QUICKLY,
    signal.SIGTERM: Order.STOP,
    signal.SIGHUP: Order.RELOAD,
    signal.SIGTTIN: Order.MORE,
    signal.SIGTTOU: Order.FEWER,
    signal.SIGUSR1: Order.REOPEN,
    signal.SIGUSR2: Order.NONE,
    signal.SIGWINCH: Order.NONE,
}
INSTEAD = {
    signal.SIGUSR2: "start a second `clutch serve` at the same socket of systemd, then stop this one with TERM",
    signal.SIGWINCH: "`clutch drain` takes no more work",
}


def bounds(stats: Mapping[str, Any], step: int) -> tuple[int, int]:
    """Fewest and most workers, such that there is one more than now, or one less, and never none."""
    wanted = min(max(stats["target"] + step, 1), WORKERS_MAX)
    if step > 0:
        return max(stats["min"], wanted), max(stats["max"], wanted)
    return min(stats["min"], wanted), min(stats["max"], wanted)


def step(pools: Mapping[str, Any], by: int) -> None:
    """One worker more or less in each pool."""
    for name, pool in pools.items():
        try:
            least, most = bounds(pool.stats(), by)
            pool.scale(min=least, max=most)
        except ClutchError as error:
            logs.log.warning("pool %s: %s", name, error)
        else:
            logs.info(f"pool {name}: {least if least == most else f'{least} to {most}'} workers", pool=name)
