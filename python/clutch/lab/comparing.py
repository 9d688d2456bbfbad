"""How two settings are compared: by what happened to both in the same round, never by two averages.

A round measures each setting once, one right after the other, so that what disturbs the machine disturbs both; the
ratio is taken inside the round. The interval of the median ratio comes from the bootstrap (B. Efron, "Bootstrap
methods: another look at the jackknife", Annals of Statistics 7, 1979): rounds are drawn again with replacement, and the
median of the draw taken. Beside it stands a rank test that assumes no distribution (F. Wilcoxon, "Individual
comparisons by ranking methods", Biometrics Bulletin 1, 1945), exact for as many rounds as anybody plays. A verdict
needs both.
"""

from __future__ import annotations

import enum
import math
import random
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

CONFIDENCE = 0.98
DRAWS = 2_000
QUANTILE_ROUNDS_MIN = 20
COST, YIELD = 0.2, 0.8
"""Quantiles of CPU time for each unit, and of units for each second of CPU time, that are compared."""
DRIFT = 0.05
SAME = 0.02
"""By which two starts of the same code differ, for as long as they live: memory is laid out anew each time."""
EXACT_MAX = 60
"""Ranks of more figures than these are judged by their normal approximation, which is the same by then."""
ROUNDS_MIN = 8
"""Fewer rounds cannot tell anything at this confidence: all of seven agree by chance once in 64."""

T = TypeVar("T")


class Verdict(enum.Enum):
    BETTER = "better"
    WORSE = "worse"
    ALIKE = "not distinguishable"


@dataclass(frozen=True)
class Ratio:
    """Of a setting's figures to another's, round by round. `low` and `high` bound the median with `CONFIDENCE`."""

    median: float
    low: float
    high: float
    p: float
    """Probability of ranks as uneven as these between two that are alike."""
    rounds: int
    least: float = 0.0
    """Differences up to this part are nobody's: what drifts between two measurements that were not played together."""

    @property
    def verdict(self) -> Verdict:
        """More is better."""
        is_small = abs(math.log(self.median)) <= math.log1p(self.least)
        if self.rounds < ROUNDS_MIN or self.p > 1 - CONFIDENCE or self.low <= 1.0 <= self.high or is_small:
            return Verdict.ALIKE
        return Verdict.BETTER if self.low > 1.0 else Verdict.WORSE

    @property
    def word(self) -> str:
        """The verdict, or why there is none."""
        return self.verdict.value if self.rounds >= ROUNDS_MIN else "too few rounds"

    def __str__(self) -> str:
        return f"{self.median:.3f} [{self.low:.3f}, {self.high:.3f}]"


def ratio_of(ours: Sequence[float], theirs: Sequence[float], seed: int = 0, at: float | None = None) -> Ratio:
    """Compare figures of the same rounds: the median of their ratios, or with `at`, and enough rounds for it, the ratio
    of that quantile of each. Raises ValueError if there are none, or one is not positive.

    CPU time has two modes where a core is shared with others that cannot be seen: a unit takes half as long again while
    the neighbour computes, for a round or some. Both contenders have rounds without it, so that a quantile on that side
    tells them apart where the median of the ratios does not (`COST`, `YIELD`). The test beside its interval is a
    permutation test (R. A. Fisher, "The Design of Experiments", 1935, chapter III): were both alike, the two figures of
    any round could as well be exchanged.
    """
    if not ours or len(ours) != len(theirs):
        raise ValueError(f"figures of the same rounds are needed, not {len(ours)} and {len(theirs)}")
    if min(*ours, *theirs) <= 0:
        raise ValueError("a figure that is not positive has no ratio")
    logs = [math.log(mine / other) for mine, other in zip(ours, theirs, strict=True)]
    draw = random.Random(seed)
    if at is not None and len(logs) >= QUANTILE_ROUNDS_MIN:
        rounds = list(zip(ours, theirs, strict=True))
        low, high = inner(sorted(quotient(draw.choices(rounds, k=len(rounds)), at) for _ in range(DRAWS)))
        return Ratio(quotient(rounds, at), low, high, exchanged(rounds, at, draw), len(rounds), SAME)
    low, high = bootstrap(logs, draw)
    middle = math.exp(statistics.median(logs))
    return Ratio(middle, math.exp(low), math.exp(high), signed_rank(logs), len(logs), SAME)


def ratio_of_apart(
    ours: Sequence[float], theirs: Sequence[float], seed: int = 0, at: float = 0.5, drift: float = DRIFT
) -> Ratio:
    """Compare figures that were not measured in the same rounds, such as with a saved file: the ratio of the medians,
    or of another quantile, each side drawn again by itself, and the rank-sum test (H. B. Mann, D. R. Whitney, "On a
    test of whether one of two random variables is stochastically larger than the other", Annals of Mathematical
    Statistics 18, 1947), exact.

    What else was different between the two measurements is part of the ratio, so that differences up to `drift` tell
    nothing. Raises ValueError as `ratio_of`.
    """
    if not ours or not theirs or min(*ours, *theirs) <= 0:
        raise ValueError("figures that are positive are needed on both sides")
    draw = random.Random(seed)

    def drawn(values: Sequence[float]) -> float:
        return quantile(draw.choices(values, k=len(values)), at)

    ratios = sorted(drawn(ours) / drawn(theirs) for _ in range(DRAWS))
    low, high = inner(ratios)
    middle = quantile(ours, at) / quantile(theirs, at)
    return Ratio(middle, low, high, rank_sum(ours, theirs), min(len(ours), len(theirs)), drift)


