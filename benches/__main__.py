"""`python -m benches [row …] [--quick] [--json]`: each row in a process of its own, then the table."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from benches import rows, table

_QUICK = "quick: few and short samples, and the intervals are ranges; judge by a full run"
_ROOT = Path(__file__).resolve().parents[1]


def main() -> int:
    wanted = _arguments()
    machine = table.machine()
    names = [name for name in rows.MODULES if name in (wanted.rows or rows.MODULES)]
    reports = {name: _report(name, wanted.quick) for name in names}
    done = {name: report for name, report in reports.items() if report is not None}
    if wanted.json:
        print(json.dumps({"machine": machine, "rows": done}, indent=2))
    else:
        print(machine, table.rendered(done.values()), *([_QUICK] if wanted.quick else []), sep="\n\n")
    return 0 if len(done) == len(names) else 1


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benches", description="Clutch beside its peers, as ratios.")
    parser.add_argument("rows", nargs="*", metavar="row", help=f"all, or some of: {' '.join(rows.MODULES)}")
    parser.add_argument("--quick", action="store_true", help="fewer and shorter samples: under 90 seconds")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    wanted = parser.parse_args()
    if unknown := set(wanted.rows) - set(rows.MODULES):
        parser.error(f"no such row: {' '.join(sorted(unknown))}; there are: {' '.join(rows.MODULES)}")
    return wanted


def _report(name: str, quick: bool) -> dict[str, Any] | None:
    """The row's report; none when it failed, which its own traceback on stderr explains."""
    began = time.monotonic()
    print(f"{name} …", end=" ", file=sys.stderr, flush=True)
    command = [sys.executable, "-m", "benches.row", name, *(["--quick"] if quick else [])]
    finished = subprocess.run(command, cwd=_ROOT, stdout=subprocess.PIPE)
    verdict = "done" if finished.returncode == 0 else "FAILED"
    print(f"{verdict} in {time.monotonic() - began:.1f} s", file=sys.stderr)
    return json.loads(finished.stdout.splitlines()[-1]) if finished.returncode == 0 else None


if __name__ == "__main__":
    sys.exit(main())
