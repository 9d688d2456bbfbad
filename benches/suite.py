"""What a bench is, as values: rows of contenders, the figures that are compared, and the bars that they must reach.

Pure: `benches.playing` measures, `benches.shown` prints. A suite is a function of a size that gives rows by name.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from clutch.lab.comparing import Ratio, Verdict, ratio_of
from clutch.lab.contender import Contender
from clutch.lab.load import Figures, Load
from clutch.lab.peers.seam import Face, Peer
from clutch.lab.work import Work

LEAST = 1e-12
OURS = "clutch"
BEST = ""
"""Stands for the best of all peers of the lab, or of the row's own contenders where it has none of those. Any other
name stands for the best of all that are called so or begin with that word."""
ALONE = Load(1)


@dataclass(frozen=True)
class Size:
    """How much is measured: rounds of most rows, of those whose samples are long, of those whose bars are near 1; the
    share of the seconds of a sample."""

    usual: int
    slow: int
    fine: int
    share: float

    @property
    def is_quick(self) -> bool:
        return self.share < 1


FULL = Size(usual=9, slow=3, fine=20, share=1.0)
QUICK = Size(usual=3, slow=1, fine=6, share=0.25)


@dataclass(frozen=True)
class Bar:
    """`more` and `faster`: at least `factor` times; `within`: at most. With a `limit`: no more than that, whoever the
    peers are."""

    kind: Literal["more", "faster", "within"]
    factor: float = 1.0
    limit: float | None = None

    def ratios(self, ours: Sequence[float], peer: Sequence[float]) -> Ratio:
        """Of each round: rates and shares as ours to the peer's, durations the other way round."""
        mine, theirs = ([max(one, LEAST) for one in side] for side in (ours, peer))
        return ratio_of(theirs, mine) if self.kind == "faster" else ratio_of(mine, theirs)

    def is_met_by(self, ratio: float) -> bool:
        return ratio <= self.factor if self.kind == "within" else ratio >= self.factor

    def verdict(self, ratio: Ratio) -> str:
        """Of ours to the peer's, whether more is better or less."""
        if self.kind != "within" or ratio.verdict is Verdict.ALIKE:
            return ratio.verdict.value
        return (Verdict.WORSE if ratio.verdict is Verdict.BETTER else Verdict.BETTER).value

    def __str__(self) -> str:
        if self.limit is not None:
            return f"≤ {self.limit:,g}"
        return f"{'≤' if self.kind == 'within' else '≥'} {self.factor:g} ×"


def more(factor: float) -> Bar:
    """Of rates: ours is at least `factor` times the peer's."""
    return Bar("more", factor)


def faster(factor: float) -> Bar:
    """Of durations: the peer's is at least `factor` times ours."""
    return Bar("faster", factor)


def within(factor: float) -> Bar:
    """Of durations and sizes: ours is at most `factor` times the peer's."""
    return Bar("within", factor)


def at_most(limit: float) -> dict[str, Bar]:
    """Bars of a line whose figure is not to exceed a limit."""
    return {"the limit": Bar("within", limit=limit)}


@dataclass(frozen=True)
class Taken:
    """One sample."""

    figures: Figures
    start_s: float


KNOWN: dict[str, tuple[str, Callable[[Taken], float]]] = {
    "rate": ("/s", lambda one: one.figures.rate),
    "p50": ("ms", lambda one: one.figures.latency_s.get("50", 0.0) * 1e3),
    "p99": ("ms", lambda one: one.figures.latency_s.get("99", 0.0) * 1e3),
    "cpu": ("µs", lambda one: one.figures.cpu_each_s * 1e6),
    "memory": ("MB", lambda one: one.figures.pss_bytes / 1e6),
    "start": ("s", lambda one: one.start_s),
    "errors": ("", lambda one: float(sum(one.figures.errors.values()))),
}


