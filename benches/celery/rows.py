"""`clutch work APP` beside `celery worker` with the same app and the same Redis: with default settings, and for drains
also with the fastest that Celery's documentation names."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from typing import Any

from benches.celery.probes import SLOTS
from benches.celery.servers import celery, clutch
from benches.suite import BEST, OURS, Line, Row, Rows, Size, at_most, more, probe, within
from clutch.lab.contender import Contender
from clutch.lab.load import Load
from clutch.lab.peers.jobs import redis_server

PROBES = "celery.probes"
POOLS = ("prefork", "threads", "gevent")
QUIET = ("--without-gossip", "--without-mingle", "--without-heartbeat")
TUNED = ("-O", "default", "--prefetch-multiplier", "128", *QUIET)
SLEEPS_LIMITS = {250: 1.08, 500: 1.15}
"""Times to the least that so many slots need: to start them all takes a part of each 0.5 s."""
SLEEPS_LIMIT = 1.05
MEMORY_LIMIT_MB = 120
LONG = 60.0
Commands = Mapping[str, list[str]]


def rows(size: Size) -> Rows:
    if (reason := lacks()) is not None:
        return {"redis": reason}
    tasks = 4_000 if size.is_quick else 20_000
    cpu = (Line("cpu", unit="µs", title="CPU each"), Line("redis", unit="µs", title="CPU of the Redis each"))
    ours, theirs = servers_of_clutch(), {f"celery {pool}": celery("-P", pool) for pool in POOLS}
    fastest = ("threads",) if size.is_quick else POOLS
    tuned = {f"tuned celery {pool}": celery("-P", pool, *TUNED) for pool in fastest}
    kept = {"tasks": tasks // 2, "keeps_results": True}
    default = {OURS: ours[OURS]} if size.is_quick else ours
    return {
        **sleeps(size),
        "drain": row("drain", "drain", (rate(8), *cpu), ours, theirs | tuned, {"tasks": tasks}),
        "results": row("drain, results kept", "drain", (rate(3.5), *cpu), ours, theirs, kept),
        "latency": row(
            "delay() to result, idle",
            "latency",
            (
                Line("share", {BEST: within(0.5)}, "ms", "above an instant responder"),
                Line("p50", unit="ms"),
                Line("floor", unit="ms"),
            ),
            default,
            theirs,
            {"tasks": 50 if size.is_quick else 200},
        ),
        "idle": row(
            "idle",
            "idle",
            (
                Line("commands", {BEST: within(1)}, "/s", "commands"),
                Line("cpu", {BEST: within(1)}, "ms/s", "CPU"),
            ),
            default,
            theirs,
            {"seconds": 6.0 if size.is_quick else 20.0},
        ),
    }


def lacks() -> str | None:
    """Why nothing of this can be measured here."""
    missing = [name for name in ("celery", "redis", "gevent") if importlib.util.find_spec(name) is None]
    if missing:
        return f"no {' and no '.join(missing)} here; make .venv/.bench installs them"
    return redis_server.lacks()


def servers_of_clutch() -> Commands:
    """By default, and under the profiles that stand for Celery's other pools."""
    return {OURS: clutch(), **{f"{OURS} {name}": clutch("--profile", name) for name in ("thread", "greenlet")}}


def rate(factor: float) -> Line:
    return Line("rate", {name: more(factor) for name in ("celery", "tuned")}, "/s")


def row(
    title: str,
    function: str,
    lines: tuple[Line, ...],
    ours: Commands,
    theirs: Commands,
    kwargs: dict[str, Any],
    **more: Any,
) -> Row:
    def made(commands: Commands) -> tuple[Contender, ...]:
        return tuple(probe(name, f"{PROBES}:{function}", command=line, **kwargs) for name, line in commands.items())

    return Row(title, lines, made(ours), made(theirs), pace="slow", seconds=LONG, is_fresh=True, **more)


def sleeps(size: Size) -> Rows:
    """Rows by what is asked of them."""
    ours = {OURS: clutch("--profile", "greenlet", "--workers", "1", "--tasks", SLOTS)}
    gevent, prefork = ({f"celery {pool}": celery("-P", pool, "-c", SLOTS)} for pool in ("gevent", "prefork"))
    some = (50,) if size.is_quick else (50, 100)

    def sleeping(slots: tuple[int, ...], tasks: int, theirs: Commands, memory: Mapping[str, Any] = {}) -> Row:
        limit = SLEEPS_LIMITS.get(slots[0], SLEEPS_LIMIT)
        lines = (
            Line("to the ideal", at_most(limit), "×"),
            Line("megabytes", memory, "MB", "memory"),
            Line("cpu", unit="µs", title="CPU each"),
        )
        loads = tuple(map(Load, slots))
        title = f"{tasks:,} × sleep 0.5 s"
        if len(slots) == 1:
            title += f", {slots[0]} at a time"
        return row(title, "sleeps", lines, ours, theirs, {"tasks": tasks}, loads=loads)

    return {
        **({} if size.is_quick else {"sleeps-few": sleeping((5, 10, 20), 200, gevent | prefork)}),
        "sleeps-some": sleeping(some, 1_000, gevent | prefork),
        **({} if size.is_quick else {"sleeps-250": sleeping((250,), 1_000, gevent)}),
        "sleeps-500": sleeping((500,), 1_000, gevent, at_most(MEMORY_LIMIT_MB)),
    }
