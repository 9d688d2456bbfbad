"""Clients that take or send next to nothing, or more than they may: bounded, cut off on time, and others are served."""

from __future__ import annotations

import contextlib
import json
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path

import h2.events
import pytest
from test_bad_http2 import END_HEADERS, END_STREAM, HEADERS, PREFACE, SETTINGS, Client, frame, head

from support.clutch_process import COMMAND, soon
from support.hostile_client import HOST, LIMITS, Served, body, rest, serve, status
from support.rendezvous import Rendezvous
from support.serve_process import ANY_PORT, Serving, make_certificate

KEY = "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
HANDSHAKE = f"GET / HTTP/1.1\r\n{HOST}Connection: Upgrade\r\nUpgrade: websocket\r\n{KEY}\r\n".encode()
PING = b"\x89\xfd" + bytes(4) + b"p" * 125


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serve(tmp_path_factory.mktemp("served"), "misbehaving_apps:app", streams_max="20") as served:
        yield served


def ended(connection: socket.socket, said: bytes) -> None:
    """Says it again and again, until the server has cut the connection off. What comes is not read."""
    with contextlib.suppress(ConnectionError):
        while True:
            connection.sendall(said)


def open_websocket(connection: socket.socket) -> None:
    connection.sendall(HANDSHAKE)
    assert status(connection.recv(1000)) == 101


def test_failure_67_pings_whose_answers_nobody_reads(served: Served) -> None:
    with served.client() as connection:
        open_websocket(connection)
        ended(connection, PING * 1000)
    served.check()


@pytest.mark.parametrize("window", [1, 3])
def test_failure_67_a_window_of_a_few_bytes(served: Served, window: int) -> None:
    """Each stream is given as much room, and other requests on the connection keep it busy."""
    with served.client() as connection:
        connection.sendall(PREFACE + frame(SETTINGS, payload=b"\x00\x04" + window.to_bytes(4, "big")))
        for stream in range(1, 31, 2):
            connection.sendall(frame(HEADERS, END_HEADERS | END_STREAM, stream, head("/large")))
        connection.settimeout(0.2)
        with contextlib.suppress(ConnectionError):
            for stream in range(31, 1_000_001, 2):
                # A HEAD, whose response needs no window.
                of_head = b"\x02\x04HEAD\x86\x41\x01a\x04\x01/"
                connection.sendall(frame(HEADERS, END_HEADERS | END_STREAM, stream, of_head))
                with contextlib.suppress(TimeoutError):
                    if not connection.recv(1 << 16):
                        break
    served.check()


def test_failure_67_figures_that_nobody_reads(tmp_path: Path) -> None:
    """The front of operators has a limit of its own, and other clients of it are served meanwhile."""
    config = tmp_path / "clutch.toml"
    config.write_text('[pools.api]\ntarget = "http_tools"\nworkers = 1\n[fronts.admin]\nbind = "127.0.0.1:0"\n')
    with Serving(tmp_path, command=[*COMMAND, "run", str(config)]) as serving:
        host, _, port = serving.err.wait(r"admin: http://(\S+)")[1].rpartition(":")
        with socket.create_connection((host, int(port)), timeout=60) as connection:
            ended(connection, f"GET /metrics HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n".encode() * 100)


def test_failure_69_streams_that_are_reset_count_while_they_are_at_work(served: Served, rendezvous: Rendezvous) -> None:
    with contextlib.closing(socket.create_connection(served_place(served), timeout=60)) as connection:
        asking = Client(connection)
        guests = []
        for number in range(20):
            stream = 1 + 2 * number
            asking.ask(stream, path=f"/silent?port={rendezvous.port}")
            guests.append(rendezvous.guest())
            asking.state.reset_stream(stream)
            asking.send()
        asking.ask(41, path="/")
        assert asking.status(41) == 503
        for guest in guests:
            guest.let_go()
        for stream in range(43, 10_000, 2):
            asking.ask(stream, path="/")
            if (answered := asking.status(stream)) == 200:
                break
            assert answered == 503
    served.check()


def served_place(served: Served) -> tuple[str, int]:
    host, _, port = served.address.rpartition(":")
    return host, int(port)


