"""The command behind `python -m benches` and `python -m benches.serve`: each row in a process of its own, then a table.

A catalogue is a package with MODULES: the names of its rows, and the module of each.
"""

from __future__ import annotations

import argparse
import importlib
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from benches import harness, table

_QUICK = "quick: few and short samples, and the intervals are ranges; judge by a full run"
_ROOT = Path(__file__).resolve().parents[1]


def main(program: str, catalogue: str) -> int:
    """Run the rows that the command line names, or all; 0 when each of them ran."""
    modules = importlib.import_module(catalogue).MODULES
    wanted = _arguments(program, list(modules))
    machine = table.machine()
    names = [name for name in modules if {name, _group(name)} & set(wanted.rows or modules)]
    flags = [f"--{flag}" for flag in ("quick", "peers") if getattr(wanted, flag)]
    flags += [f"--rounds={wanted.rounds}"] if wanted.rounds else []
    reports = {name: _report(catalogue, name, flags) for name in names}
    done = {name: report for name, report in reports.items() if report is not None}
    if wanted.json:
        print(json.dumps({"machine": machine, "rows": done}, indent=2))
    else:
        print(machine, table.rendered(done.values()), *([_QUICK] if wanted.quick else []), sep="\n\n")
    return 0 if len(done) == len(names) else 1


def _arguments(program: str, names: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog=f"python -m {program}", description="Clutch beside its peers, as ratios.")
    parser.add_argument("rows", nargs="*", metavar="row", help=f"all, or some of: {' '.join(names)}")
    parser.add_argument("--quick", action="store_true", help="fewer and shorter samples, in minutes")
    parser.add_argument("--peers", action="store_true", help="only the peers' figures (benches.serve and benches.jobs)")
    parser.add_argument("--rounds", type=int, help=f"samples of each in most rows; {harness.FULL.rounds} by default")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    wanted = parser.parse_args()
    if unknown := set(wanted.rows) - {*names, *map(_group, names)}:
        parser.error(f"no such row: {' '.join(sorted(unknown))}; there are: {' '.join(names)}")
    return wanted


def _group(name: str) -> str:
    """What picks it together with others: `scale` picks `scale-start` and `scale-calls`."""
    return name.partition("-")[0]


def _report(catalogue: str, name: str, flags: list[str]) -> dict[str, Any] | None:
    """The row's report, whose lines are shown at once; none when it failed, which its own traceback explains."""
    began = time.monotonic()
    print(f"{name} …", end=" ", file=sys.stderr, flush=True)
    command = [sys.executable, "-m", "benches.row", catalogue, name, *flags]
    finished = subprocess.run(command, cwd=_ROOT, stdout=subprocess.PIPE)
    verdict = "done" if finished.returncode == 0 else "FAILED"
    print(f"{verdict} in {time.monotonic() - began:.1f} s", file=sys.stderr)
    if finished.returncode != 0:
        return None
    report = json.loads(finished.stdout.splitlines()[-1])
    print(table.compared(report), end="", file=sys.stderr, flush=True)
    return report
