"""Our own log by a configuration of `logging`, as files for gunicorn and uvicorn have it."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from clutch._dispatcher import logs
from clutch._process import log_config
from clutch.errors import ConfigError

FILE = """
[loggers]
keys = root, own
[handlers]
keys = file, none
[formatters]
keys = short
[logger_root]
level = WARNING
handlers = none
[logger_own]
level = DEBUG
handlers = file
qualname = NAME
propagate = 0
[handler_file]
class = FileHandler
formatter = short
args = ("%(here)s/log",)
[handler_none]
class = NullHandler
args = ()
[formatter_short]
format = %(levelname)s %(name)s %(message)s
"""


def table(name: str, **more: Any) -> dict[str, Any]:
    handler = {"class": "logging.FileHandler", "filename": "log", "formatter": "short"}
    return {
        "formatters": {"short": {"format": "%(levelname)s %(name)s %(message)s"}},
        "handlers": {"file": handler},
        "loggers": {name: {"level": "DEBUG", "handlers": ["file"], "propagate": False}},
        **more,
    }


@pytest.fixture(autouse=True)
def _as_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Each test has loggers of its own, and a folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(logging.Logger, "manager", logging.Manager(root := logging.RootLogger(logging.WARNING)))
    monkeypatch.setattr(logging, "root", root)
    monkeypatch.setattr(logging.Logger, "root", root)
    monkeypatch.setattr(logs, "log", logging.getLogger("clutch"))
    handlers = logging._handlers.copy()  # type: ignore[attr-defined]
    yield
    logging._handlers.clear()  # type: ignore[attr-defined]
    logging._handlers.update(handlers)  # type: ignore[attr-defined]


def written() -> str:
    return Path("log").read_text()


@pytest.mark.parametrize("name", ["clutch", "gunicorn.error", "uvicorn.error", "uvicorn"])
@pytest.mark.parametrize("form", ["ini", "json", "yaml", "dict"])
def test_what_is_said_of_a_servers_own_log_is_said_of_ours(name: str, form: str) -> None:
    config: Any = f"log.{form}"
    if form == "ini":
        Path(config).write_text(FILE.replace("NAME", name))
    elif form == "dict":
        config = table(name, version=1, disable_existing_loggers=True)
    else:
        if form == "yaml":
            pytest.importorskip("yaml")
        Path(config).write_text(json.dumps(table(name)))
    assert log_config.apply(config, "--log-config", None) == []
    logs.log.debug("one")
    assert written() == "DEBUG clutch one\n"
    assert not logs.log.propagate, "all of it waits behind the queue"


def test_handlers_further_up_are_taken_behind_the_queue() -> None:
    log_config.apply({"handlers": {"n": {"class": "logging.NullHandler"}}, "root": {"handlers": ["n"]}}, "x", None)
    queued = logs.Queued()
    assert [type(handler) for handler in logs.log.handlers] == [logging.NullHandler]
    queued.start()
    assert logs.log.handlers == [queued] and not logs.log.propagate
    assert queued.finish(30)


def test_a_level_that_is_given_wins_and_else_that_of_the_configuration() -> None:
    log_config.apply(table("clutch"), "x", "error")
    assert logs.log.level == logging.ERROR
    log_config.apply({"root": {"level": "ERROR"}}, "x", None)
    logs.log.level = logging.NOTSET
    log_config.apply({"root": {"level": "ERROR"}, "loggers": {"clutch": {"handlers": []}}}, "x", None)
    assert (logs.log.level, len(logs.log.handlers)) == (logging.ERROR, 1), "a log that goes nowhere goes to stderr"


def test_an_access_log_through_logging_is_answered() -> None:
    (warning,) = log_config.apply(table("gunicorn.access"), "logconfig_dict", None)
    assert warning.startswith("logconfig_dict: gunicorn.access: ") and "--access-logfile" in warning


def test_loggers_of_the_app_are_said_to_be_the_workers_business() -> None:
    (warning,) = log_config.apply(table("shop.views"), "--log-config", None)
    assert warning.startswith("--log-config: shop.views: ") and "in its workers" in warning


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("none.ini", None, "cannot be read: No such file"),
        ("none.json", None, "cannot be read: No such file"),
        ("a.ini", "", "not a logging configuration"),
        ("a.json", "{", "not a logging configuration: JSONDecodeError"),
        ("a.json", "[]", "a list, not a table"),
        ("a.json", '{"formatters": {"a": {"()": "no_such.Formatter"}}}', "No module named 'no_such'"),
        ("a.json", '{"handlers": {"a": {"class": "logging.FileHandler", "filename": "/no/such"}}}', "/no/such"),
    ],
)
def test_what_is_no_configuration(name: str, text: str | None, words: str) -> None:
    if text is not None:
        Path(name).write_text(text)
    with pytest.raises(ConfigError) as caught:
        log_config.apply(name, "--log-config", None)
    assert str(caught.value).count("--log-config") and words in str(caught.value)


def test_yaml_without_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "yaml", None)
    Path("a.yaml").write_text("version: 1\n")
    with pytest.raises(ConfigError, match="pip install pyyaml"):
        log_config.apply("a.yaml", "--log-config", None)
