"""`clutch tune`: the setting with the highest rate, or the highest that keeps to an objective.

A probe says what the work is; settings that follow from it are measured briefly, each on a fresh start; the better half
of them longer, and so on (successive halving: K. Jamieson, A. Talwalkar, "Non-stochastic best arm identification and
hyperparameter optimization", AISTATS 2016). The last few are started again and played against each other in rounds.
Of those that the rounds cannot tell apart, the one that costs least wins.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from clutch.errors import ClutchError
from clutch.lab.comparing import Ratio, Verdict, ratio_of, rounds_of
from clutch.lab.probing import Probe, cost, probe, space
from clutch.lab.setting import Setting
from clutch.lab.trial import Figures, Trial, TrialFailed, Work

FINALISTS = 4
ROUNDS = 12
ROUNDS_MIN = 6
WINDOW_SECONDS, WINDOW_SECONDS_MAX = 0.3, 2.0
FINAL_SHARE = 0.4
"""Of the budget."""
HOPEFUL = 0.5
"""Share of the best rate below which a setting is not tried again."""
CLOSE = 0.97
"""A cheaper setting is preferred only if it reaches this share of the best, whatever the rounds cannot tell."""
CALLERS_MAX = 2048


@dataclass(frozen=True)
class Goal:
    """What is wanted beside a high rate. Seconds and bytes; None: no limit."""

    percentile: str = "99"
    latency_s: float | None = None
    memory_bytes: int | None = None

    def is_met(self, figures: Figures) -> bool:
        slow = self.latency_s is not None and figures.latency_s.get(self.percentile, math.inf) > self.latency_s
        large = self.memory_bytes is not None and figures.pss_bytes > self.memory_bytes
        return not slow and not large

    def callers(self, setting: Setting) -> int:
        """With an objective nobody waits for a slot; without one there is always work that waits."""
        return setting.slots if self.latency_s is not None else min(2 * setting.slots, max(CALLERS_MAX, setting.slots))


@dataclass
class Found:
    """What a tuning has shown. `played`: figures of each setting, round by round."""

    probe: Probe
    winner: Setting
    tried: dict[Setting, Figures]
    failed: dict[Setting, str]
    played: dict[Setting, list[Figures]] = field(default_factory=dict)
    ratios: dict[Setting, Ratio] = field(default_factory=dict)
    """Of each finalist to the winner."""
    seconds: float = 0.0


class NothingMeets(ClutchError):
    """No setting keeps to the objective."""


def tune(work: Work, goal: Goal, cpus: int, budget_s: float, tell: Callable[[str], object], seed: int = 0) -> Found:
    """Raises TrialFailed where the work itself fails, NothingMeets where no setting keeps to the goal."""
    began = time.monotonic()
    learnt = probe(work, cpus)
    for sentence in learnt.sentences():
        tell(sentence)
    window = max(WINDOW_SECONDS, 6 * learnt.wall_s)
    found = Found(learnt, Setting("process", 1), {}, {})
    left = space(learnt)
    until = began + budget_s * (1 - FINAL_SHARE)
    while True:
        # What follows takes half as long each time, so the first pass may take half of what there is.
        room = int((until - time.monotonic()) / 2 / (learnt.start_s + 1.5 * window))
        left = halve(work, goal, thinned(left, room), window, found, tell)
        if len(left) <= FINALISTS or time.monotonic() > until:
            break
        window = min(1.5 * window, WINDOW_SECONDS_MAX)
    if not left:
        raise nothing_meets(goal, found)
    play(work, goal, left[:FINALISTS], began + budget_s, found, tell, seed)
    found.seconds = time.monotonic() - began
    return found


def thinned(settings: Sequence[Setting], room: int) -> list[Setting]:
    """As many as there is time for, spread evenly over all."""
    count = min(len(settings), max(FINALISTS, room))
    return [settings[nr * len(settings) // count] for nr in range(count)] if count else []


def halve(
    work: Work, goal: Goal, settings: Sequence[Setting], seconds: float, found: Found, tell: Callable[[str], object]
) -> list[Setting]:
    """Measure each, on a fresh start, and return the better half, the best first."""
    for setting in settings:
        try:
            with Trial(work, setting) as trial:
                trial.measure(goal.callers(setting), seconds / 3)  # warms up
                found.tried[setting] = trial.measure(goal.callers(setting), seconds)
        except TrialFailed as error:
            found.failed[setting] = str(error)
            found.tried.pop(setting, None)
        else:
            figures = found.tried[setting]
            tell(f"{setting!s:20} {figures.rate:10,.1f}/s  {figures.cpu_each_s * 1e6:9,.0f} µs CPU a call")
    good = [one for one in settings if one in found.tried and goal.is_met(found.tried[one]) and found.tried[one].units]
    good.sort(key=lambda one: -found.tried[one].rate)
    hopeful = [one for one in good if found.tried[one].rate >= HOPEFUL * found.tried[good[0]].rate]
    return hopeful[: max(FINALISTS, len(good) // 2)]


def play(
    work: Work,
    goal: Goal,
    finalists: Sequence[Setting],
    until: float,
    found: Found,
    tell: Callable[[str], object],
    seed: int,
) -> None:
    """Start the last few again, and measure them in turn."""
    trials: dict[Setting, Trial] = {}
    try:
        for setting in finalists:
            trials[setting] = Trial(work, setting)
            trials[setting].measure(goal.callers(setting), WINDOW_SECONDS)
        window = max(WINDOW_SECONDS, 4 * found.probe.wall_s)
        rounds = int((until - time.monotonic()) / (len(trials) * (window + 0.05)))
        rounds = max(ROUNDS_MIN, min(ROUNDS, rounds))
        found.played = {setting: [] for setting in trials}
        for order in rounds_of(list(trials), rounds, seed):
            for setting in order:
                found.played[setting].append(trials[setting].measure(goal.callers(setting), window))
    finally:
        for trial in trials.values():
            trial.end()
    found.winner = best_of(found.played)
    ours = [figures.rate for figures in found.played[found.winner]]
    for setting, figures in found.played.items():
        if setting != found.winner:
            found.ratios[setting] = ratio_of([one.rate for one in figures], ours)
            tell(f"{setting!s:20} {found.ratios[setting]} × {found.winner}: {found.ratios[setting].verdict.value}")


def best_of(played: dict[Setting, list[Figures]]) -> Setting:
    """The one that costs least among those that nobody has beaten plainly."""
    rates = {setting: [max(one.rate, 1e-9) for one in figures] for setting, figures in played.items()}
    best = max(rates, key=lambda setting: statistics.median(rates[setting]))

    def is_as_good(setting: Setting) -> bool:
        ratio = ratio_of(rates[setting], rates[best])
        return setting == best or (ratio.verdict is not Verdict.WORSE and ratio.median >= CLOSE)

    return min(filter(is_as_good, rates), key=cost)


def nothing_meets(goal: Goal, found: Found) -> NothingMeets:
    if not found.tried:
        reasons = "\n".join(found.failed.values())
        return NothingMeets(f"no setting works:\n{reasons}")
    nearest = min(found.tried, key=lambda one: found.tried[one].latency_s.get(goal.percentile, math.inf))
    figures = found.tried[nearest]
    latency_ms = figures.latency_s.get(goal.percentile, math.inf) * 1e3
    said = f"p{goal.percentile} {latency_ms:.1f} ms, {figures.pss_bytes / 1e6:.0f} MB"
    return NothingMeets(f"no setting keeps to the objective; the nearest is {nearest}: {said}")
