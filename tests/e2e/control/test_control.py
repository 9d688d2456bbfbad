"""The control socket: who may talk, what is asked and done, what hostile and silent clients can do: nothing."""

from __future__ import annotations

import datetime
import http.client
import json
import os
import re
import resource
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from clutch import ClutchError, Pool, _core
from clutch.cli import program as clutch_command
from clutch.cli import remote
from clutch.control import client, sockets
from clutch.control.client import ControlError, NoAnswer, Process

WAIT_SECONDS = 30.0
CLOSE_SECONDS_MAX = 8.0
NOBODY = 65_534
CONNECTIONS_MAX = 32
HEAD_BYTES_MAX = 16 << 10
IDENTITY = {"config": "/a/clutch.toml", "folder": "/a", "is_program": False}


def wait_for(path: str) -> None:
    """Runs until it may end."""
    with open(path) as pipe:
        pipe.read()


class House:
    """A control socket; what the process around it is asked to do is written down."""

    def __init__(self, path: Path, pools: dict[str, Pool]) -> None:
        self.path = path
        self.pools = pools
        self.stops: list[bool] = []
        self.failed: dict[str, str] = {}
        self.reloaded: list[list[str]] = []
        self.error: Exception | None = None
        self.may_go_on = threading.Event()
        self.may_go_on.set()
        self.is_asked = threading.Event()
        self.plane = _core.Plane(json.dumps(IDENTITY), self)
        for pool in pools.values():
            self.plane.add(pool)
        self.plane.open(path, while_pools=False)

    def reload(self, names: list[str]) -> dict[str, str]:
        self.reloaded.append(names)
        self.is_asked.set()
        self.may_go_on.wait(WAIT_SECONDS)
        if self.error is not None:
            raise self.error
        return self.failed

    def stop(self, now: bool) -> None:
        self.stops.append(now)

    def fronts(self) -> str:
        return json.dumps({"calls": {"kind": "http", "address": "127.0.0.1:1"}})

    def clutch(self, *arguments: str) -> Result:
        return CliRunner().invoke(clutch_command, [*arguments, "--control", str(self.path)], prog_name="clutch")

    def page(self, pool: str = "api") -> dict[str, Any]:
        (found,) = [one for one in client.get(self.path, "/pools")["pools"] if one["name"] == pool]
        return found


@pytest.fixture(scope="module")
def pools() -> Iterator[dict[str, Pool]]:
    with Pool(1, name="api") as api, Pool(1, name="work") as work:
        api.wait_ready()
        work.wait_ready()
        yield {"api": api, "work": work}


@pytest.fixture
def house(tmp_path: Path, pools: dict[str, Pool]) -> Iterator[House]:
    house = House(tmp_path / "control.sock", pools)
    yield house
    house.may_go_on.set()
    house.plane.close(waits=False)


@pytest.fixture
def bare(tmp_path: Path) -> Iterator[House]:
    """Without pools."""
    house = House(tmp_path / "control.sock", {})
    yield house
    house.may_go_on.set()
    house.plane.close(waits=False)


class Work:
    """A call that runs until it is let go."""

    def __init__(self, pool: Pool, folder: Path) -> None:
        self.path = folder / f"gate-{pool.name}"
        os.mkfifo(self.path)
        self.future = pool.submit(wait_for, str(self.path))
        while not (running := [one for found in pool.running().values() for one in found]):
            time.sleep(0.01)
        self.id = running[0]["id"]

    def let_go(self) -> None:
        os.close(os.open(self.path, os.O_WRONLY))


# What is asked, and what is done.


def test_drain_and_resume(house: House) -> None:
    done = house.clutch("drain")
    assert (done.exit_code, done.stdout) == (0, "api: takes no more work\nwork: takes no more work\n"), done.stderr
    assert [house.page(name)["state"] for name in house.pools] == ["draining", "draining"]
    assert house.clutch("drain", "api", "--resume").stdout == "api: takes work again\n"
    assert [house.page(name)["state"] for name in house.pools] == ["ready", "draining"]
    assert house.clutch("drain", "work", "--resume", "--json").stdout == '{"pools": ["work"]}\n'


