"""Enqueue and drain over SQLite, beside a bare loop of INSERT and COMMIT on the same disk.

WAL. Who runs with synchronous=FULL is compared with Clutch at FULL, and taskito, which has NORMAL built in, with Clutch
at NORMAL, where a commit waits for no disk; each beside the floor of its own.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from pathlib import Path

from benches.harness import Report, Scale, Sheet, more
from benches.jobs import contestants, launch, measured, sqlite
from benches.jobs.contestant import SLOTS, Contestant
from benches.jobs.launch import Drained
from benches.jobs.rows.drain import drain_sheet
from benches.jobs.scale import counts
from benches.jobs.sqlite import Synchronous
from benches.table import figure

_OURS: dict[Synchronous, str] = {
    "FULL": f"{contestants.CLUTCH} sqlite",
    "NORMAL": f"{contestants.CLUTCH} sqlite normal",
}
_FLOOR = "INSERT, COMMIT"
_THREADS = 8
_PAYLOAD_BYTES = 200
_WARM_UP = 100
_HEADINGS = [
    "contestant",
    "one by one/s [95 %]",
    f"{_THREADS} threads/s [95 %]",
    "many/s [95 %]",
    "floor/s",
    "share of floor [95 %]",
    "synchronous",
]


@dataclass(frozen=True)
class Sample:
    """One round of a contestant; the floor was taken in the same round."""

    rate: float
    many_rate: float
    threads_rate: float
    """Of eight threads that enqueue one by one."""
    floor: float
    drained: Drained


def run(scale: Scale) -> Report:
    """Jobs a second."""
    jobs, many = counts(scale).sqlite, counts(scale).enqueue_many
    field, missing = contestants.of("sqlite", scale.peers_only)
    taken = measured.take_turns(
        measured.samplers(field, lambda one: _sample(one, one.jobs(jobs), many)), scale.slow_rounds
    )
    report = Report(notes=[_note(jobs, many)])
    drains = {name: [one.drained for one in samples] for name, samples in taken.samples.items()}
    for level, ours in _OURS.items():
        equals = {name: samples for name, samples in taken.samples.items() if synchronous(name) == level}
        _compare(report, level, ours, equals)
    report.sheets += [_sheet(taken.samples), drain_sheet(f"drain, SQLite, {SLOTS} slots", drains)]
    report.cells += measured.cells("sqlite", taken.samples)
    report.notes += [*measured.settings("sqlite", field, "sqlite:///…"), *missing, *taken.failures]
    return report


def _compare(report: Report, level: Synchronous, ours: str, samples: dict[str, list[Sample]]) -> None:
    """With those whose commits wait for the same. The floor is a bar where it waits for the disk."""
    if ours not in samples:
        return
    drains = {name: [one.drained.rate for one in found] for name, found in samples.items()}
    measured.compare(report, f"drain, {SLOTS} slots, {level}", "/s", drains, ours, more(5))
    if level != "FULL":
        return
    own = samples[ours]
    floors = [one.floor for one in own]
    for work, rates, factor in (
        ("enqueue one by one", [one.rate for one in own], 0.8),
        (f"enqueue, {_THREADS} threads", [one.threads_rate for one in own], 3),
        ("enqueue_many", [one.many_rate for one in own], 20),
    ):
        report.compare(f"{work}, {level}", "/s", {ours: rates, _FLOOR: floors}, {_FLOOR: more(factor)})


def _sample(contestant: Contestant, jobs: int, many_jobs: int) -> Sample:
    with launch.folder() as place:
        floor = sqlite.commit_rate(place, jobs, _PAYLOAD_BYTES, synchronous(contestant.name))
        beside = sqlite.url_of(_sub(place))
        many = launch.agent(contestant, _sub(place), beside, "many", "mark", many_jobs, _WARM_UP)
        threads = launch.agent(contestant, _sub(place), beside, "callers", "mark", jobs, _THREADS)
        url = sqlite.url_of(place)
        seconds = launch.agent(contestant, place, url, "each", "mark", jobs, _WARM_UP)
        drained = launch.drain(contestant, place, url, jobs + _WARM_UP, SLOTS)
        return Sample(jobs / seconds, many_jobs / many, threads, floor, drained)


def _sub(place: Path) -> Path:
    """For the database of `many` and `callers`, which nobody drains."""
    below = place / "many"
    below.mkdir(exist_ok=True)
    return below


def synchronous(name: str) -> Synchronous:
    """What a contestant's commits wait for."""
    return "NORMAL" if name in ("taskito", _OURS["NORMAL"]) else "FULL"


def _sheet(samples: dict[str, list[Sample]]) -> Sheet:
    cells = {name: _cells(name, found) for name, found in samples.items()}
    return measured.sheet("enqueue, SQLite, one caller", _HEADINGS, cells)


def _cells(name: str, samples: list[Sample]) -> list[str]:
    rates, floors = [one.rate for one in samples], [one.floor for one in samples]
    many = measured.shown([one.many_rate for one in samples])
    threads = measured.shown([one.threads_rate for one in samples])
    share = measured.shown(measured.ratios(rates, floors))
    return [measured.shown(rates), threads, many, figure(statistics.median(floors)), share, synchronous(name)]


def _note(jobs: int, many: int) -> str:
    with launch.folder() as place:
        where = sqlite.file_system(place)
    floor = f"INSERT of {_PAYLOAD_BYTES} bytes and COMMIT, module sqlite3"
    return f"sqlite: {jobs:,} jobs, at once {many:,}; WAL, on {where}; floor: {floor}"
