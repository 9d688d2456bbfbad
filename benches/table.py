"""How the reports are shown: a table, then the notes; figures with three digits that count."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

_HEADINGS = ("work", "ours", "peer", "", "ratio [95 %]", "bar", "met")


def machine() -> str:
    """One line: processor, CPUs that may be used, kernel, interpreter, load."""
    load = os.getloadavg()[0]
    cpus = len(os.sched_getaffinity(0))
    return (
        f"{_processor()}, {cpus} CPUs, Linux {platform.release()}, "
        f"CPython {platform.python_version()}, load {load:.1f} at the start"
    )


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())


def rendered(reports: Iterable[dict[str, Any]]) -> str:
    """All lines of all reports in one table, then all sheets, and all notes below."""
    found = list(reports)
    lines = [_cells(line) for report in found for line in report["lines"]]
    parts = ["\n".join(_compared(lines))] if lines else []
    parts += [_sheet(sheet) for report in found for sheet in report["sheets"]]
    skipped = [f"skipped: {report['skipped']}" for report in found if report["skipped"]]
    parts.append("\n".join([*skipped, *(note for report in found for note in report["notes"])]))
    return "\n\n".join(part for part in parts if part)


def compared(report: dict[str, Any]) -> str:
    """The lines of one report, without headings, for those who watch; empty when it has none."""
    lines = [_cells(line) for line in report["lines"]]
    widths = _widths(lines or [_HEADINGS])
    return "".join(f"  {_aligned(row, widths)}\n" for row in lines)


def _compared(lines: list[tuple[str, ...]]) -> list[str]:
    widths = _widths([_HEADINGS, *lines])
    shown = [_aligned(row, widths) for row in (_HEADINGS, *lines)]
    shown.insert(1, "─" * len(shown[0]))
    return shown


def _sheet(sheet: dict[str, Any]) -> str:
    """A title, then words to the left in the first column and figures to the right in the others."""
    rows = [sheet["headings"], *sheet["lines"]]
    first, *others = _widths(rows)
    shown = [
        "  ".join([row[0].ljust(first), *(cell.rjust(width) for cell, width in zip(row[1:], others, strict=True))])
        for row in rows
    ]
    return "\n".join([sheet["title"], "─" * len(shown[0]), *shown])


def _widths(rows: Sequence[Sequence[str]]) -> list[int]:
    return [max(map(len, column)) for column in zip(*rows, strict=True)]


def _cells(line: dict[str, Any]) -> tuple[str, ...]:
    unit = line["unit"]
    ratio = f"{figure(line['ratio'])} [{figure(line['low'])}, {figure(line['high'])}]"
    ours, peer = (f"{figure(line[side])} {unit}" for side in ("ours", "peer"))
    return (line["work"], ours, line["peer_name"], peer, ratio, line["bar"], "yes" if line["met"] else "NO")


def _aligned(cells: tuple[str, ...], widths: list[int]) -> str:
    """Figures to the right, words to the left."""
    work, ours, name, peer, ratio, bar, met = (
        cell.rjust(width) if nr in (1, 3) else cell.ljust(width)
        for nr, (cell, width) in enumerate(zip(cells, widths, strict=True))
    )
    return "  ".join((work, ours, name, peer, ratio, bar, met)).rstrip()


def figure(value: float) -> str:
    """Three significant digits without an exponent."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"
