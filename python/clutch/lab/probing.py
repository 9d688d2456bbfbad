"""What the work is: waiting or computing, and whether threads compute beside each other. What follows for the settings
that are worth a try."""

from __future__ import annotations

import contextlib
import importlib.util
import math
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace

from clutch.errors import ClutchError
from clutch.lab import watching
from clutch.lab.contender import contender_of
from clutch.lab.field import Tell
from clutch.lab.load import Figures, Load
from clutch.lab.setting import Setting
from clutch.lab.trial import Trial, TrialFailed
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
UNITS_MIN, UNITS_WANTED = 30, 65
"""Run times of a unit that a tuning takes at the least, and to tell something."""
FREE_SHARE = 0.8
"""Of the memory that is free, that settings may take."""
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
    threads_fail: str | None = None
    """Why it does not run in threads."""
    failed: float = 0.0
    """Share of the units that failed alone."""
    whole_bytes: int = 0
    """Memory of all processes with one worker."""
    largest_bytes: int = 0
    """Memory of that worker."""

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

    def bytes_of(self, setting: Setting) -> int:
        """Memory of all processes, at most: forks of one zygote share some."""
        return self.whole_bytes + (setting.workers - 1) * self.largest_bytes

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
        if self.threads_fail is not None:
            said.append(f"it does not run in threads, so `thread` is left out: {self.threads_fail}")
        if not self.threads_allowed:
            said.append(
                "this Python has no GIL, so code that was safe in threads before may not be: `thread` is left out; "
                "--threads-ok tries it"
            )
        return said


def has_gil() -> bool:
    return bool(getattr(sys, "_is_gil_enabled", lambda: True)())


def probe(work: Work, cpus: int, threads_ok: bool, tell: Tell, budget_s: float) -> Probe:
    """Raises TrialFailed, or TooShort where such units cannot be compared in this time."""
    began = time.perf_counter()
    until, first = time.monotonic() + budget_s, first_of(work)
    with contextlib.ExitStack() as stack:
        one = stack.enter_context(trial_of(work, first, tell, until))
        start_s = time.perf_counter() - began
        if one.check_s * UNITS_MIN > budget_s:
            raise TooShort(work.unit, one.check_s)
        interface = one.hello.get("interface")
        if interface == "wsgi":  # what Clutch chooses for it has threads
            stack.close()
            one = stack.enter_context(trial_of(work, Setting("process", 1), tell, until))
        is_async = one.is_async or interface == "asgi"
        if one.check_s < ALONE_SECONDS / 4:
            one.measure(Load(1), ALONE_SECONDS / 4)
        alone = one.measure(Load(1), max(ALONE_SECONDS, min(4 * one.check_s, budget_s / 10)))
        ends = time.perf_counter()
    start_s += time.perf_counter() - ends
    if not alone.units:
        raise TrialFailed(f"none of {sum(alone.errors.values())} {work.unit} went well: {kinds_of(alone.errors)}")
    wall, cpu = undisturbed_s(alone), alone.cpu_each_s
    found = Probe(wall, cpu, is_async, cpus, start_s, None, interface, threads_ok or has_gil())
    found = replace(found, failed=alone.failed, whole_bytes=alone.pss_bytes, largest_bytes=alone.largest_bytes)
    wants = (1 - found.waits) * THREADS
    if is_async or not found.threads_allowed or isinstance(work, Handler) or cpus == 1 or wants < TELLING:
        return found
    try:
        with trial_of(work, Setting("thread", 1, threads=THREADS), tell, until) as several:
            several.measure(Load(THREADS), ALONE_SECONDS / 4)
            together = several.measure(Load(2 * THREADS), max(ALONE_SECONDS, min(4 * wall, budget_s / 10)))
    except TrialFailed as error:
        return replace(found, threads_fail=str(error).splitlines()[0])
    others = together.others_cpu_s / together.wall_s if together.wall_s else 0.0
    is_told = together.cpu_share >= TOGETHER or others <= BUSY_MAX
    return replace(found, threads_cpus=together.cpu_share) if is_told else found


class TooShort(ClutchError):
    """A budget in which units that take so long cannot be compared."""

    def __init__(self, unit: str, check_s: float) -> None:
        wanted = math.ceil(UNITS_WANTED * check_s / 30) * 30
        budget = f"{wanted // 60}m" if wanted % 60 == 0 else f"{wanted}s"
        super().__init__(f"one of these {unit} takes {check_s:.1f} s: to compare settings, give it --budget {budget}")


def kinds_of(errors: Mapping[str, int]) -> str:
    return ", ".join(f"{count:,} {kind}" for kind, count in errors.items()) or "none has ended"


def undisturbed_s(alone: Figures) -> float:
    """Time of a unit, less that for which it could have run and had no CPU: beside other programs work that computes
    would else seem to wait."""
    middle = alone.latency_s.get("50", ALONE_SECONDS)
    mean = alone.run_s or (alone.wall_s / alone.units if alone.units else middle)
    return max(alone.cpu_each_s, min(middle, mean - alone.delayed_each_s))


def first_of(work: Work) -> Setting:
    """The setting that the work is tried with first. Which one an app can run under shows when it has started."""
    return Setting("auto", 1) if isinstance(work, App | Handler) else Setting("process", 1)


def trial_of(work: Work, setting: Setting, tell: Tell, until: float) -> Trial:
    return contender_of(work, setting).start(tell, until)


def space(probe: Probe, memory_bytes: int | None = None) -> list[Setting]:
    """Settings that are worth a try for such work, those of which most is to be hoped first; of them, those that cost
    least: a tuning that has no time for all has tried what is most likely. Those that would not fit into the memory
    that is free, or that is allowed, are left out."""
    most = min(FREE_SHARE * watching.free_bytes() + probe.whole_bytes, memory_bytes or math.inf)
    return [one for one in everything(probe) if one.workers == 1 or probe.bytes_of(one) <= most]


def everything(probe: Probe) -> list[Setting]:
    n, wanted = probe.cpus, probe.slots_wanted
    threads = probe.threads_allowed and probe.threads_fail is None
    if probe.interface == "asgi":
        each = [(workers, count) for workers in {1, n, 2 * n} for count in CONNECTIONS]
        return by_hope(probe, [Setting("async", workers, tasks=count) for workers, count in each])
    found = [Setting("process", 1), Setting("process", n)]
    if probe.is_async:
        tasks = {1, 8, 64, 256, 1024}
        found += [Setting("async", workers, tasks=count) for workers in {1, n, 2 * n} for count in tasks]
        found += [Setting("process", 4 * n), *([Setting("thread", n, threads=8)] if threads else [])]
        return by_hope(probe, found)
    found += [Setting("process", workers) for workers in sizes(n, min(WORKERS_MAX, 2 * wanted))]
    for workers in {1, n} if threads else ():
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
