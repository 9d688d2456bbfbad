"""Connections: the accepted socket itself goes to a worker, and lives and dies with it."""

from __future__ import annotations

import os
import signal
import socket
import sysconfig
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import pytest

from clutch import ConfigError, Pool, _core, config
from clutch.testing import Watch
from support.clutch_process import soon
from support.http_service import serve_fronts
from support.rendezvous import WAIT_SECONDS, Rendezvous
from support.shapes import Shape
from support.stderr import Stderr

ECHOES = ["echo", "echo_streams", "echo_socket", "Echo"]
TOLD = ["told", "told_streams"]


class Peer:
    """A client."""

    def __init__(self, address: str) -> None:
        kind, _, path = address.partition(":")
        if kind == "unix":
            self.socket = socket.socket(socket.AF_UNIX)
            self.socket.settimeout(WAIT_SECONDS)
            self.socket.connect(path)
        else:
            self.socket = socket.create_connection((kind, int(path)), WAIT_SECONDS)
        self.lines = self.socket.makefile("rwb")

    def line(self) -> str:
        """The next one; empty at the end."""
        return self.lines.readline().decode()

    def say(self, text: str) -> None:
        self.lines.write(f"{text}\n".encode())
        self.lines.flush()

    def rest(self) -> str:
        """All until the end, also where the connection is broken."""
        got = b""
        try:
            while piece := self.lines.read1():
                got += piece
        except ConnectionResetError:
            got += b"(reset)"
        return got.decode()

    def close(self) -> None:
        self.lines.close()
        self.socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@dataclass
class Service:
    pool: Pool
    fronts: _core.Fronts
    stack: ExitStack

    @property
    def address(self) -> str:
        return self.fronts.addresses("tcp")[0]

    def peer(self) -> Peer:
        return self.stack.enter_context(Peer(self.address))

    def greeted(self) -> tuple[int, Peer]:
        """The pid of a worker, and a client that it serves."""
        peer = self.peer()
        return int(peer.line()), peer

    def pids(self) -> list[int]:
        return [worker["pid"] for worker in self.pool.stats()["workers"]]

    def wait_stats(self, holds: Callable[[dict[str, Any]], bool]) -> None:
        soon(lambda: holds(self.pool.stats()))


Serve = Callable[..., Service]


@pytest.fixture
def serve(shape: Shape) -> Iterator[Serve]:
    """A pool of this profile behind a tcp front; both end with the test."""
    with ExitStack() as stack:

        def make(handler: str, bind: str = "127.0.0.1:0", connections_max: int = 1000, **options: Any) -> Service:
            spec = config.resolve("made", target=f"tcp_handlers:{handler}".rstrip(":"), **{**shape.options, **options})
            spec.core["launch"]["app"] = {"kind": "tcp", "factory": False}
            pool = Pool.from_spec(spec)
            stack.callback(pool.shutdown)
            stack.callback(pool.terminate_workers)
            pool.wait_ready(timeout=60)
            front = {"pool": "made", "bind": [bind], "connections_max": connections_max}
            fronts = serve_fronts(stack, pool, tcp=front)
            return Service(pool, fronts, stack)

        yield make


def ready(stats: dict[str, Any]) -> set[int]:
    return {worker["pid"] for worker in stats["workers"] if worker["state"] == "ready"}


