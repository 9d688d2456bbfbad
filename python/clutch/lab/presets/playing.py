"""How presets measure: contenders that live at the same time, each under each load, in rounds."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence

from clutch.lab.benching import Contender
from clutch.lab.comparing import rounds_of
from clutch.lab.load import Figures, Load, typical
from clutch.lab.trial import Trial, TrialFailed

Played = dict[str, dict[Load, Figures]]
"""By contender and load: the round with the middle rate."""


def play(
    contenders: Sequence[Contender],
    loads: Sequence[Load],
    rounds: int,
    seconds: float,
    tell: Callable[[str], object],
    after: Callable[[str, Trial], object] | None = None,
) -> tuple[Played, list[str]]:
    """Measure all; say why those that do not start are left out. `after`: what else is done with each that ran."""
    seen: dict[str, dict[Load, list[Figures]]] = {}
    failed: list[str] = []
    with contextlib.ExitStack() as stack:
        trials: dict[str, Trial] = {}
        for one in contenders:
            try:
                trials[one.name] = stack.enter_context(one.start(tell))
                trials[one.name].measure(loads[0], seconds / 2)
            except TrialFailed as error:
                trials.pop(one.name, None)
                failed.append(f"{one.name} is left out: {str(error).splitlines()[0]}")
                tell(failed[-1])
        left = rounds * len(loads) * len(trials) * seconds
        tell(f"{', '.join(trials)}: {len(loads)} loads, {rounds} rounds of {seconds:g} s: about {left:.0f} s")
        for nr, order in enumerate(rounds_of(list(trials), rounds, seed=0)):
            for load in loads[:: -1 if nr % 2 else 1]:
                for name in order:
                    if name not in trials:
                        continue
                    try:
                        seen.setdefault(name, {}).setdefault(load, []).append(trials[name].measure(load, seconds))
                    except TrialFailed as error:
                        failed.append(f"{name}, {load}: {str(error).splitlines()[0]}")
                        del trials[name]
        for name, trial in trials.items():
            if after is not None:
                after(name, trial)
    # In the order of the contenders, not in that of the first round.
    whole = {one.name: seen[one.name] for one in contenders if one.name in seen}
    return {name: {load: typical(by[load]) for load in loads if load in by} for name, by in whole.items()}, failed


def as_data(played: Mapping[str, Mapping[Load, Figures]]) -> dict[str, dict[str, object]]:
    return {name: {str(load): one.__dict__ for load, one in by.items()} for name, by in played.items()}
