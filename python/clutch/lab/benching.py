"""Figures of contenders, measured in rounds; and against figures that were kept."""

from __future__ import annotations

import itertools
import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from clutch.errors import ClutchError
from clutch.lab.comparing import DRIFT, ROUNDS_MIN, YIELD, Ratio, Verdict, ratio_of, ratio_of_apart
from clutch.lab.contender import Contender
from clutch.lab.field import Field, Tell, round_of, warm_up
from clutch.lab.load import Figures, Load, spoiled, typical
from clutch.lab.trial import Trial, TrialFailed

FORMAT = 3
"""Of saved files."""
EACH_SECONDS = 6.0
ROUNDS_MAX = 60
OVERTIME = 3
"""Times as long as they should take, after which no more rounds are played than are needed."""
TOLD_SECONDS, BETWEEN_SECONDS = 3.0, 0.03
"""Rounds that take longer are told with what they take; a measurement takes so much beside its window."""
STARTS = 4
"""Of each contender, where it is compared with one that was saved, or with another target."""
ALIVE_MAX = 8
"""Contenders that live at a time. More are measured in groups."""
ALONE_SECONDS = 0.3
OTHERS_MAX = 0.1
"""CPUs that other programs use at most for rates to be trusted."""
IDLE_MIN = 0.15
"""Share of the CPUs that is idle while they are not the limit."""
OTHERS_APART = 0.25
"""By how much they may differ between two runs that are compared."""
RISING_MIN, GROWN_MIN, GROWN_BYTES_MIN = 0.8, 0.1, 4 << 20
"""Share of pairs of rounds of which the later one has more memory, and by how much it must grow, to be said."""
PACE_TIMES = 2
"""Times the change of the machine's own pace by which figures may differ: work feels it more or less."""
PACE_MAX = 0.03
"""Change of the pace from which on it is said."""
LATE = 0.1
"""By which latencies differ from one run to another, beside all else."""
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

    @property
    def is_starved(self) -> bool:
        """Whether other programs took CPUs that were wanted: else rates stand, whatever they used."""
        rounds = [one for cell in self.cells.values() for one in cell.rounds if one.wall_s > 0]
        known = self.machine.get("CPUs", "1").split()[0]
        cpus = int(known) if known.isdecimal() else 1
        idle = statistics.median(one.idle_s / one.wall_s for one in rounds) if rounds else 0.0
        return self.others > OTHERS_MAX and idle < IDLE_MIN * cpus

    def as_data(self) -> dict[str, Any]:
        return {"format": FORMAT, **asdict(self)}

    @classmethod
    def of_data(cls, data: Any) -> Bench:
        """Raises OtherFile, or KeyError and TypeError for what was written by nobody."""
        if not isinstance(data, dict) or data.get("format") != FORMAT:
            given = data.get("format") if isinstance(data, dict) else type(data).__name__
            raise OtherFile(f"it is not of format {FORMAT} of `clutch bench --save` but {given!r}; save it anew")
        if not all(isinstance(data[name], dict) for name in ("machine", "packages", "cells")):
            raise TypeError("machine, packages and cells are tables")
        if not all(isinstance(value, str) for value in (data["asked"], *data["machine"].values())):
            raise TypeError("facts are texts")
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
    starts: int = 1,
) -> Bench:
    """Measure each in each round. Whoever fails is told and left out. Raises TrialFailed where nobody works. `rounds`:
    None: as many as a few seconds of each are enough for. `starts`: they are spread over so many starts of each, as two
    starts of the same code differ by a percent or some for as long as they live."""
    groups = [contenders[nr : nr + alive_max] for nr in range(0, len(contenders), alive_max)]
    try:
        for nr, group in enumerate(groups):
            each = EACH_SECONDS if rounds is None else rounds * bench.seconds
            seconds = each * sum(map(len, groups[nr:]))
            tell(f"{', '.join(one.name for one in group)}: about {seconds:.0f} s left in all, and their starts")
            for start in range(starts):
                left = [one for one in group if one.name not in bench.failed]
                some = None if rounds is None else len(range(start, rounds, starts))
                play(bench, left, some, tell, seed + start, is_recycled and not start, nr, 1 / starts)
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
    share: float = 1.0,
) -> None:
    """Contenders that live at the same time. Rounds that are whole count, also after an interrupt. `share`: of the
    time that each has, where their rounds are counted by that."""
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
            least = max((trial.least_s for trial in field.trials.values()), default=0.0)
            rounds = math.ceil(share * rounds_for(least, bench.seconds))
            each = max(share * EACH_SECONDS, rounds * bench.seconds)
            longest = time.monotonic() + OVERTIME * each * len(field.trials)
        if len(field.trials) > 1 or rounds * bench.seconds > TOLD_SECONDS:
            least = max((trial.least_s for trial in field.trials.values()), default=0.0)
            seconds = rounds * (max(bench.seconds, least) + BETWEEN_SECONDS) * len(field.trials)
            tell(f"started; {rounds} rounds of {bench.seconds:g} s, about {seconds:.0f} s")
        for nr, turn in enumerate(field.rounds(rounds, seed)):
            if nr >= ROUNDS_MIN and time.monotonic() > longest:
                break
            for name, figures in round_of(field, turn, bench.seconds, nr).items():
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
    """Figures to those that were kept, or of a twin, where more is better. `rate`; None: other programs took the CPUs
    that it would have needed. `cpu`: of the units that a second of CPU time is enough for; None: it is not known, or
    the CPUs were not as busy in the other run: that changes the CPU time of a unit by up to a half where two CPUs share
    a core. `latency`: at a rate, of one over the middle latency."""

    rate: Ratio | None
    cpu: Ratio | None = None
    latency: Ratio | None = None
    is_lost: bool = False
    """It was kept, and fails now."""

    @property
    def told(self) -> list[Ratio]:
        """What tells anything; nothing: there is no verdict."""
        return [one for one in (self.rate, self.cpu, self.latency) if one is not None]

    @property
    def verdict(self) -> Verdict:
        """Worse if any of them is."""
        told = [one.verdict for one in self.told]
        if self.is_lost or Verdict.WORSE in told:
            return Verdict.WORSE
        return Verdict.BETTER if Verdict.BETTER in told else Verdict.ALIKE


