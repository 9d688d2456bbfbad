"""`clutch advise`, and the same sentence in `ps` and `top`, at real servers: what is plain is said, else nothing."""

from __future__ import annotations

import contextlib
import http.client
import json
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from clutch.config.limits import usable_cpus
from support.clutch_process import FRONTS, WAIT_SECONDS, Dispatcher, Server, clutch, soon
from support.rendezvous import Rendezvous
from support.serve_process import ANY_PORT, Serving

MEETING = """
from support.rendezvous import meet

def app(environ, start_response):
    meet(int(environ["PATH_INFO"][1:]))
    start_response("200 OK", [])
    return [b"met"]
"""
COMPUTING = """
def app(environ, start_response):
    sum(number * number for number in range(200_000))
    start_response("200 OK", [])
    return [b"done"]
"""
ASYNC_TOOL = """
from clutch import tool
from support.rendezvous import meet_async

@tool
async def stay(port: int) -> str:
    return await meet_async(port)
"""
BLOCKING = """
import time

async def app(scope, receive, send):
    if scope["type"] != "http":
        return
    time.sleep(0.02)
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"done"})
"""


@pytest.fixture(autouse=True)
def _own_runtime_folder(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path_factory.mktemp("run")))


def advised(server: Dispatcher, seconds: float = 0.3) -> dict[str, Any]:
    pid = str(server.process.pid)
    done = clutch("advise", "--json", "--seconds", str(seconds), "--pid", pid, cwd=server.folder)
    assert done.returncode == 0, done.stderr
    (pool,) = json.loads(done.stdout)["pools"]
    return pool


def shown(server: Dispatcher, *command: str) -> str:
    done = clutch(*command, "--pid", str(server.process.pid), cwd=server.folder)
    assert done.returncode == 0, done.stderr
    return " ".join(done.stdout.split())


@contextlib.contextmanager
def load(address: str, clients: int) -> Iterator[None]:
    """So many clients ask one request after the other."""
    over = threading.Event()

    def ask() -> None:
        connection = http.client.HTTPConnection(address, timeout=WAIT_SECONDS)
        with contextlib.closing(connection), contextlib.suppress(OSError, http.client.HTTPException):
            while not over.is_set():
                connection.request("GET", "/")
                connection.getresponse().read()

    threads = [threading.Thread(target=ask) for _ in range(clients)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join()


def test_slots_full_and_cpu_idle(tmp_path: Path, rendezvous: Rendezvous) -> None:
    (tmp_path / "met.py").write_text(MEETING)
    with Serving(tmp_path, "met:app", "-w", "2", "-b", ANY_PORT) as server, contextlib.ExitStack() as requests:
        for _ in range(9):
            requests.enter_context(server.asking(f"/{rendezvous.port}"))
        rendezvous.guests(2)
        soon(lambda: server.pool()["queued"] == 7)
        found = advised(server)
        assert (found["advice"], found["options"]) == ("slots full, CPU idle: try --threads 8", {"threads": 8})
        figures = found["figures"]
        assert (figures["queued"], figures["taken"], figures["workers"]) == (7, 1, 2) and figures["waits"] > 0.6
        text = shown(server, "advise", "--seconds", "0.3")
        assert text.startswith("pool web: 2 process workers, slots 100 % busy, 7 wait, CPU ")
        for command in (("advise", "--seconds", "0.3"), ("ps",), ("top", "-n", "1", "--interval", "300ms")):
            assert "slots full, CPU idle: try --threads 8" in shown(server, *command)
        server.process.kill()


@pytest.mark.skipif(usable_cpus() == 1, reason="more workers are of no use on one CPU")
@pytest.mark.skipif(not getattr(sys, "_is_gil_enabled", lambda: True)(), reason="there is no GIL to compete for")
def test_threads_that_compete_for_the_gil(tmp_path: Path) -> None:
    (tmp_path / "pure.py").write_text(COMPUTING)
    with Serving(tmp_path, "pure:app", "-w", "1", "--threads", "8", "-b", ANY_PORT) as server:
        for _ in range(10):
            assert server.get().status == 200
        looks: list[dict[str, Any]] = []
        with load(server.address, 8):
            # While others use the CPUs, one look may not be plain; the next one is.
            soon(lambda: looks.append(advised(server)) or looks[-1]["kind"] == "gil")
            soon(lambda: "threads compete for the GIL: GET / takes " in shown(server, "ps"))
        found = looks[-1]
        # Beside others even alone a run takes longer than it computes, as if it waited; then it may keep its threads.
        assert found["options"]["workers"] == usable_cpus()
        assert "threads compete for the GIL: GET / takes " in found["advice"] and " alone, " in found["advice"]
        (pace,) = found["figures"]["paces"]
        # Under the load one may run alone as well.
        assert pace["what"] == "GET /" and pace["alone"] >= 10 and pace["beside_s"] > pace["alone_s"]


def test_an_async_tool_on_process(tmp_path: Path, rendezvous: Rendezvous) -> None:
    (tmp_path / "staying.py").write_text(ASYNC_TOOL)
    pool = f'[pools.api]\ntarget = "staying"\nprofile = "process"\nworkers = 1\n{FRONTS}'
    with Server(tmp_path, pool) as server, contextlib.ExitStack() as requests:
        server.wait_ready("api")
        for _ in range(3):
            requests.enter_context(server.calling("stay", {"port": rendezvous.port}))
        rendezvous.guests(1)
        soon(lambda: advised(server)["figures"]["queued"] == 2)
        sentence = advised(server)["advice"]
        assert sentence.startswith("an async tool on process: one stream at a time (stay waits ")
        assert sentence.endswith(": try --set pools.api.profile=async")
        assert sentence.partition(" (")[0] in shown(server, "ps")
        server.process.kill()


def test_a_loop_that_is_blocked(tmp_path: Path) -> None:
    (tmp_path / "blocking.py").write_text(BLOCKING)
    with Serving(tmp_path, "blocking:app", "-w", "1", "-b", ANY_PORT) as server, load(server.address, 8):
        soon(lambda: advised(server)["advice"].startswith("GET / blocks its event loop: "))


def test_nothing_is_advised_where_all_is_well(tmp_path: Path, rendezvous: Rendezvous) -> None:
    (tmp_path / "met.py").write_text(MEETING)
    with Serving(tmp_path, "met:app", "-w", "2", "-b", ANY_PORT) as server, server.asking(f"/{rendezvous.port}"):
        guest = rendezvous.guest()
        found = advised(server)
        assert (found["kind"], found["options"]) == ("nothing", {})
        assert found["advice"].startswith("nothing to advise: slots are 50 % busy and nobody waits for one, CPU ")
        text = shown(server, "ps")
        assert "to advise" not in text and "ran work for " in text and ": CPU 0." in text
        guest.let_go()


def test_nobody_is_there_to_be_advised(tmp_path: Path) -> None:
    done = clutch("advise", cwd=tmp_path)
    assert (done.returncode, "no server or program was started in this folder" in done.stderr) == (1, True)
    assert clutch("advise", "--seconds", "0", cwd=tmp_path).returncode == 2
