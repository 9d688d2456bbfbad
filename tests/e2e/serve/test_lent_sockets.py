"""WebSockets whose sockets workers read and write themselves: for clients nothing differs, whoever does it."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from benches.hostile.websocket import frame, frames_of
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from support.clutch_process import WAIT_SECONDS, clutch, soon
from support.rendezvous import Rendezvous
from support.secure_websocket import SecureClient, open_securely
from support.serve_process import ANY_PORT, Serving, make_certificate

TEXT, CLOSE, PING, PONG = 1, 8, 9, 10
BEFORE = b"GET /echo HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
ASKED = BEFORE + b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
TLS = ["--certfile", "certificate.pem", "--keyfile", "key.pem"]
"""The socket stays with the dispatcher, which encrypts."""

Client = ClientConnection | SecureClient


class Chat(Serving):
    @property
    def port(self) -> int:
        return int(self.err.wait(r"serve: https?://\S+:(\d+)")[1])

    @contextmanager
    def open(self, path: str, rendezvous: Rendezvous | None = None) -> Iterator[Client]:
        query = f"?port={rendezvous.port}" if rendezvous is not None else ""
        place = f"localhost:{self.port}/{path}{query}"
        if (certificate := self.folder / "certificate.pem").exists():
            with open_securely(f"wss://{place}", certificate) as client:
                yield client
            return
        options: dict[str, Any] = {"compression": None, "max_size": None, "max_queue": 1, "ping_interval": None}
        with connect(f"ws://{place}", open_timeout=WAIT_SECONDS, **options) as client:
            yield client

    @contextmanager
    def raw(self, sent: bytes) -> Iterator[socket.socket]:
        with closing(socket.create_connection(("127.0.0.1", self.port), WAIT_SECONDS)) as client:
            client.sendall(sent)
            yield client

    def sockets_of_worker(self) -> int:
        """Those to clients of this front that its worker has."""
        (pid,) = self.workers()
        links = {link.readlink().name for link in Path(f"/proc/{pid}/fd").iterdir()}
        here = f":{self.port:04X}"
        rows = [row.split() for row in Path("/proc/net/tcp").read_text().splitlines()[1:]]
        return sum(row[1].endswith(here) and f"socket:[{row[9]}]" in links for row in rows)


@contextmanager
def serve(folder: Path, *flags: str) -> Iterator[Chat]:
    with Chat(folder, "websocket_apps:app", "-w", "1", "-b", ANY_PORT, *flags) as served:
        served.wait_ready("web")
        yield served


@pytest.fixture(params=["worker", "dispatcher"])
def speaker(request: pytest.FixtureRequest, tmp_path: Path) -> list[str]:
    """Options with which this process reads and writes the sockets of WebSockets."""
    if request.param == "worker":
        return []
    make_certificate(tmp_path)
    return TLS


def test_a_worker_has_the_socket_while_the_conversation_is_open(tmp_path: Path) -> None:
    with serve(tmp_path) as served:
        with served.open("echo") as client:
            client.send("hello")
            assert (client.recv(WAIT_SECONDS), served.sockets_of_worker()) == ("hello", 1)
        soon(lambda: served.sockets_of_worker() == 0)


def test_whoever_reads_messages_come_back_as_they_went(tmp_path: Path, speaker: list[str]) -> None:
    with serve(tmp_path, *speaker) as served, served.open("echo") as client:
        for message in ("hello", "", b"", "späť 🦀", bytes(range(256)), "x" * 70_000, b"y" * 3_000_000):
            client.send(message)
            assert client.recv(WAIT_SECONDS) == message
        client.send(["in ", "parts"])
        assert client.recv(WAIT_SECONDS) == "in parts"
        if isinstance(client, SecureClient):
            client.pings()
        else:
            assert client.ping("?").wait(WAIT_SECONDS)


def test_whoever_writes_what_an_app_says_before_its_close_arrives(tmp_path: Path, speaker: list[str]) -> None:
    with serve(tmp_path, *speaker) as served, served.open("greet") as client:
        assert [client.recv(WAIT_SECONDS)[:3].split()[0] for _ in range(50)] == [str(nr) for nr in range(50)]
        with pytest.raises(ConnectionClosed) as closed:
            client.recv(WAIT_SECONDS)
        assert closed.value.rcvd is not None and closed.value.rcvd.code == 4001


@pytest.mark.parametrize("order", [signal.SIGHUP, signal.SIGTERM, signal.SIGINT])
def test_whoever_writes_the_end_of_a_worker_is_told(tmp_path: Path, speaker: list[str], order: signal.Signals) -> None:
    with serve(tmp_path, *speaker) as served, served.open("echo") as client:
        client.send("hello")
        assert client.recv(WAIT_SECONDS) == "hello"
        served.send(order)
        with pytest.raises(ConnectionClosed) as closed:
            client.recv(WAIT_SECONDS)
        assert closed.value.rcvd is not None and closed.value.rcvd.code == 1012


def test_ctrl_c_tells_all_and_workers_end_in_order(tmp_path: Path, speaker: list[str]) -> None:
    with serve(tmp_path, *speaker, "-w", "2") as served, ExitStack() as opened:
        clients = [opened.enter_context(served.open("echo")) for _ in range(12)]
        for client in clients:
            client.send("hello")
            assert client.recv(WAIT_SECONDS) == "hello"
        served.interrupt()
        for client in clients:
            with pytest.raises(ConnectionClosed) as closed:
                client.recv(WAIT_SECONDS)
            assert closed.value.rcvd is not None and closed.value.rcvd.code == 1012
        assert served.wait() == 0
        assert "SIGKILL" not in served.err.wait_end()


def test_websockets_that_leave_no_slot_are_told_of(tmp_path: Path) -> None:
    def opened() -> float:
        return served.figures("clutch_http_websockets_open")['front="serve"']

    with serve(tmp_path, "--worker-connections", "2", "--set", "fronts.admin.bind=127.0.0.1:0") as served:
        with served.open("echo"):
            soon(lambda: opened() == 1)
            with served.open("echo"):
                served.err.wait("WebSockets have all 2 slots of pool web")
                soon(lambda: opened() == 2)
        soon(lambda: opened() == 0)


@pytest.mark.parametrize("dispatch", ["connection", "request"])
def test_event_streams_that_leave_no_slot_are_told_of(tmp_path: Path, dispatch: str) -> None:
    asked = b"GET /events HTTP/1.1\r\nHost: a\r\n\r\n"
    flags = ["--worker-connections", "2", "--dispatch", dispatch, "--set", "fronts.admin.bind=127.0.0.1:0"]

    with serve(tmp_path, *flags) as served:

        def opened() -> float:
            return served.figures("clutch_http_event_streams_open")['front="serve"']

        with served.raw(asked):
            soon(lambda: opened() == 1)
            with served.raw(asked):
                served.err.wait("event streams have all 2 slots of pool web: other requests wait")
                soon(lambda: opened() == 2)
        soon(lambda: opened() == 0)


def test_websockets_and_event_streams_fill_slots_together(tmp_path: Path) -> None:
    asked = b"GET /events HTTP/1.1\r\nHost: a\r\n\r\n"
    with serve(tmp_path, "--worker-connections", "2") as served, served.open("echo"), served.raw(asked):
        served.err.wait("WebSockets and event streams have all 2 slots of pool web")


@pytest.mark.parametrize("path", ["told", "hold"])
def test_code_of_a_websocket_ends_before_its_worker(tmp_path: Path, rendezvous: Rendezvous, path: str) -> None:
    """The one hears of it and goes on for a while, the other hears nothing and is cancelled."""
    with serve(tmp_path) as served, served.open(path, rendezvous) as client:
        heard = rendezvous.guest() if path == "hold" else None
        served.interrupt()
        with pytest.raises(ConnectionClosed) as closed:
            client.recv(WAIT_SECONDS)
        assert closed.value.rcvd is not None and closed.value.rcvd.code == 1012
        if heard is None:
            rendezvous.guest().let_go()
        assert served.wait() == 0
        assert "SIGKILL" not in served.err.wait_end()


def test_an_app_that_hears_nothing_slows_its_client(tmp_path: Path, rendezvous: Rendezvous) -> None:
    with serve(tmp_path) as served, served.open("count", rendezvous) as client:
        assert isinstance(client, ClientConnection)
        guest = rendezvous.guest()
        client.socket.settimeout(1)
        sent = 0
        with pytest.raises((TimeoutError, ConnectionClosed)):
            while sent < 1000:
                client.send("x" * 100_000)
                sent += 1
        assert sent < 1000
        guest.let_go()


def test_frames_that_come_with_the_handshake_are_heard(tmp_path: Path) -> None:
    said = [f"message {nr} ".encode() * 20 for nr in range(400)]
    with serve(tmp_path) as served, served.raw(ASKED + b"".join(frame(TEXT, text) for text in said)) as client:
        data = client.recv(1 << 20)
        while b"\r\n\r\n" not in data or len(list(frames_of(data.partition(b"\r\n\r\n")[2]))) < len(said):
            data += client.recv(1 << 20)
        assert data.startswith(b"HTTP/1.1 101 ")
        assert [payload for _, payload in frames_of(data.partition(b"\r\n\r\n")[2])] == said


def test_a_message_that_is_cut_anywhere_is_heard(tmp_path: Path) -> None:
    whole = frame(TEXT, b"he", final=False) + frame(PING, b"?") + frame(0, b"llo") + frame(TEXT, b"x" * 200)
    with serve(tmp_path) as served, served.raw(ASKED) as client:
        while b"\r\n\r\n" not in client.recv(1 << 16):
            pass
        for at in range(len(whole)):
            client.sendall(whole[:at])
            client.sendall(whole[at:])
            data = b""
            while len(frames := list(frames_of(data))) < 3:
                data += client.recv(1 << 16)
            assert frames == [(PONG, b"?"), (TEXT, b"hello"), (TEXT, b"x" * 200)]


@pytest.mark.parametrize(
    ("said", "code"),
    [
        (frame(CLOSE, b"\x0f\xa0bye"), 4000),
        (frame(TEXT, b"\xff"), 1007),
        (frame(TEXT, b"a", final=False) + frame(0, b"\xff"), 1007),
        (frame(TEXT, b"a", mask=None), 1002),
        (frame(TEXT, b"a", final=False) + frame(TEXT, b"b"), 1002),
        (frame(2, bytes(2_000_000)), 1009),
        (frame(2, bytes(900_000), final=False) + frame(0, bytes(900_000)), 1009),
    ],
)
def test_the_end_is_judged_as_ever_behind_what_was_heard(tmp_path: Path, said: bytes, code: int) -> None:
    with serve(tmp_path, "--set", "fronts.serve.message_max=1MB") as served, served.raw(ASKED) as client:
        while b"\r\n\r\n" not in client.recv(1 << 16):
            pass
        client.sendall(frame(TEXT, b"hello") + said)
        data = b""
        while more := client.recv(1 << 16):
            data += more
        assert list(frames_of(data))[:1] == [(TEXT, b"hello")]
        ((opcode, reason),) = list(frames_of(data))[1:]
        assert (opcode, int.from_bytes(reason[:2])) == (CLOSE, code)


def test_a_client_that_answers_no_ping_is_cut_off_and_others_stay(tmp_path: Path) -> None:
    flags = ["--set", "fronts.serve.ping_interval=0.1s", "--set", "fronts.serve.ping_timeout=3s"]
    with serve(tmp_path, *flags) as served, served.open("echo") as alive:
        with served.raw(ASKED) as silent:
            data = b""
            while more := silent.recv(1 << 16):
                data += more
            assert {opcode for opcode, _ in frames_of(data.partition(b"\r\n\r\n")[2])} == {PING}
        alive.send("still here")
        assert alive.recv(WAIT_SECONDS) == "still here"


@pytest.mark.parametrize("dispatch", ["connection", "request"])
def test_the_access_log_has_a_line_at_the_end_of_a_websocket(
    tmp_path: Path, speaker: list[str], dispatch: str, rendezvous: Rendezvous
) -> None:
    flags = ["--access-logfile", "-", "--access-logformat", "%(m)s %(U)s %(s)s %(B)s %(end)s %(close_code)s"]
    with serve(tmp_path, *speaker, "--dispatch", dispatch, *flags) as served:
        with served.open("echo") as client:
            client.send("hello")
            client.send(b"x" * 70_000)
            assert [len(client.recv(WAIT_SECONDS)) for _ in range(2)] == [5, 70_000]
            assert not served.out.lines, "it has no line before its end"
            client.close(4000)
        served.out.wait("^GET /echo 101 70005 whole 4000$")
        for path, line in [("close", "whole 4321"), ("return_early", "whole 1000"), ("raise_after", "broken-off 1011")]:
            with served.open(path, rendezvous) as client:
                with pytest.raises(ConnectionClosed):
                    client.recv(WAIT_SECONDS)
                if path == "close":
                    rendezvous.guest().let_go()
            served.out.wait(f"^GET /{path} 101 0 {line}$")
        with pytest.raises(InvalidStatus), served.open("refuse"):
            pass
        served.out.wait("^GET /refuse 403 0 whole -$")
        with served.open("echo") as client:
            os.kill(served.workers()[0], signal.SIGKILL)
            with pytest.raises(ConnectionClosed):
                client.recv(WAIT_SECONDS)
        served.out.wait("^GET /echo 101 0 worker-lost 1011$")
        with served.open("told", rendezvous) as client:
            client.lose() if isinstance(client, SecureClient) else client.socket.shutdown(socket.SHUT_RDWR)
            assert rendezvous.guest().word == "1006"
        served.out.wait("^GET /told 101 0 client-gone 1006$")
        assert len(served.out.lines) == 7


def test_a_websocket_that_the_server_stops_has_a_line(tmp_path: Path, speaker: list[str]) -> None:
    with serve(tmp_path, *speaker, "--access-logfile", "-") as served, served.open("echo") as client:
        client.send("hello")
        assert client.recv(WAIT_SECONDS) == "hello"
        served.send(signal.SIGTERM)
        with pytest.raises(ConnectionClosed):
            client.recv(WAIT_SECONDS)
        served.out.wait(r'"GET /echo HTTP/1.1" 101 5 .* stopped 1012$')
        assert served.wait() == 0


def test_a_websocket_is_told_apart_from_requests(tmp_path: Path, speaker: list[str]) -> None:
    with serve(tmp_path, *speaker) as served, served.open("echo"):
        soon(lambda: "WebSocket /echo" in clutch("ps", "--pid", str(served.process.pid), cwd=tmp_path).stdout)
