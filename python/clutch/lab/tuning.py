"""`clutch tune`: the setting with the highest rate, or the highest that keeps to an objective.

A probe says what the work is; settings that follow from it are measured briefly, each on a fresh start; the better half
of them longer, and so on (successive halving: K. Jamieson, A. Talwalkar, "Non-stochastic best arm identification and
hyperparameter optimization", AISTATS 2016). The last few are started again and played against each other in rounds.
Of those that the rounds cannot tell apart, the one that costs least wins; it is started once more, and what it reaches
then is what a deployment may expect.
"""

from __future__ import annotations

import contextlib
import math
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from clutch.errors import ClutchError
from clutch.lab.benching import warm_up
from clutch.lab.comparing import Ratio, Verdict, ratio_of, rounds_of
from clutch.lab.load import Figures, Load, typical
from clutch.lab.probing import Probe, cost, probe, space, trial_of
from clutch.lab.setting import Setting
from clutch.lab.trial import Trial, TrialFailed
from clutch.lab.work import Work

FINALISTS = 4
ROUNDS = 40
ROUNDS_MIN = 8
LONG_SECONDS = 0.25
WINDOW_SECONDS, WINDOW_SECONDS_MAX = 0.3, 2.0
FINAL_SHARE = 0.45
"""Of the budget."""
HOPEFUL = 0.5
"""Share of the best rate below which a setting is not tried again."""
CLOSE = 0.95
"""A cheaper setting is preferred only if it reaches this share of the best, whatever the rounds cannot tell."""
LEAN = 1.1
"""A setting that takes so many times the CPU time of another for each unit is not preferred to it for being cheaper."""
CALLERS_MAX = 2048
IDLE_MIN = 0.15
"""Share of all CPU time that is idle while the CPUs are not the limit."""
COMPUTES = 0.5
"""Share of its time that work waits at most to be said to compute."""
OTHERS_MIN = 0.1
"""Share of all CPU time that other programs take before rates are not believed."""
DEPLOYED_MIN = 0.9
"""Share of its rate in the final that the winner reaches on a fresh start, or it is said."""


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
        return Load(min(wanted.callers, max(CALLERS_MAX, setting.slots)))


@dataclass
class Found:
    """What a tuning has shown. `played`: figures of each setting, round by round; `again`: of the winner, on a fresh
    start after the final."""

    probe: Probe
    winner: Setting
    tried: dict[Setting, Figures]
    failed: dict[Setting, str]
    played: dict[Setting, list[Figures]] = field(default_factory=dict)
    ratios: dict[Setting, Ratio] = field(default_factory=dict)
    """Of each finalist to the winner."""
    again: Figures | None = None
    by_cpu: bool = False
    """Whether other programs took so much CPU time that the settings were compared by theirs."""
    is_goal_met: bool = True
    """Of the winner, also when it was started again."""
    seconds: float = 0.0
    is_whole: bool = True
    """False: it was interrupted."""

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
        if not self.is_whole:
            said.append("it was interrupted: this is the best of what was measured until then")
        if not self.is_goal_met:
            said.append("started again, the winner did not keep to the objective: it is at its edge")
        if self.by_cpu:
            said.append("other programs used the CPUs meanwhile: settings were compared by CPU time, not by rates")
        widths = [ratio.high / ratio.low for ratio in self.ratios.values()]
        if widths and min(widths) > 1.25:
            said.append(
                f"this machine is too noisy to tell settings apart in this time: ratios are uncertain by "
                f"{(min(widths) - 1) / 2:.0%} or more; repeat with more time (--budget), or with less beside it"
            )
        if self.deployed is not None and self.deployed < DEPLOYED_MIN and not self.by_cpu:
            said.append(f"started again, the winner reached only {self.deployed:.0%} of its rate in the final")
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
    tell: Callable[[str], object]
    found: Found
    seed: int = 0
    final_at: float = 0.0
    """When the last few are to be played, by the clock of `until`."""

    def run(self, began: float, budget_s: float) -> None:
        learnt = self.found.probe
        window = max(WINDOW_SECONDS, 6 * learnt.wall_s)
        left = space(learnt)
        self.final_at = began + budget_s * (1 - FINAL_SHARE)
        while True:
            # What follows takes half as long each time, so the first pass may take half of what there is.
            room = int((self.final_at - time.monotonic()) / 2 / (learnt.start_s + 1.7 * window))
            left = thinned(left, room)
            self.tell(f"{len(left)} settings, {window:.1f} s each")
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
            if time.monotonic() > self.final_at and found.tried:
                self.tell("there is no time for more settings: a larger --budget tries all")
                break
            load = self.load_of(setting)
            try:
                with trial_of(self.work, setting) as trial:
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
        found, trials = self.found, dict[Setting, Trial]()
        window = max(WINDOW_SECONDS, 4 * found.probe.wall_s)
        try:
            for setting in finalists:
                with self.left_out(setting, trials):
                    trials[setting] = trial_of(self.work, setting)
                    warm_up(trials[setting], self.load_of(setting), window)
            for order in rounds_of(list(trials), self.rounds_for(trials, window), self.seed):
                self.round(order, trials, window)
        finally:
            for trial in trials.values():
                trial.end()
            if found.played:
                self.judge()
        if not found.played:
            raise TrialFailed(next(iter(found.failed.values())))
        with self.left_out(found.winner, {}), trial_of(self.work, found.winner) as trial:
            load = self.load_of(found.winner)
            warm_up(trial, load, window)
            found.again = trial.measure(load, 2 * window)
            found.is_goal_met = self.goal.is_met(found.again)

    def rounds_for(self, trials: Mapping[Setting, Trial], window: float) -> int:
        """As many as there is time for, and as tell something if there is any."""
        spare = self.found.probe.start_s + 4 * window
        rounds = int((self.until - spare - time.monotonic()) / max(1, len(trials)) / (window + 0.05))
        rounds = max(ROUNDS_MIN, min(ROUNDS, rounds))
        seconds = rounds * len(trials) * window
        self.tell(f"the final: {', '.join(map(str, trials))}; {rounds} rounds, about {seconds:.0f} s")
        return rounds

    def round(self, order: Sequence[Setting], trials: dict[Setting, Trial], window: float) -> None:
        seen: dict[Setting, Figures] = {}
        for one in order:
            if one in trials:
                with self.left_out(one, trials):
                    seen[one] = trials[one].measure(self.load_of(one), window)
        for one, figures in seen.items():
            self.found.played.setdefault(one, []).append(figures)

    @contextlib.contextmanager
    def left_out(self, setting: Setting, trials: dict[Setting, Trial]) -> Iterator[None]:
        """What fails in the final is told, and takes no part in it any more; nor do its rounds count."""
        try:
            yield
        except TrialFailed as error:
            self.found.failed[setting] = str(error)
            self.tell(str(error).splitlines()[0])
            if (trial := trials.pop(setting, None)) is not None:
                trial.end()
                self.found.played.pop(setting, None)

    def judge(self) -> None:
        found = self.found
        scores = scores_of(found.played, found.probe)
        found.by_cpu = is_disturbed(found.played, found.probe)
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
    tell: Callable[[str], object],
    seed: int = 0,
    threads_ok: bool = False,
) -> Found:
    """Raises TrialFailed where the work itself fails, NothingMeets where no setting keeps to the goal."""
    began = time.monotonic()
    learnt = probe(work, cpus, threads_ok)
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


