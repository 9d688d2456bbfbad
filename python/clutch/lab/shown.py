"""What a benchmark and a tuning have to show, as reports."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from clutch.lab.benching import Bench, Change, cautions
from clutch.lab.comparing import Ratio
from clutch.lab.load import Figures, typical
from clutch.lab.machine import facts, packages
from clutch.lab.outcome import Found
from clutch.lab.report import WARNING, Axis, HeatMap, Line, Lines, Report, Sheet
from clutch.lab.setting import Setting
from clutch.lab.work import Work

APART = "other programs used far more of the CPUs in one of the two runs: no verdict; repeat both on a quiet machine"
LINES_MAX = 8
"""Contenders whose curves are drawn: the best."""


def headings(unit: str) -> list[str]:
    return [f"{unit}/s", "p50 ms", "p99 ms", "CPU µs each", "CPUs", "MB", "of ideal", "errors"]


def row_of(figures: Figures, ideal: float | None) -> list[str]:
    """The cells of `headings`."""
    latency = [milliseconds(figures.latency_s.get(percentile)) for percentile in ("50", "99")]
    errors = sum(figures.errors.values())
    return [
        ("!" if figures.spoiled else "") + figure(figures.rate),
        *latency,
        f"{figures.cpu_each_s * 1e6:,.0f}" if figures.cpu_s else "",
        f"{figures.cpu_share:.2f}" if figures.cpu_s else "",
        f"{figures.pss_bytes / 1e6:,.0f}" if figures.pss_bytes else "",
        f"{figures.rate / ideal:.0%}" if ideal else "",
        f"{errors:,}" if errors else "",
    ]


def milliseconds(seconds: float | None) -> str:
    return "" if seconds is None else figure(seconds * 1e3)


def figure(value: float) -> str:
    """Three or four digits that count."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def bench_report(
    bench: Bench, changes: Mapping[str, Change], cpus: int, ranks: bool = True, to: str = "the saved"
) -> Report:
    """`changes`: of those that were compared with others, `to` whom; without them, with `ranks`, with the best."""
    report = Report(f"{bench.work}", bench.machine, data=bench.as_data())
    heads, compared = against_columns(changes, to) if changes else best_columns(bench) if ranks else ([], {})
    lines = [
        [name, *row_of(cell.middle, cell.ideal(cpus)), *compared.get(name, [""] * len(heads))]
        for name, cell in bench.cells.items()
    ]
    head = ["", *headings(bench.unit), *heads]
    failed = [f"{name} fails: {reason.splitlines()[0]}" for name, reason in bench.failed.items()]
    report.sheets.append(Sheet("", head, lines, failed))
    report.sheets += [sheet for sheet in (times(bench), replaced(bench)) if sheet is not None]
    report.charts += [
        *heat_maps(bench),
        *curves({name: cell.rounds for name, cell in bench.cells.items()}),
        *over_slots(bench, cpus),
    ]
    report.advice += [f"{WARNING}{caution}" for caution in cautions(bench)]
    report.notes += [f"{kind}: {count:,}" for kind, count in errors_of(bench).items()]
    if not all(change.told or change.is_lost for change in changes.values()):
        report.advice.append(f"{WARNING}{APART}")
    if changes:
        report.data["against"] = {
            name: {
                **{of: ratio and as_data(ratio) for of, ratio in ratios_of(change).items()},
                "verdict": word_of(change),
            }
            for name, change in changes.items()
        }
    return report


Columns = tuple[list[str], dict[str, list[str]]]
"""Their headings, and the cells of each by its name."""


def ratios_of(change: Change) -> dict[str, Ratio | None]:
    return {"rate": change.rate, "cpu": change.cpu, "latency": change.latency}


def word_of(change: Change) -> str:
    if change.is_lost:
        return "fails now"
    return change.verdict.value if change.told else "no verdict"


def against_columns(changes: Mapping[str, Change], to: str) -> Columns:
    """Ratios that nobody has are left out."""
    heads = {"rate": f"rate to {to}", "cpu": "per CPU second", "latency": "promptness"}
    known = [of for of in heads if any(ratios_of(one)[of] is not None for one in changes.values())]
    cells = {name: [*(str(ratios_of(one)[of] or "") for of in known), word_of(one)] for name, one in changes.items()}
    return [*(heads[of] for of in known), ""], cells


