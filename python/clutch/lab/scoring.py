"""What settings are compared by: their rates, or the rates that the CPU time of a unit allows. Which of those that
nobody has beaten plainly is the best."""

from __future__ import annotations

import enum
import math
import statistics
from collections.abc import Mapping, Sequence

from clutch.lab.comparing import Verdict, ratio_of
from clutch.lab.load import Figures
from clutch.lab.probing import Probe, cost
from clutch.lab.setting import Setting

CLOSE = 0.95
"""A cheaper setting is preferred only if it reaches this share of the best, whatever the rounds cannot tell."""
LEAN = 1.1
"""A setting that takes so many times the CPU time of another for each unit is not preferred to it for being cheaper."""
IDLE_MIN = 0.15
"""Share of all CPU time that is idle while the CPUs are not the limit."""
COMPUTES = 0.5
"""Share of its time that work waits at most to be said to compute."""
OTHERS_MIN = 0.05
"""Share of all CPU time that other programs take before rates are not believed."""

Played = Mapping[Setting, Sequence[Figures]]
"""Figures of each setting, round by round."""


class Basis(enum.Enum):
    """What is compared. The scheduler gives more of the CPUs to who has more threads that want to run, and so do rates:
    beside other programs, or beside the load itself, the setting with the most slots would look best."""

    RATES = "rates"
    DISTURBED = "the CPU time of a unit, as other programs used the CPUs meanwhile"
    SATURATED = "the CPU time of a unit, as it is the CPUs that are the limit"


def basis_of(played: Played, probe: Probe) -> Basis:
    """By CPU time where other programs have taken what the work could have used: all of it if the work computes. And
    where work that computes has used all CPUs, together with its load."""
    by_setting = {setting: rounds for setting, rounds in played.items() if any(one.units for one in rounds)}
    figures = [one for rounds in by_setting.values() for one in rounds if one.wall_s > 0]
    if not figures:
        return Basis.RATES
    computes = probe.waits < COMPUTES
    if statistics.median(one.others_cpu_s / one.wall_s for one in figures) / probe.cpus > OTHERS_MIN:
        return Basis.DISTURBED if computes or idle(figures, probe) < IDLE_MIN else Basis.RATES
    fastest = max(by_setting.values(), key=lambda rounds: statistics.median(one.rate for one in rounds))
    is_known = all(one.run_s is not None for one in figures if one.units)
    return Basis.SATURATED if computes and is_known and idle(fastest, probe) < IDLE_MIN else Basis.RATES


def idle(figures: Sequence[Figures], probe: Probe) -> float:
    """Share of all CPU time."""
    return statistics.median(one.idle_s / one.wall_s for one in figures if one.wall_s > 0) / probe.cpus


def scores_of(played: Played, probe: Probe) -> dict[Setting, list[float]]:
    """What is compared, round by round: units a second."""
    if basis_of(played, probe) is Basis.RATES:
        return {setting: [max(one.rate, 1e-9) for one in rounds] for setting, rounds in played.items()}
    known = [one for rounds in played.values() for one in rounds if one.units and one.knows_cpu]
    least = min((one.cpu_each_s for one in known), default=0.0)
    return {
        setting: [max(capacity(setting, one, probe, least), 1e-9) for one in rounds]
        for setting, rounds in played.items()
    }


def capacity(setting: Setting, figures: Figures, probe: Probe, least_cpu_s: float) -> float:
    """The rate of a setting, had it the CPUs for itself: no more than the CPUs bear with the load beside it, than those
    that it can use do (one for each worker where threads take turns), and than its slots do, with units that run as
    long as they did, less the time for which they had no CPU. Where that is not known: its ideal, less what its units
    take in CPU time beyond `least_cpu_s`."""
    if not figures.units:
        return 0.0
    if not figures.knows_cpu:
        return figures.rate
    slots = min(setting.slots, figures.callers or setting.slots)
    with_load = figures.cpu_each_s + figures.load_cpu_s / figures.units
    by_cpu = probe.cpus / with_load if with_load > 0 else math.inf
    if figures.cpu_each_s > 0:
        by_cpu = min(by_cpu, probe.cpus_of(setting) / figures.cpu_each_s)
    if figures.run_s:
        return min(by_cpu, slots / max(figures.run_s - figures.delayed_each_s, figures.cpu_each_s, 1e-9))
    waiting = max(0.0, probe.wall_s - probe.cpu_s)
    lean = (waiting + least_cpu_s) / (waiting + figures.cpu_each_s) if figures.cpu_each_s > 0 else 1.0
    return min(by_cpu, probe.ideal(setting, least_cpu_s) * min(1.0, lean))


def best_of(scores: Mapping[Setting, Sequence[float]], cpu_each_s: Mapping[Setting, float | None]) -> Setting:
    """Of those that nobody has beaten plainly: the one that costs least, unless it takes more CPU time, or nobody knows
    how much it takes."""
    best = max(scores, key=lambda setting: statistics.median(scores[setting]))

    def is_as_good(setting: Setting) -> bool:
        ratio = ratio_of(scores[setting], scores[best])
        return setting == best or (ratio.verdict is not Verdict.WORSE and ratio.median >= CLOSE)

    alike = [setting for setting in scores if is_as_good(setting)]
    known = {setting: cpu for setting in alike if (cpu := cpu_each_s.get(setting)) is not None}
    lean = [setting for setting, cpu in known.items() if cpu <= LEAN * min(known.values())]
    return min(lean or alike, key=cost)


def cpu_each_s(rounds: Sequence[Figures]) -> float | None:
    """The middle of the rounds in which it is known."""
    known = [one.cpu_each_s for one in rounds if one.units and one.knows_cpu]
    return statistics.median(known) if known else None
