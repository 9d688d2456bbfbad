"""Enqueue and drain over SQLite, beside a bare loop of INSERT and COMMIT on the same disk.

WAL, and synchronous=FULL where it can be chosen: taskito has NORMAL built in, so its floor is that of NORMAL, under
which a commit waits for no disk.
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

_OURS = f"{contestants.CLUTCH} sqlite"
_PAYLOAD_BYTES = 200
_HEADINGS = ["contestant", "one by one/s [95 %]", "many/s [95 %]", "floor/s", "share of floor [95 %]", "synchronous"]


@dataclass(frozen=True)
class Sample:
    """One round of a contestant; the floor was taken in the same round."""

    rate: float
    many_rate: float
    floor: float
    drained: Drained


def run(scale: Scale) -> Report:
    """Jobs a second."""
    jobs = counts(scale).sqlite
    field, missing = contestants.of("sqlite", scale.peers_only)
    taken = measured.take_turns(measured.samplers(field, lambda one: _sample(one, one.jobs(jobs))), scale.slow_rounds)
    report = Report(notes=[_note(jobs)])
    drains = {name: [one.drained for one in samples] for name, samples in taken.samples.items()}
    rates = taken.of(lambda one: one.rate)
    measured.compare(report, "enqueue, SQLite", "/s", rates, _OURS, more(1))
    drain_rates = taken.of(lambda one: one.drained.rate)
    measured.compare(report, f"drain, SQLite, {SLOTS} slots", "/s", drain_rates, _OURS, more(1))
    report.sheets += [_sheet(taken.samples), drain_sheet(f"drain, SQLite, {SLOTS} slots", drains)]
    report.cells += measured.cells("sqlite", taken.samples)
    report.notes += [*measured.settings("sqlite", field, "sqlite:///…"), *missing, *taken.failures]
    return report


def _sample(contestant: Contestant, jobs: int) -> Sample:
    with launch.folder() as place:
        floor = sqlite.commit_rate(place, jobs, _PAYLOAD_BYTES, synchronous(contestant.name))
        many = launch.agent(contestant, _sub(place), sqlite.url_of(_sub(place)), "many", "mark", jobs)
        url = sqlite.url_of(place)
        seconds = launch.agent(contestant, place, url, "each", "mark", jobs)
        return Sample(jobs / seconds, jobs / many, floor, launch.drain(contestant, place, url, jobs, SLOTS))


def _sub(place: Path) -> Path:
    """For the database of `many`, which nobody drains."""
    below = place / "many"
    below.mkdir(exist_ok=True)
    return below


def synchronous(name: str) -> Synchronous:
    """What a contestant's commits wait for."""
    return "NORMAL" if name == "taskito" else "FULL"


def _sheet(samples: dict[str, list[Sample]]) -> Sheet:
    cells = {name: _cells(name, found) for name, found in samples.items()}
    return measured.sheet("enqueue, SQLite, one caller", _HEADINGS, cells)


def _cells(name: str, samples: list[Sample]) -> list[str]:
    rates, floors = [one.rate for one in samples], [one.floor for one in samples]
    many = measured.shown([one.many_rate for one in samples])
    share = measured.shown(measured.ratios(rates, floors))
    return [measured.shown(rates), many, figure(statistics.median(floors)), share, synchronous(name)]


def _note(jobs: int) -> str:
    with launch.folder() as place:
        where = sqlite.file_system(place)
    return f"sqlite: {jobs:,} jobs, WAL, on {where}; floor: INSERT of {_PAYLOAD_BYTES} bytes and COMMIT, module sqlite3"