def descriptors(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


# ---- serving


@pytest.mark.per_profile
@pytest.mark.parametrize("handler", ECHOES)
def test_a_handler_of_each_form_serves(serve: Serve, handler: str) -> None:
    service = serve(handler)
    for _ in range(3):
        pid, peer = service.greeted()
        assert pid in service.pids()
        for text in ("one", "two", "x" * 100_000):
            peer.say(text)
            assert peer.line() == f"{text}\n"
        peer.socket.shutdown(socket.SHUT_WR)
        assert peer.rest() == "bye\n"
    service.wait_stats(lambda stats: (stats["done"], stats["failed"], stats["sent"]) == (3, 0, 0))


@pytest.mark.parametrize("handler", ECHOES[:2])
def test_more_clients_than_slots_are_served_in_turn(serve: Serve, handler: str) -> None:
    service = serve(handler)
    peers = [service.peer() for _ in range(40)]
    for nr, peer in enumerate(peers):
        peer.say(f"client {nr}")
        peer.socket.shutdown(socket.SHUT_WR)
    for nr, peer in enumerate(peers):
        assert peer.rest().split("\n")[1:] == [f"client {nr}", "bye", ""]
    service.wait_stats(lambda stats: stats["done"] == 40)


@pytest.mark.per_profile
@pytest.mark.parametrize("word", ["raise", "exit"])
@pytest.mark.parametrize("handler", TOLD)
def test_a_handler_that_raises_ends_its_connection_and_says_why(serve: Serve, handler: str, word: str) -> None:
    service = serve(handler)
    pids = service.pids()
    said = {"raise": "ValueError: told to raise", "exit": "SystemExit: 3"}[word]
    with Stderr() as stderr:
        for _ in range(2):
            peer = service.peer()
            peer.say(word)
            assert peer.rest() == ""
        service.wait_stats(lambda stats: (stats["done"], stats["failed"]) == (2, 2))
        assert service.pids() == pids
        text = stderr.wait(said, 2)
    assert text.count("the handler of a connection failed:") == 2
    assert f"in {handler}" in text and "tcp.py" not in text


@pytest.mark.per_profile
@pytest.mark.parametrize("handler", ECHOES[:3])
def test_a_peer_that_goes_away_ends_its_handler(serve: Serve, handler: str) -> None:
    service = serve(handler)
    for _ in range(service.pool.stats()["slots"] + 1):
        _, peer = service.greeted()
        peer.close()
    service.wait_stats(lambda stats: stats["sent"] == 0)
    _, broken = service.greeted()
    # Closing on unread bytes, and without lingering, breaks the connection off.
    broken.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    broken.close()
    service.wait_stats(lambda stats: stats["sent"] == 0)


def test_a_unix_socket_and_one_that_was_handed_over(serve: Serve, tmp_path: Path) -> None:
    with serve("echo", bind=f"unix:{tmp_path / 'echo'}").peer() as peer:
        peer.say("hello")
        assert peer.line().strip().isdigit() and peer.line() == "hello\n"
    listening = socket.create_server(("127.0.0.1", 0))
    service = serve("echo", bind=f"fd:{listening.fileno()}")
    assert service.address == f"127.0.0.1:{listening.getsockname()[1]}"
    listening.close()
    service.greeted()


def test_a_bind_that_cannot_be_had_is_named(serve: Serve) -> None:
    for bind in ("fd:x", "fd:0", "127.0.0.1:1:1", "nowhere"):
        with pytest.raises(OSError, match=f"fronts.tcp.bind: cannot listen on {bind}"):
            serve("echo", bind=bind)


@pytest.mark.parametrize(
    ("handler", "why"),
    [
        ("two_parameters", "cannot be a handler"),
        ("three_parameters", "cannot be a handler"),
        ("named", "cannot be a handler"),
        ("number", "cannot be called"),
        ("NotCallable", "cannot be called"),
        ("", "the module 'tcp_handlers' cannot be called; name the handler"),
    ],
)
def test_what_cannot_be_a_handler_is_said_at_the_start(serve: Serve, handler: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why) as caught:
        serve(handler)
    assert "async def handler(reader, writer)" in str(caught.value)


# ---- ends of workers


@pytest.mark.per_profile
@pytest.mark.parametrize("handler", ECHOES[:3])
def test_a_connection_dies_with_its_worker_and_no_other_does(serve: Serve, handler: str) -> None:
    service = serve(handler, workers=2)
    first = dict(service.greeted() for _ in range(2))
    assert len(first) == 2, "one for each worker: the least loaded"
    (killed, cut), (_, other) = first.items()
    os.kill(killed, signal.SIGKILL)
    assert cut.rest() in ("", "(reset)")
    other.say("still here")
    assert other.line() == "still here\n"
    service.wait_stats(lambda stats: len(ready(stats) - {killed}) == 2)
    assert service.greeted()[0] not in first
    assert service.pool.stats()["failed"] == 1


def skip_where_nothing_holds_a_worker() -> None:
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        pytest.skip("code that holds the GIL holds up nobody without one: what is sent begins")


@pytest.mark.parametrize("handler", TOLD)
def test_a_connection_that_had_not_begun_goes_to_another_worker(
    serve: Serve, shape: Shape, handler: str, rendezvous: Rendezvous
) -> None:
    if shape.slots_of_worker == 1:
        pytest.skip("sent means begun; crates/clutch-fronts/tests/tcp_front.rs has the other case")
    skip_where_nothing_holds_a_worker()
    service = serve(handler, workers=1)
    holder = service.peer()
    holder.say(f"hold {rendezvous.port}")
    guest = rendezvous.guest()
    moved = service.peer()
    moved.say(f"meet {rendezvous.port}")
    service.wait_stats(lambda stats: stats["sent"] == 2)
    os.kill(guest.pid, signal.SIGKILL)
    assert holder.rest() in ("", "(reset)")
    other = rendezvous.guest()
    assert other.pid != guest.pid
    other.let_go("served")
    assert moved.rest() == "served"


@pytest.mark.per_profile
@pytest.mark.parametrize("handler", ECHOES)
@pytest.mark.parametrize("order", ["recycle", "reload"])
def test_a_handler_reads_the_end_of_input_when_its_worker_is_to_end(serve: Serve, handler: str, order: str) -> None:
    service = serve(handler, grace=60)
    pid, peer = service.greeted()
    peer.say("before")
    assert peer.line() == "before\n"
    getattr(service.pool, order)(timeout=WAIT_SECONDS)
    assert peer.rest() == "bye\n"
    assert pid not in service.pids()
    assert service.greeted()[0] in service.pids()
    assert (service.pool.stats()["failed"], service.pool.stats()["drained"]) == (0, 0)


def test_a_pool_that_is_made_smaller_tells_the_handlers_of_those_that_leave(serve: Serve) -> None:
    service = serve("echo", workers={"min": 1, "max": 2})
    service.pool.scale(2)
    service.pool.wait_ready(2, timeout=WAIT_SECONDS)
    peers = dict(service.greeted() for _ in range(2))
    service.pool.scale(1)
    service.wait_stats(lambda stats: len(stats["workers"]) == 1)
    (stays,) = service.pids()
    peers[stays].say("still here")
    assert peers.pop(stays).line() == "still here\n"
    assert [peer.rest() for peer in peers.values()] == ["bye\n"]


@pytest.mark.per_profile
@pytest.mark.parametrize("handler", TOLD)
def test_a_handler_that_goes_on_is_cut_off_at_the_grace(
    serve: Serve, handler: str, rendezvous: Rendezvous, events: Watch
) -> None:
    service = serve(handler, grace=0.2, interrupt_grace=0.2, term_grace=0.2)
    peer = service.peer()
    peer.say(f"meet {rendezvous.port}")
    guest = rendezvous.guest()
    service.pool.recycle(timeout=WAIT_SECONDS)
    events.wait("work_drained", pool="made")
    assert peer.rest() in ("", "(reset)")
    guest.wait_gone()
    assert guest.pid not in service.pids()
    assert service.pool.stats()["drained"] == 1


@pytest.mark.per_profile
@pytest.mark.parametrize("handler", TOLD)
def test_a_deadline_ends_a_connection(serve: Serve, handler: str, rendezvous: Rendezvous, events: Watch) -> None:
    service = serve(handler, deadline=1.5, grace=0.2, interrupt_grace=0.2, term_grace=0.2)
    service.pool.wait_ready(timeout=60)
    peer = service.peer()
    peer.say(f"meet {rendezvous.port}")
    guest = rendezvous.guest()
    events.wait("work_expired", pool="made", at="running")
    assert peer.rest() in ("", "(reset)")
    guest.wait_gone()


# ---- the end of the front


@pytest.mark.parametrize("handler", ECHOES)
def test_a_stop_refuses_whoever_comes_and_lets_handlers_end(serve: Serve, handler: str) -> None:
    service = serve(handler)
    _, peer = service.greeted()
    peer.say("before")
    address = service.address
    service.fronts.stop(WAIT_SECONDS)
    assert peer.rest() == "before\nbye\n"
    with pytest.raises(ConnectionRefusedError):
        Peer(address)


def test_a_connection_that_waits_at_a_stop_is_served_when_a_slot_is_free(serve: Serve) -> None:
    service = serve("echo", workers=1)
    busy = [service.greeted()[1] for _ in range(service.pool.stats()["slots"])]
    waiting = service.peer()
    waiting.say("I have waited")
    service.wait_stats(lambda stats: stats["queued"] == 1)
    service.fronts.stop(WAIT_SECONDS)
    assert [peer.rest() for peer in busy] == ["bye\n"] * len(busy)
    assert waiting.rest().split("\n")[1:] == ["I have waited", "bye", ""]


def test_at_the_grace_of_a_stop_handlers_are_cut_off(serve: Serve, rendezvous: Rendezvous) -> None:
    service = serve("told", grace=0.2, interrupt_grace=0.2, term_grace=0.2)
    peer = service.peer()
    peer.say(f"meet {rendezvous.port}")
    guest = rendezvous.guest()
    service.fronts.stop(0.2)
    guest.wait_gone()
    assert peer.rest() in ("", "(reset)")


# ---- limits


def test_beyond_the_most_connections_clients_wait_in_the_backlog(serve: Serve, rendezvous: Rendezvous) -> None:
    service = serve("told", connections_max=1)
    for _ in range(5):
        service.peer().say(f"meet {rendezvous.port}")
    for _ in range(5):
        guest = rendezvous.guest()
        assert rendezvous.nobody_waits()
        assert (service.pool.stats()["sent"], service.pool.stats()["queued"]) == (1, 0)
        guest.let_go()


def test_a_full_pool_takes_nobody_in(serve: Serve, rendezvous: Rendezvous) -> None:
    service = serve("told", workers=1, queue={"limit": 1, "overflow": "reject"})
    slots = service.pool.stats()["slots"]
    peers = [service.peer() for _ in range(slots + 4)]
    for peer in peers:
        peer.say(f"meet {rendezvous.port}")
    guests = rendezvous.guests(slots)
    service.wait_stats(lambda stats: (stats["queued"], stats["blocked"]) == (1, 1))
    for guest in guests:
        guest.let_go("in turn")
    for _ in range(4):
        rendezvous.guest().let_go("in turn")
    assert {peer.rest() for peer in peers} == {"in turn"}


def test_a_peer_that_has_gone_while_it_waited_starts_no_code(
    serve: Serve, rendezvous: Rendezvous, events: Watch
) -> None:
    service = serve("told", workers=1)
    busy = [service.peer() for _ in range(service.pool.stats()["slots"])]
    for peer in busy:
        peer.say(f"meet {rendezvous.port}")
    guests = rendezvous.guests(len(busy))
    waiting = service.peer()
    service.wait_stats(lambda stats: stats["queued"] == 1)
    waiting.close()
    events.wait("work_cancelled", pool="made")
    # One that has said something, and nothing more to say, still waits for its answer.
    speaker = service.peer()
    speaker.say(f"meet {rendezvous.port}")
    speaker.socket.shutdown(socket.SHUT_WR)
    service.wait_stats(lambda stats: stats["queued"] == 1)
    for guest in guests:
        guest.let_go()
    rendezvous.guest().let_go("answer")
    assert speaker.rest() == "answer"
    service.wait_stats(lambda stats: stats["sent"] == 0)
    assert service.pool.stats()["done"] == len(busy) + 1


@pytest.mark.parametrize("handler", ECHOES)
def test_descriptors_are_flat_after_1000_connections(serve: Serve, handler: str) -> None:
    service = serve(handler, workers=1)
    (pid,) = service.pids()

    def visit(count: int) -> None:
        for _ in range(count):
            with Peer(service.address) as peer:
                peer.line()
        service.wait_stats(lambda stats: stats["sent"] == 0)

    visit(20)
    before = descriptors(pid), descriptors(os.getpid())
    visit(1000)
    assert service.pids() == [pid]
    assert descriptors(pid) <= before[0] + 3 and descriptors(os.getpid()) <= before[1] + 3


def test_a_worker_keeps_no_descriptor_of_what_was_taken_back(
    serve: Serve, shape: Shape, rendezvous: Rendezvous, events: Watch
) -> None:
    if shape.slots_of_worker == 1:
        pytest.skip("nothing is sent to a worker of one slot that is busy")
    skip_where_nothing_holds_a_worker()
    service = serve("told", workers=1)
    service.peer().say("nothing")
    service.wait_stats(lambda stats: (stats["done"], stats["sent"]) == (1, 0))
    (pid,) = service.pids()
    before = descriptors(pid)
    holder = service.peer()
    holder.say(f"hold {rendezvous.port}")
    guest = rendezvous.guest()
    for nr in range(5):
        gone = service.peer()
        service.wait_stats(lambda stats: stats["sent"] == 2)
        gone.close()
        events.wait("work_cancelled", pool="made")
        assert service.pool.stats()["sent"] == 1, nr
    guest.let_go()
    assert holder.rest() == ""
    service.peer().say("nothing")
    service.wait_stats(lambda stats: (stats["done"], stats["sent"]) == (3, 0))
    assert descriptors(pid) <= before


def test_a_worker_without_descriptors_loses_one_connection_and_nothing_else(serve: Serve, shape: Shape) -> None:
    if shape.slots_of_worker == 1:
        pytest.skip("nothing is sent to a worker of one slot that is busy")
    skip_where_nothing_holds_a_worker()
    service = serve("told", workers=1)
    pids = service.pids()
    starving = service.peer()
    with Stderr() as stderr:
        starving.say("starve")
        assert starving.line() == "starving\n"
        assert service.peer().rest() in ("", "(reset)")
        service.wait_stats(lambda stats: (stats["failed"], stats["sent"]) == (1, 1))
        stderr.wait("had no descriptor left")
    starving.socket.shutdown(socket.SHUT_WR)
    assert starving.rest() == ""
    service.peer().say("nothing")
    service.wait_stats(lambda stats: (stats["done"], stats["sent"]) == (3, 0))
    assert service.pids() == pids
