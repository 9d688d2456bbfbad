"""Effects of signals on a dispatcher, a table for each command."""

from __future__ import annotations

import enum
import signal
from collections.abc import Mapping
from typing import Any

from clutch._dispatcher import logs
from clutch.config.options import WORKERS_MAX
from clutch.errors import ClutchError


class Action(enum.Enum):
    STOP = "graceful shutdown"
    STOP_QUICKLY = "shutdown without waiting for running work"
    RELOAD = "reload"
    MORE = "one more worker"
    FEWER = "one fewer worker"
    REOPEN = "reopen log files"
    NONE = "nothing: gunicorn knows this signal, Clutch does not"


ENDS = frozenset({Action.STOP, Action.STOP_QUICKLY})

Actions = dict[int, Action]

OF_RUN: Actions = {
    signal.SIGINT: Action.STOP,
    signal.SIGTERM: Action.STOP,
    signal.SIGHUP: Action.RELOAD,
    signal.SIGUSR1: Action.REOPEN,
}
OF_WORK: Actions = {**OF_RUN, signal.SIGQUIT: Action.STOP_QUICKLY}
OF_SERVE: Actions = {
    signal.SIGINT: Action.STOP_QUICKLY,
    signal.SIGQUIT: Action.STOP_QUICKLY,
    signal.SIGTERM: Action.STOP,
    signal.SIGHUP: Action.RELOAD,
    signal.SIGTTIN: Action.MORE,
    signal.SIGTTOU: Action.FEWER,
    signal.SIGUSR1: Action.REOPEN,
    signal.SIGUSR2: Action.NONE,
    signal.SIGWINCH: Action.NONE,
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
    """Adds a worker to each pool, or removes one."""
    for name, pool in pools.items():
        try:
            least, most = bounds(pool.stats(), by)
            pool.scale(min=least, max=most)
        except ClutchError as error:
            logs.log.warning("pool %s: %s", name, error)
        else:
            logs.info(f"pool {name}: {least if least == most else f'{least} to {most}'} workers", pool=name)
