"""`clutch bench`: the figures of one setting or of a grid, measured in rounds; and against figures that were kept."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from clutch.errors import ClutchError
from clutch.lab.comparing import Ratio, ratio_of_apart, rounds_of
from clutch.lab.setting import Setting
from clutch.lab.trial import Figures, Trial, TrialFailed, Work

FORMAT = 1
"""Of saved files."""
WARM_RATIO = 0.05
"""Change from one window to the next below which a pool counts as warm."""
WARM_WINDOWS_MAX = 6
ALIVE_MAX = 8
"""Settings whose pools live at a time. More are measured in groups."""


class OtherFile(ClutchError):
    """A saved file that is none, or of other work."""


@dataclass
class Bench:
    """Figures of settings, round by round. `started`: seconds from nothing to all workers ready."""

    work: str
    callers: int | None
    seconds: float
    machine: dict[str, Any]
    rounds: dict[Setting, list[Figures]] = field(default_factory=dict)
    started: dict[Setting, float] = field(default_factory=dict)
    failed: dict[Setting, str] = field(default_factory=dict)

    def as_data(self) -> dict[str, Any]:
        cells = [
            {
                "setting": setting.options(),
                "start_s": self.started[setting],
                "rounds": [asdict(one) for one in figures],
            }
            for setting, figures in self.rounds.items()
        ]
        failed = [{"setting": setting.options(), "reason": reason} for setting, reason in self.failed.items()]
        head = {"format": FORMAT, "work": self.work, "callers": self.callers, "seconds": self.seconds}
        return {**head, "machine": self.machine, "cells": cells, "failed": failed}

    @classmethod
    def of_data(cls, data: Any) -> Bench:
        """Raises OtherFile."""
        if not isinstance(data, dict) or data.get("format") != FORMAT:
            given = data.get("format") if isinstance(data, dict) else type(data).__name__
            raise OtherFile(f"it is not of format {FORMAT} of `clutch bench --save` but {given!r}; save it anew")
        bench = cls(data["work"], data["callers"], data["seconds"], data["machine"])
        for cell in data["cells"]:
            setting = Setting(**cell["setting"])
            bench.rounds[setting] = [Figures(**one) for one in cell["rounds"]]
            bench.started[setting] = cell["start_s"]
        return bench


def measure(
    work: Work,
    settings: Sequence[Setting],
    rounds: int,
    seconds: float,
    callers: int | None,
    machine: dict[str, Any],
    tell: Callable[[str], object],
    seed: int = 0,
) -> Bench:
    """Measure each in each round. `callers` none: twice as many as a setting has slots. Raises TrialFailed where no
    setting works. An interrupt ends it early, with the rounds that were whole."""
    bench = Bench(str(work), callers, seconds, machine)
    groups = [settings[first : first + ALIVE_MAX] for first in range(0, len(settings), ALIVE_MAX)]
    try:
        for nr, group in enumerate(groups):
            tell(
                f"{', '.join(map(str, group))}: about {rounds * seconds * sum(map(len, groups[nr:])):.0f} s left in all"
            )
            measure_group(bench, work, group, rounds, tell, seed)
    except KeyboardInterrupt:
        tell("interrupted: what is whole is kept")
    if not bench.rounds and bench.failed:
        raise TrialFailed(next(iter(bench.failed.values())))
    return bench


def measure_group(
    bench: Bench, work: Work, group: Sequence[Setting], rounds: int, tell: Callable[[str], object], seed: int
) -> None:
    """Measure settings whose pools live at the same time. Rounds that are whole count, also after an interrupt."""
    with contextlib.ExitStack() as stack:
        trials: dict[Setting, Trial] = {}
        for setting in group:
            try:
                trials[setting] = stack.enter_context(Trial(work, setting))
                warm_up(trials[setting], callers_of(bench, setting), bench.seconds)
            except TrialFailed as error:
                trials.pop(setting, None)
                bench.failed[setting] = str(error)
                tell(f"{setting}: {str(error).splitlines()[0]}")
        for order in rounds_of(list(trials), rounds, seed):
            seen = {setting: trials[setting].measure(callers_of(bench, setting), bench.seconds) for setting in order}
            for setting, trial in trials.items():
                bench.started[setting] = trial.start_s
                bench.rounds.setdefault(setting, []).append(seen[setting])


def callers_of(bench: Bench, setting: Setting) -> int:
    return bench.callers or 2 * setting.slots


def warm_up(trial: Trial, callers: int, seconds: float) -> None:
    """Until the rate of a window is that of the one before, or the windows are used up."""
    window, before = max(0.05, seconds / 4), 0.0
    for _ in range(WARM_WINDOWS_MAX):
        rate = trial.measure(callers, window).rate
        if before and abs(rate - before) <= WARM_RATIO * before:
            return
        before = rate


def against(bench: Bench, kept: Bench) -> dict[Setting, Ratio]:
    """Rates to those that were kept, of settings that are in both. Raises OtherFile where there is none, or where the
    kept ones are of other work.

    These rounds were not played side by side: the machine may have been another one between them.
    """
    if bench.work != kept.work:
        raise OtherFile(f"it has figures of {kept.work}, not of {bench.work}")
    both = [setting for setting in bench.rounds if setting in kept.rounds]
    if not both:
        raise OtherFile(f"it has none of these settings, but {', '.join(map(str, kept.rounds))}")
    found = {}
    for setting in both:
        ours, theirs = ([one.rate for one in rounds[setting]] for rounds in (bench.rounds, kept.rounds))
        found[setting] = ratio_of_apart(ours, theirs)
    return found
