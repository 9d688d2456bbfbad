"""`clutch tune`: the setting with the highest rate, or the highest that keeps to an objective.

A probe says what the work is; settings that follow from it are measured briefly, each on a fresh start; the better half
of them longer, and so on (successive halving: K. Jamieson, A. Talwalkar, "Non-stochastic best arm identification and
hyperparameter optimization", AISTATS 2016). The last few are started again and played against each other in rounds.
Of those that the rounds cannot tell apart, the one that costs least wins; it is started once more, and what it reaches
then is what a deployment may expect.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass

from clutch.errors import ClutchError
from clutch.lab.comparing import ROUNDS_MIN, ratio_of
from clutch.lab.contender import contender_of
from clutch.lab.field import Field, Tell, round_of, warm_up
from clutch.lab.load import Figures, Load, typical
from clutch.lab.outcome import Found, Goal
from clutch.lab.probing import Probe, probe, space, trial_of
from clutch.lab.scoring import basis_of, best_of, cpu_each_s, scores_of
from clutch.lab.setting import Setting
from clutch.lab.trial import TrialFailed
from clutch.lab.work import Work

FINALISTS = 4
ROUNDS = 60
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
LATE_SECONDS = 10.0
"""By which a tuning may take longer than its budget, to end what it has begun."""
FAILED_MAX, FAILED_TIMES = 0.01, 1.5
"""Share of units that may fail under a setting, beside so many times the share that fails alone."""
TRIED_MIN = 2
"""Settings that are measured however little time there is: one alone tells nothing."""


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
        left = space(learnt, self.goal.memory_bytes)
        self.found.space = len(left)
        least = self.least()
        final_s = TRIED_MIN * self.final_each(least) + self.spare(least)
        self.final_at = min(began + budget_s * (1 - FINAL_SHARE), self.until - final_s)
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
        if time.monotonic() > self.until:
            self.tell("there is no time for a final")
        else:
            self.play(left[:FINALISTS])

    @property
    def late(self) -> float:
        """When nobody waits any more for what has begun in time."""
        return self.until + LATE_SECONDS

    def is_good(self, rounds: Sequence[Figures]) -> bool:
        """Whether it does the work as it does alone, and keeps to the objective."""
        most = FAILED_MAX + FAILED_TIMES * self.found.probe.failed
        return any(one.units for one in rounds) and typical(rounds).failed <= most and self.goal.is_met(*rounds)

    def load_of(self, setting: Setting) -> Load:
        return self.goal.load_of(self.work, setting, self.found.probe.wall_s > LONG_SECONDS)

    def halve(self, settings: Sequence[Setting], seconds: float) -> list[Setting]:
        """Measure each, on a fresh start, and return the better half, the best first."""
        found = self.found
        for setting in settings:
            late = time.monotonic() > self.final_at
            if late and (found.seen >= TRIED_MIN or time.monotonic() > self.until):
                self.tell("there is no time for more settings: a larger --budget tries all")
                break
            load = self.load_of(setting)
            try:
                with trial_of(self.work, setting, self.tell, self.until) as trial:
                    trial.measure(load, seconds / 3)  # warms up
                    found.tried[setting] = trial.measure(load, seconds)
            except TrialFailed as error:
                found.failed[setting] = str(error)
                found.tried.pop(setting, None)
                self.tell(f"{setting!s:20} fails: {str(error).splitlines()[0]}")
            else:
                figures = found.tried[setting]
                share = figures.rate / found.probe.ideal(setting, figures.cpu_each_s)
                cpu_us = figures.cpu_each_s * 1e6
                self.tell(f"{setting!s:20} {figures.rate:10,.1f}/s  {share:4.0%} of ideal  {cpu_us:9,.0f} µs CPU each")
        scores = scores_of({one: [found.tried[one]] for one in settings if one in found.tried}, found.probe)
        good = [one for one in settings if one in scores and self.is_good([found.tried[one]])]
        good.sort(key=lambda one: -scores[one][0])
        hopeful = [one for one in good if scores[one][0] >= HOPEFUL * scores[good[0]][0]]
        return hopeful[: max(FINALISTS, len(good) // 2)]

    def play(self, finalists: Sequence[Setting]) -> None:
        """Start the last few again, and measure them in turn; then the winner once more."""
        found = self.found
        least = self.least()
        playing = {str(one): one for one in finalists[: self.room(least)]}
        contenders = [contender_of(self.work, one, self.load_of(one)) for one in playing.values()]
        failed: dict[str, str] = {}
        try:
            with Field(contenders, self.tell, failed, until=self.late) as field:
                field.start(lambda one, trial: warm_up(trial, one.load, least))
                rounds, window = self.rounds_for(len(field.trials), least)
                seconds = rounds * len(field.trials) * (window + BETWEEN_SECONDS)
                self.tell(
                    f"the final: {', '.join(field.trials)}; {rounds} rounds of {window:.2g} s, about {seconds:.0f} s"
                )
                for nr, turn in enumerate(field.rounds(rounds, self.seed)):
                    if nr and time.monotonic() > self.until:
                        break
                    for name, figures in round_of(field, turn, window, nr).items():
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
        with Field([again], self.tell, until=self.late) as field, field.left_out(again):
            field.start(lambda one, trial: warm_up(trial, one.load, least))
            if (trial := field.trials.get(again.name)) is not None:
                found.again = trial.measure(again.load, AGAIN_WINDOWS * least)
                found.is_goal_met = self.is_good([*found.played[found.winner], found.again])
        found.not_again = field.failed.get(again.name, "").splitlines()[0] if field.failed else None

    def room(self, window: float) -> int:
        """As many as there is time to play in as many rounds as tell something."""
        left = self.until - time.monotonic() - self.spare(window)
        return max(TRIED_MIN, int(left / self.final_each(window)))

    def least(self) -> float:
        """Seconds of a window of the final, at the least."""
        units = UNITS_SERVED if self.found.probe.interface else UNITS_CALLED
        return max(FINAL_SECONDS, units * self.found.probe.wall_s)

    def final_each(self, window: float) -> float:
        """What it takes to play a setting in as many rounds as tell something."""
        return self.found.probe.start_s + (ROUNDS_MIN + WARM_WINDOWS) * (window + BETWEEN_SECONDS)

    def spare(self, window: float) -> float:
        """What it takes to start the winner once more."""
        return self.found.probe.start_s + (WARM_WINDOWS + AGAIN_WINDOWS) * window

    def rounds_for(self, count: int, least: float) -> tuple[int, float]:
        """As many as there is time for, and their windows: many short ones tell more than a few long ones, as what
        disturbs a machine lasts longer than they do."""
        each = max(0.0, self.until - self.spare(least) - time.monotonic()) / max(1, count)
        rounds = max(1, min(ROUNDS, int(each / (least + BETWEEN_SECONDS))))
        return rounds, max(least, min(FINAL_SECONDS_MAX, each / rounds - BETWEEN_SECONDS))

    def judge(self) -> None:
        found = self.found
        scores = scores_of(found.played, found.probe)
        found.basis = basis_of(found.played, found.probe)
        found.missed = {one for one, rounds in found.played.items() if not self.is_good(rounds)}
        kept = {one: scores[one] for one in found.played if one not in found.missed}
        if not kept:
            raise nothing_meets(self.goal, found)
        found.winner = best_of(kept, {one: cpu_each_s(rounds) for one, rounds in found.played.items()})
        for setting in scores:
            if setting != found.winner:
                ratio = found.ratios[setting] = ratio_of(scores[setting], scores[found.winner])
                self.tell(f"{setting!s:20} {ratio} × {found.winner}: {found.word_of(setting)}")


def tune(
    work: Work,
    goal: Goal,
    cpus: int,
    budget_s: float,
    tell: Tell,
    seed: int = 0,
    threads_ok: bool = False,
) -> Found:
    """Raises TrialFailed where the work itself fails, NothingMeets where no setting keeps to the goal, TooShort."""
    began = time.monotonic()
    learnt = probe(work, cpus, threads_ok, tell, budget_s)
    for sentence in learnt.sentences():
        tell(sentence)
    refuse_impossible(learnt, goal)
    found = Found(learnt, Setting("process", 1), {}, {}, units_wanted=goal.units_wanted())
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


def refuse_impossible(learnt: Probe, goal: Goal) -> None:
    """Raises NothingMeets for an objective that one unit, or one worker, misses by itself."""
    if goal.latency_s is not None and learnt.wall_s > goal.latency_s:
        took, most = learnt.wall_s * 1e3, goal.latency_s * 1e3
        raise NothingMeets(
            f"no setting keeps to {most:g} ms: alone, with nothing beside it, a unit takes {took:.2f} ms"
        )
    if goal.memory_bytes is not None and learnt.whole_bytes > goal.memory_bytes:
        took, most = learnt.whole_bytes / 1e6, goal.memory_bytes / 1e6
        raise NothingMeets(f"no setting keeps to {most:,.0f} MB: with one worker it takes {took:,.0f} MB already")


def thinned(settings: Sequence[Setting], room: int) -> list[Setting]:
    """As many as there is time for, spread evenly over all."""
    count = min(len(settings), max(FINALISTS, room))
    return [settings[nr * len(settings) // count] for nr in range(count)] if count else []


def nothing_meets(goal: Goal, found: Found) -> NothingMeets:
    if not found.tried:
        reasons = "\n".join(dict.fromkeys(found.failed.values()))
        return NothingMeets(f"no setting could be measured:\n{reasons}")
    nearest = min(found.tried, key=lambda one: found.tried[one].latency_s.get(goal.percentile, math.inf))
    figures = found.tried[nearest]
    if figures.failed > found.probe.failed + FAILED_MAX:
        return NothingMeets(f"no setting does the work: {figures.failed:.0%} of it failed under {nearest}")
    latency_ms = figures.latency_s.get(goal.percentile, math.inf) * 1e3
    said = f"p{goal.percentile} {latency_ms:.1f} ms, {figures.pss_bytes / 1e6:.0f} MB"
    seen = found.seen
    who = "no setting" if seen >= found.space else f"none of the {seen} settings that there was time for"
    more = "" if seen >= found.space else f"; {found.space} are worth a try: give it more time (--budget)"
    return NothingMeets(f"{who} keeps to the objective; the nearest is {nearest}: {said}{more}")
