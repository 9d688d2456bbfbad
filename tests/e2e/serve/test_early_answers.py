"""Answers that come before their request has ended: they arrive, and the connection goes on."""

from __future__ import annotations

import http.client
import json
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.clutch_process import WAIT_SECONDS
from support.serve_process import ANY_PORT, Serving

PIECE = b"x" * 65_536


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    with Serving(tmp_path, "early_app:app", "-w", "1", "-b", ANY_PORT) as serving:
        serving.wait_ready("web")
        yield serving.address


def read_answer(connection: socket.socket) -> bytes:
    received = b""
    while b"payment required" not in received:
        piece = connection.recv(65_536)
        assert piece, received
        received += piece
    return received


@pytest.mark.parametrize("path", ["/at-once", "/after-a-part"])
def test_who_sends_on_after_the_answer_keeps_the_connection(address: str, path: str) -> None:
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=WAIT_SECONDS) as connection:
        for _ in range(2):
            head = f"POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: {100 * len(PIECE)}\r\n\r\n"
            connection.sendall(head.encode() + PIECE)
            assert read_answer(connection).startswith(b"HTTP/1.1 402")
            for _ in range(99):
                connection.sendall(PIECE)


def test_who_waits_to_be_asked_is_not(address: str) -> None:
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=WAIT_SECONDS) as connection:
        connection.sendall(b"POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 9\r\n\r\n")
        assert read_answer(connection).startswith(b"HTTP/1.1 402")


def test_clients_that_read_when_all_is_sent_get_the_answer(address: str) -> None:
    client = http.client.HTTPConnection(address, timeout=WAIT_SECONDS)
    client.request("POST", "/at-once", body=PIECE * 160)
    answer = client.getresponse()
    assert (answer.status, json.load(answer)) == (402, {"error": "payment required"})


@pytest.mark.parametrize("size", [1 << 20, 100 << 20])
def test_it_arrives_over_http_2(address: str, tmp_path: Path, size: int) -> None:
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    with (tmp_path / "body").open("wb") as file:
        file.truncate(size)
    command = ["curl", "-sS", "--http2-prior-knowledge", "-w", "%{http_code}", "--data-binary", "@body"]
    asked = subprocess.run(
        [*command, f"http://{address}/"], cwd=tmp_path, capture_output=True, text=True, timeout=WAIT_SECONDS
    )
    assert asked.stdout == '{"error": "payment required"}402', asked.stderr
