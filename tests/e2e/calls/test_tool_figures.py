"""Figures by tool: calls over HTTP and from Python, their failures, and names that there are not."""

from __future__ import annotations

import re
from pathlib import Path

from support.clutch_process import FRONTS, Server, answer
from support.rendezvous import Rendezvous


def figures(server: Server, name: str) -> dict[str, float]:
    """By labels, as they are written."""
    text = server.get("/metrics").body.decode()
    return {found[1]: float(found[2]) for found in re.finditer(rf"(?m)^{name}\{{(.*)\}} (\S+)$", text)}


def test_calls_and_failures_are_counted_by_tool(tmp_path: Path) -> None:
    with Server(tmp_path, '[pools.api]\ntarget = "http_tools"\nworkers = 1\n' + FRONTS) as server:
        server.wait_ready("api")
        assert server.call("add", {"a": 1}).status == 200
        assert server.call("add", {"a": "x"}).status == 422
        assert server.call("countdown", {"n": 1, "fail_at": 1}).status == 500
        with Rendezvous() as place:
            assert server.call("meet", {"port": place.port}, Clutch_Timeout="100ms").status == 504
            with server.calling("kill_yourself", {"port": place.port}) as lost:
                place.guest().wait_gone()  # the one before
                place.guest().let_go()
                assert answer(lost).status == 502
        for nr in range(5):
            assert server.call(f"no_tool_{nr}").status == 404
        assert figures(server, "clutch_tool_run_seconds_count") == {
            'pool="api",tool="add"': 2,
            'pool="api",tool="countdown"': 1,
            'pool="api",tool="kill_yourself"': 0,
            'pool="api",tool="meet"': 0,
        }
        assert figures(server, "clutch_tool_failures_total") == {
            'pool="api",tool="add",kind="bad_arguments"': 1,
            'pool="api",tool="countdown",kind="raised"': 1,
            'pool="api",tool="kill_yourself",kind="worker_lost"': 1,
            'pool="api",tool="meet",kind="deadline"': 1,
        }
