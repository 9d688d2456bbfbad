"""Runs the core's tests against a sample of small changes to its pure machines: each is to make a test fail.

The changes are those of cargo-mutants; .cargo/mutants.toml says in which files, and which are excused and why.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import secrets
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
OUTPUT = ROOT / "target" / "mutants"
CAUGHT_SHARE_MIN = 0.95


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=100, help="how many changes; 0: all of them, which takes hours")
    parser.add_argument("--seed", default=secrets.token_hex(4), help="picks them; printed, to run the same ones again")
    given = parser.parse_args()
    names = sorted(mutant["name"] for mutant in json.loads(cargo("--list", "--json", capture=True)))
    chosen = random.Random(given.seed).sample(names, given.count) if 0 < given.count < len(names) else names
    print(f"mutants: {len(chosen)} of {len(names)}, seed {given.seed}", flush=True)
    shutil.rmtree(OUTPUT, ignore_errors=True)
    OUTPUT.mkdir(parents=True)
    picked = [part for name in chosen for part in ("--re", f"^{re.escape(name)}$")]
    cargo("--output", str(OUTPUT), "--no-shuffle", "--jobs=2", "--colors=never", *picked)
    return report(json.loads((OUTPUT / "mutants.out" / "outcomes.json").read_text()), given.seed)


def cargo(*arguments: str, capture: bool = False) -> str:
    """What it printed. Its exit code only says that some change was missed."""
    command = ["cargo", "mutants", "--package", "clutch-wire", "--package", "clutch-pool", *arguments]
    # In a target folder that both jobs share, each waits for the other's build, and that counts as a test that hangs.
    own = {name: value for name, value in os.environ.items() if name != "CARGO_TARGET_DIR"}
    out = subprocess.PIPE if capture else None
    done = subprocess.run(command, cwd=ROOT, stdout=out, text=True, check=False, env=own)
    if done.returncode not in (0, 2, 3):
        raise SystemExit(f"cargo mutants ended with {done.returncode}")
    return done.stdout or ""


def report(outcomes: dict[str, Any], seed: str) -> int:
    missed = [
        mutant["scenario"]["Mutant"]["name"] for mutant in outcomes["outcomes"] if mutant["summary"] == "MissedMutant"
    ]
    caught = outcomes["caught"] + outcomes["timeout"]
    share = caught / max(1, caught + len(missed))
    hung, unviable = outcomes["timeout"], outcomes["unviable"]
    counts = f"{caught} caught ({hung} of them hung), {len(missed)} missed, {unviable} do not compile"
    print(f"mutants: seed {seed}: {counts}: {share:.1%}")
    for name in missed:
        print(f"  missed: {name}")
    return 0 if share >= CAUGHT_SHARE_MIN else 1


if __name__ == "__main__":
    sys.exit(main())
