"""Calls over HTTP to a real `clutch run`: what comes back for good requests and for every kind of bad one."""

from __future__ import annotations

import base64
import http.client
import json
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from clutch import __version__
from support.clutch_process import FRONTS, WAIT_SECONDS, Server, answer, clutch, with_http_option
from support.rendezvous import Rendezvous

BODY_BYTES_MAX = 1 << 20

CONFIG = """
[pools.api]
target = "http_tools"
workers = 2

[pools.narrow]
target = "http_tools"
workers = 1
queue = { limit = 1, overflow = "reject" }
""" + with_http_option(f"body_max = {BODY_BYTES_MAX}")
ONE_POOL = '[pools.api]\ntarget = "http_tools"\nworkers = 1\n'


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(tmp_path_factory.mktemp("http"), CONFIG) as server:
        for name in ("api", "narrow"):
            server.wait_ready(name)
        yield server


@pytest.fixture
def same_workers(server: Server) -> Iterator[None]:
    """The worker lives on, whatever it was asked."""
    before = [worker["pid"] for worker in server.pool()["workers"]]
    yield
    assert server.call("add", {"a": 1}).result == 2
    assert [worker["pid"] for worker in server.pool()["workers"]] == before
    server.until(lambda pool: pool["queued"] == pool["sent"] == 0)


# Results


def test_a_result_is_one_json_document(server: Server) -> None:
    done = server.call("add", {"a": 2, "b": 3})
    assert (done.status, done.headers["content-type"], done.body) == (200, "application/json", b'{"result":5}')


@pytest.mark.parametrize(
    "value",
    [None, True, 0, -1, 2**53 + 1, 10**40, 0.1, "", "größe \u0000 \U0001f600", [], {}, {"a": [None, {"b": 1.0}]}],
)
def test_values_come_back_as_they_went(server: Server, value: Any) -> None:
    result = server.call("echo", {"value": value}).result
    assert (result, type(result)) == (value, type(value))


def test_arguments_are_made_of_their_hints(server: Server) -> None:
    assert server.call("add", {"a": "2"}).result == 3  # pydantic's usual, lax rules
    lines = [{"name": "tea", "price": 2}, {"name": "cake", "price": "3.5"}]
    done = server.call("bill", {"lines": lines, "tax": 1})
    assert done.result == {"total": 11.0, "first": {"name": "tea", "price": 2.0}}


def test_bytes_go_both_ways_as_base64_where_hints_say_so(server: Server) -> None:
    data = base64.b64encode(b"\x00\x01\xff").decode()
    assert base64.b64decode(server.call("turned", {"data": data}).result) == b"\xff\x01\x00"


def test_large_values(server: Server) -> None:
    text = "x" * 1_000_000
    assert server.call("echo", {"value": text}).result == text


def test_many_calls_on_one_connection(server: Server) -> None:
    connection = http.client.HTTPConnection(server.http, timeout=WAIT_SECONDS)
    with closing(connection):
        for number in range(50):
            body = json.dumps({"a": number})
            connection.request("POST", "/pools/api/tools/add", body, {"Content-Type": "application/json"})
            assert answer(connection).result == number + 1


# Streams


def test_a_generator_comes_as_lines(server: Server) -> None:
    done = server.call("countdown", {"n": 1000})
    assert (done.status, done.headers["content-type"]) == (200, "application/x-ndjson")
    assert done.lines == list(range(1000, 0, -1))


def test_an_empty_stream(server: Server) -> None:
    done = server.call("countdown", {"n": 0})
    assert (done.status, done.lines) == (200, [])


@pytest.mark.parametrize(
    ("tool", "arguments", "values", "kind", "words"),
    [
        ("countdown", {"n": 3, "fail_at": 1}, [3, 2], "raised", "ValueError: no 1"),
        ("numbers_then_nan", {}, [1.5], "encode", "nan"),
    ],
)
@pytest.mark.usefixtures("same_workers")
def test_a_stream_that_fails_says_so_in_its_last_line(
    server: Server, tool: str, arguments: Any, values: list[Any], kind: str, words: str
) -> None:
    done = server.call(tool, arguments)
    *lines, last = done.lines
    assert (done.status, lines, last["error"]["type"]) == (200, values, f"urn:clutch:{kind}")
    assert words in last["error"]["detail"]