def test_scale(house: House) -> None:
    assert house.clutch("scale", "api", "2-8").stdout == "api: 2-8 workers\n"
    house.pools["api"].wait_ready(2, WAIT_SECONDS)
    assert (house.page()["min"], house.page()["max"]) == (2, 8)
    assert house.clutch("scale", "api", "1").stdout == "api: 1 workers\n"
    while len(house.page()["workers"]) > 1:
        pass
    assert (house.page()["min"], house.page()["max"]) == (1, 1)


@pytest.mark.parametrize(
    ("arguments", "printed"),
    [
        (["recycle", "api"], "api: recycled\n"),
        (["recycle", "api/{nr}"], "api: worker {nr} recycled\n"),
        (["recycle", "api/{nr}", "--kill"], "api: worker {nr} recycled\n"),
    ],
)
def test_recycle(house: House, arguments: list[str], printed: str) -> None:
    house.pools["api"].wait_ready(1, WAIT_SECONDS)
    (before,) = house.page()["workers"]
    done = house.clutch(*(word.format(**before) for word in arguments))
    assert (done.exit_code, done.stdout) == (0, printed.format(**before)), done.stderr
    assert before["pid"] not in [worker["pid"] for worker in house.page()["workers"]]
    house.pools["api"].wait_ready(1, WAIT_SECONDS)


@pytest.fixture
def begun() -> Iterator[Callable[[Pool, Path], Work]]:
    """Makes calls that run; none is left running."""
    all_begun: list[Work] = []

    def begin(pool: Pool, folder: Path) -> Work:
        all_begun.append(Work(pool, folder))
        return all_begun[-1]

    yield begin
    for work in all_begun:
        work.future.cancel()


def test_calls_are_shown_and_stopped(house: House, tmp_path: Path, begun: Callable[[Pool, Path], Work]) -> None:
    one, other = begun(house.pools["api"], tmp_path), begun(house.pools["work"], tmp_path)
    (worker,) = house.page()["workers"]
    assert [shown["what"] for shown in worker["running"]] == ["wait_for"] and worker["rss"] > 1 << 20
    text = house.clutch("ps").stdout
    assert f"pid {os.getpid()}, /a/clutch.toml, for " in text
    assert re.search(rf"runs wait_for for \d+s \(call {one.id}\)", text), text
    for what in ("api", f"api/{worker['nr']}", str(one.id)):  # it has begun; the function may be a moment away
        eventually(lambda what=what: "in wait_for" in house.clutch("stack", what).stdout)  # type: ignore[misc]
        assert house.clutch("stack", what).stdout.startswith(f"api/{worker['nr']}\n")
    both = house.clutch("cancel", str(one.id))
    if one.id == other.id:
        assert (both.exit_code, "pools api and work both have a call" in both.stderr) == (1, True)
    done = house.clutch("cancel", str(one.id), "--pool", "api")
    assert done.stdout == f"api: call {one.id} cancelled\n"
    assert one.future.cancelled()
    assert house.clutch("cancel", str(one.id), "--pool", "api").exit_code == 1
    other.let_go()
    assert other.future.result(WAIT_SECONDS) is None


def test_reload(house: House) -> None:
    done = house.clutch("reload")
    server = f"(pid {os.getpid()}: /a/clutch.toml)"
    assert (done.exit_code, done.stdout) == (0, f"reloaded: api, work {server}\n"), done.stderr
    house.failed = {"work": "target 'x' does not import:\nSyntaxError"}
    done = house.clutch("reload", "work")
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr == "Error: target 'x' does not import:\nSyntaxError\nthe old code stays in use\n"
    assert house.reloaded == [["api", "work"], ["work"]]
    told = json.loads(house.clutch("reload", "work", "--json").stdout)
    assert (told["pools"], told["failed"], told["pid"]) == (["work"], house.failed, os.getpid())
    house.error = ClutchError("reload it in the program")
    assert house.clutch("reload", "work").stderr == "Error: reload it in the program\n"


