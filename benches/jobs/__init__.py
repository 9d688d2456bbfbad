"""Job queues: Clutch beside all that the lab can start, over Redis and over SQLite."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

from benches.suite import BEST, OURS, Line, Preset, Row, Rows, Size, at_most, more, probe, within
from clutch.lab.contender import Contender
from clutch.lab.load import Load
from clutch.lab.peers import registry
from clutch.lab.peers.jobs import ours, redis_server
from clutch.lab.peers.seam import Store
from clutch.lab.setting import Setting
from clutch.lab.work import JobRun

PROBES = "jobs.probes"
SLOTS = 10
CORES = os.cpu_count() or 1
"""As many workers as each starts when nobody says how many."""
TEN = Setting("process", SLOTS)
DEFAULT = Setting("process", CORES)
THREADS = 8
WORK = JobRun("benches.jobs.work", "nothing")
FLOOR, COMMIT, HAND_OVER = "redis-benchmark", "INSERT, COMMIT", "BRPOP, two processes"
LONG = 60.0


def rows(size: Size) -> Rows:
    return {**(over_redis(size) if redis_server.lacks() is None else left_out()), **over_sqlite(size)}


def left_out() -> Rows:
    return {"redis": redis_server.lacks() or ""}


def clutch(store: Store, setting: Setting = TEN, name: str = OURS, work: JobRun = WORK) -> Contender:
    """At the job, the marks and the Redis of its peers."""
    return Contender(name, ours.order_of(work, setting, store), work.load(setting), workers=setting.workers)


def over_sqlite_at(synchronous: str, name: str) -> Contender:
    one = clutch("sqlite", name=name)
    store = f"sqlite:///{{folder}}/jobs.db?synchronous={synchronous}"
    return replace(one, order={**one.order, "queue": "benches.jobs.stored", "store": store})


def peers(store: Store) -> tuple[str, ...]:
    return tuple(one.name for one in registry.everyone() if "jobs" in one.faces and one.store == store)


def asked(function: str, **kwargs: Any) -> Any:
    """Each order, of Clutch and of peers, becomes a probe of it."""

    def over(order: dict[str, Any]) -> dict[str, Any]:
        if order["kind"] == "probe":
            return order
        return dict(probe("", f"{PROBES}:{function}", order=order, **kwargs).order)

    return over


def over_redis(size: Size) -> Rows:
    jobs, latencies = (2_000, 50) if size.is_quick else (20_000, 200)
    them = {"work": WORK, "face": "jobs", "workers": SLOTS, "peers": peers("redis")}
    one = (clutch("redis"),)
    floor = probe(FLOOR, f"{PROBES}:redis_floor")
    sent = (Line("bytes", unit="bytes", title="bytes each"), Line("commands", unit="", title="commands each"))
    many = clutch("redis", Setting("process", 2))
    callers = tuple(map(Load, (6, 12, 24, 48)))
    by_callers = Row(
        "enqueue by threads, Redis", (Line("rate", {BEST: more(0.8)}, "/s"),), one, (floor,), loads=callers
    )
    waiting = (1_000, 100_000) if size.is_quick else (1_000, 100_000, 1_000_000)
    commands = {"order": many.order, "jobs": 5_000 if size.is_quick else 50_000, "workers": 2}
    return {
        "drain": drained("Redis", one, size, jobs, **them),
        "drain-default": drained("Redis", (clutch("redis", DEFAULT),), size, jobs, **{**them, "workers": CORES}),
        "commands": Row(
            "drain by 2 workers to the cost of its commands",
            (Line("to the floor", at_most(4), "×"), Line("each", unit="µs"), Line("floor", unit="µs")),
            (probe(OURS, "jobs.commands:drain", **commands),),
            pace="slow",
            seconds=LONG,
            is_fresh=True,
        ),
        "enqueue": Row(
            "enqueue, Redis, one by one",
            (Line("rate", {BEST: more(1), FLOOR: more(0.8)}, "/s"), *sent),
            one,
            (floor,),
            over=asked("enqueue"),
            **them,
        ),
        "enqueue_many": Row(
            "enqueue many, Redis",
            (Line("rate", {BEST: more(1)}, "/s"), *sent),
            one,
            over=asked("enqueue", at_a_time=1_000),
            note="1,000 at a time, in the fastest way that each has; one by one: row enqueue",
            **them,
        ),
        "enqueue-callers": replace(by_callers, over=asked("enqueue")),
        "enqueue-tasks": replace(by_callers, title="enqueue by tasks, Redis", over=asked("enqueue", has_tasks=True)),
        "sweep": Preset("enqueue"),
        "sleeping": Preset("drain"),
        "latency": Row(
            "from enqueue to first line, idle",
            tuple(Line(name, {HAND_OVER: within(2), BEST: within(1)}, "ms", name) for name in ("p50", "p99")),
            one,
            (probe(HAND_OVER, f"{PROBES}:redis_hand_over", jobs=latencies),),
            over=asked("latency", jobs=latencies),
            pace="slow",
            seconds=LONG,
            **{**them, "peers": (*peers("redis"), *peers("sqlite"))},
        ),
        **{f"growth-{store}": grown(store, waiting) for store in ("redis", "sqlite")},
        "asleep": asleep(),
    }


def drained(where: str, one: tuple[Contender, ...], size: Size, jobs: int, **them: Any) -> Row:
    return Row(
        f"drain, {where}, {them['workers']} workers",
        (Line("rate", {name: more(5) for name in them["peers"]}), Line("cpu", title="CPU of a job")),
        one,
        loads=(Load(them["workers"], units=jobs),),
        pace="slow",
        seconds=LONG,
        note=f"{jobs:,} jobs that do nothing",
        **them,
    )


def grown(store: Store, waiting: tuple[int, ...]) -> Row:
    order = clutch(store, Setting("process", 1)).order
    few, *others = (probe(f"{count:,} wait", f"{PROBES}:growth", order=order, waiting=count) for count in waiting)
    most = others.pop()
    line = Line("each", {one.name: within(1.5) for one in (few, *others)}, "µs")
    title = f"a job while {most.name}, {store}"
    return Row(title, (line,), (most,), (few, *others), pace="slow", seconds=LONG, is_fresh=True)


def asleep() -> Row:
    """What 500 slots weigh."""
    works = {"greenlet": JobRun("benches.jobs.work", "nap"), "async": JobRun("benches.jobs.work", "nap_async")}
    made = []
    for profile, work in works.items():
        one = clutch("redis", Setting(profile, 1, tasks=500), work=work)
        made.append(probe(profile, f"{PROBES}:asleep", order=one.order, slots=500))
    lines = (Line("megabytes", unit="MB"),)
    return Row(
        "500 slots in a job that sleeps", lines, (made[0],), (made[1],), pace="slow", seconds=LONG, is_fresh=True
    )


def over_sqlite(size: Size) -> Rows:
    """Commits that wait for the disk beside a bare loop of INSERT and COMMIT on it, WAL both."""
    one = (clutch("sqlite"), *(over_sqlite_at(level, f"clutch, {level}") for level in ("extra", "normal")))
    them = {"work": WORK, "face": "jobs", "workers": SLOTS, "peers": peers("sqlite")}
    levels = ("full", "normal")
    floors = tuple(probe(f"{COMMIT} {level}", f"{PROBES}:commits", synchronous=level) for level in levels)

    def line(factor: float) -> tuple[Line, ...]:
        return (Line("rate", {f"{COMMIT} full": more(factor)}, "/s"),)

    by_one = Row("enqueue, SQLite, one by one", line(0.8), one, floors, over=asked("enqueue"))
    by_threads = replace(by_one, title=f"enqueue, SQLite, {THREADS} threads", lines=line(3), loads=(Load(THREADS),))
    many = asked("enqueue", at_a_time=1_000)
    return {
        "sqlite-drain": drained("SQLite", one, size, 600 if size.is_quick else 3_000, **them),
        "sqlite-drain-default": drained(
            "SQLite", (clutch("sqlite", DEFAULT),), size, 600 if size.is_quick else 3_000, **{**them, "workers": CORES}
        ),
        "sqlite-enqueue": replace(by_one, work=WORK, face="jobs", peers=peers("sqlite")),
        "sqlite-threads": by_threads,
        "sqlite-many": replace(by_one, title="enqueue many, SQLite", lines=line(20), over=many),
    }
