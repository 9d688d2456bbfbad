"""Who may call what, and what a tool learns of them: names of tokens, tokens by pool, headers passed on, `pools`."""

from __future__ import annotations

import http.client
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from openapi_spec_validator import OpenAPIV31SpecValidator

from support.clutch_process import WAIT_SECONDS, Answer, Server, answer, clutch, with_http_option

CONFIG = """
[pools.api]
target = "header_tools"
workers = 1

[pools.other]
target = "header_tools"
workers = 1

[pools.hidden]
target = "http_tools"
workers = 1
"""
OPTIONS = """pools = ["other", "api"]
pass_headers = ["X-User", "accept-language"]
token_file = "tokens"
access_log = "calls.log"
access_log_format = "json"
cors_origins = ["https://app.example"]
"""
TOKENS = "ann: secret-of-ann\nnameless\nbatch@ci: limited pools=other\n"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("callers")
    (folder / "tokens").write_text(TOKENS)
    (folder / "tokens").chmod(0o600)
    with Server(folder, CONFIG + with_http_option(OPTIONS)) as server:
        for name in ("api", "other", "hidden"):
            server.wait_ready(name)
        yield server


def ask(server: Server, path: str, token: str, method: str = "GET", **headers: str) -> Answer:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    with closing(http.client.HTTPConnection(server.http, timeout=WAIT_SECONDS)) as connection:
        connection.request(method, path, headers={"Authorization": f"Bearer {token}", **named})
        return answer(connection)


def heard(server: Server, token: str, tool: str = "plain", **headers: str) -> Any:
    return server.call(tool, Authorization=f"Bearer {token}", X_Request_Id="r", **headers).result


def test_a_tool_is_told_the_name_of_the_token(server: Server) -> None:
    assert heard(server, "secret-of-ann") == {"x-request-id": "r", "clutch-caller": "ann"}
    assert heard(server, "nameless") == {"x-request-id": "r"}


def test_no_client_can_say_that_it_is_another(server: Server) -> None:
    assert heard(server, "secret-of-ann", Clutch_Caller="root")["clutch-caller"] == "ann"
    assert heard(server, "nameless", Clutch_Caller="root", clutch_caller="root") == {"x-request-id": "r"}


@pytest.mark.parametrize("tool", ["coroutine", "of_a_thread"])
def test_listed_headers_are_passed_on_and_no_others(server: Server, tool: str) -> None:
    found = heard(server, "nameless", tool, X_User="7", X_Other="1", Accept_Language="de")
    assert found == {"x-request-id": "r", "x-user": "7", "accept-language": "de"}


def test_a_header_that_is_too_long_is_refused_and_not_dropped(server: Server) -> None:
    found = server.call("plain", Authorization="Bearer nameless", X_User="x" * 8193)
    assert (found.status, found.json["type"]) == (431, "urn:clutch:head-too-large")
    assert "x-user" in found.json["detail"]


def test_the_name_is_in_the_access_log(tmp_path: Path) -> None:
    (tmp_path / "tokens").write_text(TOKENS)
    for form, expected in (("text", " - ann ["), ("json", '"user":"ann"'), ("%(u)s %(s)s", "ann 200")):
        options = f'token_file = "tokens"\naccess_log = "{form[:4]}.log"\naccess_log_format = "{form}"'
        with Server(tmp_path, CONFIG + with_http_option(options)) as server:
            server.wait_ready("api")
            assert server.call("plain", Authorization="Bearer secret-of-ann").status == 200
            server.terminate()
            assert server.wait() == 0
        assert expected in (tmp_path / f"{form[:4]}.log").read_text()


def test_only_the_pools_of_the_front_are_there(server: Server) -> None:
    server.err.wait(r"fronts\.http: tools of other, api$")
    assert [pool["name"] for pool in ask(server, "/pools", "nameless").json["pools"]] == ["api", "other"]
    assert ask(server, "/pools/hidden/tools", "nameless").status == 404
    found = server.call("pid", pool="hidden", Authorization="Bearer nameless")
    assert (found.status, found.json["type"]) == (404, "urn:clutch:no-such-pool")
    document = ask(server, "/openapi.json", "nameless").json
    assert not [path for path in document["paths"] if "hidden" in path]


def test_the_document_has_the_headers(server: Server) -> None:
    document = ask(server, "/openapi.json", "nameless").json
    OpenAPIV31SpecValidator(document).validate()
    assert document["components"]["parameters"]["x-user"]["in"] == "header"
    parameters = document["paths"]["/pools/api/tools/plain"]["post"]["parameters"]
    assert {"$ref": "#/components/parameters/accept-language"} in parameters


def test_a_page_may_send_the_headers(server: Server) -> None:
    asked = {"Access_Control_Request_Method": "POST", "Origin": "https://app.example"}
    granted = ask(server, "/pools/api/tools/plain", "", "OPTIONS", **asked)
    assert granted.status == 204
    assert granted.headers["access-control-allow-headers"].endswith(", x-user, accept-language")


def test_a_token_for_one_pool_sees_and_calls_only_that(server: Server) -> None:
    limited = {"Authorization": "Bearer limited"}
    assert server.call("plain", pool="other", **limited).result["clutch-caller"] == "batch@ci"
    refused = server.call("plain", pool="api", **limited)
    assert (refused.status, refused.json["type"]) == (403, "urn:clutch:pool-not-allowed")
    assert server.call("plain", pool="hidden", **limited).status == 404
    assert [pool["name"] for pool in ask(server, "/pools", "limited").json["pools"]] == ["other"]
    assert ask(server, "/pools/api/tools", "limited").status == 403
    paths = [path for path in ask(server, "/openapi.json", "limited").json["paths"] if "{" not in path]
    assert any("/other/" in path for path in paths) and not any("/api/" in path for path in paths)
    again = ask(server, "/openapi.json", "nameless").json["paths"]
    assert any("/api/" in path for path in again), "each token has a document of its own"


@pytest.mark.parametrize(
    ("front", "text", "words"),
    [
        ("http", "one pools=hiden", "line 1: no pool 'hiden' here; did you mean 'hidden'?"),
        ("http", "a b: one", "line 1: 'a b' is no name"),
        ("admin", "one pools=api", r"pools= is for tokens of [fronts.http]"),
    ],
)
def test_a_wrong_line_is_told_at_the_start(tmp_path: Path, front: str, text: str, words: str) -> None:
    (tmp_path / "tokens").write_text(text)
    config = CONFIG + with_http_option("").replace(f"[fronts.{front}]", f'[fronts.{front}]\ntoken_file = "tokens"')
    (tmp_path / "clutch.toml").write_text(config)
    done = clutch("run", cwd=tmp_path)
    assert (done.returncode, words in done.stderr) == (1, True), done


def test_a_front_with_the_tools_of_all_pools_says_so(tmp_path: Path) -> None:
    with Server(tmp_path, CONFIG + with_http_option("")) as server:
        server.err.wait(r"fronts\.http: tools of api, other, hidden$")
