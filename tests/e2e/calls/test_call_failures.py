"""Calls over HTTP that fail: what the log and the access log tell whoever runs the server."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from support.clutch_process import Server, clutch

TOOLS = """
import os, time
from typing import Iterator
from clutch import tool

@tool
def fail(text: str) -> None:
    raise KeyError(text)

@tool
def hang() -> None:
    while True:
        time.sleep(0.01)

@tool
def count(then: str) -> Iterator[int]:
    yield os.getpid()
    if then == "raise":
        raise KeyError(then)
    while True:
        time.sleep(0.01)
"""
CONFIG = """
[pools.shop]
target = "shop"
workers = 1
deadline = "1s"

[fronts.http]
bind = "127.0.0.1:0"
access_log = "-"
"""


@pytest.fixture
def server(tmp_path: Path) -> Server:
    (tmp_path / "shop.py").write_text(TOOLS)
    return Server(tmp_path, CONFIG)


def test_the_log_has_the_traceback_of_a_tool_and_the_stack_of_one_that_hangs(server: Server) -> None:
    with server:
        server.wait_ready("shop")
        server.call("fail", {"text": "lost"}, pool="shop")
        server.err.wait(r"shop\.fail \(request \S+\) raised")
        server.err.wait(r"raise KeyError\(text\)")
        server.call("hang", pool="shop")
        server.err.wait(r"shop\.hang \(request \S+\): .*deadline")
        server.err.wait(r"in hang")


@pytest.mark.parametrize(("then", "end"), [("raise", "broken-off"), ("hang", "timeout"), ("die", "worker-lost")])
def test_a_stream_that_fails_ends_so_in_the_access_log(server: Server, then: str, end: str) -> None:
    with server:
        server.wait_ready("shop")
        with server.calling("count", {"then": then}, pool="shop") as connection:
            response = connection.getresponse()
            pid = int(response.readline())
            if then == "die":
                os.kill(pid, signal.SIGKILL)
            assert b'{"error":' in response.read()
        server.out.wait(rf'"POST /pools/shop/tools/count HTTP/1.1" 200 .* {end}$')


def test_a_command_that_changes_something_is_for_its_own_folder(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Elsewhere it names those that run; to look is allowed where there is only one."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path_factory.mktemp("run")))
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (tmp_path / "shop.py").write_text(TOOLS)
    with Server(tmp_path, CONFIG + "[fronts.admin]\nbind = '127.0.0.1:0'\n") as server:
        server.wait_ready("shop")
        for command in (["stop"], ["scale", "shop", "2"], ["reload"], ["recycle", "shop/0", "--kill"], ["drain"]):
            done = clutch(*command, cwd=elsewhere)
            assert (done.returncode, "choose one with --pid" in done.stderr) == (1, True), (command, done.stderr)
        assert "shop: ready" in clutch("ps", cwd=elsewhere).stdout
        pool = server.pool("shop")
        assert (pool["state"], pool["restarts"], pool["target"]) == ("ready", 0, 1)
