"""Figures of contenders, measured in rounds; and against figures that were kept."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from clutch.errors import ClutchError
from clutch.lab.comparing import ROUNDS_MIN, Ratio, Verdict, ratio_of, ratio_of_apart
from clutch.lab.contender import Contender
from clutch.lab.field import Field, Tell, round_of, warm_up
from clutch.lab.load import Figures, Load, typical
from clutch.lab.trial import Trial, TrialFailed

FORMAT = 3
"""Of saved files."""
EACH_SECONDS = 6.0
ROUNDS_MAX = 60
OVERTIME = 3
"""Times as long as they should take, after which no more rounds are played than are needed."""
ALIVE_MAX = 8
"""Contenders that live at a time. More are measured in groups."""
ALONE_SECONDS = 0.3
OTHERS_MAX = 0.1
"""CPUs that other programs use at most for rates to be trusted."""
OTHERS_APART = 0.25
"""By how much they may differ between two runs that are compared."""
KEPT_UP = 0.95
"""Share of an offered rate from which on work keeps up with it."""
RECYCLED_SECONDS = 2.0


class OtherFile(ClutchError):
    """A saved file that is none, or of other work."""


@dataclass
class Cell:
    """What a contender has shown. `start_s`: from nothing to all workers ready; `alone`: with one caller; `recycled`:
    while one of its workers was replaced."""

    rounds: list[Figures]
    start_s: float
    alone: Figures | None = None
    options: dict[str, Any] = field(default_factory=dict)
    slots: int | None = None
    recycled: Figures | None = None
    group: int = 0
    """Contenders of one group played the same rounds."""

    @property
    def middle(self) -> Figures:
        """The round with the middle rate."""
        return typical(self.rounds)

    def ideal(self, cpus: int) -> float | None:
        """The rate that could be had: all slots busy with units that run as long as one alone, and no more CPU time
        than there is. Of a unit that runs `t` and computes `c`: min(slots / t, CPUs / c), where `c` is the least that
        was seen, as many units at a time are often cheaper than one. None: it is not known."""
        if self.alone is None or not self.alone.units or self.slots is None:
            return None
        cpu = min(self.alone.cpu_each_s, self.middle.cpu_each_s) or self.alone.cpu_each_s
        by_slots = self.slots / self.alone.run_s if self.alone.run_s else float("inf")
        rate = min(by_slots, cpus / cpu if cpu > 0 else float("inf"))
        return rate if rate < float("inf") else None


@dataclass
class Bench:
    """Figures of contenders by name, round by round. `asked`: all that was asked for, in words."""

    work: str
    unit: str
    seconds: float
    machine: dict[str, str]
    cells: dict[str, Cell] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    packages: dict[str, str] = field(default_factory=dict)
    asked: str = ""

    @property
    def others(self) -> float:
        """CPUs that other programs used meanwhile."""
        rounds = [one for cell in self.cells.values() for one in cell.rounds if one.wall_s > 0]
        return statistics.median(one.others_cpu_s / one.wall_s for one in rounds) if rounds else 0.0

    @property
    def best(self) -> str:
        """Name of the one with the highest rate."""
        return max(self.cells, key=lambda name: statistics.median(one.rate for one in self.cells[name].rounds))

    def to(self, name: str) -> dict[str, Ratio]:
        """Rates of the others to those of one, inside rounds where they played the same."""
        of, found = self.cells[name], {}
        for other, cell in self.cells.items():
            ours, theirs = ([max(one.rate, 1e-9) for one in side.rounds] for side in (cell, of))
            is_paired = cell.group == of.group and len(ours) == len(theirs)
            if other != name:
                found[other] = ratio_of(ours, theirs) if is_paired else ratio_of_apart(ours, theirs)
        return found

    def as_data(self) -> dict[str, Any]:
        return {"format": FORMAT, **asdict(self)}

    @classmethod
    def of_data(cls, data: Any) -> Bench:
        """Raises OtherFile, or KeyError and TypeError for what was written by nobody."""
        if not isinstance(data, dict) or data.get("format") != FORMAT:
            given = data.get("format") if isinstance(data, dict) else type(data).__name__
            raise OtherFile(f"it is not of format {FORMAT} of `clutch bench --save` but {given!r}; save it anew")
        facts = {"packages": data["packages"], "asked": data["asked"]}
        bench = cls(data["work"], data["unit"], data["seconds"], data["machine"], **facts)
        for name, cell in data["cells"].items():
            alone = cell["alone"] and Figures.of_data(cell["alone"])
            rounds = [Figures.of_data(one) for one in cell["rounds"]]
            if not rounds:
                raise OtherFile(f"{name} has no rounds in it")
            recycled = cell["recycled"] and Figures.of_data(cell["recycled"])
            facts = (cell["options"], cell["slots"], recycled, cell["group"])
            bench.cells[name] = Cell(rounds, cell["start_s"], alone, *facts)
        return bench


def measure(
    bench: Bench,
    contenders: Sequence[Contender],
    rounds: int | None,
    tell: Tell,
    seed: int = 0,
    alive_max: int = ALIVE_MAX,
    is_recycled: bool = False,
) -> Bench:
    """Measure each in each round. Whoever fails is told and left out. Raises TrialFailed where nobody works. `rounds`:
    None: as many as a few seconds of each are enough for."""
    groups = [contenders[nr : nr + alive_max] for nr in range(0, len(contenders), alive_max)]
    try:
        for nr, group in enumerate(groups):
            each = EACH_SECONDS if rounds is None else rounds * bench.seconds
            left = each * sum(map(len, groups[nr:]))
            tell(f"{', '.join(one.name for one in group)}: about {left:.0f} s left in all")
            play(bench, group, rounds, tell, seed, is_recycled, nr)
    except KeyboardInterrupt:
        if not bench.cells:
            raise
        tell("interrupted: what is whole is kept")
    bench.cells = {one.name: bench.cells[one.name] for one in contenders if one.name in bench.cells}
    if not bench.cells and bench.failed:
        raise TrialFailed(next(iter(bench.failed.values())))
    return bench


def play(
    bench: Bench,
    contenders: Sequence[Contender],
    rounds: int | None,
    tell: Tell,
    seed: int,
    is_recycled: bool = False,
    group: int = 0,
) -> None:
    """Contenders that live at the same time. Rounds that are whole count, also after an interrupt."""
    cells: dict[str, Cell] = {}

    def ready(one: Contender, trial: Trial) -> None:
        warm_up(trial, one.load, bench.seconds)
        slots = trial.hello.get("slots", one.slots)
        alone = None if slots is None else trial.measure(Load(1), max(ALONE_SECONDS, 3 * trial.check_s))
        cells[one.name] = Cell([], trial.start_s, alone, dict(one.options), slots, group=group)

    with Field(contenders, tell, bench.failed) as field:
        field.start(ready)
        longest = math.inf
        if rounds is None:
            rounds = rounds_for(max((trial.least_s for trial in field.trials.values()), default=0.0), bench.seconds)
            longest = time.monotonic() + OVERTIME * max(EACH_SECONDS, rounds * bench.seconds) * len(field.trials)
        for nr, turn in enumerate(field.rounds(rounds, seed)):
            if nr >= ROUNDS_MIN and time.monotonic() > longest:
                break
            for name, figures in round_of(field, turn, bench.seconds).items():
                bench.cells.setdefault(name, cells[name]).rounds.append(figures)
        for one in field.alive() if is_recycled else ():
            with field.left_out(one):
                load, seconds = replace(one.load, recycles=True), max(RECYCLED_SECONDS, bench.seconds)
                cells[one.name].recycled = field.trials[one.name].measure(load, seconds)


def rounds_for(least_s: float, seconds: float) -> int:
    """As many windows as EACH_SECONDS are enough for, if each is as long as it must be for such units: many short ones
    tell more than a few long ones, as what disturbs a machine lasts longer than they do."""
    return max(ROUNDS_MIN, min(ROUNDS_MAX, round(EACH_SECONDS / max(seconds, least_s))))


@dataclass(frozen=True)
class Change:
    """Figures to those that were kept. `cpu`: of the units that a second of CPU time is enough for; None: it is not
    known. `by_cpu`: that alone counts, as other programs used the CPUs. `is_told`: they did so in both alike: whether
    the CPU beside it is busy changes the CPU time of a unit by up to a half where two CPUs share a core."""

    rate: Ratio
    cpu: Ratio | None
    by_cpu: bool
    is_told: bool = True

    @property
    def verdict(self) -> Verdict:
        """Worse if either is."""
        if not self.is_told:
            return Verdict.ALIKE
        told = [one.verdict for one in (None if self.by_cpu else self.rate, self.cpu) if one is not None]
        plain = [verdict for verdict in (Verdict.WORSE, Verdict.BETTER) if verdict in told]
        return plain[0] if plain else Verdict.ALIKE


def against(bench: Bench, kept: Bench) -> dict[str, Change]:
    """Of contenders that are in both. Raises OtherFile where there is none, or where the kept ones are of other work.

    These rounds were not played side by side: the machine may have been another one between them.
    """
    refuse_other(bench, kept)
    both = [name for name in bench.cells if name in kept.cells]
    if not both:
        raise OtherFile(f"it has none of these settings, but {', '.join(kept.cells)}")
    by_cpu, is_told = max(bench.others, kept.others) > OTHERS_MAX, abs(bench.others - kept.others) <= OTHERS_APART
    found = {}
    for name in both:
        ours, theirs = bench.cells[name].rounds, kept.cells[name].rounds
        rate = ratio_of_apart([max(one.rate, 1e-9) for one in ours], [max(one.rate, 1e-9) for one in theirs])
        each, before = (per_cpu_second(rounds) for rounds in (ours, theirs))
        cpu = ratio_of_apart(each, before) if each and before else None
        found[name] = Change(rate, cpu, by_cpu, is_told)
    return found


def beside(bench: Bench, twins: Mapping[str, str]) -> dict[str, Change]:
    """Of each that has a twin, its figures to the twin's, inside rounds that both have played."""
    found = {}
    for name, twin in twins.items():
        if name in bench.cells and twin in bench.cells:
            rounds = list(zip(bench.cells[name].rounds, bench.cells[twin].rounds, strict=False))
            rate = ratio_of([max(one.rate, 1e-9) for one, _ in rounds], [max(one.rate, 1e-9) for _, one in rounds])
            known = [(one, other) for one, other in rounds if one.cpu_each_s > 0 and other.cpu_each_s > 0]
            each = per_cpu_second([one for one, _ in known]), per_cpu_second([other for _, other in known])
            found[name] = Change(rate, ratio_of(*each) if known else None, bench.others > OTHERS_MAX)
    return found


