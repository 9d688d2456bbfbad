"""What the rows share: samples in turn, contestants that fail left out, lines, sheets and notes made of them."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from benches.harness import Bar, Report, Samples, Sheet, Skipped, median_interval, turns
from benches.jobs.contestant import SLOTS, Contestant
from benches.jobs.launch import PeerFailed
from benches.table import figure

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T")


@dataclass
class Taken(Generic[T]):
    """The samples of each contestant, in the order of the field; and who failed, with what it printed."""

    samples: dict[str, list[T]]
    failures: list[str] = field(default_factory=list)

    def of(self, value: Callable[[T], float]) -> Samples:
        """One figure of each sample."""
        return {name: [value(sample) for sample in samples] for name, samples in self.samples.items()}


def take_turns(samplers: Mapping[str, Callable[[], T]], rounds: int) -> Taken[T]:
    """`rounds` samples of each, in turn; a contestant that fails once is out."""
    if not samplers:
        raise Skipped("no contestant of this row can run here; `make bench-jobs` installs the peers")
    taken: Taken[T] = Taken({name: [] for name in samplers})
    for name in turns(list(samplers), rounds):
        if name not in taken.samples:
            continue
        try:
            taken.samples[name].append(samplers[name]())
        except PeerFailed as failure:
            del taken.samples[name]
            taken.failures.append(f"FAILED: {failure}")
    return taken


def samplers(contestants: Iterable[Contestant], sample: Callable[[Contestant], T]) -> dict[str, Callable[[], T]]:
    """By the contestants' names."""
    return {one.name: partial(sample, one) for one in contestants}


def compare(report: Report, work: str, unit: str, samples: Samples, ours: str, bar: Bar) -> None:
    """Lines of ours against each peer, when ours ran."""
    if ours in samples:
        ordered = {ours: samples[ours]} | samples
        report.compare(work, unit, ordered, {name: bar for name in ordered if name != ours})


def cells(row: str, samples: Mapping[str, Sequence[DataclassInstance]]) -> list[dict[str, Any]]:
    """Each sample as it was taken, for --json."""
    named = [(name, sample) for name, found in samples.items() for sample in found]
    return [{"row": row, "contestant": name, **asdict(sample)} for name, sample in named]


def ratios(values: Iterable[float], floor: Iterable[float]) -> list[float]:
    """Of each pair, taken in the same round."""
    return [value / low for value, low in zip(values, floor, strict=True)]


def shown(values: Sequence[float]) -> str:
    """The median and its interval."""
    low, high = median_interval(list(values))
    return f"{figure(statistics.median(values))} [{figure(low)}, {figure(high)}]"


def sheet(title: str, headings: list[str], cells: Mapping[str, Sequence[str]]) -> Sheet:
    """One line for each contestant."""
    return Sheet(title, headings, [[name, *figures] for name, figures in cells.items()])


def settings(row: str, contestants: Iterable[Contestant], url: str, slots: int = SLOTS) -> list[str]:
    """Of each: versions, the consumer's command after `python -m`, and what is set besides."""
    return [
        f"{row}: {one.name} ({one.versions()}) = {' '.join(one.consumer(url, slots)[1:])}; {one.settings}"
        for one in contestants
    ]
