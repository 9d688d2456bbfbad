"""WebSockets by libraries of WSGI, which take over a request's socket: Flask-SocketIO, flask-sock."""

from __future__ import annotations

import queue
import signal
from pathlib import Path
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from support.clutch_process import WAIT_SECONDS
from support.secure_websocket import open_securely
from support.serve_process import ANY_PORT, Serving, make_certificate

pytest.importorskip("flask_sock", reason="flask-sock is not installed: make .venv/.test")

PROFILES = ["-k gthread --threads 8", "-k gevent"]
EXCHANGED = ["hello", b"\x00hello", "", "x" * 70_000, b"y" * 3_000_000]


def serving(folder: Path, target: str, flags: str = PROFILES[0], *more: str) -> Serving:
    if "gevent" in flags:
        pytest.importorskip("gevent")
    return Serving(folder, target, "-w", "1", "-b", ANY_PORT, *flags.split(), *more)


def stop_quietly(served: Serving) -> None:
    served.send(signal.SIGTERM)
    assert served.wait() == 0
    complaints = [line for line in served.err.lines if "raised" in line or "Traceback" in line]
    assert not complaints, served.err.text


@pytest.mark.parametrize("flags", PROFILES)
def test_messages_of_flask_sock_come_back(tmp_path: Path, flags: str) -> None:
    with serving(tmp_path, "websocket_flask:app", flags, "--access-logfile", "-") as served:
        served.wait_ready("web")
        with connect(f"ws://{served.address}/echo", max_size=None, open_timeout=WAIT_SECONDS) as client:
            for message in EXCHANGED:
                client.send(message)
                assert client.recv(WAIT_SECONDS) == message
            assert served.get("/").body == b"a page"
        # As they are on the wire, and so compressed: the dispatcher does not look into them.
        line = served.out.wait(r'"GET /echo HTTP/1.1" 101 (\d+) .* whole$')
        assert int(line[1]) > len(EXCHANGED)
        with connect(f"ws://{served.address}/farewell", open_timeout=WAIT_SECONDS) as client:
            assert client.recv(WAIT_SECONDS) == "bye"
            with pytest.raises(ConnectionClosed) as closed:
                client.recv(WAIT_SECONDS)
        assert closed.value.rcvd is not None and closed.value.rcvd.code == 1000
        assert served.get("/").body == b"a page"
        stop_quietly(served)


@pytest.mark.parametrize("flags", PROFILES)
@pytest.mark.parametrize("transports", [["websocket"], ["polling", "websocket"]])
def test_events_of_flask_socketio_come_back(tmp_path: Path, flags: str, transports: list[str]) -> None:
    import socketio

    heard: queue.SimpleQueue[Any] = queue.SimpleQueue()
    client = socketio.Client(reconnection=False)
    client.on("said", heard.put)
    with serving(tmp_path, "websocket_flask:talk", flags) as served:
        served.wait_ready("web")
        client.connect(served.url, transports=transports, wait_timeout=WAIT_SECONDS)
        assert client.transport() == "websocket"
        for nr in range(10):
            client.emit("say", {"nr": nr})
        # Each event is handled in a thread of its own, so they come back in any order.
        assert sorted(heard.get(timeout=WAIT_SECONDS)["nr"] for _ in range(10)) == list(range(10))
        client.disconnect()
        stop_quietly(served)


def test_tls_makes_no_difference_to_the_app(tmp_path: Path) -> None:
    make_certificate(tmp_path)
    flags = ["--certfile", "certificate.pem", "--keyfile", "key.pem"]
    with serving(tmp_path, "websocket_flask:app", PROFILES[0], *flags) as served:
        port = served.err.wait(r"serve: https://\S+:(\d+)")[1]
        served.wait_ready("web")
        with open_securely(f"wss://localhost:{port}/echo", tmp_path / "certificate.pem") as client:
            for message in EXCHANGED:
                client.send(message)
                assert client.recv(WAIT_SECONDS) == message


@pytest.mark.parametrize("order", [signal.SIGHUP, signal.SIGTERM])
def test_an_open_one_holds_up_neither_reload_nor_stop(tmp_path: Path, order: signal.Signals) -> None:
    with serving(tmp_path, "websocket_flask:app") as served:
        served.wait_ready("web")
        with connect(f"ws://{served.address}/echo", open_timeout=WAIT_SECONDS) as client:
            client.send("hello")
            assert client.recv(WAIT_SECONDS) == "hello"
            served.send(order)
            with pytest.raises(ConnectionClosed):
                client.recv(WAIT_SECONDS)
        if order == signal.SIGTERM:
            assert served.wait() == 0
        else:
            assert served.get("/").body == b"a page"
