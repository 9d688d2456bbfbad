"""Figures of pools over a few seconds, from looks at a server or program by its control socket.

What the machine does beside is read here, in the process that asks: it is on the same machine.
"""

from __future__ import annotations

import contextlib
import os
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from clutch.config import limits
from clutch.control import client
from clutch.control.advice import Facts, Pace

PACES_MAX = 64

Page = dict[str, Any]


class Look(NamedTuple):
    """State of the pools at one time. `idle_s`: CPU seconds in which nobody used the CPUs of this machine, so far."""

    page: Page
    at: float
    idle_s: float | None = None
    free_bytes: int | None = None


def look(socket: Path) -> Look:
    page = client.get(socket, "/pools", client.ANSWER_SECONDS_MAX)
    return Look(page, time.monotonic(), idle_seconds(), free_bytes())


def looks(socket: Path, seconds: float, count: int) -> list[Look]:
    """As many looks, spread over the time."""
    found = [look(socket)]
    for _ in range(count - 1):
        time.sleep(seconds / max(1, count - 1))
        found.append(look(socket))
    return found


def facts_of(taken: Sequence[Look]) -> list[Facts]:
    """Figures of each pool that was there in the first look and in the last. None of one that tells too little."""
    first, last = taken[0], taken[-1]
    before = {pool["name"]: pool for pool in first.page["pools"]}
    found = []
    for pool in last.page["pools"]:
        old = before.get(pool["name"])
        with contextlib.suppress(KeyError, TypeError):  # a server of another version may say otherwise
            if old is not None and last.at > first.at:
                found.append(facts_of_pool(old, pool, taken))
    return found


def facts_of_pool(old: Page, pool: Page, taken: Sequence[Look]) -> Facts:
    first, last = taken[0], taken[-1]
    seconds = last.at - first.at
    shape, image = pool["shape"], pool.get("image") or {}
    threads, tasks = max(1, shape["threads"]), max(1, shape["tasks"])
    between = [one for look in taken for one in look.page["pools"] if one["name"] == pool["name"]]
    slots = max(1, pool["slots"])
    busy = min(1.0, per_second(old["run_s"], pool["run_s"], seconds) / slots)
    idle = None
    if first.idle_s is not None and last.idle_s is not None:
        idle = max(0.0, last.idle_s - first.idle_s) / seconds
    memory = [worker.get("private") or worker.get("rss") or 0 for worker in pool["workers"]]
    return Facts(
        pool=pool["name"],
        command=command_of(last.page, image),
        profile=shape["profile"],
        workers=pool["ready"],
        threads=threads,
        tasks=tasks,
        cpus=last.page.get("cpus") or limits.usable_cpus(),
        seconds=seconds,
        busy=busy,
        # What a worker has read by itself is among `sent` after a while only; its time counts from the beginning.
        taken=max(busy, statistics.fmean(one["sent"] / max(1, one["slots"]) for one in between)),
        queued=statistics.fmean(one["queued"] + one["blocked"] for one in between),
        cpu=per_second(old["cpu_s"], pool["cpu_s"], seconds),
        cpu_wait=cpu_wait(old, pool, seconds),
        idle=idle,
        done=per_second(old["done"], pool["done"], seconds),
        gil=image.get("gil") is not False,
        runs_async=async_code(image, between),
        blocked=blocked_loop(between) if shape["profile"] == "async" else None,
        paces=tuple(Pace(**one) for one in pool["company"][:PACES_MAX]),
        worker_bytes=max(memory, default=0) or None,
        free_bytes=last.free_bytes,
        state=pool["state"],
        gave_up=per_second(old["gave_up"], pool["gave_up"], seconds),
    )


def per_second(before: float, now: float, seconds: float) -> float:
    return max(0.0, now - before) / seconds


def cpu_wait(old: Page, pool: Page, seconds: float) -> float:
    """CPUs that the workers were ready to use and did not get."""
    before = {worker["pid"]: worker.get("cpu_wait_s") or 0.0 for worker in old["workers"]}
    waited = (
        per_second(before[worker["pid"]], worker.get("cpu_wait_s") or 0.0, seconds)
        for worker in pool["workers"]
        if worker["pid"] in before
    )
    return sum(waited)


def async_code(image: Page, between: Sequence[Page]) -> str | None:
    """The `async def` tool that most of the workers ran; empty: the app is one. None: no such code ran."""
    if image.get("interface") in ("asgi", "asgi2", "asgi3", "asginl"):
        return ""
    tools = set(image.get("async_tools") or ())
    names = [one["what"] for pool in between for worker in pool["workers"] for one in worker.get("running", ())]
    ran = [name.partition(" (item ")[0] for name in names]
    of_tools = [name for name in ran if name in tools]
    return statistics.mode(of_tools) if of_tools and 2 * len(of_tools) > len(ran) else None


def blocked_loop(between: Sequence[Page]) -> tuple[str, float] | None:
    """The code that ran alone in a worker at each look, though more had been sent there, and how much more."""
    by_pid: dict[int, list[Page]] = {}
    for pool in between:
        for worker in pool["workers"]:
            by_pid.setdefault(worker["pid"], []).append(worker)
    blocked = []
    for seen in by_pid.values():
        ran = [one["what"] for worker in seen for one in worker.get("running", ())]
        stands = [worker["sent"] - len(worker.get("running", ())) for worker in seen]
        is_blocked = all(len(worker.get("running", ())) <= 1 for worker in seen) and min(stands) >= 2
        if is_blocked and len(seen) == len(between) and ran:
            blocked.append((statistics.mode(ran), statistics.fmean(stands)))
    return max(blocked, key=lambda one: one[1], default=None)


def command_of(page: Page, image: Page) -> str:
    """What was typed to start it: `program`, `run` with a configuration, `serve` an app, or `work` on jobs."""
    if page.get("is_program"):
        return "program"
    if str(page.get("config", "")).endswith(".toml"):
        return "run"
    return "work" if image.get("interface") is None else "serve"


# The machine


def idle_seconds(root: Path = Path("/")) -> float | None:
    """Time in which the CPUs that this process may use had nothing to do."""
    usable = {f"cpu{number}" for number in os.sched_getaffinity(0)}
    idle, ticks = 0, os.sysconf("SC_CLK_TCK")
    try:
        for line in (root / "proc/stat").read_text().splitlines():
            words = line.split()
            if words and words[0] in usable:
                idle += int(words[4]) + int(words[5])  # idle and iowait
    except (OSError, ValueError, IndexError):
        return None
    return idle / ticks


def free_bytes(root: Path = Path("/")) -> int | None:
    """Memory that new processes can have."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in (root / "proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) << 10
    return None
