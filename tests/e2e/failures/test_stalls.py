"""A dispatcher that stands still: a figure and a warning, where no other figure contains that time."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from support.clutch_process import FRONTS, WAIT_SECONDS, Server

STALL = r"WARNING .*the dispatcher stood still for (\d+\.\d) s"
FRONT_OF_AN_APP = '[fronts.serve]\napp = "asgi_app"\nbind = "127.0.0.1:0"\n'


def freeze(pid: int, seconds: float) -> None:
    """Lets the process stand still, as one does that is stopped, throttled or swapped out."""
    command = f"kill -STOP {pid}; sleep {seconds}; kill -CONT {pid}"
    subprocess.run(["bash", "-c", command], check=True, timeout=WAIT_SECONDS)


def stalls(server: Server) -> float:
    text = server.get("/metrics").body.decode()
    found = re.search(r"^clutch_dispatcher_stall_seconds_sum (\S+)$", text, re.MULTILINE)
    assert found, text
    return float(found[1])


@pytest.mark.parametrize("front", ["", FRONT_OF_AN_APP])
def test_a_stall_is_a_figure_and_a_warning(tmp_path: Path, front: str) -> None:
    config = '[pools.api]\ntarget = "http_tools"\nworkers = 1\n' + FRONTS + front
    with Server(tmp_path, config) as server:
        server.wait_ready("api")
        before = stalls(server)
        freeze(server.process.pid, 2)
        told = server.err.wait(STALL)
        assert float(told[1]) >= 1.5
        assert stalls(server) - before >= 1.5
        assert len(re.findall(STALL, server.err.text)) == 1, "loops that stood still together are told once"
