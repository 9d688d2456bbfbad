"""Reloads that overlap, and what is watched."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from clutch import config
from clutch._dispatcher.reload import ASKED_MAX, Reloader, watched_folders
from clutch.errors import ConfigError, PoolClosed

WAIT_SECONDS = 30.0


class Heard:
    """A notifier that writes down what it is to say."""

    def __init__(self) -> None:
        self.words: list[str] = []

    def reloading(self) -> None:
        self.words.append("reloading")

    def ready(self, status: str) -> None:
        self.words.append(status)


class HungPool:
    """One whose new code never starts: whoever waits for a reload waits until the end of the test."""

    def __init__(self) -> None:
        self.came, self.may_end = threading.Semaphore(0), threading.Event()

    def reload(self, timeout: float | None = None) -> None:
        self.came.release()
        if not self.may_end.wait(timeout):
            raise TimeoutError


class HeldPool:
    """Each reload of it comes, and stays until the test lets it go with an error or without."""

    def __init__(self) -> None:
        self.came = threading.Semaphore(0)
        self.going: list[Exception | None] = []
        self.let_go = threading.Semaphore(0)

    def reload(self) -> None:
        self.came.release()
        assert self.let_go.acquire(timeout=WAIT_SECONDS)
        error = self.going.pop(0)
        if error is not None:
            raise error

    def go(self, error: Exception | None = None) -> None:
        self.going.append(error)
        self.let_go.release()


def test_a_later_reload_does_not_wait_for_an_earlier_one() -> None:
    pool, heard = HeldPool(), Heard()
    reloader = Reloader({"a": pool}, heard)  # type: ignore[arg-type]
    for _ in range(2):
        reloader.ask()
        assert pool.came.acquire(timeout=WAIT_SECONDS)
    assert heard.words == ["reloading", "reloading"]
    pool.go()
    pool.go()
    reloader.close()
    assert heard.words == ["reloading", "reloading", "serving"]


def test_however_often_it_is_asked_while_none_ends_the_last_is_asked_for() -> None:
    pool, heard = HungPool(), Heard()
    reloader = Reloader({"a": pool}, heard)  # type: ignore[arg-type]
    for _ in range(ASKED_MAX + 3):
        reloader.ask()
        assert pool.came.acquire(timeout=WAIT_SECONDS)
    pool.may_end.set()
    reloader.close()


def test_why_new_code_does_not_run() -> None:
    good, broken, heard = HeldPool(), HeldPool(), Heard()
    reloader = Reloader({"good": good, "broken": broken}, heard)  # type: ignore[arg-type]
    good.go()
    broken.go(ConfigError("SyntaxError"))
    assert reloader.reload(["good", "broken"]) == {"broken": "SyntaxError"}
    assert heard.words == ["reloading", "old in use: broken"]
    broken.go(PoolClosed("closed meanwhile"))
    assert reloader.reload(["broken"]) == {"broken": "closed meanwhile"}
    broken.go(ZeroDivisionError())
    with pytest.raises(ZeroDivisionError):
        reloader.reload(["broken"])
    assert heard.words[-2:] == ["reloading", "serving"]
    reloader.close()


def test_watched_are_the_config_and_the_targets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project, elsewhere = tmp_path / "project", tmp_path / "elsewhere"
    for folder in (project / "shop", elsewhere / "other" / "inner"):
        folder.mkdir(parents=True)
    (elsewhere / "single.py").write_text("")
    text = "".join(f'[pools.{name}]\ntarget = "{name}.tools"\n' for name in ("shop", "other", "missing"))
    (project / "clutch.toml").write_text(text)
    monkeypatch.chdir(elsewhere)
    loaded = config.load(project / "clutch.toml", environ={})
    assert watched_folders(loaded) == [elsewhere / "other", project]
    (project / "clutch.toml").write_text(f'{text}[pools.single]\ntarget = "single"\n')
    assert watched_folders(config.load(project / "clutch.toml", environ={})) == [elsewhere, project]


def test_files_of_fronts_are_part_of_a_reload() -> None:
    """What is wrong with them keeps no code from being loaded."""
    pool, heard, asked = HeldPool(), Heard(), list[list[str]]()

    def read_files(names: list[str]) -> list[tuple[str, str | None]]:
        asked.append(names)
        return [("fronts.serve.tls", "no PEM"), ("fronts.http.token_file", None)]

    reloader = Reloader({"a": pool}, heard, read_files)  # type: ignore[arg-type]
    pool.go()
    assert reloader.reload(["a"]) == {"fronts.serve.tls": "no PEM"}
    assert (asked, heard.words) == ([["a"]], ["reloading", "old in use: fronts.serve.tls"])
