"""What no client and no app should do, over HTTP: each ends in its status or is broken off, and nothing dies of it."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.hostile_client import HOST, LAST, Served, body, rest, serve, status
from support.rendezvous import Rendezvous
from support.serve_process import ANY_PORT, Serving

CHUNKED = "Transfer-Encoding: chunked\r\n"
LINE = "X: 1\r\n"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serve(tmp_path_factory.mktemp("served"), "misbehaving_apps:app") as served:
        yield served


@pytest.fixture(scope="module")
def served_wsgi(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serve(tmp_path_factory.mktemp("served"), "misbehaving_apps:wsgi") as served:
        yield served


# Heads

HEADS = {
    "no HTTP": ("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + "\x00" * 40 + "\r\n\r\n", 400),
    "empty method": (f" / HTTP/1.1\r\n{HOST}\r\n", 400),
    "no version": (f"GET /\r\n{HOST}\r\n", 400),
    "HTTP/0.9": ("GET /\r\n\r\n", 400),
    "wrong version": (f"GET / HTTP/1.9\r\n{HOST}\r\n", 400),
    "space in the target": (f"GET /a b HTTP/1.1\r\n{HOST}\r\n", 400),
    "NUL in the target": (f"GET /\0 HTTP/1.1\r\n{HOST}\r\n", 400),
    "no Host": ("GET / HTTP/1.1\r\n\r\n", 400),
    "two Hosts": (f"GET / HTTP/1.1\r\n{HOST}Host: b\r\n\r\n", 400),
    "another authority": (f"GET http://b/ HTTP/1.1\r\n{HOST}\r\n", 400),
    "asterisk": (f"GET * HTTP/1.1\r\n{HOST}\r\n", 400),
    "tunnel": (f"CONNECT a:443 HTTP/1.1\r\n{HOST}\r\n", 405),
    "fragment": (f"GET /a#b HTTP/1.1\r\n{HOST}\r\n", 400),
    "byte beyond ASCII that is no UTF-8": (f"GET /\xe9 HTTP/1.1\r\n{HOST}\r\n", 400),
    "folded line": (f"GET / HTTP/1.1\r\n{HOST}X-A: 1\r\n 2\r\n\r\n", 400),
    "bare CR": (f"GET / HTTP/1.1\r\n{HOST}X-A: 1\rX-B: 2\r\n\r\n", 400),
    "NUL in a value": (f"GET / HTTP/1.1\r\n{HOST}X-A: 1\0\r\n\r\n", 400),
    "space before the colon": (f"GET / HTTP/1.1\r\n{HOST}Content-Length : 5\r\n\r\n", 400),
    "no colon": (f"GET / HTTP/1.1\r\n{HOST}nothing\r\n\r\n", 400),
    "too many lines": (f"GET / HTTP/1.1\r\n{HOST}{LINE * 20}\r\n", 431),
    "long line": (f"GET / HTTP/1.1\r\n{HOST}X: {'x' * 9000}\r\n\r\n", 431),
    "long target": (f"GET /{'x' * 70_000} HTTP/1.1\r\n{HOST}\r\n", 431),
    # What two servers in a row could read differently.
    "lengths that differ": (f"POST / HTTP/1.1\r\n{HOST}Content-Length: 5\r\nContent-Length: 6\r\n\r\n123456", 400),
    "list of lengths": (f"POST / HTTP/1.1\r\n{HOST}Content-Length: 5, 5\r\n\r\n12345", 400),
    "signed length": (f"POST / HTTP/1.1\r\n{HOST}Content-Length: +5\r\n\r\n12345", 400),
    "huge length": (f"POST / HTTP/1.1\r\n{HOST}Content-Length: {1 << 64}\r\n\r\n12345", 400),
    "unknown coding": (f"POST / HTTP/1.1\r\n{HOST}Transfer-Encoding: gzip\r\n\r\n", 400),
    "more than chunked": (f"POST / HTTP/1.1\r\n{HOST}Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 501),
    "chunked twice in a line": (f"POST / HTTP/1.1\r\n{HOST}Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n", 501),
    "chunked hidden": (f"POST / HTTP/1.1\r\n{HOST}Transfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n", 400),
    "chunked twice": (
        f"POST / HTTP/1.1\r\n{HOST}{CHUNKED * 2}\r\n",
        400,
    ),
    "chunked in HTTP/1.0": (f"POST / HTTP/1.0\r\n{HOST}Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
    "length beyond the limit": (f"POST / HTTP/1.1\r\n{HOST}Content-Length: 1000000\r\n\r\n", 413),
}


UPGRADE = f"{HOST}Connection: Upgrade\r\nUpgrade: websocket\r\n"
VERSION = "Sec-WebSocket-Version: 13\r\n"
KEY = "Sec-WebSocket-Key: MDEyMzQ1Njc4OWFiY2RlZg==\r\n"

HANDSHAKES = {
    "another version": (f"{KEY}Sec-WebSocket-Version: 8\r\n", 426),
    "no version": (KEY, 426),
    "no key": (VERSION, 400),
    "short key": (f"{VERSION}Sec-WebSocket-Key: MDEy\r\n", 400),
    "a body": (f"{VERSION}{KEY}Content-Length: 5\r\n", 400),
}


@pytest.mark.parametrize("name", HANDSHAKES)
def test_failure_42_handshakes_that_are_refused(served: Served, name: str) -> None:
    lines, expected = HANDSHAKES[name]
    response = served.say(f"GET / HTTP/1.1\r\n{UPGRADE}{lines}\r\n")
    assert status(response) == expected
    (line,) = served.logged()
    assert (line["status"], line["end"]) == (expected, "refused")
    served.check()


@pytest.mark.parametrize("name", HEADS)
def test_failure_42_heads_that_are_refused(served: Served, name: str) -> None:
    """The connection is closed, and whatever follows on it is no request."""
    head, expected = HEADS[name]
    response = served.say(head + f"GET /smuggled HTTP/1.1\r\n{HOST}\r\n")
    assert (status(response), response.count(b"HTTP/1.1 "), b"smuggled" in response) == (expected, 1, False), response
    (line,) = served.logged()
    assert (line["status"], line["end"]) == (expected, "refused")
    served.check()


@pytest.mark.parametrize("order", [1, -1])
def test_failure_42_of_two_lengths_chunked_counts_and_nothing_follows(served: Served, order: int) -> None:
    lines = "".join(["Content-Length: 4\r\n", "Transfer-Encoding: chunked\r\n"][::order])
    smuggled = f"GET /smuggled HTTP/1.1\r\n{HOST}\r\n"
    response = served.say(f"POST / HTTP/1.1\r\n{HOST}{lines}\r\n0\r\n\r\n{smuggled}")
    assert (status(response), response.count(b"HTTP/1.1 "), b"smuggled" in response) == (200, 1, False)
    assert [name for name, _ in body(response)["headers"]] == ["host", "transfer-encoding"]
    served.check()


def test_names_are_in_lower_case_and_without_underscores(served: Served) -> None:
    response = served.say(f"GET / HTTP/1.1\r\n{LAST}X-FORWARDED-User: a\r\nX_Forwarded_User: b\r\n\r\n")
    headers = dict(body(response)["headers"])
    assert headers == {"host": "a", "connection": "close", "x-forwarded-user": "a"}


def test_equal_lengths_are_one(served: Served) -> None:
    lengths = "Content-Length: 5\r\n" * 2
    response = served.say(f"POST / HTTP/1.1\r\n{LAST}{lengths}\r\n12345")
    assert (body(response)["size"], dict(body(response)["headers"])["content-length"]) == (5, "5")


def test_what_nobody_has_to_understand_is_left_to_the_app(served: Served) -> None:
    """An expectation but 100-continue, and a wish for HTTP/2 over a connection that has begun."""
    h2c = "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA\r\n"
    for lines in ("Expect: something-else\r\n", h2c):
        response = served.say(f"GET /a HTTP/1.1\r\n{HOST}{lines}\r\nGET /b HTTP/1.1\r\n{LAST}\r\n")
        assert (response.count(b"HTTP/1.1 200"), response.count(b"HTTP/1.1 ")) == (2, 2)


def test_http_1_0_is_kept_alive_where_it_asks_for_that(served: Served) -> None:
    response = served.say(
        "GET /a HTTP/1.0\r\nConnection: keep-alive\r\n\r\nGET /b HTTP/1.0\r\n\r\nGET /c HTTP/1.0\r\n\r\n"
    )
    assert (response.count(b"HTTP/1.0 200"), response.count(b"connection: keep-alive")) == (2, 1)


@pytest.mark.parametrize(("length", "expected"), [(60_000, 200), (65_000, 431), (70_000, 414)])
def test_long_targets(tmp_path: Path, length: int, expected: int) -> None:
    """The library reads 64 KB of a target, whatever the limit is."""
    head_max = {"head_max": "1MB"} if expected == 414 else {"head_max": "64KB"}
    with serve(tmp_path, "misbehaving_apps:app", **head_max) as served:
        response = served.say(f"GET /{'x' * length} HTTP/1.1\r\n{LAST}{'Cookie: ' + 'y' * 1000}\r\n\r\n")
        assert status(response) == expected
        (line,) = served.logged()
        assert (line["status"], line["end"]) == (expected, "whole" if expected == 200 else "refused")


def test_targets_of_other_forms(served: Served) -> None:
    assert body(served.say(f"GET http://a/x HTTP/1.1\r\n{LAST}\r\n"))["path"] == "/x"
    assert body(served.say(f"OPTIONS * HTTP/1.1\r\n{LAST}\r\n"))["path"] == "*"


def test_failure_42_a_head_without_end(served: Served) -> None:
    response = served.say(f"GET / HTTP/1.1\r\n{HOST}", *[b"X-A: " + b"x" * 60_000] * 100)
    assert status(response) in (0, 431), "what was unread may have taken the answer along"
    served.check()


# Clients that are slow

SLOW_HEADS = {
    "nothing": "",
    "HTTP/2": "PRI * HTT",
    "a line": "GET / HTTP/1.1\r\n",
    "half a line": f"GET / HTTP/1.1\r\n{HOST}X",
}


@pytest.mark.parametrize("name", SLOW_HEADS)
def test_failure_42_a_head_that_does_not_come(served: Served, name: str) -> None:
    assert served.say(SLOW_HEADS[name]) == b""
    lines = [(line["method"], line["status"], line["end"]) for line in served.logged()]
    assert lines == ([(None, None, "client-gone")] if SLOW_HEADS[name] else [])
    served.check()


@pytest.mark.parametrize("name", SLOW_HEADS)
def test_a_client_that_goes_in_its_head(served: Served, name: str) -> None:
    """One that only looks whether somebody listens is not worth a line; nor is the end of an idle connection."""
    with served.client() as connection:
        connection.sendall(f"GET / HTTP/1.1\r\n{HOST}\r\n".encode())
        assert status(connection.recv(1 << 16)) == 200
    with served.client() as connection:
        connection.sendall(SLOW_HEADS[name].encode())
        connection.shutdown(socket.SHUT_WR)
        assert rest(connection) == b""
    lines = [(line["method"], line["status"], line["end"]) for line in served.logged()]
    assert lines == [("GET", 200, "whole"), *([(None, None, "client-gone")] if SLOW_HEADS[name] else [])]


def test_a_body_that_its_app_does_not_read_is_no_head(served: Served) -> None:
    response = served.say(f"POST /raises-before HTTP/1.1\r\n{LAST}Content-Length: 90000\r\n\r\n", *[b"x" * 9000] * 10)
    assert status(response) in (0, 500), "what was unread may have taken the answer along"
    assert [line["end"] for line in served.logged()] == ["whole"]


def test_failure_42_heads_that_trickle(served: Served) -> None:
    """A byte now and then does not help."""
    with served.client() as connection:
        connection.settimeout(0.1)
        with contextlib.suppress(ConnectionError):
            for byte in endless_head():
                connection.sendall(byte)
                with contextlib.suppress(TimeoutError):
                    assert connection.recv(1) == b""
                    break
    (line,) = served.logged()
    assert (line["status"], line["end"]) == (None, "client-gone")
    served.check()


def endless_head() -> Iterator[bytes]:
    yield b"GET / HTTP/1.1\r\n"
    while True:
        yield b"x"


def test_an_idle_connection_is_closed(served: Served) -> None:
    response = served.say(f"GET / HTTP/1.1\r\n{HOST}\r\n")
    assert status(response) == 200
    assert b"connection: close" not in response


BODIES_CUT_SHORT = [
    "Content-Length: 10\r\n\r\n",
    f"{CHUNKED}\r\n",
    f"{CHUNKED}\r\n5\r\nab",
    f"{CHUNKED}\r\n0\r\nX: 1\r\n",
]


@pytest.mark.parametrize("sent", BODIES_CUT_SHORT)
def test_failure_42_a_body_that_does_not_come(served: Served, sent: str) -> None:
    """Nor do the trailers behind it."""
    served.logged()
    response = served.say(f"POST / HTTP/1.1\r\n{HOST}{sent}")
    assert status(response) == 408
    (line,) = served.logged()
    assert (line["status"], line["end"]) == (408, "refused")
    served.check()


def test_failure_42_a_body_that_trickles(served: Served) -> None:
    """A byte now and then is as good as silence; the app's own time stands while it waits for its client."""
    with served.client() as connection:
        connection.settimeout(0.1)
        connection.sendall(f"POST / HTTP/1.1\r\n{HOST}Content-Length: 90000\r\n\r\n".encode())
        response = b""
        while not response:
            connection.sendall(b"x")
            with contextlib.suppress(TimeoutError):
                response = connection.recv(1 << 16)
    assert status(response) == 408
    (line,) = served.logged()
    assert (line["status"], line["end"]) == (408, "refused")
    served.check()


