"""What the work is: waiting or computing, and whether threads compute beside each other. What follows for the settings
that are worth a try."""

from __future__ import annotations

import contextlib
import importlib.util
import math
import sys
import time
from dataclasses import dataclass, replace

from clutch.lab.contender import contender_of
from clutch.lab.field import Tell
from clutch.lab.load import Figures, Load
from clutch.lab.setting import Setting
from clutch.lab.trial import Trial
from clutch.lab.work import App, Handler, Work

ALONE_SECONDS = 0.4
THREADS = 4
"""Threads that are tried beside each other for the GIL."""
TOGETHER = 1.25
"""CPUs that the threads of a worker use at least if they compute beside each other: of those that take turns, one."""
TELLING = 1.5
"""CPUs that all threads together must want for it to show."""
BUSY_MAX = 0.25
"""CPUs that other programs take at most while threads that use one CPU are said to take turns."""
SLOTS_MAX = 1024
WORKERS_MAX = 64
WAITS = 0.2
"""Share of its time that work must wait for greenlets to be worth a try."""
CONNECTIONS = (4, 16, 64, 256)
"""Requests at a time of an async app that are tried."""


@dataclass(frozen=True)
class Probe:
    """`wall_s`: of a unit alone, with its way to the worker and back; `cpu_s`: CPU that it used in the worker.
    `interface`: what an app speaks; None for functions."""

    wall_s: float
    cpu_s: float
    is_async: bool
    cpus: int
    start_s: float
    """What it takes beside measuring to try a setting: the start, the first unit, the end."""
    threads_cpus: float | None = None
    """CPUs that THREADS threads of one worker used together; None: it does not tell whether they take turns."""
    interface: str | None = None
    threads_allowed: bool = True

    @property
    def waits(self) -> float:
        """Share of its time that a unit waits: 1 − CPU time / wall time."""
        return min(1.0, max(0.0, 1 - self.cpu_s / self.wall_s)) if self.wall_s > 0 else 0.0

    @property
    def slots_wanted(self) -> int:
        """Slots that keep all CPUs busy while units wait: CPUs / (1 − share of waiting)."""
        return min(SLOTS_MAX, math.ceil(self.cpus / max(1 - self.waits, 1e-6)))

    @property
    def threads_compute(self) -> bool:
        """Whether threads of one worker compute beside each other, as far as it is known."""
        return self.threads_cpus is not None and self.threads_cpus >= TOGETHER

    def cpus_of(self, setting: Setting) -> float:
        """CPUs that a setting can use at a time."""
        each = self.cpus if setting.threads > 1 and (self.threads_compute or not has_gil()) else 1
        return min(self.cpus, setting.workers * min(each, setting.threads))

    def ideal(self, setting: Setting, cpu_each_s: float = math.inf) -> float:
        """The rate that a setting could reach, were nothing lost: all its slots busy with units that take as long as
        alone, and no more CPU time used than its workers can use. `cpu_each_s`: of a unit beside others, which is often
        cheaper than alone."""
        cpu = min(self.cpu_s, cpu_each_s or math.inf)
        waiting = max(0.0, self.wall_s - self.cpu_s) if self.interface is None else 0.0
        by_cpu = self.cpus_of(setting) / cpu if cpu > 0 else math.inf
        return min(by_cpu, setting.slots / (waiting + cpu) if waiting + cpu > 0 else math.inf)

    def hope(self, setting: Setting) -> float:
        """The rate to expect of a setting that has not been tried."""
        by_cpu = self.cpus_of(setting) / self.cpu_s if self.cpu_s > 0 else math.inf
        return min(by_cpu, setting.slots / self.wall_s if self.wall_s > 0 else math.inf)

    def sentences(self) -> list[str]:
        """What was learnt, for people."""
        kind = {None: "an `async def`" if self.is_async else "a `def`", "asgi": "an ASGI app", "wsgi": "a WSGI app"}
        said = [
            f"it is {kind.get(self.interface, 'a handler of TCP')} that takes {self.wall_s * 1e3:.2f} ms alone, "
            f"{self.cpu_s * 1e3:.2f} ms of it CPU time: it waits {self.waits:.0%} of its time"
        ]
        if self.waits > WAITS and self.interface != "asgi":
            said.append(f"slots for all CPUs while it waits: about {self.slots_wanted}")
        if self.waits > 0.5 and not self.is_async and self.interface != "asgi":
            said.append("so threads pay: more processes would only cost memory")
        if self.threads_cpus is not None:
            said.append(
                f"{THREADS} threads of one worker use {self.threads_cpus:.2f} CPUs together: "
                + (
                    "they compute beside each other"
                    if self.threads_compute
                    else "they take turns (the GIL, or a lock): workers pay"
                )
            )
        if not self.threads_allowed:
            said.append(
                "this Python has no GIL, so code that was safe in threads before may not be: `thread` is left out; "
                "--threads-ok tries it"
            )
        return said


