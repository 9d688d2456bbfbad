"""WSGI apps over HTTP (PEP 3333), in every profile."""

from __future__ import annotations

import contextlib
import http.client
import socket
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
import wsgi_app

from clutch.testing import Watch
from support.http_service import Service, read_to_end, serving
from support.rendezvous import WAIT_SECONDS, Rendezvous
from support.shapes import Shape
from support.stderr import Stderr


@pytest.fixture(scope="module")
def service(shape: Shape) -> Iterator[Service]:
    with serving(shape, "wsgi_app:app", "auto", workers=1) as service:
        yield service


# ---- the environ


@pytest.mark.per_profile
def test_the_environ_of_http_1_1(service: Service, shape: Shape) -> None:
    sent = {"X-Some": "one", "Host": "shop.test", "Content-Type": "text/x"}
    environ = service.ask("/a%20b/%C3%A9?x=1&y=%20", "POST", b"body", sent).json
    port = environ.pop("REMOTE_PORT")
    assert port.isdecimal()
    assert environ.pop("SERVER_SOFTWARE").startswith("clutch/")
    for name in ("wsgi.input", "wsgi.errors", "wsgi.file_wrapper"):
        assert environ.pop(name)
    assert environ == {
        "REQUEST_METHOD": "POST",
        "SCRIPT_NAME": "",
        "PATH_INFO": "/a b/\xc3\xa9",
        "QUERY_STRING": "x=1&y=%20",
        "RAW_URI": "/a%20b/%C3%A9?x=1&y=%20",
        "CONTENT_TYPE": "text/x",
        "CONTENT_LENGTH": "4",
        "SERVER_NAME": service.place[0],
        "SERVER_PORT": str(service.place[1]),
        "SERVER_PROTOCOL": "HTTP/1.1",
        "REMOTE_ADDR": "127.0.0.1",
        "HTTP_HOST": "shop.test",
        "HTTP_X_SOME": "one",
        "HTTP_ACCEPT_ENCODING": "identity",
        "wsgi.version": [1, 0],
        "wsgi.url_scheme": "http",
        "wsgi.multithread": shape.options["profile"] != "process",
        "wsgi.multiprocess": True,
        "wsgi.run_once": False,
        "wsgi.input_terminated": True,
    }


def test_the_protocols(service: Service) -> None:
    old = read_to_end(service.send(b"GET / HTTP/1.0\r\n\r\n"))
    assert old.startswith(b"HTTP/1.0 200 OK\r\n") and b'"SERVER_PROTOCOL": "HTTP/1.0"' in old
    with httpx.Client(http1=False, http2=True, timeout=WAIT_SECONDS) as client:
        environ = client.get(f"http://{service.address}/a").json()
        size = client.post(f"http://{service.address}/count", content=bytes(1_000_000)).json()["size"]
    assert (environ["SERVER_PROTOCOL"], environ["HTTP_HOST"], size) == ("HTTP/2", service.address, 1_000_000)


def test_headers_that_come_twice_are_joined_and_underscores_are_left_out(service: Service) -> None:
    lines = b"X-A: 1\r\nx-a: 2\r\nCookie: a=1\r\nCookie: b=2\r\nX_A: 3\r\nX-B: \xe9\r\n"
    answer = read_to_end(service.send(b"GET / HTTP/1.0\r\n" + lines + b"\r\n"))
    assert b'"HTTP_X_A": "1,2"' in answer
    assert b'"HTTP_COOKIE": "a=1; b=2"' in answer
    assert b'"HTTP_X_B": "\\u00e9"' in answer


def test_root_path_is_the_script_name(shape: Shape) -> None:
    with serving(shape, "wsgi_app:app", "auto", {"root_path": "/shop"}) as service:
        environ = service.ask("/cart").json
    assert (environ["SCRIPT_NAME"], environ["PATH_INFO"]) == ("/shop", "/cart")


@pytest.mark.parametrize(
    ("method", "body"), [("GET", b""), ("POST", b"small"), ("POST", bytes(300_000)), ("HEAD", b"")]
)
def test_wsgiref_validate_finds_nothing(shape: Shape, method: str, body: bytes) -> None:
    with serving(shape, "wsgi_app:strict", "wsgi") as service:
        answer = service.ask("/some/path?x=1", method, body)
        assert (answer.status, answer.body) == (200, body)


# ---- bodies


@pytest.mark.parametrize("is_chunked", [False, True])
def test_the_input_by_lines(service: Service, is_chunked: bool) -> None:
    body = b"first\nsecond\nthird\nfourth\nfifth"
    sent = iter([body[:8], body[8:]]) if is_chunked else body
    found = service.ask("/lines", "POST", sent).json
    assert found == ["first\n", "sec", "on", "d\n", "third\n", "fourth\n", "fifth", ""]