def test_failure_42_a_flood_of_requests_whose_answers_nobody_reads(served: Served) -> None:
    requests = f"GET / HTTP/1.1\r\n{HOST}\r\n".encode() * 100
    with served.client() as connection, contextlib.suppress(ConnectionError):
        while True:
            connection.sendall(requests)
    served.check()


def test_failure_42_a_client_that_takes_nothing(served: Served, rendezvous: Rendezvous) -> None:
    """The app learns that it has gone."""
    with served.client() as connection:
        connection.sendall(f"GET /endless?port={rendezvous.port} HTTP/1.1\r\n{HOST}\r\n".encode())
        guest = rendezvous.guest()
        assert guest.word == "http.disconnect"
        guest.let_go()
    served.check()


def test_connections_beyond_the_limit_are_told_to_come_later(tmp_path: Path) -> None:
    options = {"connections_max": "2", "keep_alive": "60s"}
    with (
        serve(tmp_path, "misbehaving_apps:app", **options) as served,
        served.client() as first,
        served.client() as second,
    ):
        for connection in (first, second):
            connection.sendall(f"GET / HTTP/1.1\r\n{HOST}\r\n".encode())
            assert status(connection.recv(1 << 16)) == 200
        response = served.say("")
        assert (status(response), b"retry-after: 1" in response) == (503, True)
        served.serving.out.wait('"end":"refused".*"method":null.*"status":503')
        served.serving.err.wait("WARNING fronts.serve.connections_max: a connection was refused with 503")