def test_what_the_process_says_of_itself(bare: House) -> None:
    page = client.get(bare.path, "/process")
    assert page.pop("age_s") >= 0 and page == {**IDENTITY, "pid": os.getpid(), "stopping": False}
    bare.plane.stops()
    assert client.get(bare.path, "/process")["stopping"] and "; it is shutting down" in bare.clutch("ps").stdout
    assert client.get(bare.path, "/fronts")["fronts"]["calls"]["kind"] == "http"
    assert client.get(bare.path, "/healthz") == {"alive": True}
    assert client.post(bare.path, "/stop", now=True)["pid"] == os.getpid() and bare.stops == [True]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["drain", "nope"], "no pool 'nope'; there are: api, work"),
        (["drain", "apu"], "did you mean 'api'?"),
        (["stack", "99999"], "no call 99999 runs; `clutch ps` lists those that do"),
        (["stack", "api/4000000"], "pool 'api' has no worker 4000000; allowed: "),
        (["recycle", "api/4000000"], "pool 'api' has no worker 4000000; allowed: "),
        (["recycle", "api/99999999999"], "/pools/{pool}/stacks"),
        (["cancel", "99999"], "no call 99999 waits or runs"),
        (["scale", "api", "0"], "cannot have 0 to 0 workers; allowed: 1 <= min <= max <= 4096"),
        (["scale", "api", "5-2"], "cannot have 5 to 2 workers"),
    ],
)
def test_what_cannot_be_done_is_an_error(house: House, arguments: list[str], words: str) -> None:
    done = house.clutch(*arguments)
    assert (done.exit_code, words in done.stderr) == (1, True), done.stderr


@pytest.mark.parametrize("arguments", [["scale", "api", "many"], ["recycle", "api/x"], ["stack", "api/"]])
def test_wrong_usage_is_exit_code_2(bare: House, arguments: list[str]) -> None:
    assert bare.clutch(*arguments).exit_code == 2


def test_a_worker_that_is_stopped_shows_no_stacks_and_says_why(house: House) -> None:
    (worker,) = house.page()["workers"]
    os.kill(worker["pid"], signal.SIGSTOP)
    try:
        while house.page()["workers"][0]["state"] != "stopped":
            pass
        for what in ("api", f"api/{worker['nr']}"):
            done = house.clutch("stack", what)
            assert f"stopped by a signal and cannot answer: kill -CONT {worker['pid']}" in done.stdout, done.stderr
    finally:
        os.kill(worker["pid"], signal.SIGCONT)
    while house.page()["workers"][0]["state"] == "stopped":
        pass


def test_an_error_of_the_host_is_told_and_the_next_command_works(bare: House) -> None:
    bare.error = ZeroDivisionError("division by zero")
    done = bare.clutch("reload")
    assert (done.exit_code, done.stderr) == (1, "Error: division by zero\n")
    assert bare.clutch("ps").exit_code == 0


# Which process.

ONE = Process(Path("/s1"), 1, "/a/clutch.toml", "/a")
TWO = Process(Path("/s2"), 2, "/b/clutch.toml", "/b")
SAME = Process(Path("/s3"), 3, "/b/clutch.toml", "/b")
SCRIPT = Process(Path("/s4"), 4, "/a/report.py", "/a", is_program=True)


@pytest.mark.parametrize(
    ("running", "config", "pid", "chosen"),
    [
        ([ONE, TWO], "/a/clutch.toml", None, ONE),
        ([ONE, TWO, SAME], "/b/clutch.toml", 3, SAME),
        ([ONE, TWO], None, 2, TWO),
        ([ONE], None, None, ONE),
        ([SCRIPT, ONE], "/a/clutch.toml", None, ONE),
        ([SCRIPT, ONE], "/a/clutch.toml", 4, SCRIPT),
        ([SCRIPT], None, None, SCRIPT),
    ],
)
def test_the_process_that_is_meant(
    running: list[Process], config: str | None, pid: int | None, chosen: Process
) -> None:
    assert remote.choose(running, None if config is None else Path(config), pid, only_looks=True) is chosen


