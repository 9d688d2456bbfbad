"""What becomes of requests that no app answers, and the lines that tell of it."""

from __future__ import annotations

import json
import os
import re
import select
import signal
import urllib.request
from pathlib import Path

import pytest

from support.clutch_process import soon
from support.hostile_client import HOST, LAST, Served, rest, serve, status
from support.rendezvous import WAIT_SECONDS, Rendezvous
from support.serve_process import ANY_PORT, Serving


def test_a_full_line_refuses_requests_and_says_so(tmp_path: Path, rendezvous: Rendezvous) -> None:
    meet = f"GET /silent?port={rendezvous.port} HTTP/1.1\r\n{HOST}\r\n".encode()
    flags = ["-b", ANY_PORT, "-w", "1", "-k", "sync", "--backlog", "1"]
    with Serving(tmp_path, "misbehaving_apps:wsgi", *flags) as serving:
        serving.wait_ready("web")
        served = Served(serving, logs=False)
        with served.client() as running, served.client() as second, served.client() as third:
            running.sendall(meet)
            guest = rendezvous.guest()
            second.sendall(meet)
            third.sendall(meet)
            # Which of the two has the place in the line is not promised: they come at the same time.
            readable, _, _ = select.select([second, third], [], [], WAIT_SECONDS)
            (refused,) = readable
            response = refused.recv(1 << 16)
            assert status(response) == 503 and b"retry-after: 1" in response
            serving.err.wait("WARNING a request was refused with 503: pool 'web' is full")
            guest.let_go()
            rendezvous.guest().let_go()
            assert status((third if refused is second else second).recv(1 << 16)) == 200


@pytest.mark.parametrize(("path", "expected"), [("/silent", 502), ("/silent-later", 200)])
def test_a_worker_that_is_lost(tmp_path: Path, rendezvous: Rendezvous, path: str, expected: int) -> None:
    with serve(tmp_path, "misbehaving_apps:app", timeout="30s") as served, served.client() as asking:
        asking.sendall(f"GET {path}?port={rendezvous.port} HTTP/1.1\r\n{HOST}\r\n".encode())
        os.kill(rendezvous.guest().pid, signal.SIGKILL)
        # Before the head its connection stays, as for any response; after it, it is cut.
        response = asking.recv(1 << 16) if expected == 502 else rest(asking)
        assert (status(response), response.endswith(b"0\r\n\r\n")) == (expected, False)
        (line,) = served.logged()
        assert (line["status"], line["end"]) == (expected, "worker-lost")


def test_the_access_log_as_text_in_a_file_that_is_moved_away(tmp_path: Path) -> None:
    log, old = tmp_path / "access", tmp_path / "access.1"
    with Serving(tmp_path, "web:app", "-w", "1", "-b", ANY_PORT, "--access-logfile", "access") as serving:
        serving.wait_ready("web")
        with Served(serving, logs=False).client() as client:
            client.sendall(f'GET /a?b=c HTTP/1.1\r\n{HOST}Connection: close\r\nUser-Agent: "x"\r\n\r\n'.encode())
            length = int(re.findall(rb"content-length: (\d+)", rest(client))[0])
        soon(lambda: "GET /a" in log.read_text())
        line = (
            r'127\.0\.0\.1 - - \[\d\d/\w{3}/\d{4}:\d\d:\d\d:\d\d \+0000\] "GET /a\?b=c HTTP/1\.1" '
            rf'200 {length} "-" "\\"x\\"" (\d+\.\d{{6}} ){{3}}whole\n'
        )
        assert re.fullmatch(line, log.read_text())
        log.rename(old)
        serving.send(signal.SIGUSR1)
        serving.err.wait("log files opened anew")
        assert serving.get("/new").status == 200
        soon(lambda: log.exists() and "GET /new" in log.read_text())
        serving.terminate()
        assert serving.wait() == 0


def test_lines_as_gunicorn_writes_them(tmp_path: Path) -> None:
    atoms = '%(h)s "%(r)s" %(m)s %(U)s?%(q)s %(s)s %(b)s %(u)s %({x-id}i)s %({Content-Type}o)s %({x-none}i)s %(D)s %%'
    flags = ["--access-logfile", "access", "--access-logformat", atoms]
    with Serving(tmp_path, "web:app", "-w", "1", "-b", ANY_PORT, *flags) as serving:
        serving.wait_ready("web")
        with Served(serving, logs=False).client() as client:
            head = f'{HOST}Connection: close\r\nX-Id: a"\xe9\r\nAuthorization: Basic YW5uOnNlY3JldA==\r\n\r\n'
            client.sendall(f"GET /a?b=c HTTP/1.1\r\n{head}".encode("latin-1"))
            length = int(re.findall(rb"content-length: (\d+)", rest(client))[0])
        serving.terminate()
        assert serving.wait() == 0
    line = rf'127\.0\.0\.1 "GET /a\?b=c HTTP/1\.1" GET /a\?b=c 200 {length} ann a\\"\\xe9 application/json - \d+ %\n'
    assert re.fullmatch(line, (tmp_path / "access").read_text())