def test_a_connection_ends_after_its_requests(tmp_path: Path) -> None:
    with serve(tmp_path, "misbehaving_apps:app", connection_requests_max="3") as served:
        response = served.say(f"GET / HTTP/1.1\r\n{HOST}\r\n" * 5)
        assert (response.count(b"HTTP/1.1 200"), response.count(b"connection: close")) == (3, 1)


def test_without_keep_alive_there_is_one_request_for_each_connection(tmp_path: Path) -> None:
    log = ["--access-logfile", "-", "--set", "fronts.serve.access_log_format=json"]
    with Serving(tmp_path, "misbehaving_apps:app", "-w", "1", "-b", ANY_PORT, "--keep-alive", "0", *log) as serving:
        serving.wait_ready("web")
        response = Served(serving).say(f"GET / HTTP/1.1\r\n{HOST}\r\n" * 2)
        assert (response.count(b"HTTP/1.1 200"), response.count(b"connection: close")) == (1, 1)


# Bodies


def test_failure_42_a_chunked_body_beyond_the_limit(served: Served) -> None:
    chunk = b"8000\r\n" + b"x" * 0x8000 + b"\r\n"
    response = served.say(f"POST / HTTP/1.1\r\n{HOST}Transfer-Encoding: chunked\r\n\r\n", *[chunk] * 6, b"0\r\n\r\n")
    assert status(response) == 413
    served.check()


