"""`clutch tune`: the setting with the highest rate, or the highest that keeps to an objective.

A probe says what the work is; settings that follow from it are measured briefly, each on a fresh start; the better half
of them longer, and so on (successive halving: K. Jamieson, A. Talwalkar, "Non-stochastic best arm identification and
hyperparameter optimization", AISTATS 2016). The last few are started again and played against each other in rounds.
Of those that the rounds cannot tell apart, the one that costs least wins; it is started once more, and what it reaches
then is what a deployment may expect.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from clutch.errors import ClutchError
from clutch.lab.comparing import ROUNDS_MIN, Ratio, ratio_of
from clutch.lab.contender import contender_of
from clutch.lab.field import Field, Tell, round_of, warm_up
from clutch.lab.load import Figures, Load, typical
from clutch.lab.probing import Probe, probe, space, trial_of
from clutch.lab.scoring import Basis, basis_of, best_of, scores_of
from clutch.lab.setting import Setting
from clutch.lab.trial import TrialFailed
from clutch.lab.work import Work

FINALISTS = 4
ROUNDS = 60
ROUNDS_LEAST = 3
"""Rounds that are played however little time there is."""
WARM_WINDOWS = 2
"""Windows that warming up takes as a rule."""
AGAIN_WINDOWS = 4
"""Windows for which the winner is measured on a fresh start."""
BETWEEN_SECONDS = 0.03
"""What a measurement takes beside its window."""
FINAL_SECONDS, FINAL_SECONDS_MAX = 0.1, 0.5
"""Windows of the final."""
UNITS_CALLED, UNITS_SERVED = 4, 8
"""Run times of a unit that a window of the final has at least."""
LONG_SECONDS = 0.25
WINDOW_SECONDS, WINDOW_SECONDS_MAX = 0.3, 2.0
FINAL_SHARE = 0.45
"""Of the budget."""
HOPEFUL = 0.5
"""Share of the best rate below which a setting is not tried again."""
CALLERS_MAX = 2048
DEPLOYED_MIN = 0.9
"""Share of its rate in the final that the winner reaches on a fresh start, or it is said."""
TRIED_MIN = 2
"""Settings that are measured however little time there is: one alone tells nothing."""


@dataclass(frozen=True)
class Goal:
    """What is wanted beside a high rate. Seconds and bytes; None: no limit. `load`: what is asked of each setting;
    None: what the work is asked for unless somebody says."""

    percentile: str = "99"
    latency_s: float | None = None
    memory_bytes: int | None = None
    load: Load | None = None

    def is_met(self, *rounds: Figures) -> bool:
        """By the middle of the percentiles of all rounds, and by the memory of each."""
        latency = statistics.median(one.latency_s.get(self.percentile, math.inf) for one in rounds)
        slow = self.latency_s is not None and latency > self.latency_s
        large = self.memory_bytes is not None and max(one.pss_bytes for one in rounds) > self.memory_bytes
        return not slow and not large

    def load_of(self, work: Work, setting: Setting, is_long: bool = False) -> Load:
        """With an objective nobody waits for a slot; without one there is always work that waits, unless it takes so
        long that waiting for what waits would take the whole budget."""
        if self.load is not None:
            return self.load
        wanted = work.load(setting)
        if self.latency_s is not None or is_long:
            return Load(min(wanted.callers, setting.slots))
        # More would only wait, and be waited for at the end of each measurement.
        return Load(min(wanted.callers, CALLERS_MAX, 2 * setting.slots))


@dataclass
class Found:
    """What a tuning has shown. `played`: figures of each setting, round by round; `again`: of the winner, on a fresh
    start after the final."""

    probe: Probe
    winner: Setting
    tried: dict[Setting, Figures]
    failed: dict[Setting, str]
    space: int = 0
    """Settings that were worth a try."""
    played: dict[Setting, list[Figures]] = field(default_factory=dict)
    ratios: dict[Setting, Ratio] = field(default_factory=dict)
    """Of each finalist to the winner."""
    again: Figures | None = None
    basis: Basis = Basis.RATES
    """What the settings were compared by."""
    is_goal_met: bool = True
    """Of the winner, also when it was started again."""
    seconds: float = 0.0
    is_whole: bool = True
    """False: it was interrupted."""

    @property
    def is_sure(self) -> bool:
        """Whether the winner has been compared with all that were worth a try, or with enough of them."""
        return len(self.tried) + len(self.failed) >= min(self.space, FINALISTS) and bool(self.played)

    @property
    def deployed(self) -> float | None:
        """Rate of the winner on a fresh start to that in the final."""
        if self.again is None or not (rounds := self.played.get(self.winner)):
            return None
        rate = statistics.median(one.rate for one in rounds)
        return self.again.rate / rate if rate else None

    def cautions(self) -> list[str]:
        """What makes the result less sure than it seems."""
        said = []
        seen = len(self.tried) + len(self.failed)
        if not self.is_sure:
            said.append(
                f"only {seen} of {self.space} settings could be measured in this time: whether another is better is "
                "not known; give it more (--budget)"
            )
        if not self.is_whole:
            said.append("it was interrupted: this is the best of what was measured until then")
        if not self.is_goal_met:
            said.append("started again, the winner did not keep to the objective: it is at its edge")
        if self.basis is Basis.DISTURBED:
            said.append("other programs used the CPUs meanwhile: settings were compared by CPU time, not by rates")
        widths = [ratio.high / ratio.low for ratio in self.ratios.values()]
        if widths and min(widths) > 1.25:
            said.append(
                f"this machine is too noisy to tell settings apart in this time: ratios are uncertain by "
                f"{(min(widths) - 1) / 2:.0%} or more; repeat with more time (--budget), or with less beside it"
            )
        if self.deployed is not None and self.deployed < DEPLOYED_MIN and self.basis is not Basis.DISTURBED:
            said.append(f"started again, the winner reached only {self.deployed:.0%} of its rate in the final")
        if self.deployed is not None and self.deployed > 1 / DEPLOYED_MIN and self.basis is not Basis.DISTURBED:
            said.append(f"this machine has changed meanwhile: started again, the winner reached {self.deployed:.0%}")
        if self.played and (rounds := min(map(len, self.played.values()))) < ROUNDS_MIN and len(self.played) > 1:
            said.append(f"there was time for {rounds} rounds only, and fewer than {ROUNDS_MIN} tell nothing apart")
        reasons = dict.fromkeys(one.spoiled for one in self.played.get(self.winner, ()) if one.spoiled)
        return said + [f"more may be possible: {reason}" for reason in reasons if reason]


class NothingMeets(ClutchError):
    """No setting keeps to the objective."""


@dataclass
class Search:
    """One tuning under way."""

    work: Work
    goal: Goal
    until: float
    tell: Tell
    found: Found
    seed: int = 0
    final_at: float = 0.0
    """When the last few are to be played, by the clock of `until`."""

    def run(self, began: float, budget_s: float) -> None:
        learnt = self.found.probe
        window = max(WINDOW_SECONDS, min(6 * learnt.wall_s, budget_s / 20))
        left = space(learnt)
        self.found.space = len(left)
        self.final_at = began + budget_s * (1 - FINAL_SHARE)
        while True:
            # What follows takes half as long each time, so the first pass may take half of what there is.
            each = learnt.start_s + 1.5 * window
            left = thinned(left, int((self.final_at - time.monotonic()) / 2 / each))
            self.tell(f"{len(left)} settings, {window:.1f} s each, about {len(left) * each:.0f} s with their starts")
            left = self.halve(left, window)
            if len(left) <= FINALISTS or time.monotonic() > self.final_at:
                break
            window = min(1.5 * window, max(WINDOW_SECONDS_MAX, 4 * learnt.wall_s))
        if not left:
            raise nothing_meets(self.goal, self.found)
        self.found.winner = left[0]
        self.play(left[:FINALISTS])

    def load_of(self, setting: Setting) -> Load:
        return self.goal.load_of(self.work, setting, self.found.probe.wall_s > LONG_SECONDS)

    def halve(self, settings: Sequence[Setting], seconds: float) -> list[Setting]:
        """Measure each, on a fresh start, and return the better half, the best first."""
        found = self.found
        for setting in settings:
            if time.monotonic() > self.final_at and len(found.tried) >= TRIED_MIN:
                self.tell("there is no time for more settings: a larger --budget tries all")
                break
            load = self.load_of(setting)
            try:
                with trial_of(self.work, setting, self.tell) as trial:
                    trial.measure(load, seconds / 3)  # warms up
                    found.tried[setting] = trial.measure(load, seconds)
            except TrialFailed as error:
                found.failed[setting] = str(error)
                found.tried.pop(setting, None)
                self.tell(str(error).splitlines()[0])
            else:
                figures = found.tried[setting]
                share = figures.rate / found.probe.ideal(setting, figures.cpu_each_s)
                cpu_us = figures.cpu_each_s * 1e6
                self.tell(f"{setting!s:20} {figures.rate:10,.1f}/s  {share:4.0%} of ideal  {cpu_us:9,.0f} µs CPU each")
        scores = scores_of({one: [found.tried[one]] for one in settings if one in found.tried}, found.probe)
        good = [
            one for one in settings if one in scores and self.goal.is_met(found.tried[one]) and found.tried[one].units
        ]
        good.sort(key=lambda one: -scores[one][0])
        hopeful = [one for one in good if scores[one][0] >= HOPEFUL * scores[good[0]][0]]
        return hopeful[: max(FINALISTS, len(good) // 2)]

    def play(self, finalists: Sequence[Setting]) -> None:
        """Start the last few again, and measure them in turn; then the winner once more."""
        found = self.found
        least = max(FINAL_SECONDS, (UNITS_SERVED if found.probe.interface else UNITS_CALLED) * found.probe.wall_s)
        playing = {str(one): one for one in finalists[: self.room(least)]}
        contenders = [contender_of(self.work, one, self.load_of(one)) for one in playing.values()]
        failed: dict[str, str] = {}
        try:
            with Field(contenders, self.tell, failed) as field:
                field.start(lambda one, trial: warm_up(trial, one.load, least))
                rounds, window = self.rounds_for(len(field.trials), least)
                seconds = rounds * len(field.trials) * (window + BETWEEN_SECONDS)
                self.tell(
                    f"the final: {', '.join(field.trials)}; {rounds} rounds of {window:.2g} s, about {seconds:.0f} s"
                )
                for nr, turn in enumerate(field.rounds(rounds, self.seed)):
                    if nr >= ROUNDS_LEAST and time.monotonic() > self.until:
                        break
                    for name, figures in round_of(field, turn, window).items():
                        found.played.setdefault(playing[name], []).append(figures)
        finally:
            for name, reason in failed.items():
                found.failed[playing[name]] = reason
                found.played.pop(playing[name], None)
            if found.played:
                self.judge()
        if not found.played:
            raise TrialFailed(next(iter(found.failed.values())))
        again = contender_of(self.work, found.winner, self.load_of(found.winner))
        with Field([again], self.tell) as field, field.left_out(again):
            field.start(lambda one, trial: warm_up(trial, one.load, least))
            if (trial := field.trials.get(again.name)) is not None:
                found.again = trial.measure(again.load, AGAIN_WINDOWS * least)
                found.is_goal_met = self.goal.is_met(found.again)

    def room(self, window: float) -> int:
        """As many as there is time to play in as many rounds as tell something."""
        left = self.until - time.monotonic() - self.spare(window)
        each = self.found.probe.start_s + (ROUNDS_MIN + WARM_WINDOWS) * (window + BETWEEN_SECONDS)
        return max(TRIED_MIN, int(left / each))

    def spare(self, window: float) -> float:
        """What it takes to start the winner once more."""
        return self.found.probe.start_s + (WARM_WINDOWS + AGAIN_WINDOWS) * window

    def rounds_for(self, count: int, least: float) -> tuple[int, float]:
        """As many as there is time for, and their windows: many short ones tell more than a few long ones, as what
        disturbs a machine lasts longer than they do."""
        each = max(0.0, self.until - self.spare(least) - time.monotonic()) / max(1, count)
        rounds = max(ROUNDS_LEAST, min(ROUNDS, int(each / (least + BETWEEN_SECONDS))))
        return rounds, max(least, min(FINAL_SECONDS_MAX, each / rounds - BETWEEN_SECONDS))

    def judge(self) -> None:
        found = self.found
        scores = scores_of(found.played, found.probe)
        found.basis = basis_of(found.played, found.probe)
        kept = {one: scores[one] for one, rounds in found.played.items() if self.goal.is_met(*rounds)}
        if not kept:
            raise nothing_meets(self.goal, found)
        found.winner = best_of(kept, {one: typical(rounds).cpu_each_s for one, rounds in found.played.items()})
        for setting in scores:
            if setting != found.winner:
                ratio = found.ratios[setting] = ratio_of(scores[setting], scores[found.winner])
                self.tell(f"{setting!s:20} {ratio} × {found.winner}: {ratio.verdict.value}")


def tune(
    work: Work,
    goal: Goal,
    cpus: int,
    budget_s: float,
    tell: Tell,
    seed: int = 0,
    threads_ok: bool = False,
) -> Found:
    """Raises TrialFailed where the work itself fails, NothingMeets where no setting keeps to the goal."""
    began = time.monotonic()
    learnt = probe(work, cpus, threads_ok, tell)
    for sentence in learnt.sentences():
        tell(sentence)
    found = Found(learnt, Setting("process", 1), {}, {})
    try:
        Search(work, goal, began + budget_s, tell, found, seed).run(began, budget_s)
    except KeyboardInterrupt:
        good = [one for one, figures in found.tried.items() if figures.units and goal.is_met(figures)]
        if not good:
            raise
        found.is_whole = False
        if not found.played:
            found.winner = max(good, key=lambda one: found.tried[one].rate)
    found.seconds = time.monotonic() - began
    return found


def thinned(settings: Sequence[Setting], room: int) -> list[Setting]:
    """As many as there is time for, spread evenly over all."""
    count = min(len(settings), max(FINALISTS, room))
    return [settings[nr * len(settings) // count] for nr in range(count)] if count else []


def nothing_meets(goal: Goal, found: Found) -> NothingMeets:
    if not found.tried:
        reasons = "\n".join(found.failed.values())
        return NothingMeets(f"no setting works:\n{reasons}")
    nearest = min(found.tried, key=lambda one: found.tried[one].latency_s.get(goal.percentile, math.inf))
    figures = found.tried[nearest]
    latency_ms = figures.latency_s.get(goal.percentile, math.inf) * 1e3
    said = f"p{goal.percentile} {latency_ms:.1f} ms, {figures.pss_bytes / 1e6:.0f} MB"
    seen = len(found.tried) + len(found.failed)
    who = "no setting" if seen >= found.space else f"none of the {seen} settings that there was time for"
    more = "" if seen >= found.space else f"; {found.space} are worth a try: give it more time (--budget)"
    return NothingMeets(f"{who} keeps to the objective; the nearest is {nearest}: {said}{more}")
