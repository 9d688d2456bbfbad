"""`dispatch = "connection"`: workers answer plain requests on the connections that they hold, and neither clients nor
operators nor other workers notice more of it than of requests that are dispatched one by one."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import pytest

from support.clutch_process import WAIT_SECONDS, clutch, soon
from support.rendezvous import Rendezvous
from support.serve_process import ANY_PORT, Serving
from targets.apps.held_apps import LARGE, MEDIUM

HELD = ("-b", ANY_PORT, "--dispatch", "connection")


@contextlib.contextmanager
def serve(folder: Path, *flags: str) -> Iterator[Serving]:
    with Serving(folder, *flags, *HELD, "--set", "fronts.admin.bind=127.0.0.1:0") as serving:
        serving.wait_ready("web")
        yield serving


@contextlib.contextmanager
def client(serving: Serving) -> Iterator[http.client.HTTPConnection]:
    with contextlib.closing(http.client.HTTPConnection(serving.address, timeout=WAIT_SECONDS)) as connection:
        yield connection


def ask(connection: http.client.HTTPConnection, path: str = "/") -> int:
    """Pid of the worker that answered."""
    connection.request("GET", path)
    return answered(connection)


def answered(connection: http.client.HTTPConnection) -> int:
    response = connection.getresponse()
    facts = json.loads(response.read())
    assert response.status == 200
    return facts["pid"]


def test_a_worker_keeps_a_connection_and_its_requests_are_counted(tmp_path: Path) -> None:
    with serve(tmp_path, "web:app", "-w", "1") as serving, client(serving) as asking:
        assert [ask(asking) for _ in range(3)] == serving.workers() * 3
        soon(lambda: serving.figures("clutch_http_requests_total") == {'front="serve",status="2xx",end="whole"': 3})
        soon(lambda: serving.pool()["done"] == 3)
        # One at rest is taken back after a second.
        ask(asking)
        soon(lambda: serving.figures("clutch_http_connections_held") == {'front="serve",nr="0"': 0})
        assert ask(asking) == serving.workers()[0]
        assert serving.figures("clutch_http_connections_open")['front="serve"'] == 1
    assert serving.err.text.count("WARNING") == 0


def test_the_access_log_has_the_lines_that_requests_have(tmp_path: Path) -> None:
    line = "%(h)s %(r)s %(s)s %({user-agent}i)s %({content-type}o)s"
    flags = ("web:app", "-w", "1", "--access-logfile", "access", "--access-logformat", line)
    with serve(tmp_path, *flags) as serving, client(serving) as asking:
        for number in range(2):
            asking.request("GET", f"/a?b={number}", headers={"User-Agent": "me"})
            answered(asking)
        asking.request("POST", "/upload", body=iter([b"by", b"chunks"]), headers={"User-Agent": "me"})
        answered(asking)
        log = tmp_path / "access"
        requests = ("GET /a?b=0", "GET /a?b=1", "POST /upload")
        expected = [f"127.0.0.1 {request} HTTP/1.1 200 me application/json" for request in requests]
        soon(lambda: log.read_text().splitlines() == expected)


@pytest.mark.parametrize("app", [["web:app"], ["web:wsgi", "--timeout", "0"]], ids=["asgi", "wsgi"])
def test_requests_for_a_worker_that_stands_still_are_answered_by_another(tmp_path: Path, app: list[str]) -> None:
    with serve(tmp_path, *app, "-w", "2") as serving, contextlib.ExitStack() as clients:
        connections = [clients.enter_context(client(serving)) for _ in range(8)]
        assert {ask(connection) for connection in connections} == set(serving.workers())
        stopped, running = serving.workers()
        os.kill(stopped, signal.SIGSTOP)
        try:
            for _ in range(3):
                for connection in connections:
                    connection.request("GET", "/")
                assert {answered(connection) for connection in connections} == {running}
        finally:
            os.kill(stopped, signal.SIGCONT)


def test_a_request_that_runs_outlives_the_recycling_of_its_worker(tmp_path: Path, rendezvous: Rendezvous) -> None:
    with serve(tmp_path, "web:app", "-w", "1") as serving, client(serving) as asking, client(serving) as other:
        (before,) = serving.workers()
        asking.request("GET", f"/meet?port={rendezvous.port}")
        guest = rendezvous.guest()
        assert ask(other) == before
        serving.send(signal.SIGHUP)
        serving.err.wait("takes no more work: new code is loaded")
        soon(lambda: ask(other) != before)
        guest.let_go()
        assert answered(asking) == before
        serving.err.wait("pool web: reloaded")
        assert ask(asking) == serving.workers()[0] != before


def test_term_lets_a_running_request_end_and_closes_what_rests(tmp_path: Path, rendezvous: Rendezvous) -> None:
    with serve(tmp_path, "web:app", "-w", "1") as serving, client(serving) as asking, client(serving) as resting:
        ask(resting)
        asking.request("GET", f"/meet?port={rendezvous.port}")
        guest = rendezvous.guest()
        serving.terminate()
        assert resting.sock.recv(1) == b""
        guest.let_go()
        answered(asking)
        assert serving.wait() == 0


def test_a_worker_that_is_killed_costs_what_it_had_begun(tmp_path: Path, rendezvous: Rendezvous) -> None:
    with serve(tmp_path, "web:app", "-w", "2") as serving, client(serving) as asking, contextlib.ExitStack() as clients:
        resting: list[http.client.HTTPConnection] = []

        def each_worker_has_one() -> bool:
            resting.append(clients.enter_context(client(serving)))
            return {ask(connection) for connection in resting} == set(serving.workers())

        soon(each_worker_has_one)
        asking.request("GET", f"/meet?port={rendezvous.port}")
        guest = rendezvous.guest()
        os.kill(guest.pid, signal.SIGKILL)
        response = asking.getresponse()
        assert (response.status, response.read(), response.headers["Connection"]) == (502, b"Bad Gateway\n", "close")
        assert guest.pid not in {ask(connection) for connection in resting}
        serving.err.wait(rf"\(pid {guest.pid}\) was killed by signal 9.*; it was running GET /meet")
        ends = serving.figures("clutch_http_requests_total")
        assert ends['front="serve",status="5xx",end="worker-lost"'] == 1
        soon(lambda: serving.pool()["failed"] == 1)


def test_what_is_more_than_a_plain_request_is_answered_on_the_same_connection(tmp_path: Path) -> None:
    with serve(tmp_path, "web:app", "-w", "1") as serving, client(serving) as asking:
        ask(asking)
        asking.request("POST", "/", body=b"x" * 300_000)
        answered(asking)
        asking.request("POST", "/", body=iter([b"by", b"chunks"]))
        answered(asking)
        ask(asking)


@pytest.mark.parametrize(
    "flags, why",
    [
        (["web:app", "-w", "1", "--set", "fronts.serve.disconnect=cancel"], "disconnect"),
        (["web:wsgi", "-w", "1", "--set", "fronts.serve.connection_requests_max=9"], "connection_requests_max"),
        (["web:app", "--set", "pools.web.workers=1-2"], "range of workers"),
    ],
    ids=["asgi", "wsgi", "range"],
)
def test_what_workers_cannot_keep_is_kept_and_told_once(tmp_path: Path, flags: list[str], why: str) -> None:
    with serve(tmp_path, *flags) as serving:
        for _ in range(2):
            with client(serving) as asking:
                ask(asking)
        told = serving.err.wait(r"fronts\.serve\.dispatch: connection has no effect with (.*)")[1]
        assert why in told
        assert sum(serving.figures("clutch_http_connections_held").values()) == 0
        assert serving.err.text.count("fronts.serve.dispatch") == 1


def test_a_pool_that_is_drained_answers_no_request_until_it_goes_on(tmp_path: Path) -> None:
    with serve(tmp_path, "web:app", "-w", "1") as serving, client(serving) as kept:
        ask(kept)
        pid = ("--pid", str(serving.process.pid))
        assert clutch("drain", *pid, cwd=tmp_path).returncode == 0
        for asking in (kept, http.client.HTTPConnection(serving.address, timeout=WAIT_SECONDS)):
            asking.request("GET", "/")
            assert asking.getresponse().status == 503
            asking.close()
        assert clutch("drain", "--resume", *pid, cwd=tmp_path).returncode == 0
        with client(serving) as asking:
            assert ask(asking) == serving.workers()[0]
            soon(lambda: serving.figures("clutch_http_connections_held") == {'front="serve",nr="0"': 1})


def test_an_operator_sees_no_less_of_the_pool(tmp_path: Path) -> None:
    with serve(tmp_path, "web:app", "-w", "1") as serving, client(serving) as asking:
        for _ in range(5):
            ask(asking)
        soon(lambda: serving.pool()["workers"][0]["calls"] == 5)
        done = clutch("ps", "--pid", str(serving.process.pid), cwd=serving.folder)
        assert done.returncode == 0


# As many as are read at a time: their responses are more than sockets have room for.
MANY = 450
ASKED = b"GET /medium HTTP/1.1\r\nHost: a\r\n\r\n" * MANY
CHUNKED = b"POST /medium HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n"


@contextlib.contextmanager
def slow_client(serving: Serving) -> Iterator[socket.socket]:
    """Has one response already: its worker holds the connection."""
    host, port = serving.address.rsplit(":", 1)
    with contextlib.closing(socket.socket()) as client:
        for option in (socket.SO_RCVBUF, socket.SO_SNDBUF):
            client.setsockopt(socket.SOL_SOCKET, option, 64 << 10)
        client.settimeout(WAIT_SECONDS)
        client.connect((host, int(port)))
        client.sendall(b"GET /ready HTTP/1.1\r\nHost: a\r\n\r\n")
        assert read_responses(client, 1) == [len(b"ready")]
        yield client


def pass_time(asking: http.client.HTTPConnection, seconds: float) -> None:
    """Until the worker has gone on for so long, and has seen all that clients sent before."""
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        asking.request("GET", "/ready")
        asking.getresponse().read()


def read_responses(client: socket.socket, count: int) -> list[int]:
    """Lengths of the bodies of so many responses, in their order."""
    with client.makefile("rb") as file:
        return [read_response(file) for _ in range(count)]


def read_response(file: BinaryIO) -> int:
    assert file.readline() == b"HTTP/1.1 200 OK\r\n"
    length = int(http.client.parse_headers(file)["content-length"])
    assert len(file.read(length)) == length
    return length


@pytest.mark.parametrize("app", ["held_apps:app", "held_apps:wsgi"])
def test_the_front_goes_on_only_behind_what_a_slow_client_has_not_taken(tmp_path: Path, app: str) -> None:
    with serve(tmp_path, app, "-w", "1") as serving, client(serving) as asking, slow_client(serving) as slow:
        slow.sendall(ASKED + CHUNKED)
        pass_time(asking, 0.1)
        assert read_responses(slow, MANY + 1) == [MEDIUM] * (MANY + 1)


@pytest.mark.parametrize("app", ["held_apps:app", "held_apps:wsgi"])
def test_the_rest_of_a_request_may_come_before_a_slow_client_reads(tmp_path: Path, app: str) -> None:
    with serve(tmp_path, app, "-w", "1") as serving, client(serving) as asking, slow_client(serving) as slow:
        slow.sendall(ASKED + b"GET /medium HT")
        pass_time(asking, 0.2)
        slow.sendall(b"TP/1.1\r\nHost: a\r\n\r\n")
        pass_time(asking, 0.1)
        assert read_responses(slow, MANY + 1) == [MEDIUM] * (MANY + 1)


@pytest.mark.parametrize("app", ["held_apps:app", "held_apps:wsgi"])
def test_a_client_that_says_nothing_more_gets_all_of_a_response_that_is_over(tmp_path: Path, app: str) -> None:
    with serve(tmp_path, app, "-w", "1") as serving, client(serving) as asking, slow_client(serving) as slow:
        slow.sendall(b"GET /large HTTP/1.1\r\nHost: a\r\n\r\n")
        assert slow.recv(1) == b"H"
        slow.shutdown(socket.SHUT_WR)
        pass_time(asking, 0.1)
        got = bytearray(b"H")
        while data := slow.recv(1 << 20):
            got += data
        assert len(got.partition(b"\r\n\r\n")[2]) == LARGE


@pytest.mark.parametrize("app", ["held_apps:app", "held_apps:wsgi"])
def test_a_client_that_sends_on_gets_all_of_its_last_response(tmp_path: Path, app: str) -> None:
    flags = (app, "-w", "1", "--access-logfile", "-")
    last = b"GET /medium?last HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
    with serve(tmp_path, *flags) as serving, slow_client(serving) as slow:
        before = 29
        slow.sendall(ASKED[: before * len(ASKED) // MANY] + last)
        sending = threading.Thread(target=slow.sendall, args=(b"x" * 200_000,))
        sending.start()
        serving.out.wait(r'"GET /medium\?last HTTP/1.1" 200')
        sending.join()
        with slow.makefile("rb") as file:
            assert [read_response(file) for _ in range(before + 1)] == [MEDIUM] * (before + 1)
            assert file.read() == b""


@pytest.mark.parametrize("app", ["held_apps:app", "held_apps:wsgi"])
def test_no_more_is_read_of_a_client_that_asks_on_and_does_not_read(tmp_path: Path, app: str) -> None:
    with serve(tmp_path, app, "-w", "1") as serving, slow_client(serving) as slow:
        asked = b"GET /medium HTTP/1.1\r\nHost: a\r\nX: %s\r\n\r\n" % (b"x" * 1000)
        slow.settimeout(2)
        sent = 0
        with contextlib.suppress(TimeoutError):
            while sent < 8 << 20:
                sent += slow.send(asked[sent % len(asked) :])
        assert sent < 8 << 20
        slow.settimeout(WAIT_SECONDS)
        # What is read from here on makes room for the end of the last request.
        whole = sent // len(asked)
        assert read_responses(slow, whole) == [MEDIUM] * whole


@pytest.mark.parametrize("dispatch", ["request", "connection"])
def test_a_slot_goes_on_behind_a_large_part_that_ends_a_response(tmp_path: Path, dispatch: str) -> None:
    with Serving(tmp_path, "held_apps:wsgi", "-w", "1", "-b", ANY_PORT, "--dispatch", dispatch) as serving:
        serving.wait_ready("web")
        with client(serving) as asking:
            for path, length in (("/large-part", LARGE), ("/medium", MEDIUM)) * 2:
                asking.request("GET", path)
                assert len(asking.getresponse().read()) == length


@pytest.mark.parametrize(
    "flags",
    [["held_apps:app"], ["held_apps:wsgi"], ["held_apps:wsgi", "--threads", "4", "--dispatch", "connection"]],
    ids=["asgi", "wsgi", "threads"],
)
def test_nothing_is_lost_of_much_that_a_worker_hands_back(tmp_path: Path, flags: list[str]) -> None:
    padded = b"GET /medium HTTP/1.1\r\nHost: a\r\nX-Pad: " + b"p" * 1000 + b"\r\n\r\n"
    with serve(tmp_path, *flags, "-w", "1") as serving, client(serving) as asking:
        for _ in range(3):
            # Its rest comes in several pieces, which are kept together.
            asking.request("POST", "/medium", body=b"x" * 65_000)
            assert len(asking.getresponse().read()) == MEDIUM
        with slow_client(serving) as much:
            sending = threading.Thread(target=much.sendall, args=(padded * MANY + CHUNKED + padded * MANY,))
            sending.start()
            pass_time(asking, 0.1)
            with much.makefile("rb") as file:
                for nr in range(2 * MANY + 1):
                    assert read_response(file) == MEDIUM
                    if nr < MANY and nr % 20 == 0:
                        pass_time(asking, 0.02)  # the worker goes on with some of them
            sending.join()
