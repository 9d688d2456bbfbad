"""A setting in `clutch.toml`: what else is there stays as it is."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from clutch.config.loading import load
from clutch.errors import ConfigError
from clutch.lab.setting import Setting
from clutch.lab.work import App, Calls, Handler, JobRun, Work
from clutch.lab.writing import Place, place_in, place_of, write

SETTING = Setting("thread", 2, threads=8)
PLACE = Place("main")


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
    write(path, PLACE, SETTING)
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
        write(path, PLACE, SETTING)
    assert path.read_text() == text


def test_a_file_that_is_none_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "clutch.toml"
    path.write_text("= 1")
    with pytest.raises(ConfigError, match="cannot be read"):
        write(path, PLACE, SETTING)


@pytest.mark.parametrize(
    ("work", "expected"),
    [
        (Calls("tools", "resize"), {"pools": {"main": {"target": "tools"}}}),
        (JobRun("tools", "resize"), {"pools": {"main": {"target": "tools"}}}),
        (App("web:app"), {"pools": {"web": {}}, "fronts": {"serve": {"app": "web:app", "pool": "web"}}}),
        (Handler("h:talk"), {"pools": {"tcp": {}}, "fronts": {"tcp": {"handler": "h:talk", "pool": "tcp"}}}),
    ],
)
def test_a_new_file_runs(tmp_path: Path, work: Work, expected: dict[str, dict[str, dict[str, str]]]) -> None:
    path = tmp_path / "clutch.toml"
    place = place_of(work, None)
    write(path, place, SETTING)
    expected["pools"][place.pool] |= SETTING.options()
    assert tomllib.loads(path.read_text()) == expected == tomllib.loads(place.text(SETTING))
    load(path)
    before = path.read_text()
    write(path, place, SETTING)
    assert path.read_text() == before


def test_what_a_pool_runs_is_not_said_twice(tmp_path: Path) -> None:
    path = tmp_path / "clutch.toml"
    path.write_text('[fronts.shop]\nkind = "serve"\napp = "shop:app"\n')
    write(path, place_of(App("shop:app"), "shop"), SETTING)
    assert list(tomllib.loads(path.read_text())["fronts"]) == ["shop"]


def test_an_app_keeps_the_pool_that_its_front_names(tmp_path: Path) -> None:
    path = tmp_path / "clutch.toml"
    path.write_text('[fronts.serve]\napp = "web:app"\npool = "api"\n[pools.api]\nworkers = 1\n')
    place = place_in(path, App("web:app"), None)
    assert place.pool == "api" and 'pool = "api"' in place.text(SETTING)
    write(path, place, SETTING)
    assert list(tomllib.loads(path.read_text())["pools"]) == ["api"]
    load(path)


@pytest.mark.parametrize(
    ("text", "work"),
    [
        ('[pools.main]\ntarget = "other"\n', Calls("tools", "resize")),
        ('[fronts.serve]\napp = "other:app"\n', App("web:app")),
    ],
)
def test_a_pool_that_runs_something_else_is_left_alone(tmp_path: Path, text: str, work: Work) -> None:
    path = tmp_path / "clutch.toml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=r"runs other(:app)? already"):
        place_in(path, work, None)
    assert place_in(path, work, "mine").pool == "mine"