@pytest.mark.parametrize(
    ("running", "config", "pid", "error", "words"),
    [
        ([ONE, TWO, SAME], "/b/clutch.toml", None, click.UsageError, ["--pid", "pid 2: /b", "pid 3: /b"]),
        ([ONE, TWO], None, None, click.UsageError, ["--pid", "pid 1: /a", "pid 2: /b"]),
        ([ONE], "/c/clutch.toml", None, ControlError, ["/c/clutch.toml", "pid 1: /a"]),
        ([ONE], None, 9, ControlError, ["pid 9", "pid 1: /a"]),
        ([], None, None, ControlError, ["no server or program was started in this folder", "clutch serve"]),
    ],
)
def test_which_one_is_not_clear(
    running: list[Process], config: str | None, pid: int | None, error: type[Exception], words: list[str]
) -> None:
    with pytest.raises(error) as caught:
        remote.choose(running, None if config is None else Path(config), pid, only_looks=True)
    text = caught.value.format_message() if isinstance(caught.value, click.UsageError) else str(caught.value)
    assert all(word in text for word in words), text


def test_what_changes_anything_asks_for_a_process_of_this_folder() -> None:
    with pytest.raises(ControlError, match="pid 1: /a"):
        remote.choose([ONE], None, None)


def test_one_with_the_config_and_one_without_in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As `clutch run` and `clutch serve` are, side by side."""
    monkeypatch.chdir(tmp_path)
    config, folder = tmp_path / "clutch.toml", str(tmp_path)
    run = Process(Path("/s1"), 1, str(config), folder)
    serve = Process(Path("/s2"), 2, f"{tmp_path}/main:app", folder)
    with pytest.raises(click.UsageError) as caught:
        remote.choose([run, serve], config, None)
    text = caught.value.format_message()
    assert all(word in text for word in ("--pid", "pid 1: ", "pid 2: ")), text
    assert remote.choose([run, serve], config, 2) is serve
    monkeypatch.setenv("CLUTCH_CONFIG", str(config))
    assert remote.choose([run, serve], config, None) is run, "it was named"


def opened(config: Path) -> tuple[Path, _core.Plane]:
    """A control socket in this user's folder."""
    path = sockets.place_for(config)
    identity = {"config": str(config), "folder": str(config.parent), "is_program": False}
    plane = _core.Plane(json.dumps(identity), object())
    plane.open(path, while_pools=False)
    return path, plane


def test_the_one_of_the_working_folder_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    config = tmp_path / "clutch.toml"
    config.write_text("")
    path, plane = opened(config)
    try:
        monkeypatch.chdir(tmp_path)
        done = CliRunner().invoke(clutch_command, ["ps", "--json"], prog_name="clutch")
        assert json.loads(done.stdout)["config"] == str(config)
        assert path.name == sockets.file_name(config, os.getpid())
    finally:
        plane.close(waits=True)
    assert list((tmp_path / "clutch").iterdir()) == []
    done = CliRunner().invoke(clutch_command, ["ps"], prog_name="clutch")
    assert (done.exit_code, "no server of" in done.stderr) == (1, True)


def test_a_config_may_say_where(bare: House, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "clutch.toml").write_text('control = "control.sock"\n[pools.api]\ntarget = "x"\n')
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(clutch_command, ["ps", "--json"], prog_name="clutch")
    assert json.loads(done.stdout)["config"] == "/a/clutch.toml"


# Who may.


def test_a_path_that_is_longer_than_an_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deep = tmp_path.joinpath(*["runtime-of-a-user-with-a-long-name"] * 4)
    deep.mkdir(parents=True)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(deep))
    for _ in range(2):  # the second time what the first left is looked at, too
        path, plane = opened(tmp_path / "clutch.toml")
        try:
            assert client.get(path, "/process")["pid"] == os.getpid()
            assert [found.pid for found in client.running()] == [os.getpid()]
        finally:
            plane.close(waits=True)
    assert list((deep / "clutch").iterdir()) == []