def test_a_stream_as_server_sent_events(server: Server) -> None:
    done = server.call("countdown", {"n": 2}, Accept="text/event-stream")
    assert (done.status, done.headers["content-type"]) == (200, "text/event-stream")
    assert (done.headers["cache-control"], done.headers["x-accel-buffering"]) == ("no-store", "no")
    assert done.body == b"data: 2\n\ndata: 1\n\nevent: end\ndata: {}\n\n"
    failed = server.call("countdown", {"n": 2, "fail_at": 1}, Accept="text/event-stream").body
    first, error, rest = failed.split(b"\n\n")
    assert (first, rest) == (b"data: 2", b"")
    name, data = error.split(b"\n")
    assert (name, json.loads(data.removeprefix(b"data: "))["type"]) == (b"event: error", "urn:clutch:raised")


def test_tagged_lines_tell_values_from_errors(server: Server) -> None:
    tagged = "application/x-ndjson;tagged=true"
    done = server.call("like_an_error", Accept=tagged)
    assert done.headers["content-type"] == tagged
    assert done.lines == [{"value": {"error": {"detail": "a value"}}}, {"end": True}]
    *values, last = server.call("countdown", {"n": 2, "fail_at": 1}, Accept=tagged).lines
    assert (values, last["error"]["type"]) == ([{"value": 2}], "urn:clutch:raised")


@pytest.mark.parametrize("accept", ["text/event-stream", "application/x-ndjson;tagged=true"])
def test_what_is_no_stream_is_a_document_whatever_is_asked_for(server: Server, accept: str) -> None:
    assert server.call("add", {"a": 1}, Accept=accept).result == 2
    failed = server.call("countdown", {"n": 2, "fail_at": 2}, Accept=accept)
    assert (failed.status, failed.headers["content-type"]) == (500, "application/problem+json")


def test_a_client_that_leaves_closes_the_generator(server: Server, rendezvous: Rendezvous) -> None:
    with server.calling("endless", {"port": rendezvous.port}) as connection:
        response = connection.getresponse()
        assert [json.loads(response.readline()) for _ in range(3)] == [0, 1, 2]
        response.close()
    guest = rendezvous.guest()
    assert guest.word == "closed"
    guest.let_go()


# Bad input: the error is typed and names what and where; the worker lives on.


def problem_of(server: Server, tool: str, arguments: Any = None, **more: Any) -> dict[str, Any]:
    done = server.call(tool, arguments, **more)
    assert done.headers["content-type"] == "application/problem+json", done.body
    problem = done.json
    assert problem["status"] == done.status
    assert problem["type"].startswith("urn:clutch:")
    assert problem["title"]
    return {**problem, "kind": problem["type"].removeprefix("urn:clutch:")}


@pytest.mark.parametrize(
    ("pool", "tool", "kind", "words"),
    [
        ("apu", "add", "no-such-pool", "did you mean 'api'?"),
        ("entirely-else", "add", "no-such-pool", "there are: api, narrow"),
        ("api", "ad", "no-such-tool", "did you mean 'add'?"),
        ("api", "no_tool", "no-such-tool", "no tool 'no_tool' in pool 'api'"),
        ("api", "__import__", "no-such-tool", "no tool '__import__'"),
    ],
)
@pytest.mark.usefixtures("same_workers")
def test_an_unknown_pool_or_tool(server: Server, pool: str, tool: str, kind: str, words: str) -> None:
    problem = problem_of(server, tool, {"a": 1}, pool=pool)
    assert (problem["status"], problem["kind"]) == (404, kind)
    assert words in problem["detail"]


