"""Run one row in this process: `python -m benches.row NAME [--quick]`; prints its report as one JSON line."""

from __future__ import annotations

import importlib
import json
import sys

from benches import rows
from benches.harness import FULL, QUICK, Report, Skipped


def main() -> None:
    name, *flags = sys.argv[1:]
    module = importlib.import_module(rows.MODULES[name])
    try:
        report = module.run(QUICK if "--quick" in flags else FULL)
    except Skipped as reason:
        report = Report(skipped=f"{name}: {reason}")
    print(json.dumps(report.as_dict()))


if __name__ == "__main__":
    main()
