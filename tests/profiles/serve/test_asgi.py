"""ASGI apps over HTTP, in every profile."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator

import asgi_app
import httpx
import pytest

from clutch import ConfigError
from support.http_service import Service, read_to_end, serving
from support.rendezvous import WAIT_SECONDS, Rendezvous
from support.shapes import Shape

pytestmark = pytest.mark.usual_shape("async")


@pytest.fixture(scope="module")
def service(shape: Shape) -> Iterator[Service]:
    with serving(shape, "asgi_app:app", "auto") as service:
        yield service


# ---- the scope


@pytest.mark.per_profile
def test_the_scope_of_http_1_1(service: Service) -> None:
    asked = service.ask("/a%20b/%C3%A9?x=1&y=%20", headers={"X-Twice": "one", "Host": "shop.test"})
    scope = asked.json
    client, server = scope.pop("client"), scope.pop("server")
    assert (client[0], tuple(server)) == ("127.0.0.1", service.place)
    headers = [(name["bytes"], value["bytes"]) for name, value in scope.pop("headers")]
    assert ("x-twice", "one") in headers and ("host", "shop.test") in headers
    assert scope.pop("state") == {"count": 0, "shared": scope_list(service)}
    assert scope.pop("extensions") == {}
    assert scope == {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": "GET",
        "scheme": "http",
        "path": "/a b/é",
        "raw_path": {"bytes": "/a%20b/%C3%A9"},
        "query_string": {"bytes": "x=1&y=%20"},
        "root_path": "",
    }


def scope_list(service: Service) -> list[int]:
    return service.ask("/").json["state"]["shared"]


def test_the_scope_of_http_1_0(service: Service) -> None:
    answer = read_to_end(service.send(b"GET / HTTP/1.0\r\n\r\n"))
    assert answer.startswith(b"HTTP/1.0 200 OK\r\n")
    assert b'"http_version": "1.0"' in answer


def test_the_scope_of_http_2(service: Service) -> None:
    with httpx.Client(http1=False, http2=True, timeout=WAIT_SECONDS) as client:
        scope = client.get(f"http://{service.address}/a%20b?q").json()
        size = client.post(f"http://{service.address}/count", content=bytes(1_000_000)).json()["size"]
    assert (scope["http_version"], scope["path"], size) == ("2", "/a b", 1_000_000)
    names = [name["bytes"] for name, _ in scope["headers"]]
    assert "host" in names and not [name for name in names if name.startswith(":")]


def test_headers_come_as_often_and_in_the_order_they_were_sent(service: Service) -> None:
    client = service.send(b"GET / HTTP/1.0\r\nX-A: 1\r\nX-B: \xe9\r\nx-a: 2\r\n\r\n")
    answer = read_to_end(client)
    assert b'[{"bytes": "x-a"}, {"bytes": "1"}]' in answer
    assert b'[{"bytes": "x-a"}, {"bytes": "2"}]' in answer
    assert b'[{"bytes": "x-b"}, {"bytes": "\\u00e9"}]' in answer


def test_root_path_is_part_of_path(shape: Shape) -> None:
    with serving(shape, "asgi_app:app", "auto", {"root_path": "/shop"}) as service:
        scope = service.ask("/cart").json
    assert (scope["root_path"], scope["path"], scope["raw_path"]["bytes"]) == ("/shop", "/shop/cart", "/shop/cart")


@pytest.mark.per_profile
def test_dicts_in_a_scope_are_no_other_requests(shape: Shape) -> None:
    with serving(shape, "asgi_app:app", "auto", workers=1) as service:
        asked = [service.ask("/marks").json for _ in range(2 * shape.slots)]
    assert asked == [[False] * 3] * len(asked)


# ---- bodies


@pytest.mark.parametrize("size", [0, 1, 1000, 100_000, 1_000_000])
def test_a_body_in_and_out(service: Service, size: int) -> None:
    body = os.urandom(size)
    assert service.ask("/echo", "POST", body).body == body


@pytest.mark.per_profile
def test_a_chunked_body_in_and_out(service: Service) -> None:
    pieces = [b"one", b"x" * 70_000, b"three"]
    assert service.ask("/echo", "POST", iter(pieces)).body == b"".join(pieces)


@pytest.mark.per_profile
def test_pieces_come_while_the_client_still_sends(service: Service) -> None:
    client = service.send(b"POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
    lines = client.makefile("rb")
    client.sendall(b"3\r\none\r\n")
    while lines.readline() != b"\r\n":
        pass
    assert [lines.readline(), lines.readline()] == [b"3\r\n", b"one\r\n"]
    client.sendall(b"3\r\ntwo\r\n0\r\n\r\n")
    assert lines.read(13) == b"3\r\ntwo\r\n0\r\n\r\n"


@pytest.mark.per_profile
def test_failure_39_a_slow_reader_of_a_response_slows_the_app(service: Service, rendezvous: Rendezvous) -> None:
    """The app has sent no more than fits into the buffers on the way. Once its client has gone, nothing holds it up
    until it has heard of that."""
    client = service.get_slowly("/endless", port=rendezvous.port)
    asks = rendezvous.guest()
    assert client.recv(100, socket.MSG_WAITALL)
    for _ in range(20):
        assert service.ask("/unread").body == b"not read", "others are served meanwhile"
    asks.let_go()
    told = rendezvous.guest()
    assert int(told.word) * len(asgi_app.PIECE) < 16 << 20
    told.let_go()
    client.close()
    last = rendezvous.guest()
    assert last.word == "gone"
    last.let_go()


def test_100_continue_comes_when_the_app_reads(service: Service) -> None:
    head = b"POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\nExpect: 100-continue\r\n\r\n"
    reading = service.send(head % b"/count").makefile("rb")
    assert reading.readline() == b"HTTP/1.1 100 Continue\r\n"
    unread = service.send(head % b"/unread").makefile("rb")
    assert unread.readline() == b"HTTP/1.1 200 OK\r\n"


@pytest.mark.per_profile
@pytest.mark.parametrize("path", ["/late_event", "/late_part", "/late_part_after_a_wait"])
def test_a_head_does_not_wait_for_a_late_part(service: Service, rendezvous: Rendezvous, path: str) -> None:
    lines = service.get(path, port=rendezvous.port).makefile("rb")
    started = rendezvous.guest()
    assert lines.readline() == b"HTTP/1.1 200 OK\r\n"
    started.let_go()
    assert any(line.startswith(b"data: 1") for line in lines)


# ---- the client goes


@pytest.mark.per_profile
def test_the_app_is_told_that_its_client_has_gone_and_goes_on(service: Service, rendezvous: Rendezvous) -> None:
    client = service.get("/told", port=rendezvous.port)
    here = rendezvous.guest()
    client.close()
    here.let_go()
    assert rendezvous.guest().word == "told"


def test_an_app_may_answer_again_when_its_client_has_gone(service: Service, rendezvous: Rendezvous) -> None:
    client = service.get("/answers_again", port=rendezvous.port)
    streaming = rendezvous.guest()
    client.close()
    streaming.let_go()
    assert rendezvous.guest().word == "answered again"


def test_an_app_may_answer_again_when_its_worker_is_to_end(service: Service, rendezvous: Rendezvous) -> None:
    service.get("/answers_again", port=rendezvous.port)
    rendezvous.guest().let_go()
    service.begin("recycle")
    assert rendezvous.guest().word == "answered again"


@pytest.mark.per_profile
def test_with_disconnect_cancel_it_is_stopped_and_its_finally_runs(shape: Shape, rendezvous: Rendezvous) -> None:
    with serving(shape, "asgi_app:app", "auto", {"disconnect": "cancel"}) as service:
        client = service.get("/stopped", port=rendezvous.port)
        rendezvous.guest().let_go()
        client.close()
        last = rendezvous.guest()
        assert last.word == "finally"
        last.let_go()
        assert service.ask("/unread").status == 200


@pytest.mark.per_profile
def test_background_work_goes_on_after_the_response(service: Service, rendezvous: Rendezvous) -> None:
    assert service.ask("/background", port=rendezvous.port).body == b"whole"
    after = rendezvous.guest()
    assert after.word == "after"
    after.let_go()


# ---- others on the same loop


@pytest.mark.per_profile
@pytest.mark.parametrize("when", ["first", "later"])
def test_answers_do_not_wait_for_those_who_compute_after_them(shape: Shape, rendezvous: Rendezvous, when: str) -> None:
    """Three requests that have come together: while the third holds the loop, the answers of two are there; in later
    steps that of the first one, as there an answer may wait for one other step. In `greenlet` another thread brings
    them to the loop, in one turn or in several."""
    slots = {"tasks": 4} if "tasks" in shape.options else {}
    with serving(shape, "asgi_app:app", "auto", **slots) as service:
        asked = {"port": rendezvous.port, "when": when}
        service.get("/computes", name="before", **asked)
        before = rendezvous.guest()
        clients = {name: service.get("/computes", name=name, **asked) for name in ("one", "two", "three")}
        while (stats := service.pool.stats())["sent"] + stats["queued"] < 1 + len(clients):
            pass
        before.let_go()
        answered = [rendezvous.guest()]
        answered[0].let_go()
        answered += [rendezvous.guest()]
        answered[1].let_go()
        last = rendezvous.guest()
        for guest in answered if when == "first" and shape.name != "greenlet" else answered[:1]:
            assert clients.pop(guest.word).recv(1 << 16).startswith(b"HTTP/1.1 200 ")
        last.let_go()
        for client in clients.values():
            assert client.recv(1 << 16).startswith(b"HTTP/1.1 200 ")


# ---- the first step


@pytest.mark.per_profile
@pytest.mark.parametrize("what", asgi_app.CHECKS)
def test_in_the_first_step(service: Service, what: str) -> None:
    for _ in range(2):
        assert service.ask("/first_step", what=what).json is True


@pytest.mark.per_profile
def test_base_http_middleware(shape: Shape) -> None:
    with serving(shape, "asgi_app:middleware", "auto", factory=True) as service:
        answer = service.ask("/", "POST", bytes(100_000))
        assert (answer.json, answer.headers["x-marked"]) == (100_000, "yes")


# ---- wrong apps


@pytest.mark.per_profile
@pytest.mark.parametrize("when", ["first", "later"])
@pytest.mark.parametrize("kind", asgi_app.EXITS)
def test_failure_31_an_app_that_raises_is_a_500_and_its_worker_lives(service: Service, kind: str, when: str) -> None:
    before = service.pids()
    assert service.ask("/fails", kind=kind, when=when).status == 500
    assert service.ask("/unread").status == 200
    assert service.pids() == before


@pytest.mark.per_profile
def test_failure_40_an_app_that_raises_in_its_body_breaks_the_response_off(service: Service) -> None:
    answer = read_to_end(service.get("/fails", kind="ValueError", when="body"))
    assert answer.startswith(b"HTTP/1.1 200") and answer.endswith(b"4\r\npart\r\n")


def test_an_app_that_raises_after_its_response_has_answered(service: Service) -> None:
    assert service.ask("/fails", kind="ValueError", when="after").body == b"part"


@pytest.mark.parametrize("how", ["returns", "body_first", "twice", "too_long", "too_short"])
def test_misuse_of_the_protocol_is_a_500(service: Service, how: str) -> None:
    assert service.ask("/wrong", how=how).status == 500
    assert service.ask("/unread").status == 200


# ---- the lifespan


def test_the_state_is_copied_for_each_request_and_what_is_in_it_is_shared(shape: Shape) -> None:
    with serving(shape, "asgi_app:app", "auto", workers=1) as service:
        first, second = service.ask("/state").json, service.ask("/state").json
    assert (first["count"], second["count"]) == (1, 1)
    assert first["is_lifespans"] and second["is_lifespans"]
    assert first["lifespans"] == loops(shape)
    if loops(shape) == 1:
        assert (first["shared"], second["shared"]) == (1, 2)


def loops(shape: Shape) -> int:
    return shape.options.get("threads", 1)


@pytest.mark.per_profile
def test_shutdown_comes_before_the_worker_ends(
    shape: Shape, rendezvous: Rendezvous, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STOPPED_PORT", str(rendezvous.port))
    with serving(shape, "asgi_app:app", "auto", workers=1) as service:
        service.pool.shutdown(wait=False)
        for _ in range(loops(shape)):
            last = rendezvous.guest()
            assert last.word == "shutdown"
            last.let_go()


@pytest.mark.per_profile
def test_an_app_that_cannot_start_makes_its_pool_fail_with_its_message(shape: Shape) -> None:
    with pytest.raises(ConfigError, match="the database is away"), serving(shape, "asgi_app:cannot_start", "auto"):
        pass


def test_an_app_of_asgi_2(shape: Shape) -> None:
    with serving(shape, "asgi_app:Two", "auto") as service:
        assert service.ask("/").json == {"type": "http"}
