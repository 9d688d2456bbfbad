"""What is asked of work, and what a measurement of it has shown."""

from __future__ import annotations

import bisect
import itertools
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

FIGURE_MAX = 1e15
"""Larger figures are nobody's."""
NUMBERS = (
    *("units", "wall_s", "cpu_s", "load_cpu_s", "switches", "forced", "pss_bytes", "delayed_s", "others_cpu_s"),
    *("idle_s", "queued_s", "run_s", "callers", "largest_bytes", "pace_s", "offered", "ended"),
)
"""Figures that are numbers, or not known."""
NUMBER = re.compile(r"\d(?:[\d,]*\d)?(?:\.\d+)?")
"""In a text for people."""
PERCENTILES = ("50", "75", "90", "95", "99", "99.9")


@dataclass(frozen=True)
class Load:
    """`callers` at a time, each asking again when it has its answer; or, with a `rate`, so many units a second,
    whatever became of those before: at even intervals, or as independent clients come (Poisson)."""

    callers: int
    rate: float | None = None
    is_poisson: bool = False
    seed: int = 0
    units: int | None = None
    """Of jobs: so many in all, rather than as many as are expected to last for the time."""
    recycles: bool = False
    """Whether a worker is replaced in the middle of it."""

    def __str__(self) -> str:
        if self.rate is None:
            return f"{self.callers} at a time"
        how = "as a Poisson process" if self.is_poisson else "evenly"
        return f"{self.rate:g}/s {how}, at most {self.callers} under way"


@dataclass(frozen=True)
class Figures:
    """Of one measurement. Times in seconds, memory in bytes.

    `cpu_s`: of the processes that do the work; `load_cpu_s`: of the program that asks for it.
    """

    units: int
    wall_s: float
    cpu_s: float
    load_cpu_s: float
    errors: dict[str, int]
    latency_s: dict[str, float]
    """By percentile, `"50"` to `"99.9"`: from the call to its result, with the wait for a slot; at a rate, from the
    time at which it was due."""
    switches: int
    forced: int
    pss_bytes: int
    cpus: list[int | None]
    """Of each process: the CPU that it ran on last."""
    delayed_s: float = 0.0
    """Time for which threads that do the work could have run and had no CPU."""
    others_cpu_s: float = 0.0
    """CPU time that other programs of this machine took meanwhile."""
    idle_s: float = 0.0
    """Time that its CPUs were idle, together."""
    queued_s: float | None = None
    """Mean wait of a unit for a slot; None: not known."""
    run_s: float | None = None
    """Mean run time of a unit."""
    curve: list[tuple[float, float]] = field(default_factory=list)
    """Latency by percentile: percents, seconds."""
    series: list[tuple[float, int, float]] = field(default_factory=list)
    """By intervals: their end, units, the longest latency."""
    deepest: int | None = None
    """Most units that waited for a slot at a time; None: not known."""
    recycled_s: float | None = None
    """How long it took to replace a worker meanwhile."""
    callers: int = 0
    """Units under way at a time, at most."""
    largest_bytes: int = 0
    """Memory of the largest process that does the work."""
    pace_s: float = 0.0
    """CPU time of a fixed piece of Python just before and after: how fast this machine was then."""
    offered: float | None = None
    """Units a second that were due; None: each came when another had ended."""
    ended: int = 0
    """Processes that ended meanwhile. What they used is lost, so that CPU time is not known, and `cpu_s` is 0."""
    spoiled: str | None = None
    """Why these figures are those of the load rather than of the work."""
    more: dict[str, float] = field(default_factory=dict)
    """What a probe has shown, by name; of a load over HTTP, requests that were `retried`."""

    @property
    def rate(self) -> float:
        """Units a second."""
        return self.units / self.wall_s if self.wall_s > 0 else 0.0

    @property
    def cpu_each_s(self) -> float:
        return self.cpu_s / self.units if self.units else 0.0

    @property
    def knows_cpu(self) -> bool:
        """False where processes have ended with what they used."""
        return not self.ended

    @property
    def failed(self) -> float:
        """Share of units that failed."""
        errors = sum(self.errors.values())
        return errors / (errors + self.units) if errors else 0.0

    @property
    def delayed_each_s(self) -> float:
        return self.delayed_s / self.units if self.units else 0.0

    @property
    def cpu_share(self) -> float:
        """CPUs that the work used."""
        return self.cpu_s / self.wall_s if self.wall_s > 0 else 0.0

    @classmethod
    def of_data(cls, data: dict[str, Any]) -> Figures:
        """Raises TypeError or ValueError for fields that are missing or unknown, and figures that cannot be."""
        for name in NUMBERS:
            value = data.get(name, 0)
            if value is not None and (not isinstance(value, int | float) or not 0 <= value < FIGURE_MAX):
                raise ValueError(f"{name} is {value!r}")
        for name in ("errors", "latency_s"):
            if not all(isinstance(value, int | float) and 0 <= value < FIGURE_MAX for value in data[name].values()):
                raise ValueError(f"{name} is {data[name]!r}")
        pairs = {name: [tuple(point) for point in data.get(name, ())] for name in ("curve", "series")}
        return cls(**{**data, **pairs})


