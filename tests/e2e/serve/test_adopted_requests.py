"""Requests that run for long on connections that workers hold: their pool knows, shows and stops them as other work."""

from __future__ import annotations

import contextlib
import http.client
import os
import re
import select
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.clutch_process import WAIT_SECONDS, clutch, soon
from support.rendezvous import Guest, Rendezvous
from support.serve_process import ANY_PORT, Serving

WSGI = ["adopted_apps:wsgi", "-w", "1"]
ASGI = ["adopted_apps:app", "-w", "1"]
SHAPES = {
    "wsgi": WSGI,
    "threads": [*WSGI, "--threads", "2"],
    "asgi": ASGI,
    "asyncio": [*ASGI, "--loop", "asyncio"],
}
WAYS = [
    ("wsgi", "/waits"),
    ("wsgi", "/blocks"),
    ("threads", "/blocks"),
    ("asgi", "/waits"),
    ("asgi", "/blocks"),
    ("asgi", "/blocks-later"),
    ("asgi", "/thread"),
    ("asyncio", "/waits"),
    ("asyncio", "/blocks"),
    ("asyncio", "/blocks-later"),
    ("asyncio", "/thread"),
]


@contextlib.contextmanager
def serve(folder: Path, shape: str, *flags: str) -> Iterator[Serving]:
    with Serving(folder, *SHAPES[shape], "-b", ANY_PORT, "--dispatch", "connection", *flags) as serving:
        serving.wait_ready("web")
        yield serving


@contextlib.contextmanager
def client(serving: Serving) -> Iterator[http.client.HTTPConnection]:
    with contextlib.closing(http.client.HTTPConnection(serving.address, timeout=WAIT_SECONDS)) as connection:
        yield connection


def ask(connection: http.client.HTTPConnection, path: str = "/") -> tuple[int, bytes]:
    connection.request("GET", path)
    response = connection.getresponse()
    return response.status, response.read()


def running(serving: Serving) -> list[dict[str, object]]:
    return [call for worker in serving.pool()["workers"] for call in worker.get("running") or ()]


@pytest.mark.parametrize(("shape", "path"), WAYS)
def test_one_whose_time_is_over_is_stopped_and_the_worker_goes_on(
    tmp_path: Path, rendezvous: Rendezvous, shape: str, path: str
) -> None:
    with serve(tmp_path, shape, "--timeout", "1") as serving, client(serving) as asking, client(serving) as other:
        workers = serving.workers()
        for _ in range(3):
            asking.request("GET", f"{path}?port={rendezvous.port}")
            guest = rendezvous.guest()
            response = asking.getresponse()
            assert (response.status, response.read()) == (504, b"Gateway Timeout\n")
            guest.wait_gone()
            assert ask(other) == (200, b"done")
            asking.close()
        # A worker has 25 ms to tell where late work is, with either way of dispatch: these two may take longer.
        if "wsgi" in SHAPES[shape][0] or path not in ("/thread", "/waits"):
            serving.err.wait(r"adopted_apps\.py")
        soon(lambda: not running(serving))
        # A thread that an app has started is not interrupted: its worker is replaced.
        assert (serving.workers() == workers) == (path != "/thread")
    assert "the app raised" not in serving.err.text or "wsgi" in SHAPES[shape][0]


@pytest.mark.parametrize("shape", ["asgi", "asyncio"])
def test_a_worker_whose_stuck_work_ends_after_all_ends_in_order(
    tmp_path: Path, rendezvous: Rendezvous, shape: str
) -> None:
    with serve(tmp_path, shape, "--timeout", "1") as serving, client(serving) as stuck, client(serving) as other:
        other.request("GET", f"/events?port={rendezvous.port}")
        assert other.getresponse().readline() == b"data: 1\n"
        stuck.request("GET", f"/thread-waits?port={rendezvous.port}")
        guest = rendezvous.guest()
        assert stuck.getresponse().status == 504
        neighbour = rendezvous.guest()  # which was told that the worker is to end
        assert "/thread-waits" in str(running(serving))
        guest.let_go()
        soon(lambda: "/thread-waits" not in str(running(serving)))
        neighbour.let_go()
        serving.err.wait("gone: its work did not stop when told to")
        assert "SIGTERM" not in serving.err.text
        serving.out.wait("shut down")


