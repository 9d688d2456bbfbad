"""Garbage collections of a worker that serves many requests at a time: fewer that find nothing, and no more garbage."""

from __future__ import annotations

import gc
import itertools
import json
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from support.hostile_client import HOST, Served
from support.serve_process import ANY_PORT, Serving

APP = """
import asyncio, gc, json, os

held = []
free = asyncio.Event()
alive = most = 0

class Garbage:
    def __init__(self):
        global alive, most
        self.me = self
        alive += 1
        most = max(most, alive)

    def __del__(self):
        global alive
        alive -= 1

async def app(scope, receive, send):
    global free, most
    if scope["type"] != "http":
        return
    said = None
    if scope["path"] == "/hold":
        mine = [[] for _ in range(100)]
        held.append(mine)
        await free.wait()
    elif scope["path"] == "/free":
        free.set()
        free = asyncio.Event()
        held.clear()
    elif scope["path"] == "/litter":
        most, before = alive, gc.get_threshold()
        for _ in range(20_000):
            Garbage()
        said = [most, before[1]]
    elif scope["path"] == "/fork":
        before = gc.get_threshold()
        if (pid := os.fork()) == 0:
            os._exit(0 if gc.get_threshold()[1] == 10 and not gc.callbacks else 1)
        said = [os.waitpid(pid, 0)[1], before[1]]
    else:
        said = [len(held), sum(one["collections"] for one in gc.get_stats())]
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": json.dumps(said).encode()})
"""
REQUESTS, EACH = 200, 100
USUAL = gc.get_threshold()
TRIES = 200
DISPATCH = ["connection", "request"]


pytestmark = pytest.mark.skipif(
    sys.version_info >= (3, 14) or bool(sysconfig.get_config_var("Py_GIL_DISABLED")),
    reason="the collectors of CPython 3.14 and without a GIL have no generations, and are left alone",
)


@pytest.fixture(params=DISPATCH)
def serving(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Serving]:
    (tmp_path / "holding.py").write_text(APP)
    flags = ["-b", ANY_PORT, "-w", "1", "--loop", "asyncio", "--dispatch", request.param]
    with Serving(tmp_path, "holding:app", *flags) as serving:
        serving.wait_ready("web")
        yield serving


def wave(serving: Serving, then: str) -> list[int]:
    """Requests that are all alive at once, and what another is answered meanwhile."""
    served = Served(serving, logs=False)
    with ExitStack() as stack:
        clients = [stack.enter_context(served.client()) for _ in range(REQUESTS)]
        for client in clients:
            client.sendall(f"GET /hold HTTP/1.1\r\n{HOST}\r\n".encode())
        while json.loads(serving.get("/held").body)[0] < REQUESTS:
            pass
        said = json.loads(serving.get(then).body)
        serving.get("/free")
        for client in clients:
            assert client.recv(1 << 16).startswith(b"HTTP/1.1 200")
    return said


def test_a_wave_of_requests_costs_few_collections(serving: Serving) -> None:
    counts = [wave(serving, "/held")[1] for _ in range(TRIES // 10)]
    each = [after - before for before, after in itertools.pairwise(counts)]
    # Without this each wave costs as many as its objects are multiples of the usual threshold.
    assert min(each) < REQUESTS * EACH / USUAL[0] / 2, each


@pytest.mark.parametrize(("path", "most"), [("/litter", 2 * USUAL[0] + 100), ("/fork", 0)])
def test_what_one_request_does_finds_the_usual_thresholds(serving: Serving, path: str, most: int) -> None:
    """Garbage is found as early as ever, and a process that it forks collects as usual."""
    for _ in range(TRIES):
        found, second = wave(serving, path)
        assert found <= most
        if second != USUAL[1]:
            return  # collections were put off when it began
    raise AssertionError("none were put off")