@pytest.mark.parametrize(
    ("tool", "arguments", "places"),
    [
        ("add", {}, [["a"]]),
        ("add", {"a": "two"}, [["a"]]),
        ("add", {"a": 1, "c": 2}, [["c"]]),
        ("add", {"a": 1.5, "b": None}, [["a"], ["b"]]),
        ("bill", {"lines": [{"name": "tea", "price": 1}, {"name": "tea"}]}, [["lines", 1, "price"]]),
        ("turned", {"data": "not base64!"}, [["data"]]),
        ("add", {"a": None}, [["a"]]),
    ],
)
@pytest.mark.usefixtures("same_workers")
def test_wrong_arguments(server: Server, tool: str, arguments: Any, places: list[Any]) -> None:
    problem = problem_of(server, tool, arguments)
    assert (problem["status"], problem["kind"]) == (422, "bad-arguments")
    assert [item["loc"] for item in problem["problems"]] == places
    assert tool in problem["detail"]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"not json",
        b"[1]",
        b'"a"',
        b"null",
        b'{"a": 1} {"a": 2}',
        b"\xff\xfe{}",
        b'{"a": 01}',
        b'{"value": NaN}',
        b'{"value": [Infinity]}',
        b'{"value": "\\ud800"}',
    ],
)
@pytest.mark.usefixtures("same_workers")
def test_a_body_that_is_no_json_object(server: Server, body: bytes) -> None:
    problem = problem_of(server, "echo", body=body)
    assert (problem["status"], problem["kind"]) == (422, "bad-arguments")


@pytest.mark.parametrize("depth", [1_000, 100_000])
@pytest.mark.usefixtures("same_workers")
def test_a_body_that_is_too_deep(server: Server, depth: int) -> None:
    problem = problem_of(server, "echo", body=b'{"value": ' + b"[" * depth + b"]" * depth + b"}")
    assert (problem["status"], problem["kind"]) == (422, "bad-arguments")
    assert "recursion" in problem["detail"]


@pytest.mark.parametrize("more_bytes", [1, 2 * BODY_BYTES_MAX])
@pytest.mark.usefixtures("same_workers")
def test_a_body_that_is_too_large(server: Server, more_bytes: int) -> None:
    problem = problem_of(server, "echo", body=b" " * (BODY_BYTES_MAX + more_bytes))
    assert (problem["status"], problem["kind"]) == (413, "body-too-large")
    assert problem["bytes_max"] == BODY_BYTES_MAX


@pytest.mark.parametrize(
    ("tool", "where", "what"),
    [
        ("not_a_number", "$.items[1].price", "nan"),
        ("raw_bytes", "$.data", "return hint says bytes"),
        ("lock", "$[0]", "lock"),
        ("bottomless", "$[0]", "contains itself"),
    ],
)
@pytest.mark.usefixtures("same_workers")
def test_a_value_that_cannot_be_encoded(server: Server, tool: str, where: str, what: str) -> None:
    problem = problem_of(server, tool)
    assert (problem["status"], problem["kind"]) == (500, "encode")
    assert where in problem["detail"]
    assert what in problem["detail"]


@pytest.mark.parametrize(
    ("tool", "arguments", "type_name", "message"),
    [("fail", {"text": "no tea"}, "ValueError", "no tea"), ("fail_oddly", {}, "http_tools.OddError", "odd: one")],
)
@pytest.mark.usefixtures("same_workers")
def test_an_exception(server: Server, tool: str, arguments: Any, type_name: str, message: str) -> None:
    problem = problem_of(server, tool, arguments)
    assert (problem["status"], problem["kind"]) == (500, "raised")
    assert (problem["type_name"], problem["message"]) == (type_name, message)
    assert "http_tools.py" in problem["traceback"]