def against(bench: Bench, kept: Bench) -> dict[str, Change]:
    """Of contenders that are in both, and of those that were kept and fail now. Raises OtherFile where there is none,
    or where the kept ones are of other work.

    These rounds were not played side by side: the machine may have been another one between them.
    """
    refuse_other(bench, kept)
    both = [name for name in bench.cells if name in kept.cells]
    lost = [name for name in bench.failed if name in kept.cells]
    if not both and not lost:
        raise OtherFile(f"it has none of these settings, but {', '.join(kept.cells)}")
    is_alike = abs(bench.others - kept.others) <= OTHERS_APART
    is_starved = bench.is_starved or kept.is_starved
    found = {}
    for name in both:
        ours, theirs = bench.cells[name].rounds, kept.cells[name].rounds
        drift = DRIFT + PACE_TIMES * abs(pace_change(ours, theirs))
        computes = max(share_of_cpu(side) for side in (ours, theirs))
        mixed = DRIFT + computes * (drift - DRIFT)
        rate = apart(ours, theirs, lambda one: max(one.rate, 1e-9), mixed)
        cpu = apart(ours, theirs, per_cpu_second, drift) if is_alike else None
        found[name] = Change(None if is_starved else rate, cpu, apart(ours, theirs, promptness, LATE + mixed))
    return found | {name: Change(None, is_lost=True) for name in lost}


def beside(bench: Bench, twins: Mapping[str, str]) -> dict[str, Change]:
    """Of each that has a twin, its figures to the twin's, inside rounds that both have played."""
    found = {}
    for name, twin in twins.items():
        if name in bench.failed and twin in bench.cells:
            found[name] = Change(None, is_lost=True)
        if name in bench.cells and twin in bench.cells:
            ours, theirs = bench.cells[name].rounds, bench.cells[twin].rounds
            rate = together(ours, theirs, lambda one: max(one.rate, 1e-9))
            cpu = together(ours, theirs, per_cpu_second, YIELD)
            found[name] = Change(None if bench.is_starved else rate, cpu, together(ours, theirs, promptness))
    return found


Of = Callable[[Figures], float | None]


def pace_change(ours: Sequence[Figures], theirs: Sequence[Figures]) -> float:
    """Logarithm of how many times as long the fixed piece of Python took; 0 where that was not measured."""
    mine, others = ([one.pace_s for one in side if one.pace_s > 0] for side in (ours, theirs))
    return math.log(statistics.median(mine) / statistics.median(others)) if mine and others else 0.0


def share_of_cpu(rounds: Sequence[Figures]) -> float:
    """Share of the run time of units in which they compute; 1 where their run time is not known."""
    known = [min(1.0, one.cpu_each_s / one.run_s) for one in rounds if one.run_s]
    return statistics.median(known) if known else 1.0


