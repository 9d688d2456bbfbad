"""Who runs: one file for each job queue. The bench knows them by their names and by the seam alone."""

from __future__ import annotations

from typing import Literal

from benches.jobs.contestant import Contestant
from benches.jobs.contestants.arq import Arq
from benches.jobs.contestants.celery import Celery
from benches.jobs.contestants.clutch import (
    Clutch,
    ClutchAsyncio,
    ClutchCheckout,
    ClutchPool,
    ClutchSingle,
    ClutchSqlite,
    ClutchSqliteNormal,
)
from benches.jobs.contestants.dramatiq import Dramatiq
from benches.jobs.contestants.huey import Huey, HueySqlite
from benches.jobs.contestants.rq import Rq
from benches.jobs.contestants.saq import Saq
from benches.jobs.contestants.taskiq import Taskiq
from benches.jobs.contestants.taskito import Taskito

ALL: tuple[type[Contestant], ...] = (
    Clutch,
    ClutchSqlite,
    ClutchSqliteNormal,
    ClutchSingle,
    ClutchPool,
    ClutchCheckout,
    ClutchAsyncio,
    Dramatiq,
    Huey,
    HueySqlite,
    Taskiq,
    Saq,
    Arq,
    Celery,
    Rq,
    Taskito,
)
CLUTCH = Clutch.name


def named(name: str) -> Contestant:
    """The contestant of that name."""
    return next(kind() for kind in ALL if kind.name == name)


def of(store: Literal["redis", "sqlite"], peers_only: bool = False) -> tuple[list[Contestant], list[str]]:
    """Those with that store that can run here, ours first; and why the others cannot."""
    everyone = [kind() for kind in ALL if kind.store == store]
    asked = [one for one in everyone if not (peers_only and one.name.startswith(CLUTCH))]
    missing = {one.name: why for one in asked if (why := one.missing())}
    present = [one for one in asked if one.name not in missing]
    return present, [f"left out: {name}: {why}" for name, why in missing.items()]
