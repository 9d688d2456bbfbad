"""A setting in `clutch.toml`: what else is there stays as it is."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from clutch.errors import ConfigError
from clutch.lab.setting import Setting
from clutch.lab.writing import write

SETTING = Setting("thread", 2, threads=8)


@pytest.mark.parametrize(
    "text",
    [
        "",
        '[pools.main]\ntarget = "a" # [pools.main]\nworkers = 4\n\n[fronts.http]\npool = "main"\n',
        '# top\n[pools.main]  # ours\nprofile = "process"\nworkers = "1..4"\ntasks = 3\ndeadline = "5s"',
        "[pools.other]\nworkers = 1\n",
        '[pools.main]\nprofile = "async"\n[pools.main.env]\nworkers = "x"\n',
    ],
)
def test_the_rest_stays(tmp_path: Path, text: str) -> None:
    path = tmp_path / "clutch.toml"
    if text:
        path.write_text(text)
    write(path, "main", SETTING)
    after, before = tomllib.loads(path.read_text()), tomllib.loads(text)
    main = after["pools"].pop("main")
    assert {name: main.get(name) for name in ("profile", "workers", "threads", "tasks")} == {
        **SETTING.options(),
        "tasks": None,
    }
    kept = before.get("pools", {}).pop("main", {})
    assert {k: v for k, v in main.items() if k not in SETTING.options()} == {
        k: v for k, v in kept.items() if k not in ("profile", "workers", "threads", "tasks")
    }
    assert after.get("fronts") == before.get("fronts") and after["pools"] == before.get("pools", {})
    assert [line for line in text.splitlines() if line.startswith("#")] == [
        line for line in path.read_text().splitlines() if line.startswith("#")
    ]


@pytest.mark.parametrize("text", ["[pools]\nmain = { workers = 1 }\n", "pools.main.workers = 1\n"])
def test_what_is_not_understood_is_left_alone(tmp_path: Path, text: str) -> None:
    path = tmp_path / "clutch.toml"
    path.write_text(text)
    with pytest.raises(ConfigError, match="by hand"):
        write(path, "main", SETTING)
    assert path.read_text() == text


def test_a_file_that_is_none_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "clutch.toml"
    path.write_text("= 1")
    with pytest.raises(ConfigError, match="cannot be read"):
        write(path, "main", SETTING)
