"""`clutch.Dispatcher`: the pools and fronts of a configuration, in a program."""

from __future__ import annotations

import os
import threading
import urllib.error
import urllib.request
from pathlib import Path

import pytest

import clutch
from clutch.testing import Processes

TOOLS = """
from clutch import tool

@tool
def double(value: int) -> int:
    return 2 * value
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
        (folder / "tools.py").write_text(TOOLS.replace("2 *", "3 *"))
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