def test_a_client_by_a_unix_socket_has_no_address_in_the_log(tmp_path: Path) -> None:
    flags = ["--access-logfile", "access", "--access-logformat", "json"]
    with Serving(tmp_path, "web:app", "-w", "1", "-b", ANY_PORT, "-b", "unix:web.sock", *flags) as serving:
        serving.wait_ready("web")
        assert serving.get(at=str(tmp_path / "web.sock")).status == 200
        serving.terminate()
        assert serving.wait() == 0
    assert json.loads((tmp_path / "access").read_text())["client"] is None


COMPUTING = """
import time

def compute():
    until = time.thread_time() + 0.03
    while time.thread_time() < until:
        pass
    return b"done"

def whole(environ, start_response):
    start_response("200 OK", [])
    return [compute()]

def parts(environ, start_response):
    start_response("200 OK", [])
    return (compute() for _ in range(2))

async def tasks(scope, receive, send):
    if scope["type"] == "http":
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": compute()})
"""


@pytest.mark.parametrize(
    ("app", "threads", "least"),
    [("whole", "1", 0.03), ("whole", "4", 0.03), ("parts", "1", 0.06), ("parts", "4", 0.06), ("tasks", "1", None)],
)
def test_cpu_time_of_a_request(tmp_path: Path, app: str, threads: str, least: float | None) -> None:
    """Where a thread runs one at a time."""
    (tmp_path / "computing.py").write_text(COMPUTING)
    flags = ["-w", "1", "--threads", threads, "-b", ANY_PORT, "--access-logfile", "access"]
    with Serving(tmp_path, f"computing:{app}", *flags, "--access-logformat", "%(cpu_s)s %(total_s)s") as serving:
        assert serving.get().status == 200
        serving.terminate()
        assert serving.wait() == 0
    cpu, total = (tmp_path / "access").read_text().split()
    if least is None:
        assert cpu == "-"
    else:
        assert least <= float(cpu) <= float(total)


def test_lines_for_programs(tmp_path: Path) -> None:
    with serve(tmp_path, "misbehaving_apps:app") as served:
        served.say(f"HEAD /x?y=%20 HTTP/1.1\r\n{HOST}Connection: close\r\nReferer: caf\xe9\r\n\r\n")
        (line,) = served.logged()
        assert line.pop("proxy_s") == 0
        assert 0 <= line.pop("queue_s") < line.pop("head_s") <= line.pop("total_s")
        del line["time"]
        assert line == {
            "level": "info",
            "message": "HEAD /x?y=%20 HTTP/1.1 200",
            "front": "serve",
            "client": "127.0.0.1",
            "method": "HEAD",
            "path": "/x",
            "query": "y=%20",
            "version": "HTTP/1.1",
            "status": 200,
            "bytes": 0,
            "referer": "caf\ufffd",
            "agent": None,
            "request_id": None,
            "cpu_s": None,
            "user": None,
            "end": "whole",
            "close_code": None,
        }
        assert all(json.loads(line) for line in served.serving.out.lines)


def test_the_log_says_how_long_a_request_waited_in_line(tmp_path: Path, rendezvous: Rendezvous) -> None:
    """Of one that no worker got it says nothing."""
    with (
        serve(tmp_path, "misbehaving_apps:wsgi", timeout="30s") as served,
        served.client() as running,
        served.client() as waiting,
        served.client() as leaving,
    ):
        running.sendall(f"GET /silent?port={rendezvous.port} HTTP/1.1\r\n{LAST}\r\n".encode())
        guest = rendezvous.guest()
        waiting.sendall(f"GET /waited HTTP/1.1\r\n{LAST}\r\n".encode())
        leaving.sendall(f"GET /left HTTP/1.1\r\n{LAST}\r\n".encode())
        soon(lambda: served.serving.pool()["queued"] == 2)
        leaving.close()
        soon(lambda: served.serving.pool()["queued"] == 1)
        guest.let_go()
        assert [status(rest(client)) for client in (running, waiting)] == [200, 200]
        lines = {line["path"]: line for line in served.logged()}
        assert (lines["/silent"]["queue_s"], lines["/left"]["queue_s"]) == (0, None)
        assert 0 < lines["/waited"]["queue_s"] < lines["/waited"]["head_s"]
        assert lines["/waited"]["queue_s"] <= served.serving.pool()["queued_s"] < 60


def test_a_log_that_cannot_be_written_ends_the_start(tmp_path: Path) -> None:
    with Serving(tmp_path, "web:app", "-b", ANY_PORT, "--access-logfile", "no/such/folder") as serving:
        assert serving.wait() == 1
        assert "fronts.serve.access_log" in serving.err.text


