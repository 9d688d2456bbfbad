"""What every kind of front promises: addresses, limits, slow clients, the stop. The kinds are in front_kinds.py."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest
from front_house import House, left_in_process, listens, tries, wait_left
from front_kinds import WAIT_SECONDS, Client

from clutch import Dispatcher

LONG_SECONDS = 20.0
"""A grace that is not to be used up."""
SHORT_SECONDS = 0.3
GROWTH_BYTES_MAX = 8 << 20
"""Of this process, for ten thousand connections that have come and gone."""


# ---- where it listens


def test_several_of_a_kind_have_their_own_names_and_addresses(house: House) -> None:
    house.start(one="", two="")
    assert set(house.dispatcher.addresses) == {"one", "two"}
    assert house.address("one") != house.address("two")
    for front in ("one", "two"):
        house.assert_serves(front)


def test_its_addresses_have_real_ports(house: House) -> None:
    binds = ["127.0.0.1:0", "127.0.0.1:0"] if house.kind.binds else ["127.0.0.1:0"]
    house.start("bind = " + (str(binds) if house.kind.binds else f'"{binds[0]}"'))
    addresses = house.dispatcher.addresses["front"]
    assert len(set(addresses)) == len(binds)
    for address in addresses:
        assert address.startswith("127.0.0.1:") and not address.endswith(":0")
        with Client(house.kind, address) as client:
            assert client.ask(house.kind.request).endswith(house.kind.answer)


def test_a_unix_socket_is_served_and_removed(house: House) -> None:
    path = house.folder / "front.sock"
    path_of_stale = socket.socket(socket.AF_UNIX)
    path_of_stale.bind(str(path))
    path_of_stale.close()
    house.start(f'bind = "unix:{path}"')
    assert house.dispatcher.addresses["front"] == [f"unix:{path}"]
    house.assert_serves()
    house.dispatcher.stop()
    assert not path.exists()


def test_a_bind_that_is_taken_is_named_and_leaves_nothing(house: House) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        bind = f"127.0.0.1:{taken.getsockname()[1]}"
        before = left_in_process()
        dispatcher = Dispatcher(house.configure({"first": "", "second": f'bind = "{bind}"'}))
        with pytest.raises(OSError, match=f"fronts.second.bind: cannot listen on {bind}"):
            dispatcher.__enter__()
        del dispatcher
        wait_left(before)
    with Dispatcher(house.configure({"first": "", "second": f'bind = "{bind}"'})) as dispatcher:
        assert dispatcher.addresses["second"] == [bind]


# ---- limits


def test_a_full_front_refuses_or_waits_and_recovers(house: House) -> None:
    most = house.kind.connections_max or 2
    house.start(*[] if house.kind.connections_max else [f"connections_max = {most}"])
    inside = [house.connect() for _ in range(most)]
    if house.kind.refusal is None:
        for client in inside:
            assert client.ask(house.kind.request) == house.kind.answer
        waiting = house.connect()
        waiting.send(house.kind.request)
        for client in inside:
            assert client.ask(house.kind.request) == house.kind.answer
        inside[0].socket.close()
        assert waiting.answer() == house.kind.answer
        return
    refused = house.connect()
    refused.send(house.kind.request)
    answer = refused.rest()
    assert answer.startswith(b"HTTP/1.1 503 Service Unavailable\r\n")
    assert house.kind.refusal in answer and b"\r\nretry-after: 1\r\n" in answer
    inside[0].socket.close()
    house.wait_served()
    assert inside[1].ask(house.kind.request).endswith(house.kind.answer), "others are untouched"


def test_a_client_that_stops_in_the_middle_of_its_head_is_cut_off(house: House) -> None:
    house.start(*[f'{house.kind.slow} = "200ms"'] if house.kind.slow else [])
    slow = house.connect()
    slow.send(house.kind.half)
    house.assert_serves()
    if not house.kind.cuts_slow:
        return
    assert house.kind.answer not in slow.rest()


def test_a_client_that_never_reads_is_cut_off(house: House) -> None:
    if house.kind.large is None or house.kind.unread is None:
        pytest.skip("its answers are small, or its handler's own")
    house.start("connections_max = 1", f'{house.kind.unread} = "300ms"')
    house.connect(receive_bytes=4096).send(house.kind.large)
    house.wait_served()


def test_half_a_handshake_is_cut_off(house: House) -> None:
    if not house.kind.has_tls:
        pytest.skip("it does not speak TLS")
    house.start(f'{house.kind.slow} = "200ms"')
    for said in (b"", b"\x16\x03\x01\x02"):
        with socket.create_connection(split(house.address()), WAIT_SECONDS) as client:
            client.sendall(said)
            assert client.recv(1) == b""
    house.assert_serves()


def test_garbage_harms_nobody_else(house: House) -> None:
    house.start()
    good = house.connect()
    for garbage in (
        b"\0" * 64,
        b"\xff\xfe" * 4096,
        b"\r\n" * 512,
        os.urandom(4096) + b"\n",
        b"GET",
        b"\x16\x03\x01\xff",
    ):
        # It may be cut off before all is said.
        with contextlib.suppress(OSError), socket.create_connection(split(house.address()), WAIT_SECONDS) as client:
            client.sendall(garbage)
            client.shutdown(socket.SHUT_WR)
            while client.recv(1 << 16):
                pass
    assert good.ask(house.kind.request).endswith(house.kind.answer)
    house.assert_serves()


@pytest.mark.slow
def test_thousands_of_connections_leave_nothing(house: House) -> None:
    house.start()
    come_and_go(house, 500)
    before, resident = left_in_process(), resident_bytes()
    come_and_go(house, 500 if house.kind.has_tls else 4_000)
    wait_left(before)
    assert resident_bytes() - resident < GROWTH_BYTES_MAX


def come_and_go(house: House, count: int) -> None:
    for number in range(count):
        with Client(house.kind, house.address()) as client:
            if number % 20 == 0:
                assert client.ask(house.kind.request).endswith(house.kind.answer)
            client.reset()
    house.assert_serves()


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_few_descriptors_cost_connections_but_not_the_front(house: House) -> None:
    file = house.configure({"front": ""})
    command = [sys.executable, "-c", FEW_DESCRIPTORS, str(file)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as server:
        assert server.stdout is not None
        address = server.stdout.readline().strip()
        with ExitStack() as stack:
            for _ in range(400):
                there = stack.enter_context(socket.create_connection(split(address), WAIT_SECONDS))
                there.sendall(house.kind.half)
        for _ in tries():
            # Those before it may not have been dropped yet: then it is turned away, if need be within its handshake.
            with contextlib.suppress(ConnectionError), Client(house.kind, address) as client:
                if client.ask(house.kind.request).endswith(house.kind.answer):
                    break
        _, err = server.communicate("stop\n", WAIT_SECONDS)
        assert server.returncode == 0, err
    if house.kind.connections_max is None:
        assert "fronts.front.connections_max is " in err and "LimitNOFILE=" in err, err


FEW_DESCRIPTORS = """
import resource, sys
from clutch import Dispatcher
resource.setrlimit(resource.RLIMIT_NOFILE, (160, 160))
with Dispatcher(sys.argv[1]) as dispatcher:
    print(dispatcher.addresses["front"][0], flush=True)
    sys.stdin.readline()
