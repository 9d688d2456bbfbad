"""The table at the end: each tool under each profile, the best of a tool marked."""

from __future__ import annotations

from dataclasses import dataclass

from rich.table import Table

from demonstration.load import HTTP_CALLERS, PYTHON_CALLERS, Load
from demonstration.work import Case, Profile

_BEST = "★"


@dataclass(frozen=True)
class Cell:
    """One tool under one profile."""

    load: Load
    memory_bytes: int
    http: Load | None


def table(cases: list[Case], profiles: list[Profile], cells: dict[tuple[str, str], Cell]) -> Table:
    """Cells are keyed by the names of tool and profile."""
    shown = Table(title=f"From Python {PYTHON_CALLERS} callers, over HTTP {HTTP_CALLERS}; {_BEST} most calls/s")
    for heading in ("tool", "profile", "calls/s", "p50 ms", "p99 ms", "PSS MB", "calls/s over HTTP"):
        shown.add_column(heading, justify="left" if heading in ("tool", "profile") else "right")
    for case in cases:
        best = max(cells[case.tool, profile.label].load.calls_per_second for profile in profiles)
        for nr, profile in enumerate(profiles):
            cell = cells[case.tool, profile.label]
            is_best = cell.load.calls_per_second == best
            name = f"{case.tool}: {case.kind}" if nr == 0 else ""
            shown.add_row(name, *_figures(profile, cell, is_best), style="bold green" if is_best else None)
        shown.add_section()
    return shown


def _figures(profile: Profile, cell: Cell, is_best: bool) -> list[str]:
    return [
        f"{profile.label} {_BEST}" if is_best else profile.label,
        f"{cell.load.calls_per_second:,.0f}",
        f"{cell.load.p50_ms:.1f}",
        f"{cell.load.p99_ms:.1f}",
        f"{cell.memory_bytes / 1e6:.0f}",
        f"{cell.http.calls_per_second:,.0f}" if cell.http else "–",
    ]