def test_failure_42_a_body_without_end(served: Served) -> None:
    chunk = b"8000\r\n" + b"x" * 0x8000 + b"\r\n"
    response = served.say(f"POST / HTTP/1.1\r\n{HOST}Transfer-Encoding: chunked\r\n\r\n", *[chunk] * 3000)
    assert status(response) == 413
    served.check()


def test_a_client_that_sends_its_whole_body_first_has_its_answer(served: Served) -> None:
    """As most libraries do: a reset would tell them less than the status."""
    with served.client() as connection:
        connection.sendall(f"POST / HTTP/1.1\r\n{HOST}Content-Length: 5000000\r\n\r\n".encode())
        connection.sendall(bytes(5_000_000))
        assert status(rest(connection)) == 413


CHUNKS = {
    "no size": b"zz\r\n\r\n",
    "huge size": b"f" * 17 + b"\r\n",
    "long size": b"0" * 70_000,
    "long extension": b"1;" + b"x" * 70_000,
    "many extensions": (b"1;" + b"x" * 1000 + b"\r\ny\r\n") * 70,
    "too long a chunk": b"1\r\nabc\r\n0\r\n\r\n",
    "endless trailers": b"0\r\n" + b"x: 1\r\n" * 20_000,
}


def test_chunks_of_a_byte(served: Served) -> None:
    response = served.say(f"POST / HTTP/1.1\r\n{LAST}{CHUNKED}\r\n", b"1\r\nx\r\n" * 3000, b"0\r\nX: trailer\r\n\r\n")
    assert (body(response)["size"], body(response)["whole"]) == (3000, True)
    served.check()


