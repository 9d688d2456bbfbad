"""WSGI apps that take over the socket of a request which asks for another protocol, in every profile."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import time
from collections.abc import Callable, Iterator

import pytest
import socket_apps

from support.clutch_process import soon
from support.http_service import Service, read_to_end, serving
from support.rendezvous import WAIT_SECONDS, Rendezvous
from support.shapes import Shape
from support.stderr import Stderr

CLOSING_SECONDS_MAX = 5
"""Time that a client has to close its side, unless the front stops."""
ASKS = b"Connection: keep-alive, Upgrade\r\nUpgrade: shout\r\n"


@pytest.fixture(scope="module")
def service(shape: Shape) -> Iterator[Service]:
    with serving(shape, "socket_apps:app", "auto", workers=1) as service:
        yield service


@pytest.fixture
def own(shape: Shape) -> Iterator[Service]:
    """One that a test may stop, or whose workers it may kill."""
    with serving(shape, "socket_apps:app", "auto", workers=1) as service:
        yield service


Ask = Callable[..., socket.socket]


@pytest.fixture
def ask() -> Iterator[Ask]:
    """A client that asks for another protocol; it leaves with the test, which a slot may wait for."""
    with contextlib.ExitStack() as clients:

        def asking(service: Service, path: str, headers: bytes = ASKS, more: bytes = b"") -> socket.socket:
            client = service.send(b"GET /" + path.encode() + b" HTTP/1.1\r\nHost: x\r\n" + headers + b"\r\n" + more)
            return clients.enter_context(client)

        yield asking


def read_head(client: socket.socket) -> tuple[bytes, bytes]:
    """The head, and what has come behind it."""
    got = b""
    while b"\r\n\r\n" not in got:
        piece = client.recv(1 << 16)
        assert piece, got
        got += piece
    head, _, rest = got.partition(b"\r\n\r\n")
    return head, rest


def read_exactly(client: socket.socket, count: int, got: bytes = b"") -> bytes:
    while len(got) < count:
        piece = client.recv(1 << 16)
        assert piece, got
        got += piece
    return got


# ---- another protocol


@pytest.mark.per_profile
def test_bytes_go_both_ways_once_the_app_has_granted_it(ask: Ask, service: Service) -> None:
    client = ask(service, "shout", more=b"early ")
    head, rest = read_head(client)
    lines = head.lower().split(b"\r\n")
    assert lines[0] == b"http/1.1 101 switching protocols"
    assert {b"upgrade: shout", b"connection: upgrade", b"x-app: yes"} <= set(lines)
    assert read_exactly(client, 6, rest) == b"EARLY "
    client.sendall(b"hello")
    assert read_exactly(client, 5) == b"HELLO"
    client.sendall(b"last")
    client.shutdown(socket.SHUT_WR)
    assert read_to_end(client) == b"LAST"
    assert service.ask("/plain").body == b"plain"


@pytest.mark.per_profile
def test_nothing_of_a_socket_is_left_when_its_request_has_ended(ask: Ask, own: Service) -> None:
    for path in ("shout", "names", "plain"):
        client = ask(own, path)
        read_head(client)
        client.close()
    soon(lambda: own.ask("/left").body == b"0")


def test_a_large_message_waits_for_whoever_is_slow(ask: Ask, service: Service) -> None:
    client = ask(service, "flood")
    _, rest = read_head(client)
    assert len(rest) + len(read_to_end(client)) == socket_apps.FLOOD_BYTES


def test_much_goes_both_ways_at_once(ask: Ask, service: Service) -> None:
    client = ask(service, "shout")
    _, rest = read_head(client)
    message, got = b"a" * (1 << 20), rest
    client.settimeout(0.01)
    while message or len(got) < 1 << 20:
        with contextlib.suppress(TimeoutError):
            message = message[client.send(message[: 1 << 16]) :] if message else b""
        with contextlib.suppress(TimeoutError):
            got += client.recv(1 << 16)
    assert got == b"A" * (1 << 20)


def test_it_looks_as_that_of_the_client_and_a_response_after_it_is_for_nobody(ask: Ask, service: Service) -> None:
    client = ask(service, "facts")
    _, rest = read_head(client)
    assert rest + read_to_end(client) == b"127.0.0.1 None"


# ---- no other protocol


@pytest.mark.per_profile
def test_an_app_that_does_not_use_it_answers_as_ever(ask: Ask, service: Service) -> None:
    client = ask(service, "plain")
    head, rest = read_head(client)
    assert head.startswith(b"HTTP/1.1 200 OK") and read_exactly(client, 5, rest) == b"plain"
    client.sendall(b"GET /names HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    head, rest = read_head(client)
    assert rest + read_to_end(client) == b""


@pytest.mark.parametrize(
    ("headers", "found"),
    [
        (ASKS, b"gunicorn.socket, werkzeug.socket"),
        (b"Upgrade: shout\r\n", b""),
        (b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n", b""),
        (ASKS + b"Content-Length: 2\r\n\r\nhi", b""),
    ],
)
def test_it_is_there_for_those_who_ask_alone(ask: Ask, service: Service, headers: bytes, found: bytes) -> None:
    client = ask(service, "names", headers)
    _, rest = read_head(client)
    assert read_exactly(client, len(found), rest) == found


def test_a_refusal_that_the_app_writes_arrives_whole(ask: Ask, service: Service) -> None:
    client = ask(service, "refuse")
    head, rest = read_head(client)
    assert head.startswith(b"HTTP/1.1 403 Not You\r\n") and b"x-app: yes" in head
    assert read_exactly(client, 35_000, rest) == b"not you" * 5000
    client.sendall(b"GET /plain HTTP/1.1\r\nHost: x\r\n\r\n")
    assert read_head(client)[0].startswith(b"HTTP/1.1 200 OK")


def test_a_response_without_a_length_ends_with_its_app(service: Service) -> None:
    answer = service.ask("/unmeasured", headers={"Connection": "Upgrade", "Upgrade": "shout"})
    assert (answer.status, answer.body) == (200, b"one two")


def test_half_a_response_is_broken_off(ask: Ask, service: Service) -> None:
    client = ask(service, "cut")
    _, rest = read_head(client)
    assert rest + read_to_end(client) == b"half"


@pytest.mark.parametrize("path", ["garbage", "length"])
def test_what_is_no_response_is_500(ask: Ask, service: Service, path: str) -> None:
    assert read_head(ask(service, path))[0].startswith(b"HTTP/1.1 500 ")


def test_half_a_head_does_not_hide_why_there_is_no_more(ask: Ask, shape: Shape) -> None:
    with serving(shape, "socket_apps:app", "auto", {"timeout_ms": 500}, workers=1) as service:
        assert read_head(ask(service, "stuck"))[0].startswith(b"HTTP/1.1 504 ")
        assert read_head(ask(service, "lost"))[0].startswith(b"HTTP/1.1 502 ")


@pytest.mark.per_profile
def test_an_app_that_fails_before_it_has_written_is_500_and_told(ask: Ask, shape: Shape) -> None:
    with Stderr() as stderr, serving(shape, "socket_apps:app", "auto", workers=1) as service:
        for path in ("unused", "nothing"):
            assert read_head(ask(service, path))[0].startswith(b"HTTP/1.1 500 ")
        stderr.wait("ConnectionRefusedError: no database")
        stderr.wait("returned without calling start_response")


def test_an_error_after_it_is_told(ask: Ask, shape: Shape) -> None:
    with Stderr() as stderr, serving(shape, "socket_apps:app", "auto", workers=1) as service:
        client = ask(service, "broken")
        _, rest = read_head(client)
        assert rest + read_to_end(client) == b""
        stderr.wait("ValueError: after the upgrade")


# ---- ends


@pytest.mark.per_profile
def test_the_app_is_told_when_its_worker_is_to_end(ask: Ask, own: Service, rendezvous: Rendezvous) -> None:
    client = ask(own, f"hold?port={rendezvous.port}")
    _, rest = read_head(client)
    rendezvous.guest().let_go()
    own.begin("reload")
    guest = rendezvous.guest()
    assert guest.word == "ended"
    guest.let_go()
    assert rest + read_to_end(client) == b"bye"


def test_a_client_that_stays_holds_up_no_stop(ask: Ask, own: Service) -> None:
    client = ask(own, "shout")
    read_head(client)
    begun = time.monotonic()
    own.fronts.stop(WAIT_SECONDS)
    assert time.monotonic() - begun < CLOSING_SECONDS_MAX
    assert client.recv(100) == b""


def test_the_app_is_told_when_its_client_leaves(ask: Ask, own: Service, rendezvous: Rendezvous) -> None:
    client = ask(own, f"hold?port={rendezvous.port}")
    read_head(client)
    rendezvous.guest().let_go()
    client.close()
    guest = rendezvous.guest()
    assert guest.word == "ended"
    guest.let_go()


def test_the_client_learns_of_the_death_of_the_worker(ask: Ask, own: Service, rendezvous: Rendezvous) -> None:
    client = ask(own, f"hold?port={rendezvous.port}")
    _, rest = read_head(client)
    guest = rendezvous.guest()
    os.kill(guest.pid, signal.SIGKILL)
    client.settimeout(WAIT_SECONDS)
    assert rest + read_to_end(client) == b""


def test_an_app_that_does_not_end_in_time_is_cut_off(ask: Ask, shape: Shape, rendezvous: Rendezvous) -> None:
    with serving(shape, "socket_apps:app", "auto", workers=1, grace="0.2s") as service:
        client = ask(service, f"hold?port={rendezvous.port}")
        _, rest = read_head(client)
        rendezvous.guest()
        service.begin("reload")
        assert rest + read_to_end(client) == b""
