"""With `--log-format json` each thing that a worker says is one object, however many lines it has."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from support.clutch_process import FRONTS, Server

pytestmark = pytest.mark.timeout(120)

POOL = """
[pools.api]
target = "talking"
workers = 1
"""

TALKING = """
import logging
import sys
import traceback

import clutch

log = logging.getLogger("shop")


@clutch.tool
def talk() -> None:
    log.warning("no %s", "stock")
    print("plain")
    try:
        try:
            {}["apples"]
        except KeyError as error:
            raise ValueError("no price") from error
    except ValueError:
        log.exception("lost")
        traceback.print_exc()
    print("over", file=sys.stderr)
"""

CONFIGURED = "\nlogging.basicConfig()\n"


def said(folder: Path, target: str) -> list[dict[str, str]]:
    (folder / "talking.py").write_text(target)
    with Server(folder, POOL + FRONTS, "--log-format", "json") as server:
        assert server.call("talk").status == 200
        server.err.wait('"message": ?"over"')
        server.terminate()
        assert server.wait() == 0
    lines = [json.loads(line) for line in [*server.out.lines, *server.err.lines]]
    assert all(line["time"].endswith("Z") and line["level"] for line in lines)
    return [line for line in lines if line.get("worker") == "api/0" and "stream" in line]


def test_records_that_nobody_handles_keep_their_level_logger_and_traceback(tmp_path: Path) -> None:
    plain, warning, lost, printed, over = said(tmp_path, TALKING)
    assert (plain["level"], plain["stream"], plain["message"]) == ("info", "stdout", "plain")
    assert (warning["level"], warning["logger"], warning["message"]) == ("warning", "shop", "no stock")
    assert (lost["level"], lost["logger"], lost["message"]) == ("error", "shop", "lost")
    assert lost["traceback"].splitlines()[-1] == "ValueError: no price"
    assert "KeyError: 'apples'" in lost["traceback"]
    assert (printed["level"], printed["message"]) == ("error", "ValueError: no price"), "a chain is one object"
    assert "KeyError: 'apples'" in printed["traceback"]
    assert over["message"] == "over"


def test_lines_of_logging_that_is_configured_have_the_level_they_begin_with(tmp_path: Path) -> None:
    _, warning, lost, printed, _ = said(tmp_path, TALKING + CONFIGURED)
    assert (warning["level"], warning["message"]) == ("warning", "WARNING:shop:no stock")
    assert (lost["level"], lost["message"]) == ("error", "ERROR:shop:lost: ValueError: no price")
    assert (printed["level"], printed["message"]) == ("error", "ValueError: no price")