@pytest.mark.parametrize("shape", ["wsgi", "threads", "asgi"])
def test_one_that_comes_with_another_has_its_own_time(tmp_path: Path, rendezvous: Rendezvous, shape: str) -> None:
    with serve(tmp_path, shape, "--timeout", "1") as serving, client(serving) as asking:
        asking.connect()
        paths = ("/", f"/waits?port={rendezvous.port}")
        asking.sock.sendall("".join(f"GET {path} HTTP/1.1\r\nHost: a\r\n\r\n" for path in paths).encode())
        with asking.sock.makefile("rb") as answers:
            text = answers.read()
        assert re.findall(rb"HTTP/1.1 (\d+)", text) == [b"200", b"504"]
        rendezvous.guest().wait_gone()
        soon(lambda: not running(serving))


@pytest.mark.parametrize("is_known", [False, True])
def test_one_whose_client_leaves_has_its_time_too(tmp_path: Path, rendezvous: Rendezvous, is_known: bool) -> None:
    with serve(tmp_path, "asgi", "--timeout", "2") as serving, client(serving) as asking, client(serving) as other:
        for _ in range(3):
            asking.request("GET", f"/waits?port={rendezvous.port}")
            guest = rendezvous.guest()
            if is_known:
                soon(lambda: running(serving))
            asking.close()
            assert ask(other) == (200, b"done")
            guest.wait_gone()
        soon(lambda: not running(serving))
        assert ask(other) == (200, b"done")


@pytest.mark.parametrize("path", ["/waits", "/begun"])
def test_one_whose_client_leaves_is_shown_until_it_ends(tmp_path: Path, rendezvous: Rendezvous, path: str) -> None:
    with serve(tmp_path, "asgi", "--access-logfile", "-") as serving, client(serving) as asking:
        asking.request("GET", f"{path}?port={rendezvous.port}")
        guest = rendezvous.guest()
        asking.close()
        soon(lambda: [call["what"] for call in running(serving)] == [f"GET {path}"])
        guest.let_go()
        soon(lambda: not running(serving))
        soon(lambda: serving.pool()["done"] == 1)
        assert ask(asking) == (200, b"done")
        serving.out.wait(r'"GET / HTTP/1.1" 200')
    assert serving.out.text.count(f'"GET {path}') == 1


@pytest.mark.parametrize(("shape", "path"), [("wsgi", "/waits"), ("asgi", "/blocks-until")])
def test_one_does_not_hold_up_the_connection_of_a_request_before(
    tmp_path: Path, rendezvous: Rendezvous, shape: str, path: str
) -> None:
    """A response may wait for those behind it; it is sent early, and its connection is free from then on."""
    with serve(tmp_path, shape, "-w", "2") as serving, contextlib.ExitStack() as clients:
        workers = serving.workers()
        # A connection goes to the worker that holds the fewest: the second and the fourth to the same.
        connections = [clients.enter_context(client(serving)) for _ in range(4)]
        for _ in range(200):  # short ones: the worker takes several at a time then
            assert [ask(connection) for connection in connections] == [(200, b"done")] * 4
        asking, other = connections[1::2]
        while True:
            for worker in workers:
                os.kill(worker, signal.SIGSTOP)
            asking.request("GET", "/")
            other.request("GET", f"{path}?port={rendezvous.port}")
            for worker in workers:
                os.kill(worker, signal.SIGCONT)
            guest = rendezvous.guest()
            if select.select([asking.sock], [], [], 2)[0]:
                break
            # The worker has come to the other one first.
            guest.let_go()
            assert [one.getresponse().read() for one in (asking, other)] == [b"done"] * 2
        assert asking.getresponse().read() == b"done"
        assert ask(asking) == (200, b"done")
        guest.let_go()
        assert other.getresponse().read() == b"done"


