"""Rows are played: contenders that live at the same time, in rounds, each under each load.

The order of a round is shuffled, and turned round in the next; ratios are taken inside a round.
"""

from __future__ import annotations

import contextlib
import os
import statistics
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace

from benches.suite import Judged, Row, Share, Size, Taken, judge
from clutch.lab import watching
from clutch.lab.contender import Contender
from clutch.lab.field import Field, Tell
from clutch.lab.load import Load
from clutch.lab.peers import packages
from clutch.lab.presets import beside
from clutch.lab.shown import figure
from clutch.lab.trial import Trial

SECONDS_MIN = 0.2


@dataclass
class Played:
    """`samples`: by load and name, in the order of the rounds."""

    row: Row
    samples: dict[Load, dict[str, list[Taken]]] = field(default_factory=dict)
    judged: list[Judged] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    settings: dict[str, str] = field(default_factory=dict)
    """Of the peers, with their versions."""


def play(row: Row, size: Size, tell: Tell) -> Played:
    """Measure it and judge it. Raises TrialFailed where the first of ours fails."""
    played = Played(row)
    notes: list[str] = []
    peers = []
    if row.work is not None:
        for peer, folder in beside.peers(row.peers, notes, tell):
            peers.append(peer.contender(row.work, row.face, row.workers, folder, None))
            asked = {one.partition("[")[0].lower() for one in peer.requirements}
            versions = (f"{name} {at}" for name, at in packages.versions_of(peer).items() if name.lower() in asked)
            played.settings[peer.name] = f"{peer.settings} ({', '.join(versions) or 'of Python'})"
    contenders = [replace(one, order=row.over(dict(one.order))) for one in (*row.ours, *row.others, *peers)]
    # The first of ours must not fail.
    with Field(contenders, tell, needed={contenders[0].name}, opened=lambda one: started(one, row)) as everyone:
        Playing(played, everyone, size).run()
    ours, others, them = row.ours[0].name, [one.name for one in row.others], [one.name for one in peers]
    for load, taken in played.samples.items():
        for line in row.lines:
            values = {name: [line.value(one) for one in found] for name, found in taken.items()}
            played.judged += judge(titled(row, line.title, load), line, values, ours, them, others)
        played.notes += cautions(taken)
    played.notes += [*([row.note] if row.note else []), *notes]
    return played


def titled(row: Row, of_line: str, load: Load) -> str:
    """With the load, where there are several; a rate always."""
    under = f"{load.callers} at a time" if len(row.loads) > 1 else ""
    return ", ".join(filter(None, (row.title, of_line, under if load.rate is None else f"{figure(load.rate)}/s")))


def cautions(taken: dict[str, list[Taken]]) -> list[str]:
    """What makes the figures less than they seem."""
    found = []
    for name, samples in taken.items():
        spoiled = dict.fromkeys(one.figures.spoiled for one in samples if one.figures.spoiled)
        found += [f"! {name}: {reason}" for reason in spoiled]
        errors: dict[str, int] = {}
        for one in samples:
            for kind, count in one.figures.errors.items():
                errors[kind] = errors.get(kind, 0) + count
        if errors:
            found.append(f"! {name}: errors: " + ", ".join(f"{count:,} {kind}" for kind, count in errors.items()))
    return found


@dataclass
class Playing:
    played: Played
    field: Field
    size: Size

    def run(self) -> None:
        row, rounds = self.played.row, getattr(self.size, self.played.row.pace)
        if not row.is_fresh:
            self.field.start(lambda one, trial: None)
        loads = [self.settled(load) for load in row.loads]
        for load in () if row.is_fresh else loads:
            for one in self.field.alive():
                with self.field.left_out(one):
                    self.field.trials[one.name].measure(load, self.seconds / 2)
        for nr, turn in enumerate(self.field.rounds(rounds)):
            order = list(turn)
            for load in loads[:: -1 if nr % 2 else 1]:
                for one in self.field.alive(order):
                    with self.field.left_out(one):
                        found = self.played.samples.setdefault(load, {}).setdefault(one.name, [])
                        found.append(self.sample(one, load))
        self.played.samples = {
            load: {one.name: taken[one.name] for one in self.field.alive()}
            for load, taken in self.played.samples.items()
        }
        failed = self.field.failed.items()
        self.played.notes += [f"{name} is left out: {reason.splitlines()[0]}" for name, reason in failed]

    @property
    def seconds(self) -> float:
        return max(SECONDS_MIN, self.played.row.seconds * self.size.share)

    def sample(self, one: Contender, load: Load) -> Taken:
        if one.name in self.field.trials:
            return taken(self.field.trials[one.name], load, self.seconds)
        with started(one, self.played.row) as trial:
            return taken(trial, load, self.seconds)

    def settled(self, load: Load | Share) -> Load:
        """A share of a rate becomes that rate: of the best of those that are asked, by medians."""
        if isinstance(load, Load):
            return load
        row = self.played.row
        ours, everyone = {one.name for one in row.ours}, list(self.field.alive())
        rates = {}
        for one in [one for one in everyone if (one.name in ours) == (load.of == "ours")] or everyone:
            found = [self.field.trials[one.name].measure(Load(load.callers), self.seconds).rate for _ in range(4)]
            rates[one.name] = statistics.median(found[1:])
        top = max(rates, key=rates.__getitem__)
        self.played.notes.append(f"{row.title}: {load.share:.0%} of the {figure(rates[top])}/s that {top} can do")
        return Load(100_000 if row.face == "calls" else load.callers, rate=round(load.share * rates[top]))


@contextlib.contextmanager
def started(one: Contender, row: Row) -> Iterator[Trial]:
    with one.start() as trial:
        everyone = watching.below(trial.hello["pid"])
        cpus = sorted(os.sched_getaffinity(0))
        if row.place == "one CPU":
            pin(everyone, cpus[-1:])
        elif row.place == "apart":
            half = len(cpus) // 2
            pin(everyone[:1], cpus[half:])
            pin(everyone[1:], cpus[:half] or cpus)
        yield trial


def taken(trial: Trial, load: Load, seconds: float) -> Taken:
    figures = trial.measure(load, seconds)
    return Taken(figures, trial.start_s)


def pin(pids: Collection[int], cpus: Collection[int]) -> None:
    """Every thread of the processes, and what they start from now on."""
    for pid in pids:
        for task in watching.tasks(pid):
            with contextlib.suppress(ProcessLookupError):
                os.sched_setaffinity(task, cpus)
