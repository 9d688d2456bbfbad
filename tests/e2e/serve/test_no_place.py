"""Clients for whose connection there is no place: each is told 503, by whatever it speaks, and when to come again."""

from __future__ import annotations

import contextlib
import http.client
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from support.clutch_process import WAIT_SECONDS, Dispatcher
from support.serve_process import ANY_PORT, Serving, curl, make_certificate

MANY = 200
LARGE = bytes(20 << 20)


@contextlib.contextmanager
def full(folder: Path, *flags: str) -> Iterator[tuple[Serving, str]]:
    """A server with one connection, which is taken, and the address of it."""
    flags = ("-w", "1", "-b", ANY_PORT, "--set", "fronts.serve.connections_max=1", *flags)
    with Serving(folder, "web:app", *flags) as served:
        address = served.err.wait(r"serve: https?://(\S+)")[1]
        served.wait_ready("web")
        host, _, port = address.rpartition(":")
        with socket.create_connection((host, int(port)), WAIT_SECONDS):
            yield served, address


def status_of(address: str, body: bytes | None = None) -> tuple[int, str | None]:
    connection = http.client.HTTPConnection(address, timeout=WAIT_SECONDS)
    with contextlib.closing(connection):
        connection.request("GET" if body is None else "POST", "/", body)
        response = connection.getresponse()
        response.read()
        return response.status, response.headers["Retry-After"]


def test_many_clients_at_once_are_all_told(tmp_path: Path) -> None:
    with full(tmp_path, "--access-logfile", "-") as (served, address), ThreadPoolExecutor(MANY) as clients:
        assert set(clients.map(status_of, [address] * MANY)) == {(503, "1")}
        served.err.wait("fronts.serve.connections_max: a connection was refused with 503")
        served.out.wait(r'"GET / HTTP/1.1" 503')


def test_a_large_upload_is_told(tmp_path: Path) -> None:
    with full(tmp_path) as (_, address):
        assert status_of(address, LARGE) == (503, "1")


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is missing: apt-get install curl")
@pytest.mark.parametrize("version", ["--http1.1", "--http2"])
def test_clients_that_speak_tls_are_told(tmp_path: Path, version: str) -> None:
    make_certificate(tmp_path)
    with full(tmp_path, "--certfile", "certificate.pem", "--keyfile", "key.pem") as (_, address):
        port = address.rpartition(":")[2]
        done = curl(version, "-i", "--cacert", str(tmp_path / "certificate.pem"), f"https://localhost:{port}/")
        assert done.stdout.split(b" ")[1] == b"503" and b"retry-after: 1\r\n" in done.stdout.lower()


def test_clients_that_speak_http2_at_once_are_told(tmp_path: Path) -> None:
    with full(tmp_path) as (_, address), httpx.Client(http1=False, http2=True, timeout=WAIT_SECONDS) as client:
        answered = client.get(f"http://{address}/")
        assert (answered.http_version, answered.status_code, answered.headers["retry-after"]) == ("HTTP/2", 503, "1")


def test_a_client_that_says_nothing_is_told_and_holds_up_nobody(tmp_path: Path) -> None:
    with full(tmp_path) as (_, address), contextlib.ExitStack() as silent:
        host, _, port = address.rpartition(":")
        waiting = [silent.enter_context(socket.create_connection((host, int(port)), WAIT_SECONDS)) for _ in range(100)]
        assert status_of(address) == (503, "1")
        assert {client.recv(1 << 16).split(b" ")[1] for client in waiting} == {b"503"}


PROGRAM = """
import contextlib, os, sys
import clutch

if __name__ == "__main__":
    with clutch.serving("web:app", port=0, workers=1) as served:
        print(served.url, flush=True)
        taken = []
        sys.stdin.readline()
        with contextlib.suppress(OSError):
            while True:
                taken.append(os.dup(0))
        print("took all", flush=True)
        sys.stdin.readline()
        for one in taken:
            os.close(one)
        print("gave all back", flush=True)
        sys.stdin.readline()
"""


def test_without_a_descriptor_each_client_is_told_and_all_is_well_again(tmp_path: Path) -> None:
    (tmp_path / "main.py").write_text(PROGRAM)
    command = ["sh", "-c", 'ulimit -n 256; exec "$@"', "sh", sys.executable, "main.py"]
    with Dispatcher(tmp_path, command, stdin=subprocess.PIPE) as program:
        address = program.out.wait(r"http://([\d.:]+)")[1]
        assert status_of(address)[0] == 200
        go_on(program, "took all")
        with ThreadPoolExecutor(MANY) as clients:
            # One may find the descriptor of another that has gone.
            answered = set(clients.map(status_of, [address] * MANY))
            assert {(503, "1")} <= answered <= {(503, "1"), (200, None)}
        program.err.wait("a connection was refused with 503: no descriptor is left for it")
        go_on(program, "gave all back")
        assert status_of(address)[0] == 200
        go_on(program)
        assert program.wait() == 0


def go_on(program: Dispatcher, word: str = "") -> None:
    assert program.process.stdin is not None
    program.process.stdin.write("\n")
    program.process.stdin.flush()
    program.out.wait(word)