def best_columns(bench: Bench) -> Columns:
    """Rates to that of the best, where there are several."""
    if len(bench.cells) < 2:
        return [], {}
    ratios = bench.to(bench.best).items()
    return ["to the best", ""], {name: [str(ratio), ratio.word] for name, ratio in ratios}


def times(bench: Bench) -> Sheet | None:
    """Where the time of a unit goes, for those that tell."""
    lines = []
    for name, cell in bench.cells.items():
        one = cell.middle
        if one.run_s is None or one.queued_s is None or one.run_s <= 0:
            continue
        shares = [f"{share:.0%}" for share in parts_of(one, cell.alone)]
        if cell.alone is None:  # what a unit waits by itself is not known
            shares[1], shares[3] = shares[3], ""
        switches = f"{one.switches / one.units:.2f}" if one.units else ""
        placed = " ".join("·" if cpu is None else str(cpu) for cpu in one.cpus[:16])
        lines.append(
            [
                name,
                milliseconds(one.queued_s),
                milliseconds(one.run_s),
                *shares,
                switches,
                f"{cell.start_s:.2f}",
                placed,
            ]
        )
    if not lines:
        return None
    head = [
        "",
        "queue ms",
        "run ms",
        "computes",
        "waits",
        "for a CPU",
        "GIL, lock, loop",
        "switches each",
        "start s",
        "last CPUs",
    ]
    note = "waits: as much as a unit alone; GIL, lock, loop: what is left of its run time, while others have their turn"
    return Sheet("where a unit's time goes", head, lines, [note])


def parts_of(one: Figures, alone: Figures | None) -> list[float]:
    """Of a unit's run time the shares in which it computes, waits by itself, waits for a CPU, and the rest."""
    assert one.run_s
    left, found = 1.0, list[float]()
    waits = 0.0 if alone is None or not alone.run_s else alone.run_s - alone.cpu_each_s - alone.delayed_each_s
    for seconds in (one.cpu_each_s, waits, one.delayed_each_s):
        found.append(min(left, max(0.0, seconds / one.run_s)))
        left -= found[-1]
    return [*found, left]


def replaced(bench: Bench) -> Sheet | None:
    """What it costs to replace a worker under load, where that was measured."""
    lines = []
    for name, cell in bench.cells.items():
        if (one := cell.recycled) is None or one.recycled_s is None:
            continue
        p99 = [milliseconds(figures.latency_s.get("99")) for figures in (cell.middle, one)]
        change = f"{one.rate / cell.middle.rate - 1:+.1%}" if cell.middle.rate else ""
        lines.append([name, f"{one.recycled_s:.2f}", *p99, change, f"{sum(one.errors.values())}"])
    head = ["", "took s", "p99 ms without", "p99 ms with", f"{bench.unit}/s", "failed"]
    return Sheet("a worker replaced under load", head, lines) if lines else None


def heat_maps(bench: Bench) -> list[HeatMap]:
    """Of each profile that was measured in more than one size of both kinds."""
    by_profile: dict[str, dict[tuple[int, int], float]] = {}
    names = {"thread": "threads", "async": "tasks", "greenlet": "tasks"}
    for cell in bench.cells.values():
        profile = cell.options.get("profile")
        if profile in names:
            at = (cell.options["workers"], cell.options.get(names[profile], 1))
            by_profile.setdefault(profile, {})[at] = cell.middle.rate
    found = []
    for profile, rates in by_profile.items():
        rows, columns = sorted({at[0] for at in rates}), sorted({at[1] for at in rates})
        if len(rows) > 1 and len(columns) > 1:
            values = [[rates.get((row, column)) for column in columns] for row in rows]
            unit = f"{bench.unit}/s"
            texts = list(map(str, columns)), list(map(str, rows))
            found.append(HeatMap(f"{profile}: {unit}", names[profile], texts[0], "workers", texts[1], values, unit))
    return found


