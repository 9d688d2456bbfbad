"""Heads as clients and proxies really send them: what other servers take reaches the app, what is refused is told."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest

from support.hostile_client import LAST, Served, body, serve, status
from support.serve_process import Serving

TARGETS = {
    '/items?filter={"a":1}': ("/items", 'filter={"a":1}'),
    "/a?q=<b>|^`": ("/a", "q=<b>|^`"),
    "/a`b<c>": ("/a`b<c>", ""),
    "/100%": ("/100%", ""),
    "/%zz/%4?%": ("/%zz/%4", "%"),
    "/a%00b%41": ("/a\0bA", ""),
}


def ask(served: Served, target: str, *lines: str) -> dict[str, Any]:
    more = "".join(line + "\r\n" for line in lines)
    found: dict[str, Any] = body(served.say(f"GET {target} HTTP/1.1\r\n{LAST}{more}\r\n"))
    return found


@pytest.mark.parametrize("app", ["asgi", "wsgi"])
def test_characters_that_browsers_escape_and_others_do_not_reach_the_app(tmp_path: Path, app: str) -> None:
    with serve(tmp_path, f"heads_app:{app}") as served:
        for target, (path, query) in TARGETS.items():
            raw = target.partition("?")[0]
            for asked in (target, f"http://a{target}"):
                found = ask(served, asked)
                assert (found["path"], found["query"]) == (path, query), asked
                assert found.get("raw_path", raw) == raw
            (line, _) = served.logged()
            assert (line["path"], line["query"] or "") == (raw, query)


def test_pipelined_requests_keep_their_own_targets(tmp_path: Path) -> None:
    with serve(tmp_path, "heads_app:asgi") as served:
        requests = "".join(f"GET /{nr}?q={'<>' * (nr % 2)} HTTP/1.1\r\nHost: a\r\n\r\n" for nr in range(8))
        answers = served.say(f"{requests}GET /last HTTP/1.1\r\n{LAST}\r\n").split(b"HTTP/1.1 200")[1:]
        assert [f'"path": "/{nr}"'.encode() in answer for nr, answer in enumerate(answers[:8])] == [True] * 8
        assert [b"<>" in answer for answer in answers] == [*[False, True] * 4, False]


def test_what_is_refused_is_in_both_logs(tmp_path: Path) -> None:
    with serve(tmp_path, "heads_app:asgi") as served:
        assert status(served.get("*")) == 400
        served.serving.err.wait(r"GET \*: a request was refused with 400: its target or Host is not valid")
        assert status(served.say("GET /no\x01thing HTTP/1.1\r\nHost: a\r\n\r\n")) == 400
        served.serving.err.wait("a request was refused with 400: it is no HTTP: GET /no")
        asterisk, spoilt = served.logged()
        assert (asterisk["path"], asterisk["status"]) == ("*", 400)
        assert spoilt["message"] == "GET /no\\x01thing HTTP/1.1 400"


# One that cuts it off and one that does not, in a row, mean different paths.
@pytest.mark.parametrize("target", ["/a#b", "/a?q#b", "/#", "http://a/#/../b"])
def test_a_target_with_a_fragment_is_refused_and_named(tmp_path: Path, target: str) -> None:
    with serve(tmp_path, "heads_app:asgi") as served:
        assert status(served.say(f"GET {target} HTTP/1.1\r\n{LAST}\r\n")) == 400
        told = served.serving.err.wait("refused with 400: its target has a fragment .*").string
        assert told.endswith(f"(#): GET {target} HTTP/1.1")


@pytest.mark.parametrize("app", ["asgi", "wsgi"])
def test_a_prefix_that_the_proxy_left_is_not_doubled(tmp_path: Path, app: str) -> None:
    with serve(tmp_path, f"heads_app:{app}", root_path="/shop") as served:
        for target, path in (("/cart", "/cart"), ("/shop/cart", "/cart"), ("/shopping", "/shopping"), ("/shop", "")):
            found = ask(served, target)
            full = f"/shop{path}"
            assert found["root_path"] == "/shop"
            if app == "asgi":
                assert (found["path"], found["raw_path"]) == (full, full)
            else:
                assert found["path"] == path


@pytest.mark.parametrize(
    ("settings", "lines", "expected"),
    [
        ({}, 1, False),
        ({"header_map": "dangerous"}, 0, True),
        ({"forwarder_headers": '["OIDC_CLAIM_name"]'}, 0, True),
        ({"forwarder_headers": '["*"]'}, 0, True),
        ({"forwarder_headers": '["*"]', "forwarded_allow": '["10.0.0.0/8"]'}, 1, False),
    ],
)
def test_headers_with_an_underscore_come_as_it_is_asked_for(
    tmp_path: Path, settings: dict[str, str], lines: int, expected: bool
) -> None:
    with serve(tmp_path, "heads_app:asgi", **settings) as served:
        for _ in range(2):
            assert ("oidc_claim_name" in ask(served, "/", "OIDC_CLAIM_name: x")["headers"]) == expected
        assert ("HTTP_OIDC_CLAIM_NAME" in ask(served, "/")["headers"]) is False
        if lines:
            served.serving.err.wait("the header oidc_claim_name does not reach the app")
        told = [line for line in served.serving.err.lines if "does not reach the app" in line]
        assert len(told) == lines


def test_they_may_be_refused(tmp_path: Path) -> None:
    with serve(tmp_path, "heads_app:wsgi", header_map="refuse") as served:
        assert status(served.say(f"GET / HTTP/1.1\r\n{LAST}a_b: c\r\n\r\n")) == 400
        assert status(served.get("/")) == 200


def test_a_name_binds_all_its_addresses(tmp_path: Path) -> None:
    found = {place[4][:2] for place in socket.getaddrinfo("localhost", 0, type=socket.SOCK_STREAM)}
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with Serving(tmp_path, "heads_app:asgi", "--host", "localhost", "--port", str(port)) as serving:
        serving.wait_ready("web")
        for host, _ in found:
            try:
                socket.create_connection((str(host), port), timeout=30).close()
            except OSError as error:
                assert error.errno in (99, 97), "this machine has no such network"


def test_paths_are_left_out_of_the_access_log_where_they_succeed(tmp_path: Path) -> None:
    skip = '["/health", "/static/*"]'
    with serve(tmp_path, "heads_app:asgi", access_log_skip=skip) as served:
        for path in ("/health", "/health?full", "/static/a/b.css", "/healthy", "/static", "/health%"):
            served.get(path)
        assert [line["path"] for line in served.logged()] == ["/healthy", "/static", "/health%"]
        served.serving.err.wait("filters and handlers of the logger uvicorn.access have no effect")