def test_uploads_over_one_connection_do_not_stop_each_other(tmp_path: Path) -> None:
    """More than there are slots, and together more than HTTP/2 begins with."""
    with (
        serve(tmp_path, "misbehaving_apps:wsgi", body_max="10MB", streams_max="100") as served,
        contextlib.closing(socket.create_connection(served_place(served), timeout=60)) as connection,
    ):
        asking = Client(connection)
        left = dict.fromkeys(range(1, 29, 2), 300000)
        for stream in left:
            asking.ask(stream, path="/read", ends=False)
        seen: dict[int, int] = {}
        events = asking.events()
        while len(seen) < 14:
            for stream in list(left):
                while left[stream] and (room := asking.state.local_flow_control_window(stream)):
                    size = min(room, left[stream], asking.state.max_outbound_frame_size)
                    left[stream] -= size
                    asking.state.send_data(stream, bytes(size), end_stream=not left[stream])
            asking.send()
            event = next(events)
            if isinstance(event, h2.events.ResponseReceived):
                assert event.stream_id is not None
                seen[event.stream_id] = int(dict(event.headers)[b":status"])
        assert set(seen.values()) == {200}


def test_a_response_that_leaves_a_body_unread_does_not_hold_its_connection(
    served: Served, rendezvous: Rendezvous
) -> None:
    request = f"POST /unread?port={rendezvous.port} HTTP/1.1\r\n{HOST}Content-Length: 90000\r\n\r\n"
    with served.client() as connection:
        connection.sendall(request.encode() + bytes(70_000))
        response = rest(connection)
        assert status(response) == 200
        guest = rendezvous.guest()
        guest.let_go()


