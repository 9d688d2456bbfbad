"""What suites have found, as a report: a table of ratios with bars, then what stands below."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from benches.playing import Played, titled
from benches.suite import Judged, Line
from clutch.lab.comparing import CONFIDENCE
from clutch.lab.load import Load
from clutch.lab.machine import facts, packages
from clutch.lab.report import Report, Sheet
from clutch.lab.shown import as_data, figure

HEADINGS = ("work", "ours", "peer", "", f"ratio [{CONFIDENCE * 100:g} %]", "", "bar", "met")
QUICK = "quick: few and short samples, whose intervals are ranges; judge by a full run"


def report_of(rows: dict[str, Played], is_quick: bool) -> Report:
    report = Report("Clutch beside its peers, as ratios", facts())
    judged = [one for played in rows.values() for one in played.judged]
    if judged:
        report.sheets.append(Sheet("", HEADINGS, cells(judged)))
    report.sheets += [measured(played, load) for played in rows.values() for load in played.samples]
    report.notes += [f"{name}: {note}" for name, played in rows.items() for note in played.notes]
    settings = {name: told for played in rows.values() for name, told in played.settings.items()}
    report.notes += [f"{name} = {told}" for name, told in settings.items()]
    report.notes += [QUICK] if is_quick else []
    report.data = {"rows": {name: data_of(played) for name, played in rows.items()}, "packages": packages()}
    return report


def cells(judged: Sequence[Judged]) -> list[list[str]]:
    return [
        [
            one.title,
            f"{figure(one.ours)} {one.unit}",
            one.peer_name,
            f"{figure(one.peer)} {one.unit}",
            "" if one.ratio is None else str(one.ratio),
            "" if one.ratio is None else one.bar.verdict(one.ratio),
            str(one.bar),
            "yes" if one.is_met else "NO",
        ]
        for one in judged
    ]


def measured(played: Played, load: Load) -> Sheet:
    """All figures of all contenders: the middle of the rounds, and the extremes."""
    taken, lines = played.samples[load], played.row.lines
    heads = [f"{line.title or line.figure} {line.shown_unit}".strip() for line in lines]
    found = [[name, *(spread([line.value(one) for one in of]) for line in lines)] for name, of in taken.items()]
    return Sheet("", [titled(played.row, "", load), *heads], found)


def spread(values: Sequence[float]) -> str:
    middle = figure(statistics.median(values))
    return f"{middle} [{figure(min(values))}, {figure(max(values))}]" if len(values) > 1 else middle


def data_of(played: Played) -> dict[str, Any]:
    return {
        "judged": [
            {**asdict(one), "bar": str(one.bar), "ratio": None if one.ratio is None else as_data(one.ratio)}
            for one in played.judged
        ],
        "samples": {
            str(load): {name: [values_of(played.row.lines, one) for one in found] for name, found in taken.items()}
            for load, taken in played.samples.items()
        },
        "notes": played.notes,
        "settings": played.settings,
    }


def values_of(lines: Sequence[Line], one: Any) -> dict[str, Any]:
    compared = {line.figure: line.value(one) for line in lines}
    return {**compared, "start_s": one.start_s, "figures": asdict(one.figures)}
