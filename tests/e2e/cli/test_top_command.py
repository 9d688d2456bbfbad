"""`clutch top` on a real terminal, of a real server."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from support.clutch_process import COMMAND, FRONTS, Server, clutch, environment
from support.terminal import Terminal

ONE_POOL = f'[pools.api]\ntarget = "http_tools"\nworkers = 1\n{FRONTS}'


def test_top_shows_what_happens_until_q(tmp_path: Path) -> None:
    with Server(tmp_path, ONE_POOL) as server:
        server.wait_ready("api")
        with Terminal(tmp_path, [*COMMAND, "top", "--interval", "100ms"], term="xterm-256color") as top:
            top.wait("api: ready, 1 of 1 workers")
            assert clutch("recycle", "api", cwd=tmp_path).returncode == 0
            top.wait(r"worker api/\d+ \(pid \d+\): gone: recycled by command")
            top.type("q")
            assert top.process.wait(30) == 0
        assert "Traceback" not in top.text


def test_top_ends_with_its_server(tmp_path: Path) -> None:
    with Server(tmp_path, ONE_POOL) as server:
        server.wait_ready("api")
        with Terminal(tmp_path, [*COMMAND, "top", "--interval", "100ms"], term="xterm-256color") as top:
            top.wait("api: ready")
            assert clutch("stop", cwd=tmp_path).returncode == 0
            top.wait(f"pid {server.process.pid} has ended")
            assert top.process.wait(30) == 0


def test_top_as_json_is_a_page_for_each_look(tmp_path: Path) -> None:
    with Server(tmp_path, ONE_POOL) as server:
        server.wait_ready("api")
        command = [*COMMAND, "top", "--json", "--interval", "100ms"]
        with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, env=environment()) as top:
            assert top.stdout is not None
            pages = [json.loads(top.stdout.readline()) for _ in range(2)]
            top.kill()
        assert pages[1]["pools"][0]["done_per_s"] == 0.0 and pages[1]["pid"] == server.process.pid


def test_top_says_what_an_interval_is(tmp_path: Path) -> None:
    done = clutch("top", "--interval", "soon", cwd=tmp_path)
    assert (done.returncode, "write 2s or 500ms" in done.stderr) == (2, True)
