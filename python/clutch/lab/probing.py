"""What the work is: waiting or computing, and whether threads compute beside each other. What follows for the settings
that are worth a try."""

from __future__ import annotations

import importlib.util
import math
import time
from dataclasses import dataclass

from clutch.lab.setting import Setting
from clutch.lab.trial import Trial, Work

ALONE_SECONDS = 0.4
THREADS = 4
"""Threads that are tried beside each other for the GIL."""
SLOTS_MAX = 1024
WORKERS_MAX = 64
WAITS = 0.2
"""Share of its time that work must wait for greenlets to be worth a try."""


@dataclass(frozen=True)
class Probe:
    """`wall_s`: of a call alone, with its way to the worker and back; `cpu_s`: CPU that it used in the worker."""

    wall_s: float
    cpu_s: float
    is_async: bool
    threads_gain: float
    """Rate of THREADS threads of one worker to that of one thread."""
    cpus: int
    start_s: float
    """Time from nothing to a worker that is ready, and to its end."""

    @property
    def waits(self) -> float:
        """Share of its time that a call waits: 1 − CPU time / wall time."""
        return min(1.0, max(0.0, 1 - self.cpu_s / self.wall_s))

    @property
    def slots_wanted(self) -> int:
        """Slots that keep all CPUs busy while calls wait: CPUs / (1 − share of waiting)."""
        return min(SLOTS_MAX, math.ceil(self.cpus / max(1 - self.waits, 1e-6)))

    def sentences(self) -> list[str]:
        """What was learnt, for people."""
        kind = "an `async def`" if self.is_async else "a `def`"
        said = [
            f"it is {kind} that takes {self.wall_s * 1e3:.2f} ms alone, {self.cpu_s * 1e3:.2f} ms of it CPU time: "
            f"it waits {self.waits:.0%} of its time"
        ]
        if self.waits > WAITS:
            said.append(f"slots for all CPUs while calls wait: about {self.slots_wanted}")
        if not self.is_async and self.waits < 0.5:
            releases = self.threads_gain > min(THREADS, self.cpus) * 0.6
            said.append(
                f"{THREADS} threads of one worker reach {self.threads_gain:.2f} × one thread: "
                + ("they compute beside each other" if releases else "they take turns (the GIL)")
            )
        return said


def probe(work: Work, cpus: int) -> Probe:
    """Raises TrialFailed."""
    began = time.perf_counter()
    Trial(work, Setting("process", 1)).end()
    start_s = time.perf_counter() - began
    with Trial(work, Setting("process", 1)) as one:
        one.measure(1, ALONE_SECONDS / 4)
        alone = one.measure(1, max(ALONE_SECONDS, 4 * one.check_s))
        is_async = one.is_async
    wall, cpu = alone.latency_s.get("50", ALONE_SECONDS), alone.cpu_each_s
    gain = 1.0
    if not is_async:
        with Trial(work, Setting("thread", 1, threads=THREADS)) as several:
            seconds = max(ALONE_SECONDS, 4 * wall)
            one_at_a_time = several.measure(1, seconds).rate
            gain = several.measure(THREADS, seconds).rate / one_at_a_time if one_at_a_time else 1.0
    return Probe(wall, cpu, is_async, gain, cpus, start_s)


def space(probe: Probe) -> list[Setting]:
    """Settings that are worth a try for such work, fewest processes first."""
    n, wanted = probe.cpus, probe.slots_wanted
    found = [Setting("process", 1), Setting("process", n)]
    if probe.is_async:
        tasks = {1, 8, 64, 256, 1024}
        found += [Setting("async", workers, tasks=count) for workers in {1, n, 2 * n} for count in tasks]
        found += [Setting("process", 4 * n), Setting("thread", n, threads=8)]
        return ordered(found)
    found += [Setting("process", workers) for workers in sizes(n, min(WORKERS_MAX, 2 * wanted))]
    for workers in {1, n}:
        found += [
            Setting("thread", workers, threads=count) for count in sizes(2, max(4, math.ceil(4 * wanted / workers)))
        ]
    if probe.waits > WAITS and importlib.util.find_spec("gevent") is not None:
        found += [Setting("greenlet", workers, tasks=count) for workers in {1, n} for count in (16, 64, 256, 1024)]
    return ordered(found)


def sizes(least: int, most: int) -> list[int]:
    """`least` and its doubles up to `most`."""
    count = max(0, math.floor(math.log2(max(1, most) / least)))
    return [least << power for power in range(count + 1)]


def ordered(settings: list[Setting]) -> list[Setting]:
    return sorted(set(settings), key=cost)


def cost(setting: Setting) -> tuple[int, int, str]:
    """What a setting costs when nothing else tells two apart: processes, then slots."""
    return setting.workers, setting.slots, setting.profile