@pytest.mark.parametrize("name", CHUNKS)
def test_failure_42_chunks_that_are_none(served: Served, name: str) -> None:
    response = served.say(f"POST / HTTP/1.1\r\n{HOST}Transfer-Encoding: chunked\r\n\r\n", CHUNKS[name])
    assert status(response) in (0, 400, 408), "what was unread may have taken the answer along"
    served.check()


def test_failure_42_a_client_that_goes_in_its_body(served_wsgi: Served) -> None:
    with served_wsgi.client() as connection:
        connection.sendall(f"POST /read HTTP/1.1\r\n{HOST}Content-Length: 10\r\n\r\n12345".encode())
    served_wsgi.check()


def test_a_half_closed_client_has_gone(served: Served, rendezvous: Rendezvous) -> None:
    """The end of what it sends is all that a server sees of a client that went away: docs/serve/limits.md says so."""
    with served.client() as connection:
        path = f"/waits-for-disconnect?port={rendezvous.port}"
        connection.sendall(f"GET {path} HTTP/1.1\r\n{HOST}\r\n".encode())
        rendezvous.guest().let_go()
        connection.shutdown(socket.SHUT_WR)
        guest = rendezvous.guest()
        assert guest.word == "gone"
        guest.let_go()
        assert rest(connection) == b""
    (line,) = served.logged()
    assert (line["status"], line["end"]) == (None, "client-gone")
    served.check()


# Apps

ENDS: dict[str, tuple[int, str, Callable[[bytes], bool]]] = {
    # In chunks, an end is a last chunk.
    "raises-before": (500, "whole", lambda body: body == b"Internal Server Error\n"),
    "raises-during": (200, "broken-off", lambda body: body == b"4\r\npart\r\n"),
    "raises-after": (200, "whole", lambda body: body == b"part"),
    "too-much": (200, "broken-off", lambda body: body == b"part"),
    "too-little": (200, "broken-off", lambda body: body == b"part"),
    "unfinished": (200, "broken-off", lambda body: body == b"4\r\npart\r\n"),
    "nothing": (500, "whole", lambda body: body == b"Internal Server Error\n"),
    "splits": (500, "whole", lambda body: body == b"Internal Server Error\n"),
    "of-connection": (200, "whole", lambda body: body == b"4\r\npart\r\n4\r\npart\r\n0\r\n\r\n"),
}


