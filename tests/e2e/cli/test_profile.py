"""`clutch profile`: a flame graph of a worker that runs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from support.clutch_process import clutch
from support.rendezvous import Rendezvous
from support.serve_process import ANY_PORT, Serving

SCOPE = Path("/proc/sys/kernel/yama/ptrace_scope")
APP = """
from support.rendezvous import meet

def wait_here(port):
    return meet(port)

def app(environ, start_response):
    start_response("200 OK", [])
    return [wait_here(int(environ["QUERY_STRING"])).encode()]
"""

may_trace = os.geteuid() == 0 or not SCOPE.exists() or SCOPE.read_text().strip() == "0"


@pytest.mark.skipif(not may_trace, reason="only root may read other processes here")
def test_where_a_worker_spends_its_time(tmp_path: Path, rendezvous: Rendezvous) -> None:
    (tmp_path / "waits.py").write_text(APP)
    with Serving(tmp_path, "waits:app", "-w", "1", "-b", ANY_PORT) as serving:
        serving.wait_ready("web")
        with serving.asking(f"/?{rendezvous.port}"):
            guest = rendezvous.guest()
            done = clutch("profile", "web/0", "--seconds", "1", cwd=tmp_path)
            assert (done.returncode, done.stdout) == (0, "profile-web-0.svg\n"), done.stderr
            guest.let_go()
        for wrong, why in (("web/7", "has no worker 7; it has 0"), ("shop", "there is no pool 'shop'; there is web")):
            done = clutch("profile", wrong, cwd=tmp_path)
            assert (done.returncode, why in done.stderr) == (1, True), done.stderr
    assert "<svg" in (tmp_path / "profile-web-0.svg").read_text()