"""


def split(address: str) -> tuple[str, int]:
    host, _, port = address.partition(":")
    return host, int(port)


# ---- files that are read again


def test_tokens_are_read_anew(house: House) -> None:
    if not house.kind.has_tokens:
        pytest.skip("it has no tokens")
    tokens = house.folder / "tokens"
    tokens.write_text("first\n")
    tokens.chmod(0o600)
    house.start('token_file = "tokens"')
    assert statuses(house, "first", "second") == [200, 401]
    tokens.write_text("second\n")
    house.dispatcher.reload()
    assert statuses(house, "first", "second") == [401, 200]


def statuses(house: House, *tokens: str) -> list[int]:
    told = []
    for token in tokens:
        request = house.kind.request.replace(b"\r\n", f"\r\nAuthorization: Bearer {token}\r\n".encode(), 1)
        with Client(house.kind, house.address()) as client:
            told.append(int(client.ask(request).split(b" ")[1]))
    return told


def test_certificates_are_read_anew(house: House, certificates: Callable[[Path, str], None]) -> None:
    if not house.kind.has_tls:
        pytest.skip("it does not speak TLS")
    house.start()
    old = house.connect()
    assert b"first" in certificate_of(old)
    certificates(house.folder, "second")
    house.dispatcher.reload()
    assert b"second" in certificate_of(house.connect())
    assert old.ask(house.kind.request).endswith(house.kind.answer)


def certificate_of(client: Client) -> bytes:
    return client.socket.getpeercert(binary_form=True) or b""  # type: ignore[attr-defined]


# ---- the stop


def test_idle_connections_end_with_the_stop(house: House) -> None:
    house.start()
    silent, idle = house.connect(), house.connect()
    assert idle.ask(house.kind.request).endswith(house.kind.answer)
    took, address = timed_stop(house, LONG_SECONDS)
    assert took < LONG_SECONDS / 2
    assert silent.rest() == b"" and idle.rest() == b""
    assert not listens(address)


def test_what_runs_ends_within_the_grace(house: House) -> None:
    if house.kind.hold is None:
        pytest.skip("nothing takes long")
    house.start()
    gate, client, address = house.gate(), house.connect(), house.address()
    client.send(house.kind.hold(gate.path))
    gate.wait()
    stopping = threading.Thread(target=house.dispatcher.stop, args=(LONG_SECONDS,))
    stopping.start()
    for _ in tries():
        if not listens(address):
            break
    gate.let_go()
    assert b"let go" in client.answer()
    if house.kind.kind == "tcp":
        client.socket.close()
    stopping.join(LONG_SECONDS / 2)
    assert not stopping.is_alive()


def test_what_runs_on_is_cut_at_the_grace(house: House) -> None:
    if house.kind.hold is None:
        pytest.skip("nothing takes long")
    house.start()
    gate, client = house.gate(), house.connect()
    client.send(house.kind.hold(gate.path))
    gate.wait()
    took, address = timed_stop(house, SHORT_SECONDS)
    assert SHORT_SECONDS <= took < LONG_SECONDS
    assert b"let go" not in client.rest()
    assert not listens(address)


def test_a_client_that_never_reads_does_not_hold_up_the_stop(house: House) -> None:
    if house.kind.large is None:
        pytest.skip("its answers are small")
    house.start()
    client = house.connect(receive_bytes=4096)
    client.send(house.kind.large)
    client.socket.recv(1)
    took, address = timed_stop(house, SHORT_SECONDS)
    assert took < LONG_SECONDS
    assert not listens(address)


def test_a_stop_without_grace_cuts_all_at_once(house: House) -> None:
    house.start()
    clients = [house.connect() for _ in range(5)]
    if house.kind.hold is not None:
        gate = house.gate()
        clients[0].send(house.kind.hold(gate.path))
        gate.wait()
    took, address = timed_stop(house, 0)
    assert took < LONG_SECONDS
    assert [client.rest() for client in clients] == [b""] * 5
    assert not listens(address)


def test_a_second_stop_has_no_effect(house: House) -> None:
    house.start()
    with ExitStack() as stack:
        idle = [stack.enter_context(Client(house.kind, house.address())) for _ in range(3)]
        stops = [threading.Thread(target=house.dispatcher.stop, args=(LONG_SECONDS,)) for _ in range(3)]
        for stop in stops:
            stop.start()
        for stop in stops:
            stop.join(LONG_SECONDS / 2)
        assert [client.rest() for client in idle] == [b""] * 3
    house.dispatcher.stop()
    assert house.dispatcher.addresses == {}


def timed_stop(house: House, grace: float) -> tuple[float, str]:
    """How long it took, and where the front was."""
    address, since = house.address(), time.monotonic()
    house.dispatcher.stop(grace)
    return time.monotonic() - since, address
