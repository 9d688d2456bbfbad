"""`python -m benches [SUITE] [ROW …] [--exact] [--quick] [--rounds N] [--json] [--html FILE]`: Clutch beside peers."""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import replace
from pathlib import Path

from benches import calls, jobs, serve
from benches.celery.rows import rows as celery
from benches.playing import Played, play
from benches.shown import cells, report_of
from benches.suite import FULL, QUICK, Preset, Rows, Size
from clutch.errors import ClutchError
from clutch.lab import presets
from clutch.lab.machine import line
from clutch.lab.page import page
from clutch.lab.report import Report, Sheet, text_of

SUITES = {"calls": calls.rows, "serve": serve.rows, "jobs": jobs.rows, "celery": celery}


def main() -> int:
    """0 when each row has run; whether bars are met is for people to judge."""
    asked = arguments()
    size = QUICK if asked.quick else FULL
    size = replace(size, usual=asked.rounds, slow=asked.rounds, fine=asked.rounds) if asked.rounds else size
    rows = chosen(asked.names, size, asked.exact)
    tell(line())
    played: dict[str, Played] = {}
    others: list[Report] = []
    failed, skipped = [], []
    for name, row in rows.items():
        began = time.monotonic()
        tell(f"{name} …")
        try:
            if isinstance(row, str):
                skipped.append(f"{name} is skipped: {row}")
            elif isinstance(row, Preset):
                others.append(presets.run(row.name, "small" if size.is_quick else "full", tell))
            else:
                played[name] = play(row, size, tell)
                tell(text_of(Sheet("", [""] * 8, cells(played[name].judged))) if played[name].judged else "")
        except ClutchError as error:
            failed.append(f"{name} FAILED: {error}")
            tell(failed[-1])
        tell(f"{name}: {time.monotonic() - began:.0f} s")
    show(report_of(played, size.is_quick), others, [*failed, *skipped], asked)
    return 1 if failed else 0


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benches", description=__doc__)
    known = "; ".join(f"{suite}: {' '.join(rows(FULL))}" for suite, rows in SUITES.items())
    parser.add_argument("names", nargs="*", metavar="SUITE or ROW", help=f"all, or some of: {known}")
    parser.add_argument(
        "--exact", action="store_true", help="only rows of these very names, not `drain-default` for drain"
    )
    parser.add_argument("--quick", action="store_true", help="fewer and shorter samples, in minutes")
    parser.add_argument("--rounds", type=int, help=f"of each row; {FULL.usual} in most by default")
    parser.add_argument("--json", action="store_true", help="print all that was measured as JSON")
    parser.add_argument("--html", type=Path, metavar="FILE", help="write a report to this file")
    asked = parser.parse_args()
    names = {name for rows in SUITES.values() for name in rows(FULL)}
    if unknown := [name for name in asked.names if name not in SUITES and not any(answers(one, name) for one in names)]:
        parser.error(f"no such suite or row: {' '.join(unknown)}; there are {known}")
    return asked


def chosen(names: list[str], size: Size, is_exact: bool = False) -> Rows:
    """`serve` is all of a suite, `serve tail` a row of it, `scale` all rows whose names begin so, unless `is_exact`."""
    suites = [name for name in names if name in SUITES] or list(SUITES)
    wanted = [name for name in names if name not in SUITES]
    return {
        f"{suite} {name}": row
        for suite in suites
        for name, row in SUITES[suite](size).items()
        if not wanted or any(name == one if is_exact else answers(name, one) for one in wanted)
    }


def answers(row: str, asked: str) -> bool:
    return row == asked or row.startswith(f"{asked}-")


def show(report: Report, others: list[Report], told: list[str], asked: argparse.Namespace) -> None:
    for other in others:
        report.sheets += [replace(sheet, title=f"{other.title} {sheet.title}".strip()) for sheet in other.sheets]
        report.charts += other.charts
        report.notes += other.notes
        report.data[other.title] = other.data
    report.notes = [*told, *report.notes]
    if asked.html is not None:
        asked.html.write_text(page(report))
    print(json.dumps(report.as_data()) if asked.json else report.as_text())


def tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
