"""Run one row in this process: `python -m benches.row CATALOGUE NAME [--quick] [--peers] [--rounds=N]`.

Prints its report as one JSON line.
"""

from __future__ import annotations

import importlib
import json
import sys
from dataclasses import replace

from benches.harness import FULL, QUICK, Report, Skipped


def main() -> None:
    catalogue, name, *flags = sys.argv[1:]
    module = importlib.import_module(importlib.import_module(catalogue).MODULES[name])
    scale = replace(QUICK if "--quick" in flags else FULL, peers_only="--peers" in flags)
    rounds = [int(flag.removeprefix("--rounds=")) for flag in flags if flag.startswith("--rounds=")]
    scale = replace(scale, rounds=rounds[-1]) if rounds else scale
    try:
        report = module.run(scale)
    except Skipped as reason:
        report = Report(skipped=f"{name}: {reason}")
    print(json.dumps(report.as_dict()))


if __name__ == "__main__":
    main()