def quotient(rounds: Sequence[tuple[float, float]], at: float) -> float:
    """Of a quantile of the first figures to that of the second."""
    return quantile([mine for mine, _ in rounds], at) / quantile([other for _, other in rounds], at)


def quantile(values: Sequence[float], at: float) -> float:
    """Between the two values that are nearest to it."""
    ordered = sorted(values)
    place = at * (len(ordered) - 1)
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])


def exchanged(rounds: Sequence[tuple[float, float]], at: float, draw: random.Random) -> float:
    """Return the two-sided probability of a quotient as far from 1, where figures are exchanged in rounds by chance."""
    seen = abs(math.log(quotient(rounds, at))) - 1e-12
    alike = (quotient([one if draw.getrandbits(1) else (one[1], one[0]) for one in rounds], at) for _ in range(DRAWS))
    return (1 + sum(abs(math.log(one)) >= seen for one in alike)) / (DRAWS + 1)


def bootstrap(values: Sequence[float], draw: random.Random) -> tuple[float, float]:
    """Return the bounds of the median: percentiles of medians of samples that are drawn again with replacement."""
    return inner(sorted(statistics.median(draw.choices(values, k=len(values))) for _ in range(DRAWS)))


def inner(ordered: Sequence[float]) -> tuple[float, float]:
    """Return the bounds of the middle part of values that are in order, as large as `CONFIDENCE`."""
    tail, count = (1 - CONFIDENCE) / 2, len(ordered)
    return ordered[int(count * tail)], ordered[min(count - 1, math.ceil(count * (1 - tail)) - 1)]


def rank_sum(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """Return the two-sided probability of the rank sum of `ours` under no difference: all choices of as many of the
    ranks are counted."""
    everything = sorted((value, side) for side, values in enumerate((ours, theirs)) for value in values)
    doubled = ranks([value for value, _ in everything])
    seen = sum(rank for rank, (_, side) in zip(doubled, everything, strict=True) if side == 0)
    middle = len(ours) * (len(everything) + 1)
    if len(everything) > EXACT_MAX:
        # Twice the ranks have four times the variance; equal ones make it smaller.
        mean = sum(doubled) / len(doubled)
        spread = sum((rank - mean) ** 2 for rank in doubled) / (len(doubled) - 1) / len(doubled)
        deviation = math.sqrt(len(ours) * len(theirs) * spread)
        return math.erfc(abs(seen - middle) / deviation / math.sqrt(2)) if deviation else 1.0
    counts: list[dict[int, int]] = [{0: 1}] + [{} for _ in ours]
    for rank in doubled:
        for chosen in range(len(ours), 0, -1):
            for total, count in counts[chosen - 1].items():
                counts[chosen][total + rank] = counts[chosen].get(total + rank, 0) + count
    tail = sum(count for total, count in counts[-1].items() if abs(total - middle) >= abs(seen - middle))
    return min(1.0, tail / math.comb(len(everything), len(ours)))


def signed_rank(values: Sequence[float]) -> float:
    """Return the two-sided probability of Wilcoxon's signed-rank statistic under no difference.

    Exact: the sums of all 2^n choices of signs are counted, for ranks in halves where values tie.
    """
    kept = sorted((value for value in values if value != 0), key=abs)
    if not kept:
        return 1.0
    doubled = ranks([abs(value) for value in kept])
    if len(kept) > EXACT_MAX:
        distance = abs(sum(rank if value > 0 else -rank for rank, value in zip(doubled, kept, strict=True)))
        return math.erfc(distance / math.sqrt(2 * sum(rank * rank for rank in doubled)))
    counts = {0: 1}
    for rank in doubled:
        more = dict(counts)
        for total, count in counts.items():
            more[total + rank] = more.get(total + rank, 0) + count
        counts = more
    positive = sum(rank for rank, value in zip(doubled, kept, strict=True) if value > 0)
    least = min(positive, sum(doubled) - positive)
    tail = sum(count for total, count in counts.items() if total <= least)
    return min(1.0, 2 * tail / 2 ** len(kept))


def ranks(ordered: Sequence[float]) -> list[int]:
    """Return twice the ranks of values that are in order; equal ones share theirs."""
    found: list[int] = []
    while len(found) < len(ordered):
        first = len(found)
        last = first
        while last + 1 < len(ordered) and ordered[last + 1] == ordered[first]:
            last += 1
        found += [first + last + 2] * (last - first + 1)
    return found


def rounds_of(field: Sequence[T], count: int, seed: int) -> Iterator[list[T]]:
    """Yield the order of each round: shuffled, and in every second round the one before backwards, so that over two
    rounds each has been before and behind each other equally often."""
    shuffle = random.Random(seed).shuffle
    order = list(field)
    for nr in range(count):
        if nr % 2:
            order = order[::-1]
        else:
            shuffle(order)
        yield list(order)
