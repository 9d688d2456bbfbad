"""What type checkers say of programs that use a pool, right ones and wrong ones."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import clutch
from clutch.config import pool_options
from clutch.config.options import POOL

PROGRAMS = Path(__file__).parents[1] / "typing"
CHECKERS = {"mypy": ("-m", "mypy", "--strict", "--no-error-summary"), "pyright": ("-m", "pyright")}


def lines_with_errors(checker: str, program: str) -> tuple[set[int], str]:
    pytest.importorskip(checker, reason=f"{checker} is not installed: make .venv/.lint")
    command = [sys.executable, *CHECKERS[checker], str(PROGRAMS / program)]
    said = subprocess.run(command, cwd=PROGRAMS.parents[1], capture_output=True, text=True, timeout=100).stdout
    found = re.findall(rf"{program}:(\d+)(?::\d+)?(?: -|:) error", said)
    return {int(line) for line in found}, said


@pytest.mark.parametrize("checker", CHECKERS)
def test_right_programs_have_no_error(checker: str) -> None:
    found, said = lines_with_errors(checker, "right.py")
    assert not found, said


@pytest.mark.parametrize("checker", CHECKERS)
def test_wrong_programs_have_the_errors_that_they_name(checker: str) -> None:
    found, said = lines_with_errors(checker, "wrong.py")
    lines = (PROGRAMS / "wrong.py").read_text().splitlines()
    assert found == {number for number, line in enumerate(lines, 1) if line.endswith("# wrong")}, said


def test_the_types_of_options_are_those_that_there_are() -> None:
    given_apart = {"target", "workers"}
    assert (
        set(pool_options.PoolOptions.__annotations__)
        == {option.name.partition(".")[0] for option in POOL.options} - given_apart
    )
    for group, kind in (
        ("queue", pool_options.QueueOptions),
        ("recycle", pool_options.RecycleOptions),
        ("scale", pool_options.ScaleOptions),
    ):
        inner = {option.name.partition(".")[2] for option in POOL.options if option.name.startswith(f"{group}.")}
        assert set(kind.__annotations__) == inner


def test_a_prompt_completes_all_names() -> None:
    assert set(clutch.__all__) <= set(dir(clutch))
