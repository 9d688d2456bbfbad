"""Ports that an app opens while its workers start, at import or in a lifespan handler: workers share them."""

from __future__ import annotations

import signal
import socket
from pathlib import Path

import pytest

from support.serve_process import ANY_PORT, Serving

SERVER = """
import asyncio, http.server, os, threading

class Pid(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = str(os.getpid()).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass

def open_port():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", {port}), Pid)
    threading.Thread(target=server.serve_forever, daemon=True).start()
"""
APP = """
async def app(scope, receive, send):
    if scope["type"] == "lifespan":
        await receive()
        {in_lifespan}
        await send({{"type": "lifespan.startup.complete"}})
        await receive()
        await send({{"type": "lifespan.shutdown.complete"}})
        return
    await send({{"type": "http.response.start", "status": 200, "headers": []}})
    await send({{"type": "http.response.body", "body": str(os.getpid()).encode()}})
"""
PLACES = {
    "import": (SERVER + "\nopen_port()\n", "pass"),
    "hook": (SERVER + "\nimport clutch\n\n@clutch.on_start\ndef begin(): open_port()\n", "pass"),
    "lifespan": (SERVER, "open_port()"),
    "asyncio": (SERVER, "await asyncio.start_server(lambda reader, writer: writer.close(), '127.0.0.1', {port})"),
}


@pytest.fixture
def port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def write_app(folder: Path, port: int, place: str) -> None:
    head, in_lifespan = PLACES[place]
    text = head + APP.format(in_lifespan=in_lifespan)
    (folder / "opening.py").write_text(text.replace("{port}", str(port)))


@pytest.mark.parametrize("place", PLACES)
def test_workers_share_it_and_a_reload_takes_it_over(tmp_path: Path, port: int, place: str) -> None:
    write_app(tmp_path, port, place)
    with Serving(tmp_path, "opening:app", "-w", "2", "-b", ANY_PORT, "--loop", "asyncio") as served:
        served.wait_ready("web")
        before = served.until(lambda pids: len(pids) == 2)
        with socket.create_connection(("127.0.0.1", port), timeout=30):
            pass
        served.send(signal.SIGHUP)
        served.err.wait("reloaded")
        after = served.until(lambda pids: len(pids) == 2 and not set(pids) & set(before))
        assert int(served.get("/").body) in after
        with socket.create_connection(("127.0.0.1", port), timeout=30):
            pass
        assert not [line for line in served.err.lines if "Address already in use" in line]


def test_a_port_of_somebody_else_is_in_use_and_the_error_says_whose(tmp_path: Path, port: int) -> None:
    write_app(tmp_path, port, "import")
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        other.bind(("127.0.0.1", port))
        other.listen()
        with Serving(tmp_path, "opening:app", "-w", "1", "-b", ANY_PORT) as served:
            served.err.wait(rf"port {port} is in use by process \d+ \(.+\), which is none of this service")
            assert served.wait() != 0