def test_figures_of_requests(tmp_path: Path) -> None:
    """By status and by how they ended, and none is counted twice; the connections are closed in the end."""
    admin = ["--set", "fronts.admin.bind=127.0.0.1:0"]
    with Serving(tmp_path, "misbehaving_apps:app", "-w", "1", "-b", ANY_PORT, *admin) as serving:
        serving.wait_ready("web")
        at_admin = serving.err.wait(r"admin: http://(\S+)")[1]
        served = Served(serving, logs=False)
        for _ in range(3):
            assert status(served.get("/")) == 200
        assert status(served.get("/raises-before")) == 500
        assert served.get("/unfinished").endswith(b"part\r\n")
        assert status(served.say("GET / HTTP/1.1\r\n\r\n")) == 400
        assert status(served.say("nothing\n\n")) == 400

        def figures() -> dict[str, float]:
            with urllib.request.urlopen(f"http://{at_admin}/metrics", timeout=60) as response:
                lines = [line for line in response.read().decode().splitlines() if line.startswith("clutch_http_")]
            of_serve = (line.rpartition(" ") for line in lines if 'front="serve"' in line)
            return {
                name.removeprefix("clutch_http_").replace('front="serve"', ""): float(value)
                for name, _, value in of_serve
            }

        soon(lambda: figures()["connections_open{}"] == 0)
        found = figures()
        assert {name: value for name, value in found.items() if name.startswith("requests_")} == {
            'requests_total{,status="2xx",end="whole"}': 3,
            'requests_total{,status="2xx",end="broken-off"}': 1,
            'requests_total{,status="5xx",end="whole"}': 1,
            'requests_total{,status="4xx",end="refused"}': 2,
        }
        assert found['refused_total{,reason="malformed"}'] == 2
        assert (found["connections_total{}"], found["request_seconds_count{}"]) == (7, 7)
        assert found['request_seconds_bucket{le="+Inf",}'] == 7
        assert min(found["received_bytes_total{}"], found["sent_bytes_total{}"], found["request_seconds_sum{}"]) > 0


@pytest.mark.parametrize("dispatch", ["connection", "request"])
def test_a_client_that_gives_up_in_the_queue_is_counted(tmp_path: Path, rendezvous: Rendezvous, dispatch: str) -> None:
    meet = f"GET /silent?port={rendezvous.port} HTTP/1.1\r\n{HOST}\r\n".encode()
    with Serving(tmp_path, "misbehaving_apps:wsgi", "-b", ANY_PORT, "-w", "1", "--dispatch", dispatch) as serving:
        serving.wait_ready("web")
        served = Served(serving, logs=False)
        with served.client() as running:
            running.sendall(meet)
            guest = rendezvous.guest()
            with served.client() as waiting:
                waiting.sendall(meet)
                soon(lambda: serving.pool()["queued"] == 1)
            soon(lambda: serving.pool()["gave_up"] == 1)
            assert serving.pool()["queued"] == 0
            guest.let_go()
            assert status(running.recv(1 << 16)) == 200


FAILING = """
import os

async def app(scope, receive, send):
    if scope["type"] != "http":
        return
    ways = scope["path"]
    if ways == "/raises":
        raise LookupError(ways)
    if ways == "/gone":
        os._exit(3)
    if ways == "/none":
        return
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"part", "more_body": True})
    if ways == "/breaks-off":
        raise LookupError(ways)
    await send({"type": "http.response.body"})

def wsgi(environ, start_response):
    ways = environ["PATH_INFO"]
    if ways == "/raises":
        raise LookupError(ways)
    if ways == "/gone":
        os._exit(3)
    if ways != "/none":
        start_response("200 OK", [])
    return parts(ways) if ways != "/whole" else [b"whole"]

def parts(ways):
    yield b"part"
    raise LookupError(ways)
"""


COUNTED = {"/whole": (1, 0), "/raises": (2, 1), "/none": (3, 2), "/breaks-off": (4, 3), "/gone": (4, 4)}
"""After each: what is done and what has failed."""


@pytest.mark.parametrize("app", ["app", "wsgi"])
@pytest.mark.parametrize("dispatch", ["connection", "request"])
def test_requests_that_fail_are_counted(tmp_path: Path, app: str, dispatch: str) -> None:
    """What its worker has answered is done, and failed if that was no response of the app's."""
    (tmp_path / "failing.py").write_text(FAILING)
    with Serving(tmp_path, f"failing:{app}", "-b", ANY_PORT, "-w", "1", "--dispatch", dispatch) as serving:
        serving.wait_ready("web")
        for way, counted in COUNTED.items():
            with Served(serving, logs=False).client() as client:
                client.sendall(f"GET {way} HTTP/1.1\r\n{HOST}Connection: close\r\n\r\n".encode())
                rest(client)
            soon(lambda: (serving.pool()["done"], serving.pool()["failed"]) == counted)  # noqa: B023