@pytest.mark.parametrize(
    ("headers", "status", "kind"),
    [
        ({"Content_Type": "text/plain"}, 415, "unsupported-media-type"),
        ({"Content_Type": "application/x-www-form-urlencoded"}, 415, "unsupported-media-type"),
        ({"Content_Encoding": "gzip"}, 415, "unsupported-media-type"),
        ({"Host": "rebound.example"}, 421, "wrong-host"),
        ({"Origin": "http://evil.example"}, 403, "foreign-origin"),
        ({"Clutch_Timeout": "soon"}, 400, "bad-request"),
        ({"Clutch_Timeout": "0"}, 400, "bad-request"),
        ({"Clutch_Priority": "10"}, 400, "bad-request"),
    ],
)
def test_headers_that_are_refused(server: Server, headers: dict[str, str], status: int, kind: str) -> None:
    problem = problem_of(server, "add", {"a": 1}, **headers)
    assert (problem["status"], problem["kind"]) == (status, kind)


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/pools/api/tools/add", 405),
        ("POST", "/", 405),
        ("POST", "/pools/api/tools", 405),
        ("POST", "/pools/api", 404),
        ("POST", "/pools/api/tools/a/b", 404),
        ("POST", "/pools/api/tools/%ff", 404),
    ],
)
def test_other_methods_and_paths(server: Server, method: str, path: str, status: int) -> None:
    connection = http.client.HTTPConnection(server.http, timeout=WAIT_SECONDS)
    with closing(connection):
        connection.request(method, path, "{}", {"Content-Type": "application/json"})
        done = answer(connection)
    assert (done.status, done.headers["content-type"]) == (status, "application/problem+json")


# Time, death, crowds. Pool `narrow` has one worker and a queue for one.


def test_a_deadline_that_passes_in_the_queue(server: Server, rendezvous: Rendezvous) -> None:
    with server.calling("meet", {"port": rendezvous.port, "word": "first"}, pool="narrow") as first:
        guest = rendezvous.guest()
        late = {"port": rendezvous.port, "word": "late"}
        problem = problem_of(server, "meet", late, pool="narrow", Clutch_Timeout="50ms")
        assert (problem["status"], problem["kind"]) == (504, "deadline-exceeded")
        assert problem["where"] == "queue"
        guest.let_go("done")
        assert answer(first).result == "done"
    assert server.call("add", {"a": 1}, pool="narrow").result == 2
    assert rendezvous.nobody_waits()  # it never started


def test_a_deadline_that_passes_while_running(server: Server, rendezvous: Rendezvous) -> None:
    arguments = {"port": rendezvous.port}
    problem = problem_of(server, "meet", arguments, pool="narrow", Clutch_Timeout="500ms")
    assert (problem["status"], problem["kind"]) == (504, "deadline-exceeded")
    assert problem["where"] == "running"
    rendezvous.guest().wait_gone()
    assert server.call("add", {"a": 1}, pool="narrow").result == 2


@pytest.mark.parametrize("by_itself", [True, False])
def test_a_killed_worker_fails_its_own_call_only(server: Server, rendezvous: Rendezvous, by_itself: bool) -> None:
    port = {"port": rendezvous.port}
    with server.calling("meet", port) as spared:
        other = rendezvous.guest()
        with server.calling("kill_yourself" if by_itself else "meet", port) as lost:
            victim = rendezvous.guest()
            if by_itself:
                victim.let_go()
            else:
                os.kill(victim.pid, signal.SIGKILL)
            done = answer(lost)
        assert (done.status, done.json["type"]) == (502, "urn:clutch:worker-lost")
        assert (done.json["pid"], done.json["signal"]) == (victim.pid, signal.SIGKILL)
        if by_itself:
            assert "last words" in done.json["output"]
        other.let_go("spared")
        assert answer(spared).result == "spared"
    pids = [worker["pid"] for worker in server.until(lambda pool: pool["ready"] == 2)["workers"]]
    assert victim.pid not in pids


def test_a_queue_that_is_full(server: Server, rendezvous: Rendezvous) -> None:
    port = {"port": rendezvous.port}
    with server.calling("meet", port, pool="narrow") as running:
        guest = rendezvous.guest()
        with server.calling("add", {"a": 1}, pool="narrow") as queued:
            server.until(lambda pool: pool["queued"] == 1, "narrow")
            done = server.call("add", {"a": 1}, pool="narrow")
            assert (done.status, done.json["type"]) == (503, "urn:clutch:overloaded")
            assert int(done.headers["retry-after"]) >= 1
            guest.let_go("done")
            assert (answer(running).result, answer(queued).result) == ("done", 2)