def apart(ours: Sequence[Figures], theirs: Sequence[Figures], of: Of, drift: float) -> Ratio | None:
    """Of rounds that were not played together, and in which it is known."""
    mine, others = ([value for one in side if (value := of(one))] for side in (ours, theirs))
    return ratio_of_apart(mine, others, at=YIELD, drift=drift) if mine and others else None


def together(ours: Sequence[Figures], theirs: Sequence[Figures], of: Of, at: float | None = None) -> Ratio | None:
    """Of the rounds in which it is known of both."""
    pairs = [(of(one), of(other)) for one, other in zip(ours, theirs, strict=False)]
    known = [(one, other) for one, other in pairs if one and other]
    return ratio_of([one for one, _ in known], [other for _, other in known], at=at) if known else None


def per_cpu_second(figures: Figures) -> float | None:
    """Units; None: it is not known."""
    return 1 / figures.cpu_each_s if figures.cpu_each_s > 0 and figures.knows_cpu else None


def promptness(figures: Figures) -> float | None:
    """Units a second of the middle latency, where they came at a rate; else None: then the rate tells."""
    latency = figures.latency_s.get("50")
    return 1 / latency if figures.offered is not None and latency else None


def refuse_other(bench: Bench, kept: Bench) -> None:
    """Raises OtherFile where a saved file is of other work, or of work that was asked for in another way."""
    if bench.asked != kept.asked:
        raise OtherFile(f"it has figures of {kept.asked or kept.work}, not of {bench.asked}")


def cautions(bench: Bench) -> list[str]:
    """What makes the figures less than they seem."""
    found = []
    for reason in spoiled({name: cell.rounds for name, cell in bench.cells.items()}):
        names = ", ".join(
            name if count == (played := len(bench.cells[name].rounds)) else f"{name} ({count} of {played} rounds)"
            for name, count in reason.rounds.items()
        )
        found.append(f"not valid, {names}: {reason}")
    retried = {name: sum(one.more.get("retried", 0) for one in cell.rounds) for name, cell in bench.cells.items()}
    found += [
        f"{name}: {count:,.0f} requests were sent again, as the server had closed their connections"
        for name, count in retried.items()
        if count
    ]
    for name, cell in bench.cells.items():
        if ended := sum(one.ended for one in cell.rounds):
            found.append(f"{name}: {ended} of its processes ended meanwhile, so that its CPU time is not known")
    found += filter(None, (growing(name, cell.rounds) for name, cell in bench.cells.items()))
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


def growing(name: str, rounds: Sequence[Figures]) -> str | None:
    """A sentence where memory grew from round to round: it may leak."""
    sizes = [one.pss_bytes for one in rounds]
    if len(sizes) < ROUNDS_MIN:
        return None
    pairs = list(itertools.combinations(sizes, 2))
    rising = sum(later > earlier for earlier, later in pairs) / len(pairs)
    third = len(sizes) // 3
    first, last = statistics.median(sizes[:third]), statistics.median(sizes[-third:])
    if rising < RISING_MIN or last - first < max(GROWN_BYTES_MIN, GROWN_MIN * first):
        return None
    units = sum(one.units for one in rounds)
    return f"{name}: its memory grew from {first / 1e6:,.0f} to {last / 1e6:,.0f} MB in {units:,} units: it may leak"


def apart_cautions(bench: Bench, kept: Bench) -> list[str]:
    """What was different between two runs."""
    both = [name for name in bench.cells if name in kept.cells]
    changes = [pace_change(bench.cells[name].rounds, kept.cells[name].rounds) for name in both]
    said = []
    if changes and abs(change := statistics.median(changes)) > PACE_MAX:
        said.append(
            f"this machine was {abs(math.expm1(change)):.0%} {'slower' if change > 0 else 'faster'} than when the file "
            f"was saved: CPU time may differ by {math.expm1(DRIFT + PACE_TIMES * abs(change)):.0%} for nothing"
        )
    facts = [(fact, kept.machine.get(fact), bench.machine.get(fact)) for fact in ("Python", "Clutch", "CPUs")]
    said += [f"the saved figures are of {fact} {then}, and these of {now}" for fact, then, now in facts if then != now]
    if kept.seconds != bench.seconds:
        said.append(f"the saved measurements took {kept.seconds:g} s each, and these {bench.seconds:g} s")
    return said