def curves(rounds: Mapping[str, Sequence[Figures]]) -> list[Lines]:
    """Latency by percentile, and the longest latency over time, of the best."""
    best = sorted(rounds, key=lambda name: -statistics.median(one.rate for one in rounds[name]))[:LINES_MAX]
    middle = {name: typical(rounds[name]) for name in best}
    found = []
    if any(one.curve for one in middle.values()):
        found.append(by_percentile("latency by percentile", middle))
    memory = []
    for name in best:
        at, points = 0.0, []
        for one in rounds[name]:
            at += one.wall_s
            points.append((at, one.pss_bytes / 1e6))
        memory.append(Line(name, points))
    if memory and all(len(line.points) > 1 for line in memory):
        found.append(Lines("memory over time under load", Axis("s"), Axis("MB"), memory))
    return found


def by_percentile(title: str, figures: Mapping[str, Figures]) -> Lines:
    """Latencies of each that has any. None is at 100 percent, where such an axis has no place."""
    lines = [
        Line(name, [(percent, seconds * 1e3) for percent, seconds in one.curve if percent < 100])
        for name, one in figures.items()
        if one.curve
    ]
    return Lines(title, Axis("percentile", "percentile"), Axis("ms", "log"), lines)


def over_slots(bench: Bench, cpus: int) -> list[Lines]:
    """Rate against slots, each profile a line, beside the ideal."""
    by_profile: dict[str, list[tuple[float, float]]] = {}
    ideal: dict[float, float] = {}
    for cell in bench.cells.values():
        if cell.slots is not None:
            by_profile.setdefault(str(cell.options.get("profile")), []).append((cell.slots, cell.middle.rate))
            if (rate := cell.ideal(cpus)) is not None:
                ideal[cell.slots] = max(ideal.get(cell.slots, 0.0), rate)
    if len({x for points in by_profile.values() for x, _ in points}) < 2:
        return []
    shown = [Line(profile, sorted(points)) for profile, points in by_profile.items()]
    shown.append(Line("ideal", sorted(ideal.items()), is_ideal=True))
    return [Lines("rate against slots", Axis("slots", "log"), Axis(f"{bench.unit}/s"), shown)]


def errors_of(bench: Bench) -> dict[str, int]:
    """By contender and kind."""
    found: dict[str, int] = {}
    for name, cell in bench.cells.items():
        for one in cell.rounds:
            for kind, count in one.errors.items():
                found[f"errors of {name}, {kind}"] = found.get(f"errors of {name}, {kind}", 0) + count
    return found


def tune_report(work: Work, found: Found) -> Report:
    report = Report(f"{work}: what to run", facts(), data=tune_data(found))
    lines = []
    for setting, rounds in found.played.items():
        ratio = found.ratios.get(setting)
        one = typical(rounds)
        row = row_of(one, found.probe.ideal(setting, one.cpu_each_s))
        lines.append([str(setting), *row, "" if ratio is None else str(ratio), found.word_of(setting)])
    title, notes = "the final", [f"compared by {found.basis.value}"]
    if not found.played:
        title, notes = "what was measured", []
        for setting, one in found.tried.items():
            lines.append([str(setting), *row_of(one, found.probe.ideal(setting, one.cpu_each_s)), "", ""])
    report.sheets.append(Sheet(title, ["", *headings(work.unit), "to the winner", ""], lines, notes))
    report.advice += [*found.probe.sentences(), *(f"{WARNING}{caution}" for caution in found.cautions())]
    report.charts += curves({str(setting): rounds for setting, rounds in found.played.items()})
    report.notes += [f"{setting} fails: {reason.splitlines()[0]}" for setting, reason in found.failed.items()]
    return report


def tune_data(found: Found) -> dict[str, Any]:
    def by_name(of: Mapping[Setting, Any]) -> dict[str, Any]:
        return {str(setting): value for setting, value in of.items()}

    return {
        "winner": found.winner.options(),
        "probe": {**asdict(found.probe), "waits": found.probe.waits},
        "tried": {name: asdict(figures) for name, figures in by_name(found.tried).items()},
        "failed": by_name(found.failed),
        "played": {name: [asdict(one) for one in rounds] for name, rounds in by_name(found.played).items()},
        "ratios": {name: as_data(ratio) for name, ratio in by_name(found.ratios).items()},
        "basis": found.basis.name.lower(),
        "is_sure": found.is_sure,
        "deployed": found.deployed,
        "cautions": found.cautions(),
        "seconds": found.seconds,
        "machine": facts(),
        "packages": packages(),
    }


def as_data(ratio: Ratio) -> dict[str, Any]:
    return {**asdict(ratio), "verdict": ratio.verdict.value}