def test_a_client_that_leaves_takes_its_queued_call_along(server: Server, rendezvous: Rendezvous) -> None:
    with server.calling("meet", {"port": rendezvous.port, "word": "first"}, pool="narrow") as first:
        guest = rendezvous.guest()
        with server.calling("meet", {"port": rendezvous.port, "word": "gone"}, pool="narrow"):
            server.until(lambda pool: pool["queued"] == 1, "narrow")
        server.until(lambda pool: pool["queued"] == 0, "narrow")
        guest.let_go("done")
        assert answer(first).result == "done"
    assert server.call("add", {"a": 1}, pool="narrow").result == 2
    assert rendezvous.nobody_waits()


def test_many_callers_at_once(server: Server) -> None:
    found: list[int] = []

    def call(number: int) -> None:
        found.append(server.call("add", {"a": number, "b": 0}).result)

    threads = [threading.Thread(target=call, args=(number,)) for number in range(40)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_SECONDS)
    assert sorted(found) == list(range(40))


# The admin front


def test_health_and_readiness(server: Server) -> None:
    assert server.get("/healthz").json == {"alive": True}
    server.until(lambda pool: pool["state"] == "ready", "narrow")
    ready = server.get("/readyz")
    assert (ready.status, ready.json["ready"]) == (200, True)


def test_a_pool_without_workers_is_not_ready(tmp_path: Path, rendezvous: Rendezvous) -> None:
    """A target that meets while it is imported: the server is up and the pool is not."""
    target = f"from support.rendezvous import meet\nmeet({rendezvous.port})\n"
    (tmp_path / "slow.py").write_text(target)
    with Server(tmp_path, f'[pools.api]\ntarget = "slow"\nworkers = 1\n{FRONTS}') as server:
        guest = rendezvous.guest()
        assert server.get("/healthz").status == 200
        waiting = server.get("/readyz")
        assert (waiting.status, waiting.json["waiting"][0]["pool"]) == (503, "api")
        guest.let_go()
        server.wait_ready("api")
        assert server.get("/readyz").status == 200


def test_metrics(server: Server) -> None:
    done = server.get("/metrics")
    assert done.headers["content-type"].startswith("application/openmetrics-text")
    lines = done.body.decode().splitlines()
    for line in (
        f'clutch_build_info{{version="{__version__}"}} 1',
        'clutch_pool_slots{pool="api"} 2',
        'clutch_pool_workers{pool="narrow",state="ready"} 1',
        'clutch_pool_state{pool="api",state="ready"} 1',
    ):
        assert line in lines, lines
    assert lines[-1] == "# EOF"


def test_a_token_is_asked_for(tmp_path: Path) -> None:
    with Server(tmp_path, ONE_POOL + with_http_option('token = "s3cret"')) as server:
        server.wait_ready("api")
        assert server.call("add", {"a": 1}).status == 401
        assert server.call("add", {"a": 1}, Authorization="Bearer wrong").status == 401
        assert server.call("add", {"a": 1}, Authorization="Bearer s3cret").result == 2


def test_a_unix_socket(tmp_path: Path) -> None:
    with Server(tmp_path, ONE_POOL + '[fronts.http]\nbind = "unix:calls.sock"\n') as server:
        server.wait_ready("api")
        done = clutch("call", "api.add", "a=1", "b=2", "--url", "unix:calls.sock", cwd=tmp_path)
        assert (done.returncode, done.stdout) == (0, "3\n"), done.stderr


def test_a_client_that_goes_away_stops_its_call(server: Server, same_workers: None) -> None:
    with Rendezvous() as rendezvous:
        with closing(http.client.HTTPConnection(server.http, timeout=WAIT_SECONDS)) as connection:
            body = json.dumps({"port": rendezvous.port})
            connection.request("POST", "/pools/api/tools/meet", body, {"Content-Type": "application/json"})
            guest = rendezvous.guest()
        # Nobody lets it go: an exception ends its wait.
        guest.wait_gone()
