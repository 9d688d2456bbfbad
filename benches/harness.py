"""How two things are compared: samples taken in turn, the ratio of each pair, its median and an interval.

Contestants are sampled A B C A B C …, so that what disturbs the machine disturbs neighbours alike; the ratio is taken
inside each round. The interval of the median is that of order statistics, which assumes nothing of the distribution.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, TypeVar

CONFIDENCE = 0.95

Samples = dict[str, list[float]]
T = TypeVar("T")


@dataclass(frozen=True)
class Scale:
    """How much is measured: rounds of pairs, rounds of the row whose samples take many seconds each, rounds of a row
    whose bar is under 5 %, seconds of one sample of a rate, calls of one sample of a latency."""

    rounds: int
    slow_rounds: int
    fine_rounds: int
    seconds: float
    calls: int
    peers_only: bool = False
    """For a look at what the machine gives the peers, without Clutch and without ratios."""


FULL = Scale(rounds=9, slow_rounds=3, fine_rounds=20, seconds=0.4, calls=2_500)
QUICK = Scale(rounds=3, slow_rounds=1, fine_rounds=6, seconds=0.2, calls=700)


@dataclass(frozen=True)
class Contestant:
    """A name and a function that takes one sample of it."""

    name: str
    sample: Callable[[], float]


class Skipped(Exception):
    """The row cannot run on this machine; the message says why and what would mend it."""


def turns(field: Sequence[T], rounds: int) -> Iterator[T]:
    """Each member `rounds` times; every other round goes backwards, so that nobody always comes first."""
    for nr in range(rounds):
        yield from reversed(field) if nr % 2 else field


def interleave(contestants: Iterable[Contestant], rounds: int) -> Samples:
    """`rounds` samples of each, taken in turn."""
    field_of_play = list(contestants)
    samples: Samples = {contestant.name: [] for contestant in field_of_play}
    for _ in range(rounds):
        for contestant in field_of_play:
            samples[contestant.name].append(contestant.sample())
    return samples


@dataclass(frozen=True)
class Bar:
    """What a row must reach: `more` and `faster` at least, `within` at most `factor`."""

    kind: Literal["more", "faster", "within"]
    factor: float

    def ratio(self, ours: float, peer: float) -> float:
        """Of one pair: rates and shares as ours over peer's, durations the other way round."""
        return peer / ours if self.kind == "faster" else ours / peer

    def is_met_by(self, ratio: float) -> bool:
        return ratio <= self.factor if self.kind == "within" else ratio >= self.factor

    def __str__(self) -> str:
        sign = "≤" if self.kind == "within" else "≥"
        return f"{sign} {self.factor:g} ×"


def more(factor: float) -> Bar:
    """Of rates: ours is at least `factor` times the peer's."""
    return Bar("more", factor)


def faster(factor: float) -> Bar:
    """Of durations: the peer's is at least `factor` times ours."""
    return Bar("faster", factor)


def within(factor: float) -> Bar:
    """Of durations or sizes: ours is at most `factor` times the peer's."""
    return Bar("within", factor)


@dataclass(frozen=True)
class Comparison:
    """One line of the table."""

    work: str
    unit: str
    ours: float
    peer_name: str
    peer: float
    ratio: float
    low: float
    high: float
    bar: str
    met: bool


@dataclass(frozen=True)
class Sheet:
    """A table of its own: words and figures as they are to be shown."""

    title: str
    headings: list[str]
    lines: list[list[str]]


@dataclass
class Report:
    """What a row found: its lines, and what stands below the table (versions, settings, figures beside); or sheets,
    with the cells that they were made from."""

    lines: list[Comparison] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    skipped: str | None = None
    sheets: list[Sheet] = field(default_factory=list)
    cells: list[dict[str, Any]] = field(default_factory=list)

    def compare(self, work: str, unit: str, samples: Samples, against: dict[str, Bar]) -> None:
        """Add one line for each peer in `against`; the first contestant in `samples` is ours."""
        ours, *_ = samples.values()
        for peer_name, bar in against.items():
            self.lines.append(_comparison(work, unit, ours, peer_name, samples[peer_name], bar))

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def _comparison(work: str, unit: str, ours: list[float], peer_name: str, peer: list[float], bar: Bar) -> Comparison:
    ratios = [bar.ratio(mine, theirs) for mine, theirs in zip(ours, peer, strict=True)]
    ratio = statistics.median(ratios)
    low, high = median_interval(ratios)
    mine, theirs = statistics.median(ours), statistics.median(peer)
    return Comparison(work, unit, mine, peer_name, theirs, ratio, low, high, str(bar), bar.is_met_by(ratio))


def median_interval(values: list[float], confidence: float = CONFIDENCE) -> tuple[float, float]:
    """The narrowest pair of order statistics around the median that covers it with `confidence`.

    With fewer than six values no pair does, and the whole range is given. (Conover, Practical Nonparametric
    Statistics, section 3.2: coverage is a binomial sum.)
    """
    ordered = sorted(values)
    depth = 0
    while _coverage(len(ordered), depth + 1) >= confidence:
        depth += 1
    return ordered[depth], ordered[-1 - depth]


def _coverage(count: int, depth: int) -> float:
    """How likely the median lies between the values `depth` from either end, both included."""
    if 2 * depth >= count:
        return 0.0
    return 1 - 2 * sum(math.comb(count, rank) for rank in range(depth + 1)) / 2**count
