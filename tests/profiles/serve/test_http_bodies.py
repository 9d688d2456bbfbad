"""Bodies of requests and responses, the same for ASGI and WSGI apps, in every profile."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.http_service import Peak, Service, serving
from support.shapes import Shape

PIECE = bytes(64 << 10)
LARGE_PIECES = 1600
"""100 MB."""
GROWTH_MB_MAX = 48
LARGE_PART = 20_000_000


def shared_kb(pid: int) -> int:
    found = re.search(r"RssShmem:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    return int(found[1])


@pytest.fixture(scope="module", params=["asgi_app:app", "wsgi_app:app"], ids=["asgi", "wsgi"])
def service(shape: Shape, request: pytest.FixtureRequest) -> Iterator[Service]:
    with serving(shape, request.param, "auto", workers=1) as service:
        yield service


@pytest.mark.parametrize("size", [0, 1, 1000, 100_000, 1_000_000])
def test_a_body_in(service: Service, size: int) -> None:
    body = os.urandom(size)
    assert service.ask("/count", "POST", body).json == {"size": size, "sha": hashlib.sha256(body).hexdigest()}


@pytest.mark.per_profile
def test_100_mb_in_with_bounded_memory(service: Service) -> None:
    peak = Peak([os.getpid(), *service.pids()])
    pieces = (PIECE for _ in range(LARGE_PIECES))
    answer = service.ask("/count", "POST", pieces, {"Content-Length": str(LARGE_PIECES << 16)})
    assert answer.json["size"] == LARGE_PIECES << 16
    assert peak.grown_mb() < GROWTH_MB_MAX


def test_100_mb_out_with_bounded_memory(service: Service) -> None:
    peak = Peak([os.getpid(), *service.pids()])
    connection = service.connection()
    connection.request("GET", f"/big?pieces={LARGE_PIECES}")
    response, size = connection.getresponse(), 0
    while piece := response.read(1 << 16):
        size += len(piece)
    assert size == LARGE_PIECES << 16
    assert peak.grown_mb() < GROWTH_MB_MAX


@pytest.mark.per_profile
def test_failure_66_shared_memory_of_large_bodies_goes_back_when_its_worker_is_idle(service: Service) -> None:
    (pid,) = service.pids()
    assert [len(service.ask("/large", size=LARGE_PART).body) for _ in range(3)] == [LARGE_PART] * 3
    clients = [service.get_slowly("/large", size=LARGE_PART) for _ in range(5)]
    for client in clients:
        assert client.recv(100)
    assert shared_kb(pid) << 10 > 4 * LARGE_PART
    for client in clients:
        client.close()
    while shared_kb(pid) > 1024:
        os.sched_yield()


def test_more_headers_than_any_client_takes_are_a_500(service: Service) -> None:
    for count in (10_001, 40_000, 70_000):
        assert service.ask("/many_headers", count=count).status == 500
    head = service.get("/many_headers", count=10_000).makefile("rb")
    assert head.readline() == b"HTTP/1.1 200 OK\r\n"
    names = [line.partition(b":")[0] for line in iter(head.readline, b"\r\n")]
    assert len([name for name in names if name.lower().startswith(b"x-")]) == 10_000


@pytest.mark.parametrize(("method", "code"), [("HEAD", 200), ("GET", 204), ("GET", 205), ("GET", 304)])
def test_responses_without_a_body(service: Service, method: str, code: int) -> None:
    connection = service.connection()
    for _ in range(2):
        connection.request(method, f"/status?code={code}")
        response = connection.getresponse()
        assert (response.status, response.headers["x-seen"], response.read()) == (code, "1", b"")
