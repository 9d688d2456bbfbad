"""kill -9 of each process of a node in turn, while it runs tasks.

CLUTCH_TEST_TASKS=5000 CLUTCH_TEST_KILLS=50 make it long."""

from __future__ import annotations

import contextlib
import os
import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from support.celery_house import node, outcome
from support.clutch_process import Dispatcher, soon
from support.redis_server import RedisServer

pytest.importorskip("celery")

TASKS = int(os.environ.get("CLUTCH_TEST_TASKS", "300"))
"""Of either kind: those that are acknowledged early, and late."""
KILLS = int(os.environ.get("CLUTCH_TEST_KILLS", "5"))
SLOTS = 2
OPTIONS = "--workers", str(SLOTS), "--lease", "1s"


def command_of(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
    return ""


def children(pid: int) -> list[int]:
    """Of all its threads."""
    found: list[int] = []
    for place in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            found += [int(child) for child in place.read_text().split()]
    return found


def nodes(dispatcher: int) -> list[int]:
    return [pid for pid in children(dispatcher) if "clutch.celery.node" in command_of(pid)]


def zygotes(dispatcher: int) -> list[int]:
    """Those who start workers."""
    return [pid for pid in children(dispatcher) if pid not in nodes(dispatcher)]


def workers(dispatcher: int) -> list[int]:
    return [worker for zygote in zygotes(dispatcher) for worker in children(zygote)]


VICTIMS: dict[str, Callable[[int], list[int]]] = {
    "worker": lambda dispatcher: workers(dispatcher)[:1],
    "node": nodes,
    "zygote": zygotes,
    "dispatcher": lambda dispatcher: [dispatcher],
    "all": lambda dispatcher: [dispatcher, *zygotes(dispatcher), *workers(dispatcher), *nodes(dispatcher)],
}


def kill(dispatcher: Dispatcher, victim: str) -> None:
    """As soon as there is one."""
    found: list[int] = []

    def is_there() -> bool:
        found[:] = VICTIMS[victim](dispatcher.process.pid)
        return bool(found)

    soon(is_there)
    for pid in found:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    if victim in ("dispatcher", "all"):
        dispatcher.process.wait()


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def test_failure_43_kill_9_loses_no_task_without_a_word(redis: RedisServer, shop: ModuleType, tmp_path: Path) -> None:
    early, late = tmp_path / "early", tmp_path / "late"
    tasks, tasks_late = [], []
    for nr in range(TASKS):
        tasks.append(shop.note.delay(str(early), str(nr), 0.005))
        tasks_late.append(shop.note_late.delay(str(late), str(nr), 0.005))

    def left() -> int:
        return int(redis.ask("LLEN", "celery")) + int(redis.ask("HLEN", "unacked"))

    kills = Counter[str]()
    victims = list(VICTIMS)
    while left() and kills.total() < KILLS:
        with node(redis, *OPTIONS) as dispatcher:
            while dispatcher.process.poll() is None and left() and kills.total() < KILLS:
                before = left()
                soon(lambda before=before: left() < before - 2 * TASKS // (KILLS + 2) or not left())
                victim = victims[kills.total() % len(victims)]
                kill(dispatcher, victim)
                kills[victim] += 1
    with node(redis, *OPTIONS):
        soon(lambda: not left())
    runs, runs_late = Counter(lines(early)), Counter(lines(late))
    lost = [task for nr, task in enumerate(tasks) if not runs[str(nr)]]
    lost_late = [task for nr, task in enumerate(tasks_late) if not runs_late[str(nr)]]
    twice = runs_late.total() - len(runs_late)
    print(
        f"{dict(kills)} of {2 * TASKS} tasks; early: {len(runs)} ran, most {max(runs.values())} times, {len(lost)} lost"
    )
    print(f"late: {len(runs_late)} ran, {twice} again, {len(lost_late)} lost")
    assert max(runs.values()) == 1
    assert all("WorkerLostError" in repr(outcome(task)) for task in [*lost, *lost_late])
    # What runs when it is killed: one task of each slot. A late one whose worker alone has ended fails, as in Celery.
    assert len(lost) <= SLOTS * (kills.total() - kills["node"])
    assert len(lost_late) <= SLOTS * (kills["worker"] + kills["zygote"])
    assert twice <= SLOTS * (kills["dispatcher"] + kills["all"])