def typical(rounds: Sequence[Figures]) -> Figures:
    """The round with the middle rate, with the latencies of all of them: one short round has too few for its tail."""
    middle = sorted(rounds, key=lambda one: one.rate)[len(rounds) // 2]
    if len(rounds) == 1 or not middle.curve:
        return middle
    at = Spread(rounds).at
    latency_s = {percentile: at(float(percentile)) for percentile in middle.latency_s}
    return replace(middle, latency_s=latency_s, curve=[(percent, at(percent)) for percent, _ in middle.curve])


class Spread:
    """Latencies of several rounds together, from the curve of each: between two of its points it rises evenly,
    if more than one unit is between them."""

    def __init__(self, rounds: Sequence[Figures]) -> None:
        changes: list[tuple[float, float, float]] = []
        for one in rounds:
            for (low, begin), (high, end) in itertools.pairwise(one.curve):
                units = one.units * (high - low) / 100
                if end > begin and units > 1:
                    changes += [(begin, units / (end - begin), 0.0), (end, -units / (end - begin), 0.0)]
                else:
                    changes.append((end, 0.0, units))
        self.seconds, self.units = [0.0], [0.0]
        slope = total = 0.0
        for at, change, units in sorted(changes):
            total += max(0.0, slope) * (at - self.seconds[-1]) + units
            slope += change
            self.seconds.append(at)
            self.units.append(total)

    def at(self, percent: float) -> float:
        """Seconds that so many percent of all units took at most."""
        wanted = percent / 100 * self.units[-1]
        after = min(bisect.bisect_left(self.units, wanted, lo=1), len(self.units) - 1)
        begin, end = self.units[after - 1], self.units[after]
        part = (wanted - begin) / (end - begin) if end > begin else 1.0
        return self.seconds[after - 1] + min(1.0, max(0.0, part)) * (self.seconds[after] - self.seconds[after - 1])


def latencies_of(report: dict[str, Any], units: int) -> dict[str, Any]:
    """The fields of figures from a report of `clutch._core.Latencies` or `Load`; without units there are none."""
    if not units:
        return {"latency_s": {}}
    names = {percentile: f"p{percentile.replace('.', '')}_us" for percentile in PERCENTILES}
    return {
        "latency_s": {percentile: report[name] / 1e6 for percentile, name in names.items()},
        "curve": [(percent, us / 1e6) for percent, us in report["by_percentile"]],
    }


@dataclass
class Spoiled:
    """One kind of reason: texts that differ in their numbers only."""

    texts: list[str]
    rounds: Counter[str] = field(default_factory=Counter)
    """By contender, how many were spoiled."""

    def __str__(self) -> str:
        words = NUMBER.split(self.texts[0])
        numbers = map(between, zip(*map(NUMBER.findall, self.texts), strict=True))
        return "".join(itertools.chain.from_iterable(itertools.zip_longest(words, numbers, fillvalue="")))


def spoiled(rounds: Mapping[str, Sequence[Figures]]) -> list[Spoiled]:
    """Why rounds of contenders were spoiled, each kind of reason once."""
    kinds: dict[str, Spoiled] = {}
    for name, each in rounds.items():
        for reason in (one.spoiled for one in each if one.spoiled):
            kind = kinds.setdefault(NUMBER.sub("#", reason), Spoiled([]))
            kind.texts.append(reason)
            kind.rounds[name] += 1
    return list(kinds.values())


def between(numbers: Sequence[str]) -> str:
    least, largest = (of(numbers, key=lambda text: float(text.replace(",", ""))) for of in (min, max))
    return least if least == largest else f"{least}–{largest}"