def test_the_file_and_its_folder_are_private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    before = os.umask(0)
    try:
        path, plane = opened(tmp_path / "clutch.toml")
    finally:
        os.umask(before)
    try:
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    finally:
        plane.close(waits=False)


def test_a_folder_that_others_may_write_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    (tmp_path / "clutch").mkdir(mode=0o777)
    (tmp_path / "clutch").chmod(0o777)
    with pytest.raises(PermissionError, match="0700"):
        sockets.place_for(tmp_path / "clutch.toml")
    with pytest.raises(ControlError, match="0700"):
        client.running()
    (tmp_path / "clutch").rmdir()
    (tmp_path / "clutch").symlink_to(tmp_path)
    with pytest.raises(PermissionError, match="0700"):
        sockets.place_for(tmp_path / "clutch.toml")


def test_without_a_runtime_folder_it_is_in_tmp(monkeypatch: pytest.MonkeyPatch) -> None:
    for value in ("", "/does/not/exist"):
        monkeypatch.setenv("XDG_RUNTIME_DIR", value)
        assert sockets.folder() == Path(f"/tmp/clutch-{os.geteuid()}")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
def test_the_runtime_folder_of_another_user_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As after `su`: what root makes there would be in that user's way."""
    os.chown(tmp_path, NOBODY, NOBODY)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    assert sockets.folder() == Path(f"/tmp/clutch-{os.geteuid()}")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
def test_another_user_may_do_nothing() -> None:
    """Even where the rights of the files would let him. (A server of root's lets root alone in.)"""
    with tempfile.TemporaryDirectory() as name:
        os.chmod(name, 0o755)
        house = House(Path(name) / "control.sock", {})
        os.chmod(house.path, 0o666)
        try:
            pid = os.fork()
            if pid == 0:
                os._exit(_talk_as_nobody(house.path))
            assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
            assert house.stops == []
            assert client.get(house.path, "/process")["pid"] == os.getpid()
        finally:
            house.plane.close(waits=False)


def _talk_as_nobody(path: Path) -> int:
    os.setresuid(NOBODY, NOBODY, NOBODY)
    answers = []
    for request in (b"POST /stop", b"GET /healthz", b"GET /pools", b"GET /events"):
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(WAIT_SECONDS)
            connection.connect(os.fspath(path))
            connection.sendall(request + b" HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n")
            answers.append(connection.recv(12))
    return 0 if set(answers) == {b"HTTP/1.1 403"} else 1


# Dead ones.