def per_cpu_second(rounds: Sequence[Figures]) -> list[float]:
    """Units, of the rounds that know it."""
    return [1 / one.cpu_each_s for one in rounds if one.cpu_each_s > 0]


def refuse_other(bench: Bench, kept: Bench) -> None:
    """Raises OtherFile where a saved file is of other work, or of work that was asked for in another way."""
    if bench.asked != kept.asked:
        raise OtherFile(f"it has figures of {kept.asked or kept.work}, not of {bench.asked}")


def cautions(bench: Bench) -> list[str]:
    """What makes the figures less than they seem."""
    said: dict[str, list[str]] = {}
    for name, cell in bench.cells.items():
        for reason in dict.fromkeys(one.spoiled for one in cell.rounds if one.spoiled):
            said.setdefault(reason or "", []).append(name)
    found = [f"not valid, {', '.join(names)}: {reason}" for reason, names in said.items()]
    retried = {name: sum(one.more.get("retried", 0) for one in cell.rounds) for name, cell in bench.cells.items()}
    found += [
        f"{name}: {count:,.0f} requests were sent again, as the server had closed their connections"
        for name, count in retried.items()
        if count
    ]
    found += filter(None, (behind(name, cell.middle) for name, cell in bench.cells.items()))
    if bench.others > OTHERS_MAX:
        used = f"other programs used {bench.others:.2f} CPUs meanwhile"
        found.append(f"{used}: trust the CPU time of a unit, not the rates")
    return found


def behind(name: str, figures: Figures) -> str | None:
    """A sentence where fewer units were done than were offered."""
    if figures.offered is None or figures.spoiled or figures.rate >= KEPT_UP * figures.offered:
        return None
    return (
        f"{name}: of {figures.offered:,.0f}/s that were offered {figures.rate:,.0f}/s were done: what waits grows, "
        "and so do latencies for as long as this lasts"
    )
