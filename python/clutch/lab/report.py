"""What the lab has to show: tables, charts and sentences as plain data. Text, JSON and HTML are made of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

INDENT = 2
WARNING = "Warning: "
"""How advice begins that makes figures less than they seem."""


@dataclass(frozen=True)
class Sheet:
    """A table: words and figures as they are to be shown. The first column holds names, the others figures."""

    title: str
    headings: Sequence[str]
    lines: Sequence[Sequence[str]]
    notes: Sequence[str] = ()


@dataclass(frozen=True)
class Axis:
    """What is along a side of a chart, and how its numbers are spaced."""

    title: str
    scale: Literal["linear", "log", "percentile"] = "linear"
    """`percentile`: percents towards 100, where 90, 99 and 99.9 are equally far apart."""


@dataclass(frozen=True)
class Line:
    """Points of a chart, by x. `is_ideal`: computed rather than measured, and drawn so."""

    name: str
    points: Sequence[tuple[float, float]]
    is_ideal: bool = False


@dataclass(frozen=True)
class Lines:
    """A chart of lines over one pair of axes."""

    title: str
    x: Axis
    y: Axis
    lines: Sequence[Line]


@dataclass(frozen=True)
class HeatMap:
    """A grid of values: `values[row][column]`; None: not measured."""

    title: str
    x: str
    columns: Sequence[str]
    y: str
    rows: Sequence[str]
    values: Sequence[Sequence[float | None]]
    unit: str


Chart = Lines | HeatMap


@dataclass
class Report:
    """`machine`: what it was measured on, by name. `advice`: what follows, and what to be careful about. `data`: every
    figure that was measured, as JSON can say it."""

    title: str
    machine: dict[str, str]
    sheets: list[Sheet] = field(default_factory=list)
    charts: list[Chart] = field(default_factory=list)
    advice: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    data: dict[str, Any] = field(default_factory=dict)

    def as_data(self) -> dict[str, Any]:
        return asdict(self)

    def as_text(self) -> str:
        parts = [text_of(sheet) for sheet in self.sheets]
        parts += ["\n".join(lines) for lines in (self.advice, self.notes) if lines]
        return "\n\n".join(parts)


def text_of(sheet: Sheet) -> str:
    """Names to the left, figures to the right."""
    rows = [sheet.headings, *sheet.lines]
    first, *others = [max(map(len, column)) for column in zip(*rows, strict=True)]
    shown = [
        (" " * INDENT)
        .join([row[0].ljust(first), *(cell.rjust(width) for cell, width in zip(row[1:], others, strict=True))])
        .rstrip()
        for row in rows
    ]
    rule = "─" * max(map(len, shown))
    return "\n".join([*([sheet.title] if sheet.title else []), shown[0], rule, *shown[1:], *sheet.notes])
