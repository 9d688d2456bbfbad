"""`clutch bench` and `clutch tune` as commands: what they print, and what they say of work that does not work."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from support.clutch_process import clutch

WORK = """
import time

def wait(seconds=0.002):
    time.sleep(seconds)

async def wait_async():
    import asyncio
    await asyncio.sleep(0.002)

def fail():
    raise LookupError("no such customer")

def loud():
    print("hello")
"""
BRIEFLY = ("--seconds", "100ms", "--rounds", "2")
SECONDS_MAX = 100.0


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "work.py").write_text(WORK)
    return tmp_path


def test_a_grid_has_a_row_for_each_setting(folder: Path) -> None:
    grid = ("--profile", "process,thread", "-w", "1,2", "--threads", "4")
    done = clutch("bench", "work:wait", "seconds=0.001", *grid, *BRIEFLY, cwd=folder, timeout=SECONDS_MAX)
    assert done.returncode == 0, done.stderr
    head, *rows = done.stdout.splitlines()
    assert head.split()[:2] == ["setting", "calls/s"]
    assert [row.split("  ")[0] for row in rows] == ["process 1", "process 2", "thread 1×4", "thread 2×4"]
    assert "CPUs, Linux" in done.stderr


def test_what_is_saved_is_compared_with(folder: Path) -> None:
    kept = folder / "kept.json"
    ask = ("bench", "work:wait", "--profile", "thread", "-w", "1", *BRIEFLY)
    assert clutch(*ask, "--save", str(kept), cwd=folder, timeout=SECONDS_MAX).returncode == 0
    again = clutch(*ask, "--against", str(kept), "--json", cwd=folder, timeout=SECONDS_MAX)
    assert again.returncode == 0, again.stderr
    compared = json.loads(again.stdout)["against"]["thread 1×8"]
    assert compared["verdict"] == "not distinguishable", "two rounds tell nothing"
    saved = json.loads(kept.read_text())
    assert len(saved["cells"][0]["rounds"]) == 2
    for cell in saved["cells"]:
        cell["rounds"] = [{**one, "units": one["units"] * 1000} for one in cell["rounds"] * 4]
    kept.write_text(json.dumps(saved))
    worse = clutch(*ask, "--rounds", "6", "--against", str(kept), cwd=folder, timeout=SECONDS_MAX)
    assert worse.returncode == 3 and "worse" in worse.stdout
    kept.write_text('{"format": 99}')
    old = clutch(*ask, "--against", str(kept), cwd=folder, timeout=SECONDS_MAX)
    assert old.returncode == 1 and "format 1" in old.stderr and "save it anew" in old.stderr


@pytest.mark.parametrize(
    ("target", "code", "words"),
    [
        ("work:fail", 1, ["LookupError", "no such customer"]),
        ("work:missing", 1, ["missing"]),
        ("nowhere:f", 1, ["nowhere"]),
        ("work.py:wait", 2, ["work:FUNCTION"]),
        ("work", 2, ["MODULE:FUNCTION"]),
    ],
)
@pytest.mark.parametrize("command", ["bench", "tune"])
def test_work_that_does_not_work_is_told_before_any_load(
    folder: Path, command: str, target: str, code: int, words: list[str]
) -> None:
    done = clutch(command, target, cwd=folder, timeout=SECONDS_MAX)
    assert done.returncode == code, done.stderr
    assert all(word in done.stderr for word in words) and "Traceback (most recent call last)" not in done.stdout


def test_what_the_work_prints_is_no_figure(folder: Path) -> None:
    done = clutch("bench", "work:loud", "-w", "1", "--json", *BRIEFLY, cwd=folder, timeout=SECONDS_MAX)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["cells"][0]["rounds"][0]["units"] > 0


@pytest.mark.parametrize("target", ["work:wait", "work:wait_async"])
def test_a_tuning_ends_with_a_section(folder: Path, target: str) -> None:
    done = clutch("tune", target, "--budget", "10s", cwd=folder, timeout=SECONDS_MAX)
    assert done.returncode == 0, done.stderr
    assert "[pools.main]" in done.stdout and "best: " in done.stdout and "it waits" in done.stdout


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--slo", "fast"], 'such as "p99 < 50ms"'),
        (["--memory", "much"], "--memory is 'much'"),
        (["--budget", "1s"], "10 s is the least"),
        (["--budget", "soon"], "--budget is 'soon'"),
    ],
)
def test_goals_that_are_none(folder: Path, flags: list[str], words: str) -> None:
    done = clutch("tune", "work:wait", *flags, cwd=folder)
    assert done.returncode == 2 and words in done.stderr


def test_a_goal_that_nothing_meets_shows_the_nearest(folder: Path) -> None:
    done = clutch("tune", "work:wait", "--slo", "p99 < 1ms", "--budget", "10s", cwd=folder, timeout=SECONDS_MAX)
    assert done.returncode == 1 and "the nearest is" in done.stderr, done.stderr
