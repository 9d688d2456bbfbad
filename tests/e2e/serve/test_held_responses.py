"""What clients get on connections that workers hold: the same as of requests that are dispatched one by one."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from support.clutch_process import COMMAND, WAIT_SECONDS, soon
from support.rendezvous import Rendezvous
from support.serve_process import ANY_PORT, Serving
from targets.apps.held_apps import LARGE

# A WSGI app has a timeout otherwise, which workers do not keep yet.
APPS = {
    "asgi": ["held_apps:app"],
    "asyncio": ["held_apps:app", "--loop", "asyncio"],
    "wsgi": ["held_apps:wsgi", "--timeout", "0"],
}
DISPATCH = ("request", "connection")


@contextlib.contextmanager
def serve(folder: Path, *flags: str) -> Iterator[Serving]:
    with Serving(folder, "-b", ANY_PORT, "-w", "1", "--log-level", "debug", *flags) as serving:
        serving.wait_ready("web")
        yield serving


@contextlib.contextmanager
def connected(serving: Serving) -> Iterator[socket.socket]:
    host, port = serving.address.rsplit(":", 1)
    with contextlib.closing(socket.create_connection((host, int(port)), timeout=WAIT_SECONDS)) as client:
        yield client


def get(path: str, *lines: str, method: str = "GET", body: str = "") -> bytes:
    length = [f"Content-Length: {len(body)}"] if body else []
    return "\r\n".join([f"{method} {path} HTTP/1.1", "Host: a", *length, *lines, "", body]).encode()


def until(client: socket.socket, end: bytes, got: bytes = b"") -> bytes:
    while end not in got:
        data = client.recv(65536)
        assert data, got
        got += data
    return got


def rest(client: socket.socket) -> bytes:
    """All that comes to the end of the connection."""
    got = b""
    with contextlib.suppress(ConnectionResetError):
        while data := client.recv(65536):
            got += data
    return got


@pytest.mark.parametrize("dispatch", DISPATCH)
@pytest.mark.parametrize("kind", APPS)
def test_requests_that_come_together_are_answered_in_order(tmp_path: Path, kind: str, dispatch: str) -> None:
    with serve(tmp_path, *APPS[kind], "--dispatch", dispatch) as serving, connected(serving) as client:
        asked = [get("/a"), get("/b", method="POST", body="text"), get("/large", method="HEAD")]
        client.sendall(b"".join([*asked, get("/c", "Connection: close")]))
        got = rest(client)
        heads = [part for part in got.split(b"HTTP/1.1 200 OK\r\n") if part]
        bodies = [json.loads(part.partition(b"\r\n\r\n")[2] or b"null") for part in heads]
        assert [body and (body["path"], body["method"], body["body"]) for body in bodies] == [
            ("/a", "GET", ""),
            ("/b", "POST", "text"),
            None,
            ("/c", "GET", ""),
        ]
        assert b"connection: close" in heads[-1] and b"connection: close" not in heads[0]


@pytest.mark.parametrize("kind", APPS)
def test_a_request_may_come_byte_by_byte(tmp_path: Path, kind: str) -> None:
    with serve(tmp_path, *APPS[kind], "--dispatch", "connection") as serving, connected(serving) as client:
        client.sendall(get("/first"))
        until(client, b"/first")
        for byte in get("/second", method="POST", body="text"):
            client.sendall(bytes([byte]))
        assert b'"body": "text"' in until(client, b"}")


@pytest.mark.parametrize("dispatch", DISPATCH)
@pytest.mark.parametrize("kind", APPS)
def test_a_request_behind_one_whose_worker_leaves_is_answered_by_another(
    tmp_path: Path, kind: str, dispatch: str, rendezvous: Rendezvous
) -> None:
    with serve(tmp_path, *APPS[kind], "--dispatch", dispatch) as serving, connected(serving) as client:
        client.sendall(get(f"/parts?port={rendezvous.port}") + get("/next"))
        first = rendezvous.guest()
        serving.send(signal.SIGHUP)
        serving.err.wait("takes no more work")
        first.let_go()
        for _ in range(2):
            rendezvous.guest().let_go()
        assert b"connection: close" not in until(client, b"/next")
        client.sendall(get("/again"))
        until(client, b"/again")


@pytest.mark.parametrize("dispatch", DISPATCH)
@pytest.mark.parametrize("kind", APPS)
def test_each_part_goes_out_at_once(tmp_path: Path, kind: str, dispatch: str, rendezvous: Rendezvous) -> None:
    with serve(tmp_path, *APPS[kind], "--dispatch", dispatch) as serving, connected(serving) as client:
        client.sendall(get(f"/parts?port={rendezvous.port}"))
        got = b""
        for nr in range(3):
            got = until(client, b"part %d," % nr, got)
            rendezvous.guest().let_go()
        got = until(client, b"0\r\n\r\n", got)
        assert got.endswith(b"3\r\nend\r\n0\r\n\r\n")
        client.sendall(get("/next"))
        until(client, b"/next")


@pytest.mark.parametrize("dispatch", DISPATCH)
@pytest.mark.parametrize("kind", APPS)
def test_a_large_response_waits_for_a_client_that_reads_late(tmp_path: Path, kind: str, dispatch: str) -> None:
    with serve(tmp_path, *APPS[kind], "--dispatch", dispatch) as serving, connected(serving) as client:
        client.sendall(get("/large", "Connection: close"))
        head = until(client, b"\r\n\r\n")
        # Others are answered meanwhile, on a loop; a slot is taken until its client has it all.
        if kind != "wsgi":
            serving.get("/other")
        got = head.partition(b"\r\n\r\n")[2] + rest(client)
        assert len(got) == LARGE


@pytest.mark.parametrize("dispatch", DISPATCH)
@pytest.mark.parametrize("kind", APPS)
def test_a_response_that_breaks_off_ends_its_connection(tmp_path: Path, kind: str, dispatch: str) -> None:
    with serve(tmp_path, *APPS[kind], "--dispatch", dispatch) as serving, connected(serving) as client:
        client.sendall(get("/late"))
        got = rest(client)
        assert b"begun" in got and not got.endswith(b"0\r\n\r\n")
        serving.out.wait("RuntimeError: too late") if "too late" in serving.out.text else serving.err.wait("too late")


@pytest.mark.parametrize("lines", [100, 300])
def test_a_long_head_of_a_response_costs_no_line_in_the_log(tmp_path: Path, lines: int) -> None:
    log = ("--access-logfile", "access", "--access-logformat", "%(U)s %({x}o)s %(s)s")
    with serve(tmp_path, *APPS["asgi"], "--dispatch", "connection", *log) as serving, connected(serving) as client:
        client.sendall(get(f"/long?lines={lines}"))
        until(client, b"}")
        client.sendall(get("/next"))
        until(client, b"/next")
        expected = [f"/long {'y' * 1000} 200", "/next - 200"]
        soon(lambda: (tmp_path / "access").read_text().splitlines() == expected)


@pytest.mark.parametrize("dispatch", DISPATCH)
def test_a_body_that_is_short_before_anything_is_sent_is_an_error_of_the_app(tmp_path: Path, dispatch: str) -> None:
    with serve(tmp_path, *APPS["wsgi"], "--dispatch", dispatch) as serving, connected(serving) as client:
        client.sendall(get("/short"))
        assert until(client, b"Internal Server Error\n").startswith(b"HTTP/1.1 500 ")
        client.sendall(get("/next"))
        until(client, b"/next")


def test_requests_that_wait_in_a_slot_are_answered_once_each(tmp_path: Path) -> None:
    """Of many connections some are taken back from a slot while they wait there, and others get their places."""

    def ask(nr: int) -> None:
        for turn in range(10):
            turns = (100, 100, 20_000, 200_000, 2_000_000)[(7 * nr + 3 * turn) % 5]
            with connected(serving) as client:
                client.sendall(get(f"/spin/{nr}/{turn}?turns={turns}", "Connection: close"))
                assert f'"/spin/{nr}/{turn}"'.encode() in rest(client)

    with serve(tmp_path, *APPS["wsgi"], "-w", "2", "--dispatch", "connection") as serving:
        with ThreadPoolExecutor(40) as threads:
            list(threads.map(ask, range(40)))
        soon(lambda: serving.pool()["done"] == 400)


def test_requests_on_a_busy_loop_are_answered_once_each(tmp_path: Path) -> None:
    """Some are read just as the response before them is found to be sent."""

    async def ask(host: str, port: int) -> None:
        reader, writer = await asyncio.open_connection(host, port)
        for turn in range(100):
            writer.write(get(f"/works-and-waits?{turn}"))
            await asyncio.wait_for(reader.readuntil(b"done"), WAIT_SECONDS)
        writer.close()

    async def ask_all() -> None:
        host, port = serving.address.rsplit(":", 1)
        await asyncio.gather(*(ask(host, int(port)) for _ in range(32)))

    with serve(tmp_path, *APPS["asgi"], "-w", "1", "--dispatch", "connection") as serving:
        asyncio.run(ask_all())
        soon(lambda: serving.pool()["done"] == 3200)


@pytest.mark.parametrize("kind", APPS)
def test_what_comes_together_with_a_slow_request_does_not_wait_for_it(
    tmp_path: Path, rendezvous: Rendezvous, kind: str
) -> None:
    flags = (*APPS[kind], "-w", "2", "--dispatch", "connection")
    with serve(tmp_path, *flags) as serving, contextlib.ExitStack() as clients:
        slow, *others = [clients.enter_context(connected(serving)) for _ in range(8)]
        for client in (slow, *others):
            client.sendall(get("/first"))
            until(client, b"/first")
        workers = serving.workers()
        for pid in workers:
            os.kill(pid, signal.SIGSTOP)
        # Whoever goes on finds all of its connections with something to do.
        slow.sendall(get(f"/blocks?port={rendezvous.port}"))
        for client in others:
            client.sendall(get("/next"))
        for pid in workers:
            os.kill(pid, signal.SIGCONT)
        guest = rendezvous.guest()
        for client in others:
            until(client, b"/next")
        guest.let_go()
        until(slow, b"blocked")


@pytest.mark.parametrize("dispatch", DISPATCH)
def test_the_next_request_does_not_wait_for_what_comes_behind_a_response(
    tmp_path: Path, dispatch: str, rendezvous: Rendezvous
) -> None:
    with serve(tmp_path, *APPS["asgi"], "--dispatch", dispatch) as serving, connected(serving) as client:
        client.sendall(get(f"/behind?port={rendezvous.port}"))
        until(client, b"answered")
        behind = rendezvous.guest()
        client.sendall(get("/next"))
        until(client, b"/next")
        behind.let_go()


@pytest.mark.parametrize("dispatch", DISPATCH)
def test_an_app_hears_that_its_client_has_gone(tmp_path: Path, dispatch: str, rendezvous: Rendezvous) -> None:
    with serve(tmp_path, *APPS["asgi"], "--dispatch", dispatch) as serving:
        with connected(serving) as client:
            client.sendall(get(f"/gone?port={rendezvous.port}"))
            asked = rendezvous.guest()
        asked.let_go()
        rendezvous.guest().let_go()
        assert serving.get("/still").status == 200


@pytest.mark.parametrize("dispatch", DISPATCH)
@pytest.mark.parametrize("path", ["/endless", "/events"])
def test_the_iterable_of_a_wsgi_app_is_closed_when_its_client_has_gone(
    tmp_path: Path, path: str, dispatch: str, rendezvous: Rendezvous
) -> None:
    with serve(tmp_path, *APPS["wsgi"], "--dispatch", dispatch) as serving:
        with connected(serving) as client:
            client.sendall(get(f"{path}?port={rendezvous.port}"))
            until(client, b": \n\n")
        closed = rendezvous.guest()
        assert closed.word == "closed"
        closed.let_go()
        assert serving.get("/still").status == 200


@pytest.mark.parametrize("dispatch", DISPATCH)
def test_an_event_stream_of_a_wsgi_app_ends_at_its_next_part(
    tmp_path: Path, dispatch: str, rendezvous: Rendezvous
) -> None:
    with serve(tmp_path, *APPS["wsgi"], "--dispatch", dispatch) as serving, connected(serving) as client:
        client.sendall(get(f"/events?port={rendezvous.port}"))
        got = until(client, b": \n\n")
        serving.send(signal.SIGHUP)
        rendezvous.guest().let_go()
        assert until(client, b"0\r\n\r\n", got).endswith(b"0\r\n\r\n")


@pytest.mark.parametrize("dispatch", DISPATCH)
def test_event_streams_end_when_their_worker_is_replaced(tmp_path: Path, dispatch: str) -> None:
    with serve(tmp_path, *APPS["asgi"], "--dispatch", dispatch) as serving, connected(serving) as client:
        client.sendall(get("/events"))
        got = until(client, b"data: begun")
        before = serving.workers()
        serving.send(signal.SIGHUP)
        until(client, b"data: ended", got)
        serving.until(lambda pids: pids and not set(before) & set(pids))


@pytest.mark.parametrize("dispatch", DISPATCH)
def test_an_app_that_returns_when_its_worker_ends_leaves_its_event_stream_whole(tmp_path: Path, dispatch: str) -> None:
    with serve(tmp_path, *APPS["asgi"], "--dispatch", dispatch) as serving, connected(serving) as client:
        client.sendall(get("/unended-events"))
        got = until(client, b"data: begun\n\n")
        serving.send(signal.SIGHUP)
        assert until(client, b"0\r\n\r\n", got).endswith(b"data: begun\n\n\r\n0\r\n\r\n")
    assert "returned before its response" not in serving.err.text + serving.out.text


@pytest.mark.parametrize("dispatch", DISPATCH)
def test_an_event_stream_that_does_not_hear_of_it_does_not_keep_its_worker(tmp_path: Path, dispatch: str) -> None:
    flags = ["-w", "1", "--max-requests", "2", "--graceful-timeout", "0.5", "--dispatch", dispatch]
    with serve(tmp_path, *APPS["asgi"], *flags) as serving, connected(serving) as client:
        (before,) = serving.workers()
        client.sendall(get("/deaf-events"))
        until(client, b"data: begun\n\n")
        while before in serving.workers():
            serving.get("/ready")
        with contextlib.suppress(ConnectionError):
            rest(client)
        serving.err.wait(rf"pid {before}\): gone: ")
        assert "SIGKILL" not in serving.err.text


@pytest.mark.parametrize("dispatch", DISPATCH)
def test_ctrl_c_ends_event_streams_whose_code_does_not_hear_of_it(tmp_path: Path, dispatch: str) -> None:
    with serve(tmp_path, *APPS["asgi"], "--dispatch", dispatch) as serving, connected(serving) as client:
        client.sendall(get("/deaf-events"))
        until(client, b"data: begun\n\n")
        serving.interrupt()
        assert serving.wait() == 0
        assert "SIGKILL" not in serving.err.wait_end()


@pytest.mark.parametrize("dispatch", DISPATCH)
@pytest.mark.parametrize("kind", APPS)
def test_proxies_that_are_named_are_believed(tmp_path: Path, kind: str, dispatch: str) -> None:
    lines = ("X-Forwarded-For: 6.6.6.6, 1.2.3.4", "X-Forwarded-Proto: https")
    with serve(tmp_path, *APPS[kind], "--dispatch", dispatch) as serving, connected(serving) as client:
        for path in ("/first", "/second"):
            client.sendall(get(path, *lines))
            facts = json.loads(until(client, b"}").partition(b"\r\n\r\n")[2])
            address = facts["client"] if kind == "wsgi" else facts["client"][0]
            assert (address, facts["scheme"], facts["path"]) == ("1.2.3.4", "https", path)
        client.sendall(get("/third"))
        facts = json.loads(until(client, b"}").partition(b"\r\n\r\n")[2])
        assert facts["scheme"] == "http" and "127.0.0.1" in facts["client"]


@pytest.mark.parametrize("kind", APPS)
def test_what_a_worker_answers_is_counted_by_the_pool(tmp_path: Path, kind: str) -> None:
    with serve(tmp_path, *APPS[kind], "--dispatch", "connection") as serving, connected(serving) as client:
        for nr in range(3):
            client.sendall(get(f"/{nr}"))
            until(client, b"}")
        soon(lambda: serving.pool()["done"] == 3)


@pytest.mark.parametrize("dispatch", DISPATCH)
def test_an_app_hears_that_nobody_takes_the_body_of_a_head(tmp_path: Path, dispatch: str) -> None:
    with serve(tmp_path, *APPS["asgi"], "--dispatch", dispatch) as serving, connected(serving) as client:
        client.sendall(get("/endless", method="HEAD"))
        until(client, b"\r\n\r\n")
        client.sendall(get("/next"))
        until(client, b"/next")


@pytest.mark.parametrize("kind", APPS)
def test_a_response_that_is_there_does_not_wait_for_code_that_blocks(
    tmp_path: Path, kind: str, rendezvous: Rendezvous
) -> None:
    """The second request is read with the first, and begins before its response would be sent with others."""
    with serve(tmp_path, *APPS[kind], "--dispatch", "connection") as serving, connected(serving) as client:
        client.sendall(get("/first"))
        until(client, b"/first")
        client.sendall(get("/ready") + get(f"/blocks?port={rendezvous.port}"))
        blocked = rendezvous.guest()
        until(client, b"ready")
        blocked.let_go()
        until(client, b"blocked")


SLOW_SHAPES = [["-w", "1"], ["-w", "1", "--threads", "2"]]


@contextlib.contextmanager
def slow_client(serving: Serving, *lines: str, behind: bytes = b"") -> Iterator[socket.socket]:
    """Asks for a large response, and takes its beginning only."""
    with contextlib.closing(socket.socket()) as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.settimeout(WAIT_SECONDS)
        host, port = serving.address.rsplit(":", 1)
        client.connect((host, int(port)))
        client.sendall(get("/large", *lines) + behind)
        client.recv(1)
        yield client


@pytest.mark.parametrize("dispatch", DISPATCH)
@pytest.mark.parametrize("shape", SLOW_SHAPES, ids=str)
def test_a_client_that_does_not_read_holds_no_slot(tmp_path: Path, shape: list[str], dispatch: str) -> None:
    with serve(tmp_path, *APPS["wsgi"], *shape, "--dispatch", dispatch) as serving, contextlib.ExitStack() as clients:
        slow = [clients.enter_context(slow_client(serving, behind=get(f"/behind/{nr}"))) for nr in range(4)]
        with connected(serving) as other:
            for nr in range(3):
                other.sendall(get(f"/other/{nr}"))
                until(other, b"/other/%d" % nr)
        for nr, client in enumerate(slow):
            got = until(client, b'"path": "/behind/%d"' % nr)
            assert got.count(b"x" * LARGE) == 1
            client.sendall(get("/next", "Connection: close"))
            assert b'"path": "/next"' in rest(client)


def test_a_client_that_takes_nothing_is_given_up_beside_the_slots(tmp_path: Path) -> None:
    config = """
    [fronts.admin]
    bind = "127.0.0.1:0"
    [fronts.serve]
    app = "held_apps:wsgi"
    bind = "127.0.0.1:0"
    dispatch = "connection"
    timeout = "none"
    write_timeout = "1s"
    """
    (tmp_path / "clutch.toml").write_text(config)
    with Serving(tmp_path, command=[*COMMAND, "run", "clutch.toml"]) as serving:
        serving.err.wait("pool .*: ready")
        with slow_client(serving, "Connection: close") as client, connected(serving) as other:
            other.sendall(get("/other"))
            until(other, b"/other")
            soon(lambda: serving.figures("clutch_http_connections_open")['front="serve"'] == 1)
            assert len(rest(client)) < LARGE


def test_a_worker_that_is_recycled_sends_the_rest_to_slow_clients(tmp_path: Path) -> None:
    with serve(tmp_path, *APPS["wsgi"], "--dispatch", "connection") as serving, slow_client(serving) as client:
        soon(lambda: serving.pool()["done"] >= 1)
        (before,) = serving.workers()
        serving.send(signal.SIGHUP)
        serving.until(lambda pids: before not in pids and pids)
        assert until(client, b"x" * LARGE)
        client.sendall(get("/next", "Connection: close"))
        assert b'"path": "/next"' in rest(client)