def has_gil() -> bool:
    return bool(getattr(sys, "_is_gil_enabled", lambda: True)())


def probe(work: Work, cpus: int, threads_ok: bool, tell: Tell) -> Probe:
    """Raises TrialFailed."""
    first, began = first_of(work), time.perf_counter()
    with contextlib.ExitStack() as stack:
        one = stack.enter_context(trial_of(work, first, tell))
        start_s = time.perf_counter() - began
        interface = one.hello.get("interface")
        if interface == "wsgi":  # what Clutch chooses for it has threads
            stack.close()
            one = stack.enter_context(trial_of(work, Setting("process", 1), tell))
        is_async = one.is_async or interface == "asgi"
        one.measure(Load(1), ALONE_SECONDS / 4)
        alone = one.measure(Load(1), max(ALONE_SECONDS, 4 * one.check_s))
        ends = time.perf_counter()
    start_s += time.perf_counter() - ends
    wall, cpu = undisturbed_s(alone), alone.cpu_each_s
    found = Probe(wall, cpu, is_async, cpus, start_s, None, interface, threads_ok or has_gil())
    wants = (1 - found.waits) * THREADS
    if is_async or not found.threads_allowed or isinstance(work, Handler) or cpus == 1 or wants < TELLING:
        return found
    with trial_of(work, Setting("thread", 1, threads=THREADS), tell) as several:
        several.measure(Load(THREADS), ALONE_SECONDS / 4)
        together = several.measure(Load(2 * THREADS), max(ALONE_SECONDS, 4 * wall))
    others = together.others_cpu_s / together.wall_s if together.wall_s else 0.0
    is_told = together.cpu_share >= TOGETHER or others <= BUSY_MAX
    return replace(found, threads_cpus=together.cpu_share) if is_told else found


def undisturbed_s(alone: Figures) -> float:
    """Time of a unit, less that for which it could have run and had no CPU: beside other programs work that computes
    would else seem to wait."""
    middle = alone.latency_s.get("50", ALONE_SECONDS)
    mean = alone.run_s or (alone.wall_s / alone.units if alone.units else middle)
    return max(alone.cpu_each_s, min(middle, mean - alone.delayed_each_s))


def first_of(work: Work) -> Setting:
    """The setting that the work is tried with first. Which one an app can run under shows when it has started."""
    return Setting("auto", 1) if isinstance(work, App | Handler) else Setting("process", 1)


def trial_of(work: Work, setting: Setting, tell: Tell) -> Trial:
    return contender_of(work, setting).start(tell)


def space(probe: Probe) -> list[Setting]:
    """Settings that are worth a try for such work, those of which most is to be hoped first; of them, those that cost
    least: a tuning that has no time for all has tried what is most likely."""
    n, wanted = probe.cpus, probe.slots_wanted
    if probe.interface == "asgi":
        each = [(workers, count) for workers in {1, n, 2 * n} for count in CONNECTIONS]
        return by_hope(probe, [Setting("async", workers, tasks=count) for workers, count in each])
    found = [Setting("process", 1), Setting("process", n)]
    if probe.is_async:
        tasks = {1, 8, 64, 256, 1024}
        found += [Setting("async", workers, tasks=count) for workers in {1, n, 2 * n} for count in tasks]
        found += [Setting("process", 4 * n), *([Setting("thread", n, threads=8)] if probe.threads_allowed else [])]
        return by_hope(probe, found)
    found += [Setting("process", workers) for workers in sizes(n, min(WORKERS_MAX, 2 * wanted))]
    for workers in {1, n} if probe.threads_allowed else ():
        found += [
            Setting("thread", workers, threads=count) for count in sizes(2, max(4, math.ceil(4 * wanted / workers)))
        ]
    if probe.waits > WAITS and probe.interface != "tcp" and importlib.util.find_spec("gevent") is not None:
        found += [Setting("greenlet", workers, tasks=count) for workers in {1, n} for count in (16, 64, 256, 1024)]
    return by_hope(probe, found)


def sizes(least: int, most: int) -> list[int]:
    """`least` and its doubles up to `most`."""
    count = max(0, math.floor(math.log2(max(1, most) / least)))
    return [least << power for power in range(count + 1)]


def by_hope(probe: Probe, settings: list[Setting]) -> list[Setting]:
    return sorted(set(settings), key=lambda one: (-float(f"{probe.hope(one):.2g}"), cost(one)))


def cost(setting: Setting) -> tuple[int, int, str]:
    """What a setting costs when nothing else tells two apart: processes, then slots."""
    return setting.workers, setting.slots, setting.profile
