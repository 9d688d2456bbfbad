"""How presets measure: contenders that live at the same time, each under each load, in rounds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from clutch.lab.contender import Contender
from clutch.lab.field import Field
from clutch.lab.load import Figures, Load, typical
from clutch.lab.trial import Trial

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
    with Field(contenders, tell) as field:
        field.start(lambda _, trial: trial.measure(loads[0], seconds / 2))
        left = rounds * len(loads) * len(field.trials) * seconds
        tell(f"{', '.join(field.trials)}: {len(loads)} loads, {rounds} rounds of {seconds:g} s: about {left:.0f} s")
        for nr, turn in enumerate(field.rounds(rounds)):
            order = list(turn)
            for load in loads[:: -1 if nr % 2 else 1]:
                for one in field.alive(order):
                    with field.left_out(one):
                        figures = field.trials[one.name].measure(load, seconds)
                        seen.setdefault(one.name, {}).setdefault(load, []).append(figures)
        if after is not None:
            for name, trial in field.trials.items():
                after(name, trial)
    failed = [f"{name} is left out: {reason.splitlines()[0]}" for name, reason in field.failed.items()]
    # In the order of the contenders, not in that of the first round.
    whole = {one.name: seen[one.name] for one in contenders if one.name in seen}
    return {name: {load: typical(by[load]) for load in loads if load in by} for name, by in whole.items()}, failed


def as_data(played: Mapping[str, Mapping[Load, Figures]]) -> dict[str, dict[str, object]]:
    return {name: {str(load): one.__dict__ for load, one in by.items()} for name, by in played.items()}
