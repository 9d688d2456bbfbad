"""`clutch.Dispatcher`: the pools and fronts of a configuration, in a program."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import clutch
from clutch.testing import Processes

TOOLS = """
import time

from clutch import tool

@tool
def double(value: int) -> int:
    return 2 * value

@tool
def hold(value: int) -> int:
    time.sleep(1)
    return value
"""
APP = """
async def app(scope, receive, send):
    if scope["type"] == "http":
        await send({{"type": "http.response.start", "status": 200, "headers": []}})
        await send({{"type": "http.response.body", "body": b"{name}"}})
"""
CONFIG = """
[pools.tools]
target = "tools"
workers = 1

[fronts.http]
bind = "127.0.0.1:0"

[fronts.calls]
kind = "http"
bind = "127.0.0.1:0"
token = "secret"

[fronts.shop]
kind = "serve"
app = "shop:app"
bind = "127.0.0.1:0"

[fronts.blog]
kind = "serve"
app = "blog:app"
bind = "127.0.0.1:0"
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "clutch.toml").write_text(CONFIG)
    (tmp_path / "tools.py").write_text(TOOLS)
    for name in ("shop", "blog"):
        (tmp_path / f"{name}.py").write_text(APP.format(name=name))
    return tmp_path


def get(address: str, path: str = "/", **headers: str) -> bytes:
    request = urllib.request.Request(f"http://{address}{path}", headers=headers)
    with urllib.request.urlopen(request, timeout=30) as response:
        body: bytes = response.read()
        return body


def test_a_program_runs_a_configuration(folder: Path) -> None:
    """Several fronts of one kind, too: each has its own app, or its own tokens."""
    settings = ["pools.shop.workers=1", "pools.blog.workers=1"]
    with clutch.Dispatcher(folder / "clutch.toml", settings=settings) as dispatcher:
        assert sorted(dispatcher.pools) == ["blog", "shop", "tools"]
        assert dispatcher.pools["tools"].call("double", value=2) == 4
        [shop], [blog] = dispatcher.addresses["shop"], dispatcher.addresses["blog"]
        assert (get(shop), get(blog)) == (b"shop", b"blog")
        [calls] = dispatcher.addresses["calls"]
        with pytest.raises(urllib.error.HTTPError, match="401"):
            get(calls, "/pools")
        assert b"double" in get(calls, "/pools", Authorization="Bearer secret")
        [http] = dispatcher.addresses["http"]
        assert b"double" in get(http, "/pools")
        workers = Processes.below(os.getpid())
    workers.wait_ended()
    workers.close()
    assert dispatcher.addresses == {}
    dispatcher.stop()
    assert not [one.name for one in threading.enumerate() if one.name.startswith("clutch-")]


def test_it_loads_new_code(folder: Path) -> None:
    with clutch.Dispatcher(
        folder / "clutch.toml", settings=["pools.shop.workers=1", "pools.blog.workers=1"]
    ) as running:
        # Of another length: bytecode of the same second and length would be taken for it.
        (folder / "tools.py").write_text(TOOLS.replace("2 *", "3 * 1 *"))
        running.reload("tools")
        assert running.pools["tools"].call("double", value=2) == 6
        (folder / "tools.py").write_text("import nothing_like_that")
        with pytest.raises(clutch.ConfigError, match="nothing_like_that"):
            running.reload()
        with pytest.raises(clutch.NoSuchPool, match="no pool 'tool'"):
            running.reload("tool")
        assert running.pools["tools"].call("double", value=2) == 6, "the old code goes on"


def test_one_that_cannot_start_leaves_nothing_behind(folder: Path) -> None:
    before = set(threading.enumerate())
    (folder / "shop.py").write_text("import nothing_like_that")
    with pytest.raises(clutch.ConfigError, match="nothing_like_that"), clutch.Dispatcher(folder / "clutch.toml"):
        pytest.fail("it has started")
    assert {one for one in threading.enumerate() if one.name.startswith("clutch-")} <= before


def test_two_fronts_at_one_address_are_refused(folder: Path) -> None:
    settings = ["fronts.http.bind=127.0.0.1:7999", "fronts.calls.bind=127.0.0.1:7999"]
    with pytest.raises(clutch.ConfigError, match=r"fronts\.http listens there too"):
        clutch.Dispatcher(folder / "clutch.toml", settings=settings)


def test_whoever_stops_it_a_second_time_waits_for_the_end_too(folder: Path) -> None:
    dispatcher = clutch.Dispatcher(folder / "clutch.toml", settings=["pools.tools.grace=20s"])
    dispatcher.start()
    dispatcher.wait_ready()
    pool = dispatcher.pools["tools"]
    runs = pool.submit("hold", value=1)
    while not any(pool.running().values()):
        pass
    first = threading.Thread(target=dispatcher.stop)
    first.start()
    while pool.stats()["state"] == "ready":
        pass
    dispatcher.stop()
    assert (runs.result(0), pool.stats()["state"]) == (1, "closed")
    first.join()


def test_one_that_was_started_or_stopped_does_not_start_again(folder: Path) -> None:
    dispatcher = clutch.Dispatcher(folder / "clutch.toml")
    dispatcher.start()
    with pytest.raises(RuntimeError, match="create another one"):
        dispatcher.start()
    dispatcher.stop()
    with pytest.raises(RuntimeError, match="create another one"):
        dispatcher.start()


def test_a_stop_during_the_start_leaves_nothing_behind(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In another thread, or in the same one, as by a signal handler."""
    started = clutch.Dispatcher._start_pool
    for in_thread in (True, False):
        dispatcher = clutch.Dispatcher(folder / "clutch.toml")
        stopper = threading.Thread(target=dispatcher.stop)

        def start_pool(*given: Any, stop: Callable[[], None] = stopper.start if in_thread else dispatcher.stop) -> None:
            monkeypatch.undo()
            started(*given)
            stop()

        monkeypatch.setattr(clutch.Dispatcher, "_start_pool", start_pool)
        dispatcher.start()
        if in_thread:
            stopper.join()
        assert {pool.stats()["state"] for pool in dispatcher.pools.values()} == {"closed"}
        assert dispatcher.addresses == {}
        assert not [one.name for one in threading.enumerate() if one.name.startswith("clutch-")]


def run(folder: Path, program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", program], cwd=folder, capture_output=True, text=True, timeout=60)


def test_it_can_be_stopped_when_the_interpreter_ends(folder: Path) -> None:
    """No thread can be started there."""
    program = "import atexit, clutch\ndispatcher = clutch.Dispatcher()\natexit.register(dispatcher.stop)\n"
    started = "dispatcher.start()\ndispatcher.wait_ready()\n"
    done = run(folder, f"{program}atexit.register(lambda: print(len(dispatcher.pools)))\n{started}")
    assert (done.returncode, done.stdout, "Exception" in done.stderr) == (0, "3\n", False), done.stderr


def test_a_program_that_gevent_has_patched_is_told_so(folder: Path) -> None:
    """Threads that wait in native code would be greenlets: the program would stand still."""
    pytest.importorskip("gevent")
    program = "from gevent import monkey; monkey.patch_all()\nimport clutch\n"
    for made in ("clutch.Dispatcher()", "clutch.serving('blog:app', port=0)"):
        done = run(folder, program + made)
        assert (done.returncode, "gevent.monkey.patch_all()" in done.stderr) == (1, True), done.stderr