@pytest.mark.parametrize(("shape", "path"), WAYS)
def test_an_operator_sees_and_cancels_one(tmp_path: Path, rendezvous: Rendezvous, shape: str, path: str) -> None:
    with serve(tmp_path, shape) as serving, client(serving) as asking, client(serving) as other:
        asking.request("GET", f"{path}?port={rendezvous.port}")
        guest = rendezvous.guest()
        soon(lambda: running(serving))
        (call,) = running(serving)
        assert call["what"] == f"GET {path}"
        stack = clutch("stack", str(call["id"]), "--pid", str(serving.process.pid), cwd=tmp_path)
        assert "adopted_apps.py" in stack.stdout, stack.stderr
        done = clutch("cancel", str(call["id"]), "--pid", str(serving.process.pid), cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert asking.getresponse().status in (500, 503)
        guest.wait_gone()
        assert ask(other) == (200, b"done")
        soon(lambda: not running(serving))


@pytest.mark.parametrize("shape", ["wsgi", "asgi"])
def test_one_that_does_not_stop_costs_its_worker_and_its_client_is_told_before(
    tmp_path: Path, rendezvous: Rendezvous, shape: str
) -> None:
    with serve(tmp_path, shape, "--timeout", "1", "--graceful-timeout", "2") as serving, client(serving) as asking:
        (before,) = serving.workers()
        asking.request("GET", f"/stubborn?port={rendezvous.port}")
        rendezvous.guest()
        assert asking.getresponse().status == 504
        serving.until(lambda pids: pids and before not in pids)
        asking.close()
        assert ask(asking) == (200, b"done")


def test_one_whose_response_has_begun_is_cut_off_where_it_pauses(tmp_path: Path, rendezvous: Rendezvous) -> None:
    with serve(tmp_path, "asgi", "--timeout", "1") as serving, client(serving) as asking:
        asking.request("GET", f"/begun?port={rendezvous.port}")
        guest = rendezvous.guest()
        response = asking.getresponse()
        with pytest.raises(http.client.IncompleteRead) as broken:
            response.read()
        assert (response.status, broken.value.partial) == (200, b"begun")
        guest.wait_gone()
        serving.err.wait("a response was cut off after a pause of 1 s between its parts")
        asking.close()
        assert ask(asking) == (200, b"done")


@pytest.mark.parametrize(("shape", "path"), [("wsgi", "/waits"), ("asgi", "/waits"), ("asgi", "/begun")])
def test_one_that_ends_by_itself_leaves_its_connection_to_others(
    tmp_path: Path, rendezvous: Rendezvous, shape: str, path: str
) -> None:
    with serve(tmp_path, shape) as serving, client(serving) as asking:
        for _ in range(3):
            asking.request("GET", f"{path}?port={rendezvous.port}")
            guest = rendezvous.guest()
            soon(lambda: running(serving))
            guest.let_go()
            response = asking.getresponse()
            assert (response.status, response.read()[-4:]) == (200, b"done")
            soon(lambda: not running(serving))
        assert ask(asking) == (200, b"done")
        soon(lambda: serving.pool()["done"] == 4)


def test_many_at_a_time_are_known_and_each_is_ended_once(tmp_path: Path, rendezvous: Rendezvous) -> None:
    count = 60
    with serve(tmp_path, "asgi") as serving, contextlib.ExitStack() as clients:
        connections = [clients.enter_context(client(serving)) for _ in range(count)]
        for turn in (1, 2):
            for connection in connections:
                connection.request("GET", f"/waits?port={rendezvous.port}")
            guests = rendezvous.guests(count)
            soon(lambda: len(running(serving)) == count)
            for guest in guests:
                guest.let_go()
            assert [answer.read() for answer in (one.getresponse() for one in connections)] == [b"done"] * count
            soon(lambda: not running(serving))
            soon(lambda turn=turn: serving.pool()["done"] == turn * count)


@pytest.mark.parametrize("shape", ["wsgi", "asgi"])
def test_the_worker_of_one_dies(tmp_path: Path, rendezvous: Rendezvous, shape: str) -> None:
    with serve(tmp_path, shape) as serving, client(serving) as asking:
        asking.request("GET", f"/waits?port={rendezvous.port}")
        guest = rendezvous.guest()
        soon(lambda: running(serving))
        os.kill(guest.pid, signal.SIGKILL)
        assert asking.getresponse().status == 502
        assert re.search(r"it was running GET /waits \(call", serving.err.wait("was killed by signal 9.*")[0])


@contextlib.contextmanager
def gone_on(serving: Serving, rendezvous: Rendezvous, path: str = "/behind") -> Iterator[Guest]:
    """Code that goes on behind a response, which the pool knows."""
    with client(serving) as asking:
        assert ask(asking, f"{path}?port={rendezvous.port}") == (200, b"done")
        guest = rendezvous.guest()
        soon(lambda: running(serving))
        (call,) = running(serving)
        assert call["what"] == f"GET {path} (behind its response)"
        assert ask(asking, "/")[0] == 200
        yield guest


def test_what_goes_on_behind_a_response_is_shown_and_an_operator_cancels_it(
    tmp_path: Path, rendezvous: Rendezvous
) -> None:
    with serve(tmp_path, "asgi") as serving:
        with gone_on(serving, rendezvous) as guest:
            guest.let_go()
            serving.out.wait("whole")
            soon(lambda: not running(serving))
        with gone_on(serving, rendezvous) as guest:
            (call,) = running(serving)
            assert clutch("cancel", str(call["id"]), cwd=tmp_path).returncode == 0
            guest.wait_gone()
            soon(lambda: not running(serving))
        assert serving.pool()["done"] == 4, "it is no call of its own"


@pytest.mark.parametrize("order", [signal.SIGINT, signal.SIGTERM], ids=lambda order: order.name)
@pytest.mark.parametrize("is_known", [True, False], ids=["known", "unknown"])
def test_what_goes_on_behind_a_response_is_told_to_stop_before_the_shutdown_of_its_app(
    tmp_path: Path, rendezvous: Rendezvous, order: signal.Signals, is_known: bool
) -> None:
    with serve(tmp_path, "asgi", "--graceful-timeout", "1") as serving, contextlib.ExitStack() as stack:
        if is_known:
            stack.enter_context(gone_on(serving, rendezvous))
        else:
            assert ask(stack.enter_context(client(serving)), f"/behind?port={rendezvous.port}") == (200, b"done")
        serving.send(order)
        assert serving.wait() == 0
    said, log = serving.out.wait_end(), serving.err.wait_end()
    assert said.index("finally of what goes on") < said.index("shut down") and "whole" not in said
    assert "GET /behind (behind its response)" in log and "told to stop" in log
    assert "SIGKILL" not in log and "Traceback" not in log


def test_what_goes_on_behind_a_response_has_the_grace(tmp_path: Path, rendezvous: Rendezvous) -> None:
    with serve(tmp_path, "asgi", "--graceful-timeout", "30") as serving, gone_on(serving, rendezvous) as guest:
        serving.terminate()
        serving.err.wait("SIGTERM: stopping")
        guest.let_go()
        assert serving.wait() == 0
    said = serving.out.wait_end()
    assert said.index("whole") < said.index("shut down")
    assert "told to stop" not in serving.err.wait_end()


def test_what_goes_on_behind_a_response_and_does_not_stop_is_told_of_with_its_worker(
    tmp_path: Path, rendezvous: Rendezvous
) -> None:
    flags = ["--graceful-timeout", "1"]
    with serve(tmp_path, "asgi", *flags) as serving, gone_on(serving, rendezvous, "/deaf-behind"):
        serving.terminate()
        assert serving.wait() == 0
    log = serving.err.wait_end()
    assert "it was idle" not in log
    assert re.search(r"WARNING.*it was running GET /deaf-behind \(behind its response\)", log), log


def test_a_stop_lets_one_end_within_its_grace(tmp_path: Path, rendezvous: Rendezvous) -> None:
    for ends in (True, False):
        grace = "30" if ends else "1"
        with serve(tmp_path, "asgi", "--graceful-timeout", grace) as serving, client(serving) as asking:
            asking.request("GET", f"/waits?port={rendezvous.port}")
            guest = rendezvous.guest()
            soon(lambda serving=serving: running(serving))
            serving.terminate()
            if ends:
                serving.err.wait("SIGTERM: stopping")
                guest.let_go()
                assert asking.getresponse().read() == b"done"
            else:
                guest.wait_gone()
            assert serving.wait() == 0


def test_a_stop_tells_what_it_cuts_off_of_requests_that_are_dispatched(tmp_path: Path, rendezvous: Rendezvous) -> None:
    flags = ["-b", ANY_PORT, "--dispatch", "request", "--graceful-timeout", "1"]
    with Serving(tmp_path, *ASGI, *flags) as serving, client(serving) as behind, client(serving) as asking:
        assert ask(behind, f"/behind?port={rendezvous.port}") == (200, b"done")
        asking.request("GET", f"/waits?port={rendezvous.port}")
        rendezvous.guests(2)
        serving.terminate()
        assert serving.wait() == 0
        log = serving.err.wait_end()
    assert len(re.findall(r"WARNING serve: GET /waits was cut off after .* s: the server stops", log)) == 1
    assert len(re.findall(r"WARNING pool web: GET /behind \(behind its response\) was told to stop after", log)) == 1
    assert "SIGTERM: it was told" not in log