def test_the_clock_of_an_app_stands_while_its_client_sends(served: Served) -> None:
    """The body takes longer than `timeout` and comes fast enough."""
    with served.client() as connection:
        connection.settimeout(0.25)
        size = 24_000
        connection.sendall(f"POST / HTTP/1.1\r\n{HOST}Connection: close\r\nContent-Length: {size}\r\n\r\n".encode())
        for _ in range(11):
            connection.sendall(bytes(size // 12))
            with contextlib.suppress(TimeoutError):
                raise AssertionError(connection.recv(1 << 16))
        connection.sendall(bytes(size // 12))
        connection.settimeout(60)
        response = rest(connection)
    assert (status(response), body(response)["size"]) == (200, size)


def test_streams_of_events_may_be_silent(served: Served, rendezvous: Rendezvous) -> None:
    """For longer than `timeout`."""
    with served.client() as connection:
        connection.sendall(f"GET /quiet-events?port={rendezvous.port} HTTP/1.1\r\n{HOST}\r\n".encode())
        connection.settimeout(3)
        guest = rendezvous.guest()
        received = b""
        with contextlib.suppress(TimeoutError):
            while piece := connection.recv(1 << 16):
                received += piece
        assert b"data: 1" in received and not received.endswith(b"0\r\n\r\n")
        guest.let_go()
        connection.settimeout(60)
        while not received.endswith(b"0\r\n\r\n"):
            piece = connection.recv(1 << 16)
            assert piece
            received += piece
        assert b"data: 2" in received


def test_a_response_is_whole_with_the_last_byte_of_its_length(tmp_path: Path) -> None:
    """Though its app has still to say that there is no more; it is not stopped for that."""
    with serve(tmp_path, "misbehaving_apps:wsgi", disconnect="cancel") as served:
        for _ in range(5):
            assert served.get("/iterator").endswith(b"part")
        assert [line["end"] for line in served.logged()] == ["whole"] * 5
        assert "Interrupted" not in served.serving.err.text


def test_cookies_of_http2_are_one_header(served: Served) -> None:
    with served.client() as connection:
        asking = Client(connection)
        asking.ask(1, ("cookie", "a=1"), ("x", "y"), ("cookie", "sessionid=2"))
        received, _ = asking.end(1)
    headers = json.loads(received)["headers"]
    assert [value for name, value in headers if name == "cookie"] == ["a=1; sessionid=2"]


def test_failure_59_more_connections_than_descriptors(tmp_path: Path) -> None:
    """There are fewer connections then, which is told; those that are there are served, with large responses too."""
    settings = [f"fronts.serve.{name}={value}" for name, value in {**LIMITS, "connections_max": "1000"}.items()]
    flags = [flag for setting in settings for flag in ("--set", setting)]
    serve_app = [*COMMAND, "serve", "misbehaving_apps:app", "-w", "1", "-b", ANY_PORT, *flags]
    command = ["sh", "-c", 'ulimit -n 256; exec "$@"', "sh", *serve_app]
    with Serving(tmp_path, command=command) as serving, contextlib.ExitStack() as stack:
        serving.wait_ready("web")
        assert serving.err.wait(r"connections_max is 1000, and this process may have \d+ descriptors more")
        (worker,) = serving.workers()
        host, _, port = serving.address.rpartition(":")
        place = (host, int(port))
        first = stack.enter_context(socket.create_connection(place, timeout=60))
        for _ in range(250):
            stack.enter_context(socket.create_connection(place, timeout=60))
        assert serving.err.wait("a connection was refused with 503")
        first.sendall(f"GET /large HTTP/1.1\r\n{HOST}Connection: close\r\n\r\n".encode())
        assert len(rest(first)) > 1 << 20
        assert worker in serving.workers()


def test_a_client_is_asked_for_its_body_when_its_app_reads_and_not_before(
    served: Served, rendezvous: Rendezvous
) -> None:
    expect = f"{HOST}Expect: 100-continue\r\nConnection: close\r\nContent-Length: 5\r\n\r\n"
    with served.client() as connection:
        connection.sendall(f"POST /unread?port={rendezvous.port} HTTP/1.1\r\n{expect}".encode())
        assert status(rest(connection)) == 200
        rendezvous.guest().let_go()
    with served.client() as connection:
        connection.sendall(f"POST / HTTP/1.1\r\n{expect}".encode())
        assert status(connection.recv(1000)) == 100
        connection.sendall(b"12345")
        assert body(rest(connection))["size"] == 5


def test_no_words_of_http_before_a_handshake_of_tls(tmp_path: Path) -> None:
    """A connection that there is no place for is closed."""
    folder = make_certificate(tmp_path)
    tls = {"tls.certificate": str(folder / "certificate.pem"), "tls.key": str(folder / "key.pem")}
    settings = {**tls, "connections_max": "1"}
    flags = [flag for name, value in settings.items() for flag in ("--set", f"fronts.serve.{name}={value}")]
    with Serving(tmp_path, "misbehaving_apps:app", "-w", "1", "-b", ANY_PORT, *flags) as serving:
        host, _, port = serving.err.wait(r"serve: https://(\S+)")[1].rpartition(":")
        place = (host, int(port))
        with socket.create_connection(place, timeout=60), socket.create_connection(place, timeout=60) as second:
            assert rest(second) == b""


def test_a_response_may_begin_before_the_body_has_come(served: Served) -> None:
    """The body takes longer than `timeout`."""
    with served.client() as connection:
        size = 24_000
        head = f"POST /head-first HTTP/1.1\r\n{HOST}Connection: close\r\nContent-Length: {size}\r\n\r\n"
        connection.sendall(head.encode())
        connection.settimeout(0.25)
        received = b""
        for _ in range(12):
            connection.sendall(bytes(size // 12))
            with contextlib.suppress(TimeoutError):
                while piece := connection.recv(1 << 16):
                    received += piece
        connection.settimeout(60)
        received += rest(connection)
    assert b"24000" in received and received.endswith(b"0\r\n\r\n")


def test_the_clock_runs_while_an_app_has_something_to_do(served: Served, rendezvous: Rendezvous) -> None:
    """It has read a piece of its body, and does not wait for another, whatever its client does."""
    with served.client() as connection:
        head = f"POST /reads-and-hangs?port={rendezvous.port} HTTP/1.1\r\n{HOST}Content-Length: 90000\r\n\r\n"
        connection.sendall(head.encode() + b"0123456789")
        guest = rendezvous.guest()
        assert status(connection.recv(1 << 16)) == 504
        guest.let_go()


def test_a_client_that_leaves_in_its_body_is_not_refused(served: Served) -> None:
    served.logged()
    with served.client() as connection:
        connection.sendall(f"POST / HTTP/1.1\r\n{HOST}Content-Length: 100\r\n\r\n0123456789".encode())
        connection.shutdown(socket.SHUT_WR)
        rest(connection)
    (line,) = served.logged()
    assert (line["status"], line["end"]) == (None, "client-gone")


def test_spaces_around_values_of_headers_are_left_out(served: Served) -> None:
    assert b"\r\nx-padded: value\r\n" in served.get("/padded")


def test_a_websocket_that_is_not_read_notices_that_its_client_has_gone(tmp_path: Path, rendezvous: Rendezvous) -> None:
    options = {"ping_interval": "0.2s", "disconnect": "cancel"}
    with serve(tmp_path, "misbehaving_apps:app", **options) as served:
        with served.client() as connection:
            connection.sendall(HANDSHAKE.replace(b"GET / ", f"GET /deaf?port={rendezvous.port} ".encode()))
            assert status(connection.recv(1000)) == 101
            guest = rendezvous.guest()
            connection.sendall((b"\x81\x81" + bytes(4) + b"x") * 40)
        soon(lambda: served.serving.pool()["sent"] == 0)
        guest.let_go()


def test_a_websocket_that_sends_is_there(tmp_path: Path) -> None:
    """One message takes longer than a client may be silent."""
    with (
        serve(tmp_path, "misbehaving_apps:app", ping_interval="0.2s", ping_timeout="0.5s") as served,
        served.client() as connection,
    ):
        open_websocket(connection)
        connection.settimeout(0.2)
        connection.sendall(b"\x82\xfe" + (10_000).to_bytes(2, "big") + bytes(4))
        for _ in range(10):
            connection.sendall(bytes(1000))
            with contextlib.suppress(TimeoutError):
                assert connection.recv(1000) == b"\x89\x00", "nothing but pings"
        connection.sendall(b"\x88\x82" + bytes(4) + b"\x03\xe8")
        connection.settimeout(60)
        assert b"\x88\x02\x03\xe8" in rest(connection)


def test_an_idle_connection_of_http2_has_its_keep_alive(tmp_path: Path) -> None:
    """Its preface is no head."""
    with (
        serve(tmp_path, "misbehaving_apps:app", head_timeout="0.3s", keep_alive="1s") as served,
        served.client() as client,
    ):
        client.sendall(PREFACE + frame(SETTINGS))
        received = rest(client)
        goaway = 7
        assert frame(goaway, payload=b"")[3:5] in received


def test_a_silent_connection_does_not_hold_a_stop_up(tmp_path: Path) -> None:
    """Neither before a handshake of TLS, nor when it was told to go."""
    folder = make_certificate(tmp_path)
    options = {
        "fronts.serve.tls.certificate": folder / "certificate.pem",
        "fronts.serve.tls.key": folder / "key.pem",
        "fronts.serve.head_timeout": "300s",
        "pools.web.grace": "300s",
    }
    flags = [flag for name, value in options.items() for flag in ("--set", f"{name}={value}")]
    with Serving(tmp_path, "misbehaving_apps:app", "-w", "1", "-b", ANY_PORT, *flags) as serving:
        host, _, port = serving.err.wait(r"serve: https://(\S+)")[1].rpartition(":")
        serving.wait_ready("web")
        context = ssl.create_default_context(cafile=folder / "certificate.pem")
        context.set_alpn_protocols(["h2"])
        place = (host, int(port))
        with socket.create_connection(place, timeout=60), socket.create_connection(place, timeout=60) as second:
            idle = context.wrap_socket(second, server_hostname="localhost")
            idle.sendall(PREFACE + frame(SETTINGS))
            idle.recv(9)
            serving.terminate()
            assert serving.wait() == 0
            idle.close()


def test_what_a_stop_cuts_off_is_said_to_be_stopped(tmp_path: Path, rendezvous: Rendezvous) -> None:
    log = tmp_path / "log"
    options = {"access_log": "log", "access_log_format": "json", "timeout": "60s"}
    with serve(tmp_path, "misbehaving_apps:app", **options) as served, served.client() as connection:
        connection.sendall(f"GET /silent?port={rendezvous.port} HTTP/1.1\r\n{HOST}\r\n".encode())
        rendezvous.guest()
        served.serving.interrupt()
        served.serving.wait()
    (line,) = (json.loads(line) for line in log.read_text().splitlines() if "/silent" in line)
    assert line["end"] == "stopped"
