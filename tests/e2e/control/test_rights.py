"""Who may do what by which way: admin fronts with and without a token, on TCP and on a unix socket."""

from __future__ import annotations

import http.client
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import clutch
from clutch.control import client

CONFIG = """
[pools.tools]
target = "tools"
workers = 1

[fronts.open]
kind = "admin"
bind = "127.0.0.1:0"

[fronts.guarded]
kind = "admin"
bind = "127.0.0.1:0"
token = "secret"

[fronts.local]
kind = "admin"
bind = "unix:{socket}"
"""
PUBLIC = ("/healthz", "/readyz", "/metrics", "/pools")
OPERATORS = ("/process", "/fronts", "/pools/tools/stacks")
ACTIONS = ("/pools/tools/drain", "/pools/tools/resume", "/reload", "/stop")


class Reply(NamedTuple):
    status: int
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@pytest.fixture(scope="module")
def dispatcher(tmp_path_factory: pytest.TempPathFactory) -> Iterator[clutch.Dispatcher]:
    folder = tmp_path_factory.mktemp("rights")
    (folder / "tools.py").write_text(
        "from clutch import tool\n\n@tool\ndef double(value: int) -> int:\n    return 2 * value\n"
    )
    (folder / "clutch.toml").write_text(CONFIG.format(socket=folder / "admin.sock"))
    with clutch.Dispatcher(folder / "clutch.toml") as dispatcher:
        yield dispatcher


def ask(dispatcher: clutch.Dispatcher, front: str, method: str, path: str, **headers: str) -> Reply:
    (address,) = dispatcher.addresses[front]
    if address.startswith("unix:"):
        connection: http.client.HTTPConnection = client.Connection(Path(address.removeprefix("unix:")), 30)
    else:
        connection = http.client.HTTPConnection(address, timeout=30)
    try:
        connection.request(method, path, headers=headers)
        response = connection.getresponse()
        return Reply(response.status, response.read())
    finally:
        connection.close()


def test_without_a_token_tcp_shows_health_and_counts_alone(dispatcher: clutch.Dispatcher) -> None:
    assert [ask(dispatcher, "open", "GET", path).status for path in PUBLIC] == [200, 200, 200, 200]
    page = ask(dispatcher, "open", "GET", "/pools").json
    assert list(page) == ["pools"] and "running" not in page["pools"][0]["workers"][0]
    for path in (*OPERATORS, "/events"):
        refused = ask(dispatcher, "open", "GET", path)
        assert (refused.status, refused.json["type"]) == (403, "urn:clutch:not-an-operator"), path
    assert [ask(dispatcher, "open", "POST", path).status for path in ACTIONS] == [403, 403, 403, 403]
    assert dispatcher.pools["tools"].call("double", value=2) == 4


@pytest.mark.parametrize(("front", "headers"), [("guarded", {"Authorization": "Bearer secret"}), ("local", {})])
def test_operators_may_do_everything(dispatcher: clutch.Dispatcher, front: str, headers: dict[str, str]) -> None:
    for path in (*PUBLIC, *OPERATORS):
        assert ask(dispatcher, front, "GET", path, **headers).status == 200, path
    page = ask(dispatcher, front, "GET", "/pools", **headers).json
    assert (page["pid"], page["pools"][0]["workers"][0]["running"]) == (os.getpid(), [])
    told = ask(dispatcher, front, "GET", "/fronts", **headers).json["fronts"]["guarded"]
    assert told.get("token") == ("secret" if front == "local" else None), "over TCP one token does not give all others"
    assert ask(dispatcher, front, "POST", "/pools/tools/drain", **headers).json == {"pools": ["tools"]}
    assert dispatcher.pools["tools"].stats()["state"] == "draining"
    assert ask(dispatcher, front, "POST", "/pools/tools/resume", **headers).status == 200
    reloaded = ask(dispatcher, front, "POST", "/reload", **headers).json
    assert (reloaded["pools"], reloaded["failed"]) == (["tools"], {})
    stop = ask(dispatcher, front, "POST", "/stop", **headers)
    assert (stop.status, "ends with its program" in stop.json["detail"]) == (409, True), "it is embedded"


def test_a_wrong_token_is_refused(dispatcher: clutch.Dispatcher) -> None:
    for path in (*PUBLIC, *OPERATORS):
        assert ask(dispatcher, "guarded", "GET", path, Authorization="Bearer wrong").status == 401, path
    assert ask(dispatcher, "guarded", "POST", "/stop").status == 401


def test_a_web_page_may_do_nothing(dispatcher: clutch.Dispatcher) -> None:
    for front in ("open", "guarded", "local"):
        token = {"Authorization": "Bearer secret"}
        refused = ask(dispatcher, front, "POST", "/pools/tools/drain", Origin="http://evil.example", **token)
        assert refused.status == 403, front
    assert dispatcher.pools["tools"].stats()["state"] == "ready"


def test_its_socket_is_its_owners(dispatcher: clutch.Dispatcher) -> None:
    (address,) = dispatcher.addresses["local"]
    assert Path(address.removeprefix("unix:")).stat().st_mode & 0o777 == 0o600