@pytest.mark.parametrize("name", ENDS)
def test_failure_42_apps_that_break_the_rules(served: Served, name: str) -> None:
    response = served.get(f"/{name}")
    expected, end, is_right = ENDS[name]
    head, _, received = response.partition(b"\r\n\r\n")
    assert (status(response), is_right(received)) == (expected, True), response
    for word in (b"stolen", b"gzip", b"h2c", b"keep-alive"):
        assert word not in head
    (line,) = served.logged()
    assert (line["status"], line["end"], line["path"]) == (expected, end, f"/{name}")
    served.check()


# PEP 3333 has a body beyond its Content-Length cut.
ENDS_WSGI = ENDS | {"too-much": (200, "whole", lambda body: body == b"partpa")}


@pytest.mark.parametrize("name", ["raises-before", "raises-during", "too-much", "too-little", "nothing", "splits"])
def test_failure_42_wsgi_apps_that_break_the_rules(served_wsgi: Served, name: str) -> None:
    response = served_wsgi.get(f"/{name}")
    expected, _, is_right = ENDS_WSGI[name]
    assert (status(response), is_right(response.partition(b"\r\n\r\n")[2])) == (expected, True), response
    assert b"stolen" not in response
    served_wsgi.check()


LENGTHS = {
    ("GET", "4&4"): (200, ["4"]),
    ("GET", "4&04&4"): (200, ["4"]),
    ("GET", "4,4"): (200, ["4"]),
    ("GET", "4&5"): (500, ["22"]),
    ("GET", "4&four"): (500, ["22"]),
    ("HEAD", "1000&1000"): (200, ["1000"]),
    ("HEAD", "1000&0"): (200, []),
    ("HEAD", "0&1000"): (200, []),
    ("HEAD", "1000&x"): (500, ["22"]),
}
"""What an app gives as Content-Length, and what its client gets: one that is right, or none."""


@pytest.mark.parametrize(("method", "given"), LENGTHS)
@pytest.mark.parametrize("kind", ["served", "served_wsgi"])
def test_a_client_gets_no_two_lengths(kind: str, method: str, given: str, request: pytest.FixtureRequest) -> None:
    served: Served = request.getfixturevalue(kind)
    response = served.say(f"{method} /two-lengths?{given} HTTP/1.1\r\n{LAST}\r\n")
    head = response.partition(b"\r\n\r\n")[0].decode().lower().split("\r\n")
    lengths = [line.split()[1] for line in head if line.startswith("content-length:")]
    assert (status(response), lengths) == LENGTHS[method, given], response
    assert response.endswith(b"part") == (method == "GET" and status(response) == 200)
    (line,) = served.logged()
    assert (line["status"], line["end"]) == (status(response), "whole")
    served.check()


def test_failure_42_an_app_that_never_answers(served: Served, rendezvous: Rendezvous) -> None:
    response = served.get(f"/silent?port={rendezvous.port}")
    assert status(response) == 504
    rendezvous.guest().wait_gone()
    served.serving.err.wait(
        r"WARNING the deadline passed after \d+\.\d+ s, while GET /silent ran in worker \w+/\d, "
        r"and had not begun its response \(--timeout, fronts.serve.timeout\)"
    )
    served.serving.err.wait("in silent")
    (line,) = served.logged()
    assert (line["status"], line["end"]) == (504, "timeout")
    served.check()


def test_failure_42_an_app_that_falls_silent(served: Served, rendezvous: Rendezvous) -> None:
    response = served.get(f"/silent-later?port={rendezvous.port}")
    assert (status(response), response.endswith(b"4\r\npart\r\n")) == (200, True)
    rendezvous.guest().wait_gone()
    (line,) = served.logged()
    assert (line["status"], line["bytes"], line["end"]) == (200, 4, "timeout")
    served.serving.err.wait(r"WARNING fronts.serve: a response was cut off after a pause of 2 s between its parts")
    served.serving.err.wait("in silent_later")
    served.check()


def test_failure_42_an_app_that_ignores_that_its_client_has_gone(served: Served, rendezvous: Rendezvous) -> None:
    with served.client() as connection:
        connection.sendall(f"GET /deaf?port={rendezvous.port} HTTP/1.1\r\n{HOST}\r\n".encode())
        guest = rendezvous.guest()
    guest.let_go()
    guest = rendezvous.guest()
    assert guest.word == "done"
    guest.let_go()
    served.check()
