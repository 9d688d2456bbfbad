"""Figures of contenders, measured in rounds; and against figures that were kept."""

from __future__ import annotations

import contextlib
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from clutch.errors import ClutchError
from clutch.lab.comparing import Ratio, Verdict, ratio_of_apart, rounds_of
from clutch.lab.load import Figures, Load, typical
from clutch.lab.setting import AUTO, Setting
from clutch.lab.trial import Trial, TrialFailed
from clutch.lab.work import Work

FORMAT = 2
"""Of saved files."""
WARM_RATIO = 0.05
"""Change from one window to the next below which work counts as warm."""
WARM_WINDOWS_MAX = 6
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


@dataclass(frozen=True)
class Contender:
    """What is started and measured: a setting of Clutch, or a peer. `slots`: units that it runs at a time, where that
    is known; `workers`: its processes."""

    name: str
    order: Mapping[str, Any]
    load: Load
    environment: Mapping[str, str] = field(default_factory=dict)
    slots: int | None = None
    workers: int | None = None
    options: Mapping[str, Any] = field(default_factory=dict)

    def start(self, tell: Callable[[str], object] = lambda _: None) -> Trial:
        """Raises TrialFailed. `tell`: takes a line for people if that takes long."""
        return Trial(self.name, dict(self.order), self.environment, tell=tell)


def contender_of(work: Work, setting: Setting | None, load: Load | None = None) -> Contender:
    """The work under a setting; without one, as it runs already."""
    name, order = str(setting or work), work.order(setting)
    if setting is None:
        return Contender(name, order, load or work.load(None))
    # Under the profile that Clutch chooses nobody knows yet how many slots there are.
    slots = None if setting.profile == AUTO else setting.slots
    sizes = {"slots": slots, "workers": setting.workers, "options": setting.options()}
    return Contender(name, order, load or work.load(setting), **sizes)


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
            bench.cells[name] = Cell(rounds, cell["start_s"], alone, cell["options"], cell["slots"], recycled)
        return bench


def measure(
    bench: Bench,
    contenders: Sequence[Contender],
    rounds: int,
    tell: Callable[[str], object],
    seed: int = 0,
    alive_max: int = ALIVE_MAX,
    is_recycled: bool = False,
) -> Bench:
    """Measure each in each round. Whoever fails is told and left out. Raises TrialFailed where nobody works."""
    groups = [contenders[nr : nr + alive_max] for nr in range(0, len(contenders), alive_max)]
    try:
        for nr, group in enumerate(groups):
            left = rounds * bench.seconds * sum(map(len, groups[nr:]))
            tell(f"{', '.join(one.name for one in group)}: about {left:.0f} s left in all")
            Group(bench, group, tell).run(rounds, seed, is_recycled)
    except KeyboardInterrupt:
        tell("interrupted: what is whole is kept")
    bench.cells = {one.name: bench.cells[one.name] for one in contenders if one.name in bench.cells}
    if not bench.cells and bench.failed:
        raise TrialFailed(next(iter(bench.failed.values())))
    return bench


@dataclass
class Group:
    """Contenders that live at the same time. Rounds that are whole count, also after an interrupt."""

    bench: Bench
    contenders: Sequence[Contender]
    tell: Callable[[str], object]
    trials: dict[str, Trial] = field(default_factory=dict)
    cells: dict[str, Cell] = field(default_factory=dict)

    def run(self, rounds: int, seed: int, is_recycled: bool) -> None:
        with contextlib.ExitStack() as stack:
            for one in self.contenders:
                with self.left_out(one):
                    self.start(one, stack)
            for order in rounds_of(list(self.contenders), rounds, seed):
                self.play(order)
            for one in self.alive() if is_recycled else ():
                with self.left_out(one):
                    load, seconds = replace(one.load, recycles=True), max(RECYCLED_SECONDS, self.bench.seconds)
                    self.cells[one.name].recycled = self.trials[one.name].measure(load, seconds)

    def start(self, one: Contender, stack: contextlib.ExitStack) -> None:
        trial = stack.enter_context(one.start(self.tell))
        warm_up(trial, one.load, self.bench.seconds)
        slots = trial.hello.get("slots", one.slots)
        alone = None if slots is None else trial.measure(Load(1), max(ALONE_SECONDS, 3 * trial.check_s))
        self.trials[one.name] = trial
        self.cells[one.name] = Cell([], trial.start_s, alone, dict(one.options), slots)

    def play(self, order: Sequence[Contender]) -> None:
        seen: dict[str, Figures] = {}
        for one in self.alive(order):
            with self.left_out(one):
                seen[one.name] = self.trials[one.name].measure(one.load, self.bench.seconds)
        for name, figures in seen.items():
            self.bench.cells.setdefault(name, self.cells[name]).rounds.append(figures)

    def alive(self, order: Sequence[Contender] | None = None) -> list[Contender]:
        return [one for one in (self.contenders if order is None else order) if one.name in self.trials]

    @contextlib.contextmanager
    def left_out(self, one: Contender) -> Iterator[None]:
        """Whoever fails is told, and takes no part any more."""
        try:
            yield
        except TrialFailed as error:
            self.bench.failed[one.name] = str(error)
            self.trials.pop(one.name, None)
            self.tell(str(error).splitlines()[0])


def warm_up(trial: Trial, load: Load, seconds: float) -> None:
    """Until the rate of a window is that of the one before, or the windows are used up."""
    window, before = max(0.05, seconds / 4), 0.0
    for _ in range(WARM_WINDOWS_MAX):
        rate = trial.measure(load, window).rate
        if before and abs(rate - before) <= WARM_RATIO * before:
            return
        before = rate


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
