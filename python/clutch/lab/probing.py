"""What the work is: waiting or computing, and whether threads compute beside each other. What follows for the settings
that are worth a try."""

from __future__ import annotations

import importlib.util
import math
import sys
import time
from dataclasses import dataclass

from clutch.lab.benching import contender_of
from clutch.lab.load import Figures, Load
from clutch.lab.setting import Setting
from clutch.lab.trial import Trial
from clutch.lab.work import App, Handler, Work

ALONE_SECONDS = 0.4
THREADS = 4
"""Threads that are tried beside each other for the GIL."""
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
    threads_gain: float
    """Rate of THREADS threads of one worker to that of one thread."""
    cpus: int
    start_s: float
    """Time from nothing to a worker that is ready, and to its end."""
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
        """Whether threads of one worker compute beside each other."""
        return self.threads_gain > min(THREADS, self.cpus) * 0.6

    def ideal(self, setting: Setting, cpu_each_s: float = math.inf) -> float:
        """The rate that a setting could reach, were nothing lost: all its slots busy with units that take as long as
        alone, and no more CPU time used than its workers can use. `cpu_each_s`: of a unit beside others, which is often
        cheaper than alone."""
        beside = setting.workers * (max(1.0, min(self.threads_gain, setting.threads)) if setting.threads > 1 else 1)
        cpu = min(self.cpu_s, cpu_each_s or math.inf)
        waiting = max(0.0, self.wall_s - self.cpu_s) if self.interface is None else 0.0
        by_cpu = min(self.cpus, beside) / cpu if cpu > 0 else math.inf
        return min(by_cpu, setting.slots / (waiting + cpu) if waiting + cpu > 0 else math.inf)

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
        if not self.is_async and self.waits <= 0.5 and self.interface != "asgi":
            said.append(
                f"{THREADS} threads of one worker reach {self.threads_gain:.2f} × one thread: "
                + (
                    "they compute beside each other"
                    if self.threads_compute
                    else "they take turns (the GIL): workers pay"
                )
            )
        if not self.threads_allowed:
            said.append(
                "this Python has no GIL, so code that was safe in threads before may not be: `thread` is left out; "
                "--threads-ok tries it"
            )
        return said


def probe(work: Work, cpus: int, threads_ok: bool) -> Probe:
    """Raises TrialFailed."""
    began = time.perf_counter()
    first = first_of(work)
    with trial_of(work, first) as trial:
        interface = trial.hello.get("interface")
    start_s = time.perf_counter() - began
    if interface == "wsgi":
        first = Setting("process", 1)
    with trial_of(work, first) as one:
        is_async = one.is_async or interface == "asgi"
        seconds = max(ALONE_SECONDS, 4 * one.check_s)
        one.measure(Load(1), ALONE_SECONDS / 4)
        alone = one.measure(Load(1), seconds)
    wall, cpu = undisturbed_s(alone), alone.cpu_each_s
    allowed = threads_ok or getattr(sys, "_is_gil_enabled", lambda: True)()
    gain = 1.0
    if not is_async and allowed and not isinstance(work, Handler):
        with trial_of(work, Setting("thread", 1, threads=THREADS)) as several:
            seconds = max(ALONE_SECONDS, 4 * wall)
            one_at_a_time = several.measure(Load(1), seconds).rate
            gain = several.measure(Load(THREADS), seconds).rate / one_at_a_time if one_at_a_time else 1.0
    return Probe(wall, cpu, is_async, gain, cpus, start_s, interface, allowed)


def undisturbed_s(alone: Figures) -> float:
    """Time of a unit, less that for which it could have run and had no CPU: beside other programs work that computes
    would else seem to wait."""
    middle = alone.latency_s.get("50", ALONE_SECONDS)
    mean = alone.run_s or (alone.wall_s / alone.units if alone.units else middle)
    return max(alone.cpu_each_s, min(middle, mean - alone.delayed_each_s))


def first_of(work: Work) -> Setting:
    """The setting that the work is tried with first. Which one an app can run under shows when it has started."""
    return Setting("auto", 1) if isinstance(work, App | Handler) else Setting("process", 1)


def trial_of(work: Work, setting: Setting) -> Trial:
    return contender_of(work, setting).start()


def space(probe: Probe) -> list[Setting]:
    """Settings that are worth a try for such work, fewest processes first."""
    n, wanted = probe.cpus, probe.slots_wanted
    if probe.interface == "asgi":
        return ordered([Setting("async", workers, tasks=count) for workers in {1, n, 2 * n} for count in CONNECTIONS])
    found = [Setting("process", 1), Setting("process", n)]
    if probe.is_async:
        tasks = {1, 8, 64, 256, 1024}
        found += [Setting("async", workers, tasks=count) for workers in {1, n, 2 * n} for count in tasks]
        found += [Setting("process", 4 * n), *([Setting("thread", n, threads=8)] if probe.threads_allowed else [])]
        return ordered(found)
    found += [Setting("process", workers) for workers in sizes(n, min(WORKERS_MAX, 2 * wanted))]
    for workers in {1, n} if probe.threads_allowed else ():
        found += [
            Setting("thread", workers, threads=count) for count in sizes(2, max(4, math.ceil(4 * wanted / workers)))
        ]
    if probe.waits > WAITS and probe.interface != "tcp" and importlib.util.find_spec("gevent") is not None:
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