def is_disturbed(played: Mapping[Setting, Sequence[Figures]], probe: Probe) -> bool:
    """Whether other programs have taken CPU time that the work could have used: all of it if the work computes."""
    figures = [one for rounds in played.values() for one in rounds if one.wall_s > 0]
    if not figures:
        return False
    idle = statistics.median(one.idle_s / one.wall_s for one in figures) / probe.cpus
    others = statistics.median(one.others_cpu_s / one.wall_s for one in figures) / probe.cpus
    return others > OTHERS_MIN and (idle < IDLE_MIN or probe.waits < COMPUTES)


def scores_of(played: Mapping[Setting, Sequence[Figures]], probe: Probe) -> dict[Setting, list[float]]:
    """What is compared, round by round: rates, or, where other programs took the CPUs, the rates that the CPU time of
    a unit would have allowed. The scheduler gives more to who has more threads that want to run, so that beside others
    the setting with the most slots would look best."""
    if not is_disturbed(played, probe):
        return {setting: [max(one.rate, 1e-9) for one in rounds] for setting, rounds in played.items()}
    least = min((one.cpu_each_s for rounds in played.values() for one in rounds if one.units), default=0.0)
    return {
        setting: [max(capacity(setting, one, probe, least), 1e-9) for one in rounds]
        for setting, rounds in played.items()
    }


def capacity(setting: Setting, figures: Figures, probe: Probe, least_cpu_s: float) -> float:
    """The rate of a setting, had it the CPUs for itself: no more than the CPUs bear with the load beside it, and no
    more than its slots do, with units that run as long as they did, less the time for which they had no CPU. Where that
    is not known: its ideal, less what its units take in CPU time beyond `least_cpu_s`."""
    if not figures.units:
        return 0.0
    with_load = figures.cpu_each_s + figures.load_cpu_s / figures.units
    by_cpu = probe.cpus / with_load if with_load > 0 else math.inf
    if figures.run_s:
        return min(by_cpu, setting.slots / max(figures.run_s - figures.delayed_each_s, figures.cpu_each_s, 1e-9))
    waiting = max(0.0, probe.wall_s - probe.cpu_s)
    lean = (waiting + least_cpu_s) / (waiting + figures.cpu_each_s) if figures.cpu_each_s > 0 else 1.0
    return min(by_cpu, probe.ideal(setting, least_cpu_s) * min(1.0, lean))


def best_of(scores: Mapping[Setting, Sequence[float]], cpu_each_s: Mapping[Setting, float]) -> Setting:
    """Of those that nobody has beaten plainly: the one that costs least, unless it takes more CPU time."""
    best = max(scores, key=lambda setting: statistics.median(scores[setting]))

    def is_as_good(setting: Setting) -> bool:
        ratio = ratio_of(scores[setting], scores[best])
        return setting == best or (ratio.verdict is not Verdict.WORSE and ratio.median >= CLOSE)

    alike = [setting for setting in scores if is_as_good(setting)]
    least = min(cpu_each_s.get(setting, 0.0) for setting in alike)
    lean = [setting for setting in alike if cpu_each_s.get(setting, 0.0) <= LEAN * least] or alike
    return min(lean, key=cost)


def nothing_meets(goal: Goal, found: Found) -> NothingMeets:
    if not found.tried:
        reasons = "\n".join(found.failed.values())
        return NothingMeets(f"no setting works:\n{reasons}")
    nearest = min(found.tried, key=lambda one: found.tried[one].latency_s.get(goal.percentile, math.inf))
    figures = found.tried[nearest]
    latency_ms = figures.latency_s.get(goal.percentile, math.inf) * 1e3
    said = f"p{goal.percentile} {latency_ms:.1f} ms, {figures.pss_bytes / 1e6:.0f} MB"
    return NothingMeets(f"no setting keeps to the objective; the nearest is {nearest}: {said}")
