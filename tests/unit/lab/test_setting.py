"""Settings of the lab, and the ranges of sizes that its commands are given."""

from __future__ import annotations

import pytest

from clutch.errors import ConfigError
from clutch.lab.probing import Probe, space
from clutch.lab.setting import Setting, grid, profiles_of, sizes_of


@pytest.mark.parametrize(
    ("text", "sizes"), [("4", [4]), ("1,4,16", [1, 4, 16]), ("1..5", [1, 2, 3, 4, 5]), ("1..3,3,8", [1, 2, 3, 8])]
)
def test_sizes(text: str, sizes: list[int]) -> None:
    assert sizes_of(text, "--workers") == sizes


@pytest.mark.parametrize("text", ["", "0", "a", "3..1", "1..", "..4", "1..100000", "-1", "1,,2"])
def test_sizes_that_are_none(text: str) -> None:
    with pytest.raises(ConfigError, match="--workers is"):
        sizes_of(text, "--workers")


def test_unknown_profiles_are_named() -> None:
    assert profiles_of("process, thread,process") == ["process", "thread"]
    with pytest.raises(ConfigError, match="process, thread, async, greenlet"):
        profiles_of("threads")


def test_a_grid_has_each_setting_once() -> None:
    cells = grid(["process", "thread", "async"], [1, 2], [1, 4], [8, 16])
    assert cells.count(Setting("process", 1)) == 1
    assert len(cells) == 2 + 2 * 2 + 2 * 2


def test_a_setting_is_written_as_flags() -> None:
    setting = Setting("thread", 2, threads=8)
    assert setting.flags() == "--profile thread --workers 2 --threads 8"
    assert (str(setting), setting.slots) == ("thread 2×8", 16)


def probe(waits: float, is_async: bool = False) -> Probe:
    return Probe(wall_s=0.01, cpu_s=0.01 * (1 - waits), is_async=is_async, cpus=2, start_s=0.3)


def test_work_that_computes_gets_no_more_processes_than_can_compute() -> None:
    tried = space(probe(waits=0.0))
    assert max(setting.workers for setting in tried if setting.profile == "process") <= 4
    assert not [setting for setting in tried if setting.profile == "greenlet"]


def test_work_that_waits_gets_slots_for_all_cpus() -> None:
    assert probe(waits=0.99).slots_wanted == 200
    most = max(setting.slots for setting in space(probe(waits=0.99)) if setting.profile == "thread")
    assert most >= 400


def test_coroutines_are_tried_as_tasks() -> None:
    assert {setting.tasks for setting in space(probe(0.9, is_async=True)) if setting.profile == "async"} >= {
        1,
        64,
        1024,
    }
