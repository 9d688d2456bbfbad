"""WebSockets of ASGI apps, by a real client: what goes through, how they end, and that none is forgotten at a drain."""

from __future__ import annotations

import http.client
import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from websocket_apps import FLOOD_BYTES, FLOOD_MESSAGES
from websockets.exceptions import ConnectionClosed, ConnectionClosedError, InvalidStatus
from websockets.sync.client import ClientConnection, connect
from websockets.typing import Subprotocol

from clutch.testing import Watch
from support import http_service
from support.rendezvous import WAIT_SECONDS, Guest, Rendezvous
from support.shapes import Shape

pytestmark = pytest.mark.usual_shape("async")

MESSAGE_BYTES_MAX = 4 << 20
QUIET_SECONDS = 0.4
CLOSING_SECONDS_MAX = 5
"""Time that a client has to answer the close frame, unless the front stops."""
HANDSHAKE = (
    b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
)


class Service(http_service.Service):
    def open(self, path: str, rendezvous: Rendezvous | None = None, **options: Any) -> ClientConnection:
        query = f"?port={rendezvous.port}" if rendezvous is not None else ""
        options = {
            "compression": None,
            "max_size": None,
            "open_timeout": WAIT_SECONDS,
            "ping_interval": None,
            **options,
        }
        return self.stack.enter_context(connect(f"ws://{self.address}/{path}{query}", **options))

    def asking(self, path: str) -> http.client.HTTPConnection:
        connection = self.connection()
        connection.request("GET", path)
        return connection


Serve = Callable[..., Service]


@pytest.fixture
def serve(shape: Shape) -> Iterator[Serve]:
    """A pool of this profile behind a serve front; both end with the test."""
    with ExitStack() as stack:

        def make(app: str = "websocket_apps:app", limits: dict[str, Any] | None = None, **options: Any) -> Service:
            front = {"message_bytes_max": MESSAGE_BYTES_MAX, **(limits or {})}
            made = stack.enter_context(http_service.serving(shape, app, "auto", front, **{"workers": 1, **options}))
            return Service(made.pool, made.fronts, stack)

        yield make


def heard(client: ClientConnection) -> Any:
    return client.recv(WAIT_SECONDS)


def end_of(client: ClientConnection) -> tuple[int, str]:
    """The code and the reason that the client is told; messages before it are read."""
    try:
        while True:
            client.recv(WAIT_SECONDS)
    except ConnectionClosed as closed:
        return (closed.rcvd.code, closed.rcvd.reason) if closed.rcvd is not None else (1006, "")


def word_of(guest: Guest) -> str:
    guest.let_go()
    return guest.word


# ---- messages


@pytest.mark.per_profile
def test_messages_come_back_as_they_went(serve: Serve) -> None:
    client = serve().open("echo")
    for message in ("hello", b"hello", "", b"", "späť 🦀", bytes(range(256)), "x" * 70_000, b"y" * 3_000_000):
        client.send(message)
        assert heard(client) == message
    client.close(4000, "done")


def test_a_message_in_fragments_is_one(serve: Serve) -> None:
    client = serve().open("echo")
    client.send(["one ", "two ", "thr", "ee"])
    client.send([b"1", b"", b"2"])
    assert (heard(client), heard(client)) == ("one two three", b"12")


@pytest.mark.per_profile
def test_many_messages_under_way_keep_their_order(serve: Serve) -> None:
    client = serve().open("echo")
    for nr in range(500):
        client.send(f"message {nr}")
    assert [heard(client) for _ in range(500)] == [f"message {nr}" for nr in range(500)]


def test_pings_are_answered(serve: Serve) -> None:
    client = serve().open("echo")
    assert client.ping("are you there?").wait(WAIT_SECONDS)


def test_what_the_app_is_told_of_its_client(serve: Serve) -> None:
    extensions = "{'websocket.http.response': {}}"
    assert heard(serve().open("facts")) == f"websocket ws /facts 1.1 False {extensions}"


def test_the_app_chooses_a_subprotocol_and_adds_headers(serve: Serve) -> None:
    client = serve().open("choose", subprotocols=[Subprotocol("chat"), Subprotocol("superchat")])
    assert client.subprotocol == "superchat"
    assert client.response is not None and client.response.headers["x-from-the-app"] == "yes"
    assert heard(client) == "chat superchat"


@pytest.mark.per_profile
def test_a_slow_reader_slows_the_app(serve: Serve, rendezvous: Rendezvous) -> None:
    client = serve().open("flood", rendezvous, max_queue=1)
    guest = rendezvous.guest()
    assert int(guest.word.removeprefix("blocked ")) < FLOOD_MESSAGES
    guest.let_go()
    count = 0
    while count < FLOOD_MESSAGES:
        count += len(heard(client)) == FLOOD_BYTES
    # What the app was held up for later waits at the rendezvous: it is let go with the test.


def test_a_client_that_takes_nothing_is_cut_off_and_the_app_is_told(serve: Serve, rendezvous: Rendezvous) -> None:
    serve(limits={"write_timeout_ms": 200}).open("pour", rendezvous, max_queue=1)
    assert word_of(rendezvous.guest()) == "1006"


