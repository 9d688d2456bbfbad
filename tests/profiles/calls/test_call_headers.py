"""`clutch.call_headers()` in tools of every form: what came over HTTP, and nothing of any other call."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path

import pytest

from clutch import Pool, _core, call_headers, config
from clutch.config.options import HTTP
from clutch.config.values import Address
from support.http_service import serve_fronts
from support.rendezvous import WAIT_SECONDS
from support.shapes import Shape

TARGETS = Path(__file__).parents[2] / "targets/tools"
PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
FORMS = ["plain", "serial", "in_main_thread", "coroutine", "of_a_thread", "stream", "async_stream"]


@dataclass
class Called:
    pool: Pool
    fronts: _core.Fronts

    def call(self, tool: str, **headers: str) -> tuple[str, list[dict[str, str]]]:
        """The id in the response, and each value of the tool."""
        connection = http.client.HTTPConnection(str(self.fronts.address("http")), timeout=WAIT_SECONDS)
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        with closing(connection):
            sent = {"Content-Type": "application/json", **named}
            connection.request("POST", f"/pools/called/tools/{tool}", "{}", sent)
            response = connection.getresponse()
            body = response.read()
            assert response.status == 200, body
            lines = [json.loads(line) for line in body.splitlines()]
            of_stream = response.headers["content-type"] == "application/x-ndjson"
            return response.headers["x-request-id"], lines if of_stream else [lines[0]["result"]]


@pytest.fixture(scope="module")
def called(shape: Shape) -> Iterator[Called]:
    spec = config.resolve("called", validate=True, folder=TARGETS, target="header_tools", **shape.options)
    options = {option.name: option.default_value(False) for option in HTTP.options}
    options |= {"bind": (Address("127.0.0.1", 0),), "access_log_format": "text"}
    pool = Pool.from_spec(spec)
    pool.wait_ready(timeout=60)
    with ExitStack() as stack:
        yield Called(pool, serve_fronts(stack, pool, http=config.front_core({**options, "kind": "http"})))
    pool.terminate_workers()
    pool.shutdown()


@pytest.mark.per_profile
@pytest.mark.parametrize("tool", FORMS)
def test_a_tool_hears_what_came_with_its_call(called: Called, tool: str) -> None:
    sent = {"x-request-id": "r-1", "traceparent": PARENT, "tracestate": "vendor=1"}
    answered, values = called.call(tool, **sent, Accept_Language="de")
    assert answered == "r-1"
    assert values and all(value == sent for value in values)


@pytest.mark.parametrize("tool", FORMS)
def test_an_id_is_made_where_none_came(called: Called, tool: str) -> None:
    ids = []
    for _ in range(2):
        answered, values = called.call(tool, traceparent="00-nothing-01")
        assert all(value == {"x-request-id": answered} for value in values)
        ids.append(answered)
    assert len(set(ids)) == 2


@pytest.mark.parametrize("tool", ["plain", "coroutine", "serial", "in_main_thread"])
def test_a_call_from_python_has_none(called: Called, tool: str) -> None:
    """Whatever the slot ran before."""
    for _ in range(called.pool.stats()["slots"]):
        called.call(tool, x_request_id="before")
        assert called.pool.call(tool) == {}
    assert list(called.pool.stream("stream")) == [{}, {}]


@pytest.mark.per_profile
def test_calls_at_a_time_do_not_mix(called: Called) -> None:
    found: list[tuple[str, str]] = []

    def call(nr: int) -> None:
        _, values = called.call(FORMS[nr % len(FORMS)], x_request_id=f"nr-{nr}")
        found.extend((f"nr-{nr}", value["x-request-id"]) for value in values)

    threads = [threading.Thread(target=call, args=(nr,)) for nr in range(42)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_SECONDS)
    assert len(found) >= 42 and all(sent == heard for sent, heard in found)


def test_outside_of_a_call_there_are_none() -> None:
    assert call_headers() == {}
    with pytest.raises(TypeError):
        call_headers()["a"] = "b"  # type: ignore[index]
