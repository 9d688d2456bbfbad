"""The log of a dispatcher: who logs waits for no reader, and no line is lost without a word."""

from __future__ import annotations

import io
import json
import logging
import sys
import threading
from collections.abc import Iterator

import pytest

from clutch._dispatcher import logs

LONG = 30.0


class Held(logging.Handler):
    """Its first line waits to be let go."""

    def __init__(self) -> None:
        super().__init__()
        self.came, self.let_go = threading.Event(), threading.Event()
        self.lines: list[str] = []
        self.setFormatter(logs.JsonLines())

    def emit(self, record: logging.LogRecord) -> None:
        self.came.set()
        assert self.let_go.wait(LONG)
        self.lines.append(self.format(record))


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    before = logs.log.handlers[:], logs.log.propagate, logs.log.level
    yield
    logs.log.handlers[:], logs.log.propagate = before[:2]
    logs.log.setLevel(before[2])


@pytest.fixture
def queued() -> logs.Queued:
    logs.set_up("json", "info")
    return logs.Queued()


def test_lines_that_do_not_fit_are_counted_and_said_in_their_place(queued: logs.Queued) -> None:
    held = Held()
    logs.log.handlers[:] = [held]
    queued.start()
    logs.info("first")
    assert held.came.wait(LONG)
    for number in range(logs.RECORDS_MAX + 5):
        logs.info(f"{number}")
    assert not queued.finish(0.0)
    held.let_go.set()
    assert queued.finish(LONG)
    lines = [json.loads(line) for line in held.lines]
    assert [line["message"] for line in lines[:-1]] == ["first", *map(str, range(logs.RECORDS_MAX))]
    assert (lines[-1]["lost"], lines[-1]["level"]) == (5, "warning")
    logs.info("directly")
    assert json.loads(held.lines[-1])["message"] == "directly"


def test_a_handler_that_fails_does_not_end_the_log(queued: logs.Queued, monkeypatch: pytest.MonkeyPatch) -> None:
    class Failing(Held):
        def emit(self, record: logging.LogRecord) -> None:
            if record.getMessage() == "fails":
                raise FileNotFoundError("its folder is gone")
            super().emit(record)

    failing = Failing()
    failing.let_go.set()
    logs.log.handlers[:] = [failing]
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    queued.start()
    logs.info("fails", pool="a")
    try:
        raise ValueError("wrong")
    except ValueError:
        logs.log.exception("goes on")
    assert queued.finish(LONG)
    (line,) = map(json.loads, failing.lines)
    assert line["message"] == "goes on" and "ValueError: wrong" in line["traceback"]
    assert "its folder is gone" in sys.stderr.getvalue()