@pytest.mark.per_profile
def test_lines_come_while_the_client_still_sends(service: Service) -> None:
    client = service.send(b"POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
    lines = client.makefile("rb")
    client.sendall(b"4\r\none\n\r\n")
    while lines.readline() != b"\r\n":
        pass
    assert lines.read(9) == b"4\r\none\n\r\n"
    client.sendall(b"4\r\ntwo\n\r\n0\r\n\r\n")
    assert lines.read(14) == b"4\r\ntwo\n\r\n0\r\n\r\n"


def test_100_continue_comes_when_the_app_reads(service: Service) -> None:
    head = b"POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\nExpect: 100-continue\r\n\r\n"
    unread = service.send(head % b"/quick").makefile("rb")
    assert unread.readline() == b"HTTP/1.1 200 OK\r\n"
    client = service.send(head % b"/count")
    reading = client.makefile("rb")
    assert reading.readline() == b"HTTP/1.1 100 Continue\r\n"
    client.sendall(bytes(100_000))
    assert [reading.readline(), reading.readline()] == [b"\r\n", b"HTTP/1.1 200 OK\r\n"]


@pytest.mark.per_profile
def test_a_body_that_is_cut_off_raises_in_the_app(service: Service) -> None:
    client = service.send(b"POST /count HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nhalf")
    client.shutdown(socket.SHUT_WR)
    with contextlib.suppress(ConnectionError):
        assert b" 200 " not in read_to_end(client)
    assert service.ask("/quick").json == "quick"


# ---- streams


@pytest.mark.per_profile
def test_failure_39_an_endless_stream_waits_for_its_reader_and_never_stalls_other_slots(
    shape: Shape, rendezvous: Rendezvous
) -> None:
    workers = 2 if shape.slots_of_worker == 1 else 1
    with serving(shape, "wsgi_app:app", "auto", workers=workers) as service:
        client = service.get_slowly("/endless", port=rendezvous.port)
        assert client.recv(100, socket.MSG_WAITALL)
        for _ in range(20):
            assert service.ask("/quick").json == "quick"
        client.close()
        last = rendezvous.guest()
        assert int(last.word) * len(wsgi_app.PIECE) < 16 << 20
        last.let_go()


@pytest.mark.per_profile
def test_slots_run_side_by_side(shape: Shape, rendezvous: Rendezvous) -> None:
    with serving(shape, "wsgi_app:app", "auto") as service:
        waiting = [service.get("/waits", port=rendezvous.port) for _ in range(shape.slots)]
        for guest in rendezvous.guests(shape.slots):
            guest.let_go("bye")
        for client in waiting:
            assert client.recv(12) == b"HTTP/1.1 200"


@pytest.mark.per_profile
@pytest.mark.parametrize(
    ("how", "status", "body"), [("whole", 200, b"one two"), ("raises_first", 500, None), ("raises_later", 200, None)]
)
def test_iterables_are_closed_on_every_path(service: Service, how: str, status: int, body: bytes | None) -> None:
    assert service.ask("/were_closed").status == 200
    connection = service.connection()
    connection.request("GET", f"/parts?how={how}")
    response = connection.getresponse()
    assert response.status == status
    if how == "raises_later":
        with pytest.raises(http.client.IncompleteRead) as broken:
            response.read()
        assert broken.value.partial == b"one "
    else:
        assert body in (None, response.read())
    assert service.ask("/were_closed").json == [how]


@pytest.mark.per_profile
def test_an_iterable_is_closed_when_the_client_has_gone(service: Service, rendezvous: Rendezvous) -> None:
    assert service.ask("/were_closed").status == 200
    client = service.get("/parts", how="endless", port=rendezvous.port)
    assert client.recv(1000)
    client.close()
    last = rendezvous.guest()
    assert last.word == "endless"
    last.let_go()
    last.wait_gone()
    assert service.ask("/were_closed").json == ["endless"]


@pytest.mark.per_profile
@pytest.mark.parametrize("how", ["iterator", "write"])
def test_empty_parts_send_nothing_and_take_no_room(service: Service, how: str) -> None:
    answer = service.ask("/empty_parts", how=how)
    assert (answer.status, answer.body) == (200, b"part")


@pytest.mark.per_profile
def test_an_iterable_of_empty_parts_is_closed_when_the_client_has_gone(
    service: Service, rendezvous: Rendezvous
) -> None:
    client = service.get("/empty_for_ever", port=rendezvous.port)
    guest = rendezvous.guest()
    client.close()
    while guest.word == "next":
        guest.let_go()
        guest = rendezvous.guest()
    assert guest.word == "closed"
    guest.let_go()


@pytest.mark.per_profile
def test_an_empty_write_sends_the_head(service: Service, rendezvous: Rendezvous) -> None:
    connection = service.connection()
    connection.request("GET", f"/head_alone?port={rendezvous.port}")
    guest = rendezvous.guest()
    response = connection.getresponse()
    guest.let_go()
    assert (response.status, response.read()) == (201, b"made")


@pytest.mark.per_profile
def test_a_stream_of_events_is_closed_when_its_worker_is_to_end(shape: Shape, rendezvous: Rendezvous) -> None:
    """At its next event; its response is whole, so that the client comes again."""
    with serving(shape, "wsgi_app:app", "auto", workers=1, grace=60) as service:
        client = service.get("/events", port=rendezvous.port)
        guest = rendezvous.guest()
        service.begin("recycle")
        while guest.word == "next":
            guest.let_go()
            guest = rendezvous.guest()
        assert guest.word == "closed"
        guest.let_go()
        answer = b""
        while not answer.endswith(b"0\r\n\r\n"):
            answer += client.recv(1 << 16)
        assert answer.count(b"data: first\n\n") == 1
        assert service.pool.stats()["drained"] == 0


@pytest.mark.per_profile
def test_a_stream_without_further_events_is_cut_off_at_the_grace(
    shape: Shape, rendezvous: Rendezvous, events: Watch
) -> None:
    limits: dict[str, Any] = {"grace": 0.2, "interrupt_grace": 0.2, "term_grace": 0.2}
    with serving(shape, "wsgi_app:app", "auto", workers=1, **limits) as service:
        client = service.get("/events", port=rendezvous.port)
        guest = rendezvous.guest()
        service.begin("recycle")
        events.wait("work_drained", pool="made")
        guest.wait_gone()
        assert b"0\r\n\r\n" not in read_to_end(client)


def test_a_list_of_its_own_kind_is_iterated_and_closed(service: Service) -> None:
    assert service.ask("/were_closed").status == 200
    assert service.ask("/listed").body == b"one two"
    assert service.ask("/were_closed").json == ["listed"]


# ---- start_response


@pytest.mark.per_profile
def test_write(service: Service) -> None:
    assert service.ask("/writes").body == b"one two three"


def test_a_head_with_the_first_part(service: Service) -> None:
    answer = service.ask("/late_head")
    assert (answer.status, answer.body) == (201, b"made")


def test_exc_info_replaces_a_head_that_was_not_sent(service: Service) -> None:
    answer = service.ask("/exc_info", sent="no")
    assert (answer.status, answer.headers["x-first"], answer.body) == (503, None, b"sorry")


def test_exc_info_is_raised_where_the_head_was_sent(service: Service) -> None:
    connection = service.connection()
    connection.request("GET", "/exc_info?sent=yes")
    response = connection.getresponse()
    with pytest.raises(http.client.IncompleteRead) as broken:
        response.read()
    assert (response.status, broken.value.partial) == (200, b"sent")


HOWS = ["no_head", "status", "raises", "SystemExit", "KeyboardInterrupt", "twice", "text", "too_short"]


@pytest.mark.per_profile
@pytest.mark.parametrize("how", HOWS)
def test_failure_31_wrong_apps_are_a_500_and_their_worker_lives(service: Service, how: str) -> None:
    before = service.pids()
    assert service.ask("/wrong", how=how).status == 500
    assert service.ask("/quick").json == "quick"
    assert service.pids() == before


def test_file_wrapper_reads_in_large_blocks(service: Service) -> None:
    answer = service.ask("/file")
    assert (answer.headers["x-block"], answer.body) == ("65536", bytes(200_000))


@pytest.mark.parametrize(
    ("line", "sent"),
    [
        ("200 OK", b"200 OK"),
        ("200 Fine", b"200 Fine"),
        ("404 NOT FOUND", b"404 NOT FOUND"),
        ("299 Odd \xe9", b"299 Odd \xe9"),
        ("299", b"299 "),
        ("299 ", b"299 "),
    ],
)
def test_the_status_line_is_the_apps(service: Service, line: str, sent: bytes) -> None:
    answer = service.get("/status", line=line).makefile("rb")
    assert answer.readline() == b"HTTP/1.1 " + sent + b"\r\n"


@pytest.mark.parametrize("line", ["200 OK\r\nX-More: 1", "200 a\0b", "20", "2000 OK", "2x0 OK", "199 Less"])
def test_a_status_line_that_is_none_is_a_500(service: Service, line: str) -> None:
    answer = service.ask("/status", line=line)
    assert (answer.status, answer.headers["x-more"]) == (500, None)


@pytest.mark.parametrize("how", ["list", "iterator", "write", "many"])
def test_a_body_beyond_its_content_length_is_cut_with_one_warning(service: Service, how: str) -> None:
    connection = service.connection()
    said = "longer than its Content-Length"
    with Stderr() as stderr:
        for _ in range(2):
            connection.request("GET", f"/too_long?how={how}")
            response = connection.getresponse()
            assert (response.status, response.read()) == (200, b"123")
        assert stderr.wait(said, 2).count(said) == 2


def test_of_two_content_types_the_first_counts(service: Service) -> None:
    lines = b"Content-Type: application/json\r\nContent-Type: text/html\r\n"
    answer = read_to_end(service.send(b"GET / HTTP/1.0\r\n" + lines + b"\r\n"))
    assert b'"CONTENT_TYPE": "application/json"' in answer


def test_wsgi_errors(service: Service) -> None:
    with Stderr() as stderr:
        assert service.ask("/prints").json == "printed"
        stderr.wait("to wsgi.errors")
