"""Clients of HTTP/2 that keep to no rules: frames made by hand, and by a library that is told not to check."""

from __future__ import annotations

import contextlib
import json
import socket
from collections.abc import Iterator

import h2.config
import h2.connection
import h2.errors
import h2.events
import h2.settings
import pytest

from support.hostile_client import Served, rest, serve
from support.rendezvous import Rendezvous

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PING, WINDOW_UPDATE, CONTINUATION = 0, 1, 2, 3, 4, 6, 8, 9
END_STREAM, END_HEADERS = 1, 4
PATH = [(":method", "GET"), (":scheme", "http"), (":authority", "a")]


def frame(kind: int, flags: int = 0, stream: int = 0, payload: bytes = b"") -> bytes:
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


class Client:
    """A connection whose events are read one after another."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        config = h2.config.H2Configuration(validate_outbound_headers=False, normalize_outbound_headers=False)
        self.state = h2.connection.H2Connection(config)
        self.state.initiate_connection()
        self.send()

    def send(self, more: bytes = b"") -> None:
        with contextlib.suppress(ConnectionError):
            self.socket.sendall(self.state.data_to_send() + more)

    def ask(self, stream: int, *headers: tuple[str, str], path: str = "/", ends: bool = True) -> None:
        self.state.send_headers(stream, [*PATH, (":path", path), *headers], end_stream=ends)
        self.send()

    def events(self) -> Iterator[h2.events.Event]:
        """Until the server closes."""
        with contextlib.suppress(ConnectionError):
            while data := self.socket.recv(1 << 16):
                yield from self.state.receive_data(data)
                self.send()

    def status(self, stream: int) -> int:
        """Of a response; 0: the stream, or all of it, was broken off."""
        for event in self.events():
            if isinstance(event, h2.events.ResponseReceived) and event.stream_id == stream:
                return int(dict(event.headers)[b":status"])
            if isinstance(event, h2.events.StreamReset) and event.stream_id == stream:
                return 0
            if isinstance(event, h2.events.ConnectionTerminated):
                return 0
        return 0

    def end(self, stream: int) -> tuple[bytes, int | None]:
        """What came of a body, and the error that it was broken off with."""
        received = b""
        for event in self.events():
            if isinstance(event, h2.events.DataReceived):
                received += event.data
            if isinstance(event, h2.events.StreamEnded) and event.stream_id == stream:
                return received, None
            if isinstance(event, h2.events.StreamReset) and event.stream_id == stream:
                return received, event.error_code
        raise ConnectionError("the server closed the connection")


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serve(tmp_path_factory.mktemp("served"), "misbehaving_apps:app", streams_max="20") as served:
        yield served


@contextlib.contextmanager
def client(served: Served) -> Iterator[Client]:
    with served.client() as connection:
        yield Client(connection)


@pytest.mark.parametrize(
    ("headers", "path", "expected"),
    [
        ([("x", "1")], "/", 200),
        ([("host", "b")], "/", 400),
        ([], "/%00", 200),
        ([], "/100%", 200),
        ([("x", "y" * 9000)], "/", 431),
        ([("x", "1")] * 30, "/", 431),
        ([("content-length", "1000000")], "/", 413),
        # What the protocol forbids ends the stream.
        ([("X-Upper", "1")], "/", 0),
        ([("connection", "close")], "/", 0),
        ([("transfer-encoding", "chunked")], "/", 0),
        ([("x", "1\r\ny: 2")], "/", 0),
    ],
)
def test_failure_42_heads_of_http2(served: Served, headers: list[tuple[str, str]], path: str, expected: int) -> None:
    with client(served) as asking:
        asking.ask(1, *headers, path=path, ends=expected != 413)
        assert asking.status(1) == expected
    served.check()


@pytest.mark.parametrize("act", ["raises-during", "unfinished", "too-much", "too-little"])
def test_failure_42_a_response_that_is_not_whole_is_reset(served: Served, act: str) -> None:
    with client(served) as asking:
        asking.ask(1, path=f"/{act}")
        received, error = asking.end(1)
        assert (received, error) == (b"part", h2.errors.ErrorCodes.INTERNAL_ERROR)
        asking.ask(3)
        assert asking.status(3) == 200, "the connection goes on"
    served.check()


def test_headers_of_the_connection_are_left_out(served: Served) -> None:
    with client(served) as asking:
        asking.ask(1, path="/of-connection")
        assert asking.end(1) == (b"partpart", None)


def test_failure_42_rapid_reset(served: Served) -> None:
    """Streams that are opened and reset at once cost the one that does so its connection."""
    with client(served) as asking:
        for stream in range(1, 20_000, 2):
            asking.state.send_headers(stream, [*PATH, (":path", "/")], end_stream=True)
            asking.state.reset_stream(stream)
            asking.send()
    served.check()


def flood(kind: int, stream: int = 0, payload: bytes = b"") -> bytes:
    return frame(kind, 0, stream, payload) * 200


FLOODS = {
    "settings": flood(SETTINGS, payload=b"\x00\x03\x00\x00\x00\x01"),
    "pings": flood(PING, payload=bytes(8)),
    "continuations": frame(HEADERS, 0, 1, b"\x82") + flood(CONTINUATION, 1, b"\x40\x01x\x01y" * 100),
    "resets of nothing": flood(RST_STREAM, 1, bytes(4)),
    "window updates": flood(WINDOW_UPDATE, payload=b"\x7f\xff\xff\xff"),
    "priorities": flood(PRIORITY, 1, bytes(5)),
    "unknown kinds": flood(200, payload=bytes(100)),
    "no frames": b"\xff" * 10_000,
}


FORBIDDEN = {"continuations", "resets of nothing", "window updates", "no frames"}
"""What the protocol has a word against; the others the client ends itself, or its time does."""


@pytest.mark.parametrize("name", FLOODS)
def test_failure_42_floods(served: Served, name: str) -> None:
    """The client reads nothing of what it is answered, until it has said all."""
    served.logged()
    with served.client() as connection:
        with contextlib.suppress(ConnectionError):
            connection.sendall(PREFACE + frame(SETTINGS))
            for _ in range(100):
                connection.sendall(FLOODS[name])
        rest(connection)
    # Frames that the protocol allows are no requests, however many they are.
    expected = [(None, None, "refused")] if name in FORBIDDEN else []
    assert [(line["method"], line["status"], line["end"]) for line in served.logged()] == expected
    served.check()


def head(path: str) -> bytes:
    """Of a GET, packed."""
    return b"\x82\x86\x41\x01a\x04" + bytes([len(path)]) + path.encode()


@pytest.mark.parametrize("piece", [b"", b"x"])
def test_failure_42_a_flood_of_frames_in_a_body_that_nobody_reads(
    served: Served, rendezvous: Rendezvous, piece: bytes
) -> None:
    with served.client() as connection:
        path = f"/waits-for-disconnect?port={rendezvous.port}"
        connection.sendall(PREFACE + frame(SETTINGS) + frame(HEADERS, END_HEADERS, 1, head(path)))
        guest = rendezvous.guest()
        with contextlib.suppress(ConnectionError):
            for _ in range(100):
                connection.sendall(frame(DATA, 0, 1, piece) * 10_000)
        served.check()
    guest.let_go()
    rendezvous.guest().let_go()


def test_trailers_are_no_part_of_the_body(served: Served) -> None:
    with client(served) as asking:
        asking.ask(1, ends=False)
        asking.state.send_data(1, b"12345")
        asking.state.send_headers(1, [("x-trailer", "1")], end_stream=True)
        asking.send()
        received, _ = asking.end(1)
        assert json.loads(received)["size"] == 5


def test_failure_42_responses_that_are_given_no_room(served: Served) -> None:
    """Small ones, which their apps have long forgotten: the connection ends all the same."""
    served.logged()
    with served.client() as connection:
        connection.sendall(PREFACE + frame(SETTINGS, payload=b"\x00\x04" + bytes(4)))
        for stream in range(1, 21, 2):
            connection.sendall(frame(HEADERS, END_HEADERS | END_STREAM, stream, head("/")))
        assert b'"pid"' not in rest(connection)
    assert [line["status"] for line in served.logged()] == [200] * 10
    served.check()


def test_failure_42_a_stream_that_is_given_no_room(served: Served, rendezvous: Rendezvous) -> None:
    with served.client() as connection:
        no_window = b"\x00\x04" + bytes(4)
        connection.sendall(PREFACE + frame(SETTINGS, payload=no_window))
        connection.sendall(frame(HEADERS, END_HEADERS | END_STREAM, 1, head(f"/endless?port={rendezvous.port}")))
        guest = rendezvous.guest()
        assert guest.word == "http.disconnect"
        guest.let_go()
    served.check()


def test_no_more_streams_than_allowed(served: Served) -> None:
    with client(served) as asking:
        settings = next(event for event in asking.events() if isinstance(event, h2.events.RemoteSettingsChanged))
        assert settings.changed_settings[h2.settings.SettingCodes.MAX_CONCURRENT_STREAMS].new_value == 20