def test_a_quiet_websocket_takes_no_cpu(serve: Serve) -> None:
    client = serve().open("cpu")
    client.send("before")
    before = float(heard(client))
    with pytest.raises(TimeoutError):
        client.recv(QUIET_SECONDS)
    client.send("after")
    assert float(heard(client)) - before < QUIET_SECONDS / 4


@pytest.mark.per_profile
def test_a_wait_for_a_message_can_be_given_up_and_begun_again(serve: Serve) -> None:
    client = serve().open("patient")
    assert heard(client) == "now"
    client.send("hello")
    assert heard(client) == "hello"


@pytest.mark.per_profile
def test_an_app_that_exits_ends_its_own_websocket_alone(serve: Serve) -> None:
    service = serve()
    (worker,) = service.pool.stats()["workers"]
    client = service.open("exit")
    client.send("leave")
    assert end_of(client)[0] == 1011
    other = service.open("echo")
    other.send("still here")
    assert heard(other) == "still here"
    assert [now["pid"] for now in service.pool.stats()["workers"]] == [worker["pid"]]


# ---- handshakes that open nothing


def refused(service: Service, path: str) -> tuple[int, dict[str, str], bytes]:
    with pytest.raises(InvalidStatus) as refusal:
        service.open(path)
    response = refusal.value.response
    return response.status_code, dict(response.headers.raw_items()), bytes(response.body or b"")


def test_an_app_denies_with_a_response_of_its_own(serve: Serve) -> None:
    status, headers, body = refused(serve(), "deny")
    assert (status, headers["x-why"], b"not now" in body) == (418, "tired", True)


@pytest.mark.parametrize("path", ["refuse", "refuse_by_errors", "refuse_as_lost"])
def test_to_close_before_accepting_is_to_refuse(serve: Serve, path: str) -> None:
    """Neither code nor reason is sent then, so any will do."""
    service = serve()
    assert refused(service, path)[0] == 403
    assert service.pool.stats()["failed"] == 0


@pytest.mark.parametrize("path", ["raise_before", "return_at_once"])
def test_an_app_that_does_not_answer_the_handshake_has_failed(serve: Serve, path: str) -> None:
    service = serve()
    assert refused(service, path)[0] == 500
    assert service.pool.stats()["failed"] == 1


def test_the_timeout_ends_where_the_app_accepts(serve: Serve, rendezvous: Rendezvous, events: Watch) -> None:
    service = serve(limits={"timeout_ms": 500}, workers=2, interrupt_grace=0.2, term_grace=0.2)
    client = service.open("echo")
    assert refused(service, f"silent?port={rendezvous.port}")[0] == 504
    events.wait("work_expired", pool="made", at="running")
    client.send("still here")
    assert heard(client) == "still here"


def test_a_wsgi_app_takes_the_handshake_for_a_request(serve: Serve) -> None:
    status, _, body = refused(serve("wsgiref.simple_server:demo_app"), "anything")
    assert (status, b"Hello world!" in body) == (200, True)


# ---- ends


def test_the_app_is_told_the_clients_code_and_reason(serve: Serve, rendezvous: Rendezvous) -> None:
    serve().open("told", rendezvous).close(4001, "going home")
    assert word_of(rendezvous.guest()) == "4001 going home"


def test_a_close_without_a_code_is_1005(serve: Serve, rendezvous: Rendezvous) -> None:
    client = serve().open("told", rendezvous)
    client.socket.sendall(b"\x88\x80\0\0\0\0")
    assert word_of(rendezvous.guest()) == "1005"


@pytest.mark.per_profile
def test_a_client_that_breaks_away_is_1006(serve: Serve, rendezvous: Rendezvous) -> None:
    client = serve().open("told", rendezvous)
    client.send("hello")
    assert heard(client) == "hello"
    client.socket.shutdown(2)
    assert word_of(rendezvous.guest()) == "1006"


def test_the_client_is_told_the_apps_code_and_reason(serve: Serve, rendezvous: Rendezvous) -> None:
    assert end_of(serve().open("close", rendezvous)) == (4321, "enough")
    assert word_of(rendezvous.guest()) == "websocket.disconnect 4321"


@pytest.mark.per_profile
@pytest.mark.parametrize(("path", "code", "failed"), [("return_early", 1000, 0), ("raise_after", 1011, 1)])
def test_an_app_that_ends_ends_the_conversation(serve: Serve, path: str, code: int, failed: int) -> None:
    service = serve()
    assert end_of(service.open(path))[0] == code
    assert service.pool.stats()["failed"] == failed


def test_after_the_end_a_send_raises_oserror_and_a_close_nothing(serve: Serve, rendezvous: Rendezvous) -> None:
    serve().open("late", rendezvous).close()
    assert word_of(rendezvous.guest()) == "send:OSError"


