"""Errors of a tool's own (`clutch.HttpProblem`): over HTTP, in streams, in the document, and to callers in Python."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from openapi_spec_validator import OpenAPIV31SpecValidator

from clutch import Pool
from support.clutch_process import FRONTS, WAIT_SECONDS, Server, answer

CONFIG = """
[pools.api]
target = "problem_tools"
workers = 1

[pools.tasks]
target = "problem_tools"
profile = "async"
workers = 1
"""
NO_USER = {
    "type": "urn:shop:no-user",
    "title": "No such user",
    "status": 404,
    "detail": "no user 7",
    "user": 7,
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(tmp_path_factory.mktemp("problems"), CONFIG + FRONTS) as server:
        for name in ("api", "tasks"):
            server.wait_ready(name)
        yield server


@pytest.mark.parametrize("pool", ["api", "tasks"])
def test_a_problem_of_a_tool_is_its_answer(server: Server, pool: str) -> None:
    found = server.call("user", {"nr": 7}, pool=pool)
    assert (found.status, found.headers["content-type"]) == (404, "application/problem+json")
    assert found.json == NO_USER


def test_a_subclass_has_what_it_says_itself(server: Server) -> None:
    found = server.call("user.async", {"nr": 7})
    assert (found.status, found.json) == (404, NO_USER | {"type": "urn:shop:no-user:f"})


@pytest.mark.parametrize("tool", ["users", "users_async"])
def test_a_stream_ends_with_the_problem(server: Server, tool: str) -> None:
    found = server.call(tool, {"count": 2})
    assert found.status == 200
    assert [*found.lines][-1] == {"error": NO_USER | {"detail": "no user 2", "user": 2}}
    assert len(found.lines) == 3


def test_members_are_what_results_may_be(server: Server) -> None:
    document = server.call("on_a_day").json
    assert document == {
        "type": "about:blank",
        "title": "Unprocessable Entity",
        "status": 422,
        "detail": "not then",
        "day": "2026-01-02",
        "of": {"1": [2, 3]},
    }


def test_members_arrive_as_they_are(server: Server) -> None:
    deep: list[Any] = []
    for _ in range(150):
        deep = [deep]
    members = {"nr": 2**70, "deep": deep}
    found = server.call("problem", {"status": 404, "members": members})
    assert found.status == 404
    assert {name: found.json[name] for name in members} == members


@pytest.mark.parametrize(
    ("status", "members", "what"),
    [
        (200, {}, "status 200: allowed are 400 to 599"),
        (600, {}, "status 600"),
        (404, {"text": "x" * 70_000}, "70,011 bytes; allowed are 65,536"),
    ],
)
def test_what_no_document_can_say_is_an_error_where_it_is_raised(
    server: Server, status: int, members: dict[str, Any], what: str
) -> None:
    found = server.call("problem", {"status": status, "members": members})
    assert (found.status, found.json["type"], found.json["type_name"]) == (500, "urn:clutch:raised", "ValueError")
    assert what in found.json["message"]


def test_one_that_was_spoilt_later_is_an_exception_like_any_other(server: Server) -> None:
    found = server.call("spoilt")
    assert (found.status, found.json["type_name"]) == (500, "clutch.http_problem.HttpProblem")


def test_one_that_is_caught_is_no_problem(server: Server) -> None:
    assert server.call("caught").result == "404 Not Found"


def test_only_faults_of_the_server_are_in_its_log(tmp_path: Path) -> None:
    with Server(tmp_path, CONFIG + FRONTS) as server:
        server.wait_ready("api")
        assert server.call("user", {"nr": 41}).status == 404
        assert server.call("crash").status == 502
        server.err.wait(r"api\.crash \(request \w+\) raised")
        assert "no user 41" not in server.err.text


def test_the_document_lists_what_a_tool_raises(server: Server) -> None:
    with closing(http.client.HTTPConnection(server.http, timeout=WAIT_SECONDS)) as connection:
        connection.request("GET", "/openapi.json")
        document = answer(connection).json
    OpenAPIV31SpecValidator(document).validate()
    responses = document["paths"]["/pools/api/tools/user"]["post"]["responses"]
    assert responses["404"]["description"] == "`urn:shop:no-user`: No such user. There is no such user."
    own = responses["404"]["content"]["application/problem+json"]["schema"]["allOf"][1]
    assert own["properties"]["type"]["enum"] == ["urn:shop:no-user"]
    assert responses["409"]["description"] == "`urn:shop:taken`: The name is taken"
    assert responses["503"]["description"].endswith("`about:blank`: Service Unavailable")
    assert "404" not in document["paths"]["/pools/api/tools/users"]["post"]["responses"]
    with closing(http.client.HTTPConnection(server.http, timeout=WAIT_SECONDS)) as connection:
        connection.request("GET", "/pools/api/tools")
        listed = {tool["name"]: tool["problems"] for tool in answer(connection).json["tools"]}
    assert [one["status"] for one in listed["user"]] == [404, 409, 503]
    assert listed["users"] == []


@pytest.mark.parametrize("profile", ["process", "thread"])
def test_callers_in_python_get_the_exception(profile: str) -> None:
    from problem_tools import NoUser

    with Pool("problem_tools", profile=profile, workers=1) as pool:
        error = pool.submit("user", 7).exception(WAIT_SECONDS)
    assert isinstance(error, NoUser)
    assert (str(error), error.status, error.members) == ("no user 7", 404, {"user": 7})
    assert json.loads(json.dumps(error.members)) == {"user": 7}