@dataclass(frozen=True)
class Line:
    """A figure that is compared: one of KNOWN, or what a probe gives, with its unit. `bars`: by the names of peers, or
    by how these begin."""

    figure: str
    bars: Mapping[str, Bar] = field(default_factory=dict)
    unit: str = ""
    title: str = ""

    @property
    def shown_unit(self) -> str:
        return self.unit or (KNOWN[self.figure][0] if self.figure in KNOWN else "")

    def value(self, one: Taken) -> float:
        more = one.figures.more
        return more[self.figure] if self.figure in more else KNOWN[self.figure][1](one)


@dataclass(frozen=True)
class Share:
    """A rate: a share of what the best of some can do at most, which is measured before."""

    share: float
    callers: int
    of: Literal["ours", "peers"]


@dataclass(frozen=True)
class Row:
    """Who is compared at what. The first of `ours` is judged; `others` are contenders of the bench's own, `peers` those
    of the lab, at `work`.

    `is_fresh`: each sample is of a new start. `place`: all on one CPU; or what is served apart from who asks. `over`:
    makes other orders of those of all.
    """

    title: str
    lines: tuple[Line, ...]
    ours: tuple[Contender, ...]
    others: tuple[Contender, ...] = ()
    peers: tuple[str | Peer, ...] = ()
    work: Work | None = None
    face: Face = "calls"
    workers: int = 2
    loads: tuple[Load | Share, ...] = (ALONE,)
    seconds: float = 0.5
    pace: Literal["usual", "slow", "fine"] = "usual"
    is_fresh: bool = False
    place: Literal["", "one CPU", "apart"] = ""
    over: Callable[[dict[str, Any]], dict[str, Any]] = dict
    note: str = ""


@dataclass(frozen=True)
class Preset:
    """A published experiment of the lab as a row."""

    name: str


Rows = Mapping[str, Row | Preset | str]
"""A text says why a row is left out here."""


@dataclass(frozen=True)
class Judged:
    """One line of the table. Against a limit there is no ratio, and `ratio` is None."""

    title: str
    unit: str
    ours: float
    peer_name: str
    peer: float
    ratio: Ratio | None
    bar: Bar
    is_met: bool


def judge(
    title: str,
    line: Line,
    values: Mapping[str, Sequence[float]],
    ours: str,
    peers: Sequence[str],
    others: Sequence[str] = (),
) -> list[Judged]:
    """A line for each bar whose peer has been measured, of values in the order of the rounds."""
    mine, unit, found = values[ours], line.shown_unit, []
    middle = statistics.median(mine)
    for wanted, bar in line.bars.items():
        if bar.limit is not None:
            found.append(Judged(title, unit, middle, wanted, bar.limit, None, bar, middle <= bar.limit))
            continue
        meant = (peers or others) if wanted == BEST else (*peers, *others)
        if (peer := best(wanted, bar, {name: values[name] for name in meant if name in values})) is not None:
            ratio, theirs = bar.ratios(mine, values[peer]), statistics.median(values[peer])
            found.append(Judged(title, unit, middle, peer, theirs, ratio, bar, bar.is_met_by(ratio.median)))
    return found


def best(wanted: str, bar: Bar, peers: Mapping[str, Sequence[float]]) -> str | None:
    """Of the peers that a bar means, who has the best median; None: nobody was measured."""
    medians = {
        name: statistics.median(found)
        for name, found in peers.items()
        if wanted == BEST or name == wanted or name.startswith(f"{wanted} ")
    }
    if not medians:
        return None
    return (max if bar.kind == "more" else min)(medians, key=medians.__getitem__)


def probe(name: str, function: str, **kwargs: Any) -> Contender:
    """A function of `benches` that takes samples; see `clutch.lab.drivers.probe`."""
    module, _, attribute = function.partition(":")
    return Contender(name, {"kind": "probe", "module": f"benches.{module}", "name": attribute, "kwargs": kwargs}, ALONE)


def pair(function: str, name: str, many: int, few: int, **kwargs: Any) -> dict[str, Any]:
    """The same with much and with little, for rows that ask what much costs: `ours` and `others`."""
    made = [probe(f"{value:,}", function, **{name: value}, **kwargs) for value in (many, few)]
    return {"ours": (made[0],), "others": (made[1],)}