def test_what_an_app_may_not_send_raises_in_it(serve: Serve, rendezvous: Rendezvous) -> None:
    client = serve().open("misuse", rendezvous)
    assert end_of(client) == (1000, "")
    assert word_of(rendezvous.guest()) == "raised raised ok raised raised raised raised raised ok raised"


@pytest.mark.parametrize(
    ("frame", "code"),
    [
        (b"\x81\x82\0\0\0\0\xff\xfe", 1007),
        (b"\x81\x08unmasked", 1002),
        (b"\xf1\x80\0\0\0\0", 1002),
        (b"\x82\xff" + (MESSAGE_BYTES_MAX + 1).to_bytes(8, "big") + bytes(4), 1009),
    ],
    ids=["no UTF-8", "no mask", "reserved bits", "too large"],
)
def test_a_client_that_breaks_the_protocol_is_told_so(
    serve: Serve, rendezvous: Rendezvous, frame: bytes, code: int
) -> None:
    client = serve().open("told", rendezvous)
    client.socket.sendall(frame)
    assert end_of(client)[0] == code
    assert word_of(rendezvous.guest()) == str(code)


@pytest.mark.per_profile
def test_a_client_sees_the_death_of_its_worker_at_once(serve: Serve, rendezvous: Rendezvous) -> None:
    service = serve()
    client = service.open("hold", rendezvous)
    os.kill(rendezvous.guest().pid, signal.SIGKILL)
    with pytest.raises(ConnectionClosedError):
        heard(client)
    assert end_of(client)[0] == 1011


# ---- drains


@pytest.mark.per_profile
@pytest.mark.parametrize("order", ["recycle", "reload"])
def test_both_sides_are_told_1012_when_the_worker_is_to_end(serve: Serve, rendezvous: Rendezvous, order: str) -> None:
    service = serve(grace=60)
    client = service.open("told", rendezvous)
    client.send("before")
    assert heard(client) == "before"
    service.begin(order)
    assert end_of(client) == (1012, "restart")
    assert word_of(rendezvous.guest()) == "1012 restart"
    again = service.open("echo")
    again.send("after")
    assert heard(again) == "after"
    assert service.pool.stats()["failed"] == 0


@pytest.mark.per_profile
def test_an_app_that_goes_on_is_cut_off_at_the_grace(serve: Serve, rendezvous: Rendezvous, events: Watch) -> None:
    service = serve(grace=0.2, interrupt_grace=0.2, term_grace=0.2)
    client = service.open("hold", rendezvous)
    guest = rendezvous.guest()
    service.pool.recycle(timeout=WAIT_SECONDS)
    events.wait("work_drained", pool="made")
    assert end_of(client)[0] == 1012
    guest.wait_gone()
    assert service.pool.stats()["drained"] == 1


def test_a_stop_of_the_front_ends_conversations(serve: Serve, rendezvous: Rendezvous) -> None:
    service = serve(grace=60)
    client = service.open("told", rendezvous)
    client.send("before")
    assert heard(client) == "before"
    service.fronts.stop(WAIT_SECONDS)
    assert end_of(client) == (1012, "restart")
    assert word_of(rendezvous.guest()) == "1012 restart"


def test_a_client_that_does_not_answer_holds_up_no_stop(serve: Serve, rendezvous: Rendezvous) -> None:
    service = serve(grace=60)
    with socket.create_connection(service.place, WAIT_SECONDS) as client:
        client.sendall(b"GET /told?port=%d HTTP/1.1\r\nHost: a\r\n%s\r\n" % (rendezvous.port, HANDSHAKE))
        assert client.recv(1000).startswith(b"HTTP/1.1 101 ")
        begun = time.monotonic()
        service.fronts.stop(WAIT_SECONDS)
        assert time.monotonic() - begun < CLOSING_SECONDS_MAX
        assert word_of(rendezvous.guest()) == "1012 restart"
        assert client.recv(1000) == b"\x88\x09\x03\xf4restart"
        assert client.recv(1000) == b""


@pytest.mark.per_profile
@pytest.mark.parametrize("order", ["recycle", "stop"])
def test_a_stream_of_events_is_told_when_its_worker_is_to_end(serve: Serve, order: str) -> None:
    service = serve(grace=60)
    response = service.asking("/events").getresponse()
    assert response.readline() == b"data: first\n"
    if order == "stop":
        service.fronts.stop(WAIT_SECONDS)
    else:
        service.begin(order)
    assert response.read() == b"\ndata: http.disconnect\n\n"


def test_connections_are_counted_after_the_handshake(serve: Serve) -> None:
    service = serve(limits={"connections_max": 1})
    first = service.open("echo")
    assert service.asking("/echo").getresponse().status == 503
    first.send("still mine")
    assert heard(first) == "still mine"


# ---- frameworks


def test_an_endpoint_of_starlette_works_unchanged(serve: Serve) -> None:
    pytest.importorskip("starlette")
    client = serve("websocket_starlette:app").open("chat/ann")
    client.send("hello")
    assert heard(client) == "ann: hello"
    client.send("bye")
    assert end_of(client) == (1000, "")
