"""Ten cases of the atlas of libraries, whose packages are here for other tests, in all profiles."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from support.clutch_process import environment

ATLAS = Path(__file__).parents[3] / "tools/libraries"
SECONDS_MAX = 110.0
CASES = (
    "numpy-generator",
    "sqlite3-random",
    "zipfile",
    "written-file",
    "urllib3",
    "django",
    "starlette",
    "asyncio-thread",
    "thread-pool",
    "opentelemetry",
)


@pytest.mark.parametrize("case", CASES)
def test_a_library_answers_in_each_profile_as_it_does_alone(case: str) -> None:
    command = [sys.executable, str(ATLAS), "--here", "--profiles", case]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=SECONDS_MAX)
    assert done.returncode == 0, done.stdout + done.stderr