def test_what_dead_dispatchers_left_is_passed_over_and_removed(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    tmp_path = tmp_path_factory.mktemp("dead")  # the path of a socket is short
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    folder = sockets.folder()
    folder.mkdir(mode=0o700)
    code = (
        "import socket, sys; s = socket.socket(socket.AF_UNIX); s.bind(sys.argv[1]); s.listen()\n"
        "print('there', flush=True); input()"
    )
    dead = folder / "0123456789abcdef-999999999.sock"
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(dead)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None and process.stdout.readline() == "there\n"
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.communicate()
    assert dead.is_socket()
    assert client.running() == []
    path, plane = opened(tmp_path / "clutch.toml")
    try:
        assert list(folder.iterdir()) == [path]
        assert [one.pid for one in client.running()] == [os.getpid()]
    finally:
        plane.close(waits=False)


def test_two_at_one_place(bare: House) -> None:
    other = _core.Plane("{}", object())
    with pytest.raises(OSError, match="another server is listening there"):
        other.open(bare.path, while_pools=False)
    assert bare.clutch("ps").exit_code == 0
    bare.plane.close(waits=False)
    other.open(bare.path, while_pools=False)
    assert client.get(bare.path, "/healthz") == {"alive": True}
    other.close(waits=False)


# Hostile and silent ones (failure 42).


@pytest.mark.parametrize(
    ("target", "body", "status"),
    [
        ("/stop?" + "x" * HEAD_BYTES_MAX, b"", 431),
        ("/stop", b"x" * (1 << 17), 413),
        ("/stop", b"no json", 400),
        ("/stop", b"[1, 2]", 400),
        ("/stop", b'{"when": "soon"}', 400),
        ("/stop", b'{"now": 1}', 400),
        ("/stop", b"\xff\xfe", 400),
        ("/stop", b"[" * 50_000, 400),
        ("/__class__", b"", 404),
        ("/pools/%ff/drain", b"", 404),
        ("/pools//drain", b"", 404),
        ("/pools/../stop", b"", 404),
        ("/process", b"", 405),
    ],
)
def test_failure_42_requests_that_are_none(bare: House, target: str, body: bytes, status: int) -> None:
    with client.connected(bare.path, WAIT_SECONDS) as connection:
        connection.request("POST", target, body)
        assert connection.getresponse().status == status
    assert bare.stops == []
    assert bare.clutch("ps").exit_code == 0


def test_failure_42_silent_clients_hold_up_nobody(bare: House) -> None:
    with client.connected(bare.path, WAIT_SECONDS), client.connected(bare.path, WAIT_SECONDS) as half:
        half.sock.sendall(b"GET /poo")
        assert bare.clutch("ps").exit_code == 0
        begun = time.monotonic()
        bare.plane.close(waits=True)
        assert time.monotonic() - begun < CLOSE_SECONDS_MAX
    assert not bare.path.exists()


def test_failure_42_too_many_clients_are_turned_away(bare: House) -> None:
    taken = [client.Connection(bare.path, WAIT_SECONDS) for _ in range(CONNECTIONS_MAX)]
    for connection in taken:
        connection.connect()
        connection.sock.sendall(b"GET /process HTTP/1.1\r\n")
    with pytest.raises(ControlError, match="has reached its limit of connections"):
        client.get(bare.path, "/process", WAIT_SECONDS)
    taken[0].sock.sendall(b"Host: clutch\r\n\r\n")
    response = http.client.HTTPResponse(taken[0].sock)
    response.begin()
    assert json.load(response)["pid"] == os.getpid()
    for connection in taken:
        connection.close()
    eventually(lambda: client.get(bare.path, "/process", WAIT_SECONDS)["pid"] == os.getpid())


def eventually(holds: Callable[[], bool]) -> None:
    """A client that has left is seen a moment later."""
    end = time.monotonic() + WAIT_SECONDS
    while time.monotonic() < end:
        try:
            if holds():
                return
        except ControlError:
            pass
    pytest.fail("it did not come to hold")


def test_a_command_under_way_does_not_hold_up_the_end_for_long(bare: House) -> None:
    bare.may_go_on.clear()
    with client.connected(bare.path, WAIT_SECONDS) as connection:
        connection.request("POST", "/reload")
        assert bare.is_asked.wait(WAIT_SECONDS)
        begun = time.monotonic()
        bare.plane.close(waits=True)
        assert time.monotonic() - begun < CLOSE_SECONDS_MAX


def test_it_can_be_told_to_stop_while_as_many_actions_hang_as_may_be(bare: House) -> None:
    bare.may_go_on.clear()
    for done in range(CONNECTIONS_MAX):
        with client.connected(bare.path, WAIT_SECONDS) as connection:
            connection.request("POST", "/reload")
            eventually(lambda done=done: len(bare.reloaded) == done + 1)
    with pytest.raises(ControlError, match="32 actions are under way"):
        client.post(bare.path, "/reload", WAIT_SECONDS)
    client.post(bare.path, "/stop", WAIT_SECONDS)
    assert bare.stops == [False]


@pytest.mark.skipif(os.geteuid() == 0, reason="root has as many threads as it likes")
def test_a_command_for_which_there_is_no_thread_is_refused(bare: House, capfd: pytest.CaptureFixture[str]) -> None:
    before = resource.getrlimit(resource.RLIMIT_NPROC)
    resource.setrlimit(resource.RLIMIT_NPROC, (1, before[1]))
    try:
        with pytest.raises(ControlError, match="needs a thread"):
            client.post(bare.path, "/reload", WAIT_SECONDS)
    finally:
        resource.setrlimit(resource.RLIMIT_NPROC, before)
    assert capfd.readouterr().err == ""


def test_whoever_waits_and_leaves_holds_no_place(
    house: House, tmp_path: Path, begun: Callable[[Pool, Path], Work]
) -> None:
    """As many times as there are places: the worker is to be replaced when its call has ended."""
    work = begun(house.pools["api"], tmp_path)
    for _ in range(CONNECTIONS_MAX + 1):
        with client.connected(house.path, WAIT_SECONDS) as connection:
            connection.request("POST", "/pools/api/recycle")
    eventually(lambda: client.post(house.path, "/pools/work/recycle", WAIT_SECONDS) == {"pools": ["work"]})
    work.let_go()
    assert work.future.result(WAIT_SECONDS) is None
    house.pools["api"].recycle(timeout=WAIT_SECONDS)


# Events.


def test_events_come_as_they_happen(house: House) -> None:
    names: list[str] = []
    with client.connected(house.path, WAIT_SECONDS) as connection:
        connection.request("GET", "/events?scope=lives")
        stream = connection.getresponse()
        assert (stream.status, stream.getheader("Content-Type")) == (200, "text/event-stream")
        assert stream.readline() == b": alive\n", "it says at once that it is there"
        client.post(house.path, "/pools/api/drain")
        client.post(house.path, "/pools/api/resume")
        client.post(house.path, "/pools/api/recycle")
        while "worker_gone" not in names:
            line = stream.readline()
            if line.startswith(b"event: "):
                names.append(line.split()[1].decode())
                event = json.loads(stream.readline().removeprefix(b"data: "))
                assert (event["event"], event["pool"]) == (names[-1], "api")
                assert datetime.datetime.fromisoformat(event["time"]).tzinfo is not None
    assert names[:2] == ["operator_acted", "operator_acted"] and "worker_ready" in names


def test_each_call_is_told_to_whoever_asks_for_all(house: House) -> None:
    with client.connected(house.path, WAIT_SECONDS) as connection:
        connection.request("GET", "/events?scope=all")
        stream = connection.getresponse()
        stream.readline()
        assert house.pools["api"].call(abs, -1) == 1
        seen = []
        while "work_finished" not in seen:
            line = stream.readline()
            if line.startswith(b"event: "):
                seen.append(line.split()[1].decode())
    assert seen.index("work_begun") < seen.index("work_finished")


def test_a_stream_of_events_ends_with_its_process(bare: House) -> None:
    with client.connected(bare.path, WAIT_SECONDS) as connection:
        connection.request("GET", "/events")
        stream = connection.getresponse()
        begun = time.monotonic()
        bare.plane.close(waits=True)
        assert stream.read().strip() == b": alive"
        assert time.monotonic() - begun < CLOSE_SECONDS_MAX


def test_a_client_that_does_not_read_misses_events_and_is_told(house: House) -> None:
    with client.connected(house.path, WAIT_SECONDS) as connection:
        connection.request("GET", "/events?scope=all")
        stream = connection.getresponse()
        futures = [house.pools["api"].submit(abs, nr) for nr in range(6_000)]
        assert [future.result(WAIT_SECONDS) for future in futures] == list(range(6_000)), "no call waits for it"
        missed = 0
        while not missed:
            line = stream.readline()
            if line == b"event: events_missed\n":
                missed = json.loads(stream.readline().removeprefix(b"data: "))["count"]
    assert missed > 0


@pytest.mark.parametrize("query", ["scope=", "scope=none", "pool=api", "scope=all&scope=all"])
def test_a_scope_that_there_is_not(bare: House, query: str) -> None:
    with pytest.raises(ControlError, match="scope=incidents"):
        client.get(bare.path, f"/events?{query}")


def test_nobody_is_there() -> None:
    with pytest.raises(NoAnswer, match="No such file"):
        client.get(Path("/does/not/exist.sock"), "/process")
