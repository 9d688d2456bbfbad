"""The tests of Starlette, FastAPI and MCP's SDK, whose in-process clients ask their apps through `clutch serve`.

CLUTCH_TEST_FRAMEWORKS=all runs the whole of them (`make framework-suites`); else a part of Starlette's runs.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from suites import path_of

from support.clutch_process import environment
from support.serve_process import ANY_PORT, Serving

HERE = Path(__file__).parent / "frameworks"
ALL = os.environ.get("CLUTCH_TEST_FRAMEWORKS") == "all"
DIFFERENT = [line.split(maxsplit=1) for line in (HERE / "different.txt").read_text().splitlines() if line[:1] != "#"]
"""What a case begins with, and why it is left out."""


class Suite(NamedTuple):
    folder: str
    files: tuple[str, ...]
    passed_min: int


PART = Suite("starlette-1.10.0", ("tests/test_websockets.py", "tests/test_responses.py", "tests/middleware"), 260)
WHOLE = [
    Suite("starlette-1.10.0", ("tests",), 600),
    Suite("fastapi-0.165.0", ("tests",), 4700),
    Suite("mcp-2.3.0", ("tests/interaction", "tests/shared/test_sse.py", "tests/shared/test_streamable_http.py"), 900),
]


@pytest.fixture(scope="module")
def serving() -> Iterator[Serving]:
    with Serving(HERE, "relay:app", "-w", "1", "-b", ANY_PORT, "--header-map", "dangerous") as serving:
        serving.wait_ready("web")
        yield serving


@pytest.mark.parametrize("suite", WHOLE if ALL else [PART], ids=lambda suite: suite.folder)
def test_frameworks_own_tests(serving: Serving, suite: Suite) -> None:
    python = path_of("frameworks", "env", "bin", "python")
    folder = path_of("frameworks", suite.folder)
    left_out = [case for case, _ in DIFFERENT if case.startswith(suite.folder)]
    deselected = [f"--deselect={case.removeprefix(suite.folder + '/')}" for case in left_out if "::" in case]
    ignored = [f"--ignore={case.removeprefix(suite.folder + '/')}" for case in left_out if "::" not in case]
    options = "-p through_clutch -p no:cacheprovider -q --timeout 60 -W ignore --override-ini addopts= --tb short -rfE"
    done = subprocess.run(
        [python, "-m", "pytest", *options.split(), "-k", "not trio", *deselected, *ignored, *suite.files],
        cwd=folder,
        env=environment() | {"PYTHONPATH": f"{HERE}{os.pathsep}{folder}", "FRAMEWORKS_SERVER": serving.address},
        capture_output=True,
        text=True,
    )
    passed = re.search(r"(\d+) passed", done.stdout)
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
    assert passed is not None and int(passed[1]) >= suite.passed_min, done.stdout[-500:]
