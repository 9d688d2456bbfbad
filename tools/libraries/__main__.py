"""The atlas of libraries: what real ones do in the workers of a pool.

`python tools/libraries` runs all cases and writes docs/libraries.md; with names of cases it runs these alone, and with
`--page` it writes the page from results that were collected before. Each case is a target that makes at its import what
programs usually make there (a client, a session, a model), and a tool that uses it. It runs in an environment with the
newest release, by a pool with its defaults. To install an environment takes seconds to minutes, so CI runs ten cases,
with `--here`.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from cases import CASES, Case
from page import PAGE, page, works
from running import PROFILES, environment_name, told
from servers import SERVERS


def main() -> int:
    given = arguments()
    if given.page is not None:
        PAGE.write_text(page(rows_of(given.page)))
        return 0
    chosen = [case for case in CASES if not given.cases or case.name in given.cases]
    with tempfile.TemporaryDirectory() as scratch, SERVERS, ThreadPoolExecutor(given.jobs) as threads:
        done = list(threads.map(lambda group: run_group(group, Path(scratch), given), groups(chosen)))
    rows = [row for group in done for row in group]
    if not given.cases:
        PAGE.write_text(page(rows))
    return 0 if all(works(row) for row in rows) else 1


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="*", help="names of cases; all by default")
    parser.add_argument("--profiles", action="store_true", help="in all four profiles, not by the default one alone")
    places = parser.add_mutually_exclusive_group()
    places.add_argument("--keep", type=Path, help="folder of the environments, kept for the next run")
    places.add_argument("--here", action="store_true", help="in the environment of this Python, and in no plain fork")
    parser.add_argument("--jobs", type=int, default=1, help="environments at a time")
    parser.add_argument("--results", type=Path, help="a file that collects results as JSON, one line a case")
    parser.add_argument("--page", type=Path, help="write the page from a file of results, and run nothing")
    return parser.parse_args()


def groups(chosen: Iterable[Case]) -> list[list[Case]]:
    """Cases that share an environment."""
    found: dict[str, list[Case]] = {}
    for case in chosen:
        found.setdefault(environment_name(case), []).append(case)
    return list(found.values())


def run_group(group: list[Case], scratch: Path, given: argparse.Namespace) -> list[dict[str, Any]]:
    """Run the cases of an environment, which goes when they are done unless it is kept."""
    folder = given.keep.resolve() if given.keep else scratch
    rows = []
    for case in group:
        row = vars(told(case, folder, PROFILES if given.profiles else ("process",), given.here))
        rows.append(row)
        if given.results is not None:
            with given.results.open("a") as file:
                file.write(json.dumps(row) + "\n")
    if given.keep is None and not given.here:
        shutil.rmtree(folder / "environments" / environment_name(group[0]), ignore_errors=True)
    return rows


def rows_of(results: Path) -> list[dict[str, Any]]:
    """The last row of each case."""
    rows = map(json.loads, results.read_text().splitlines())
    return list({row["name"]: row for row in rows}.values())


if __name__ == "__main__":
    sys.exit(main())
