"""The control socket: who may talk, what is asked and answered, what hostile and silent clients can do: nothing."""

from __future__ import annotations

import json
import os
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

from clutch.cli import program as clutch_command
from clutch.cli import remote
from clutch.control import protocol, server
from clutch.control.commands import Commands, Identity
from clutch.control.protocol import ControlError, Dispatcher
from clutch.errors import ConfigError

WAIT_SECONDS = 30.0
NOBODY = 65_534


class FakePool:
    """Writes down what is asked of it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.asked: list[tuple[Any, ...]] = []

    def __getattr__(self, name: str) -> Callable[..., None]:
        if name not in {"drain", "resume", "scale", "recycle"}:
            raise AttributeError(name)

        def note(*args: Any, **kwargs: Any) -> None:
            self.asked.append((name, *args, *sorted(kwargs.items())))

        return note

    def stats(self) -> dict[str, Any]:
        counts = dict.fromkeys(("queued", "sent", "done", "failed", "restarts"), 3)
        worker = {"nr": 0, "pid": os.getpid(), "generation": 2, "state": "ready", "calls": 7, "sent": 1}
        states = {"name": self.name, "state": "ready", "reason": None, "ready": 1, "target": 2}
        return {**states, **counts, "workers": [worker, {**worker, "nr": 1, "rss": 9 << 20, "private": 5 << 20}]}

    def running(self) -> dict[str, list[dict[str, Any]]]:
        running = {"id": 12, "what": "GET /slow", "seconds": 93.4, "abandoned": self.name == "work", "pid": os.getpid()}
        return {f"{self.name}/0": [running, {**running, "id": 14, "pid": 1}]}

    def _is_awaited(self, call: int) -> bool:
        return call == 13 or (call == 12 and self.name == "api")

    def cancel(self, call: int) -> bool:
        self.asked.append(("cancel", call))
        return True

    def stacks(self, worker: int | None = None, call: int | None = None) -> dict[str, str]:
        self.asked.append(("stacks", worker, call))
        return {f"{self.name}/0": "File x, line 1\n"} if call in (None, 12) and worker in (None, 0) else {}


class House:
    """A control socket with two pools behind it."""

    def __init__(self, folder: Path) -> None:
        self.pools = {name: FakePool(name) for name in ("api", "work")}
        self.stops: list[bool] = []
        self.failed: dict[str, str] = {}
        self.reloaded: list[list[str]] = []
        self.held = threading.Event()
        self.is_held = threading.Event()
        self.path = folder / "control.sock"
        self.control = server.open_at(
            self.path, Commands(Identity("/a/clutch.toml", "/a"), self.pools, self.reload, self.stop)
        )

    def reload(self, names: list[str]) -> dict[str, str]:
        self.reloaded.append(names)
        self.is_held.set()
        assert self.held.wait(WAIT_SECONDS)
        return self.failed

    def stop(self, now: bool) -> None:
        self.stops.append(now)

    def clutch(self, *arguments: str) -> Result:
        return CliRunner().invoke(clutch_command, [*arguments, "--control", str(self.path)], prog_name="clutch")


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    house = House(tmp_path)
    yield house
    house.held.set()
    house.control.close()


# What is asked, and of whom.


@pytest.mark.parametrize(
    ("arguments", "asked", "printed"),
    [
        (["drain"], [("drain",)], "api: takes no more work\nwork: takes no more work\n"),
        (["drain", "api"], [("drain",)], "api: takes no more work\n"),
        (["drain", "api", "--resume"], [("resume",)], "api: takes work again\n"),
        (["scale", "api", "4"], [("scale", 4)], "api: 4 workers\n"),
        (["scale", "api", "2-8"], [("scale", ("max", 8), ("min", 2))], "api: 2-8 workers\n"),
        (["recycle", "api"], [("recycle", None)], "api: recycled\n"),
        (["recycle", "api/3"], [("recycle", 3)], "api: worker 3 recycled\n"),
        (["stack", "api"], [("stacks", None, None)], "api/0\nFile x, line 1\n"),
        (["stack", "api/0"], [("stacks", 0, None)], "api/0\nFile x, line 1\n"),
        (["stack", "12"], [("stacks", None, 12)], "api/0\nFile x, line 1\n\nwork/0\nFile x, line 1\n"),
        (["cancel", "--pool=api", "13"], [("cancel", 13)], "api: call 13 cancelled\n"),
        (["recycle", "api/0", "--kill"], [("recycle", 0, ("kill", True))], "api: worker 0 recycled\n"),
        (["drain", "api", "--json"], [("drain",)], '{"pools": ["api"]}\n'),
    ],
)
def test_commands_reach_their_pool(house: House, arguments: list[str], asked: list[Any], printed: str) -> None:
    done = house.clutch(*arguments)
    assert (done.exit_code, done.stdout) == (0, printed), done.stderr
    assert house.pools["api"].asked == asked
    assert house.pools["work"].asked == (asked if len(arguments) == 1 or arguments[1] == "12" else [])


def test_ps(house: House) -> None:
    found = json.loads(house.clutch("ps", "--json").stdout)
    assert (found["pid"], found["config"]) == (os.getpid(), "/a/clutch.toml")
    first, second = found["pools"][0]["workers"]
    assert first["rss"] > 1 << 20 and first["age_s"] >= 0, "looked up where the pool does not know"
    assert (second["rss"], second["private"]) == (9 << 20, 5 << 20)
    text = house.clutch("ps").stdout
    assert "api: ready, 1 of 2 workers ready; 3 queued, 3 sent, 3 done, 3 failed, 3 restarts" in text
    assert "runs GET /slow for 2m (call 12)" in text and "runs GET /slow for 2m, told to stop (call 12)" in text
    assert "(call 14)" not in text, "that of another worker of this number, which leaves"
    assert "api/1" in text and "5 MB\n" in text and "MB, shared included" in text


def test_reload(house: House) -> None:
    house.held.set()
    done = house.clutch("reload")
    server = f"(pid {os.getpid()}: /a/clutch.toml)"
    assert (done.exit_code, done.stdout) == (0, f"reloaded: api, work {server}\n")
    house.failed = {"work": "target 'x' does not import:\nSyntaxError"}
    done = house.clutch("reload", "work")
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr == "Error: target 'x' does not import:\nSyntaxError\nwhat was loaded before goes on\n"
    assert house.reloaded == [["api", "work"], ["work"]]
    told = json.loads(house.clutch("reload", "work", "--json").stdout)
    assert (told["pools"], told["failed"], told["pid"]) == (["work"], house.failed, os.getpid())
    house.failed = {}
    assert house.clutch("reload", "work").stdout == f"reloaded: work {server}\n"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["drain", "nope"], "no pool 'nope'; allowed: api, work"),
        (["stack", "99"], "no call 99 runs; `clutch ps` lists those that do"),
        (["stack", "api/7"], "no worker api/7 that answers; there are: api/0, api/1, work/0, work/1"),
        (["cancel", "99"], "no call 99 waits or runs"),
        (["cancel", "12", "--pool", "work"], "no call 12 waits or runs"),
        (["cancel", "13"], "pools api and work both have a call 13: name one of them with --pool"),
    ],
)
def test_what_cannot_be_done_is_an_error(house: House, arguments: list[str], words: str) -> None:
    done = house.clutch(*arguments)
    assert (done.exit_code, words in done.stderr) == (1, True), done.stderr


@pytest.mark.parametrize("arguments", [["scale", "api", "many"], ["recycle", "api/x"], ["stack", "api/"]])
def test_wrong_usage_is_exit_code_2(house: House, arguments: list[str]) -> None:
    assert house.clutch(*arguments).exit_code == 2


def test_an_error_of_a_pool_is_told_and_the_next_command_works(house: House) -> None:
    house.failed = {}

    def broken(*_: object) -> None:
        raise ConfigError("no module named x")

    house.pools["api"].recycle = broken  # type: ignore[attr-defined, method-assign]
    done = house.clutch("recycle", "api")
    assert (done.exit_code, done.stderr) == (1, "Error: no module named x\n")
    house.pools["api"].recycle = lambda *_: 1 / 0  # type: ignore[attr-defined, method-assign]
    assert "ZeroDivisionError" in house.clutch("recycle", "api").stderr
    assert house.clutch("ps").exit_code == 0


# Which dispatcher.

ONE = Dispatcher(Path("/s1"), 1, "/a/clutch.toml", "/a")
TWO = Dispatcher(Path("/s2"), 2, "/b/clutch.toml", "/b")
SAME = Dispatcher(Path("/s3"), 3, "/b/clutch.toml", "/b")
SCRIPT = Dispatcher(Path("/s4"), 4, "/a/report.py", "/a", is_program=True)


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
def test_the_dispatcher_that_is_meant(
    running: list[Dispatcher], config: str | None, pid: int | None, chosen: Dispatcher
) -> None:
    assert remote.choose(running, None if config is None else Path(config), pid) is chosen


@pytest.mark.parametrize(
    ("running", "config", "pid", "error", "words"),
    [
        ([ONE, TWO, SAME], "/b/clutch.toml", None, click.UsageError, ["--pid", "pid 2: /b", "pid 3: /b"]),
        ([ONE, TWO], None, None, click.UsageError, ["--pid", "pid 1: /a", "pid 2: /b"]),
        ([ONE], "/c/clutch.toml", None, ControlError, ["/c/clutch.toml", "pid 1: /a"]),
        ([ONE], None, 9, ControlError, ["pid 9", "pid 1: /a"]),
        ([], None, None, ControlError, ["no dispatcher of this user runs"]),
    ],
)
def test_which_one_is_not_clear(
    running: list[Dispatcher], config: str | None, pid: int | None, error: type[Exception], words: list[str]
) -> None:
    with pytest.raises(error) as caught:
        remote.choose(running, None if config is None else Path(config), pid)
    text = caught.value.format_message() if isinstance(caught.value, click.UsageError) else str(caught.value)
    assert all(word in text for word in words), text


def test_one_with_the_config_and_one_without_in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As `clutch run` and `clutch serve` are, side by side."""
    monkeypatch.chdir(tmp_path)
    config, folder = tmp_path / "clutch.toml", str(tmp_path)
    run = Dispatcher(Path("/s1"), 1, str(config), folder)
    serve = Dispatcher(Path("/s2"), 2, f"{tmp_path}/main:app", folder)
    with pytest.raises(click.UsageError) as caught:
        remote.choose([run, serve], config, None)
    text = caught.value.format_message()
    assert all(word in text for word in ("--pid", "pid 1: ", "pid 2: ")), text
    assert remote.choose([run, serve], config, 2) is serve
    monkeypatch.setenv("CLUTCH_CONFIG", str(config))
    assert remote.choose([run, serve], config, None) is run, "it was named"


def test_the_one_of_the_working_folder_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    config = tmp_path / "clutch.toml"
    config.write_text("")
    pools = {"api": FakePool("api")}
    served = server.open_default(
        config, Commands(Identity(str(config), str(config.parent)), pools, lambda names: {}, lambda now: None)
    )
    try:
        monkeypatch.chdir(tmp_path)
        done = CliRunner().invoke(clutch_command, ["ps", "--json"], prog_name="clutch")
        assert json.loads(done.stdout)["config"] == str(config)
        assert served.path.name == protocol.name_of(config, os.getpid())
    finally:
        served.close()
    assert list((tmp_path / "clutch").iterdir()) == []
    done = CliRunner().invoke(clutch_command, ["ps"], prog_name="clutch")
    assert (done.exit_code, "no dispatcher with" in done.stderr) == (1, True)


def test_a_config_may_say_where(house: House, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "clutch.toml").write_text('control = "control.sock"\n[pools.api]\ntarget = "x"\n')
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(clutch_command, ["ps", "--json"], prog_name="clutch")
    assert json.loads(done.stdout)["config"] == "/a/clutch.toml"


# Who may.


def test_a_path_that_is_longer_than_an_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deep = tmp_path.joinpath(*["runtime-of-a-user-with-a-long-name"] * 4)
    deep.mkdir(parents=True)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(deep))
    config = tmp_path / "clutch.toml"
    for _ in range(2):  # the second time what the first left is looked at, too
        served = server.open_default(
            config, Commands(Identity(str(config), str(config.parent)), {}, lambda names: {}, lambda now: None)
        )
        try:
            assert protocol.ask(served.path, "hello")["pid"] == os.getpid()
            assert [found.pid for found in protocol.running()] == [os.getpid()]
        finally:
            served.close()
    assert list((deep / "clutch").iterdir()) == []


def test_the_file_and_its_folder_are_private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    before = os.umask(0)
    try:
        served = server.open_default(tmp_path / "clutch.toml", lambda request: None)
    finally:
        os.umask(before)
    try:
        assert stat.S_IMODE(served.path.stat().st_mode) == 0o600
        assert stat.S_IMODE(served.path.parent.stat().st_mode) == 0o700
    finally:
        served.close()


def test_a_folder_that_others_may_write_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    (tmp_path / "clutch").mkdir(mode=0o777)
    (tmp_path / "clutch").chmod(0o777)
    with pytest.raises(PermissionError, match="0700"):
        server.open_default(tmp_path / "clutch.toml", lambda request: None)
    with pytest.raises(ControlError, match="0700"):
        protocol.running()
    (tmp_path / "clutch").rmdir()
    (tmp_path / "clutch").symlink_to(tmp_path)
    with pytest.raises(PermissionError, match="0700"):
        server.open_default(tmp_path / "clutch.toml", lambda request: None)


def test_without_a_runtime_folder_it_is_in_tmp(monkeypatch: pytest.MonkeyPatch) -> None:
    for value in ("", "/does/not/exist"):
        monkeypatch.setenv("XDG_RUNTIME_DIR", value)
        assert protocol.folder() == Path(f"/tmp/clutch-{os.geteuid()}")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
def test_another_user_gets_no_answer() -> None:
    """Even where the rights of the files would let him."""
    with tempfile.TemporaryDirectory() as name:
        os.chmod(name, 0o755)
        house = House(Path(name))
        os.chmod(house.path, 0o666)
        try:
            pid = os.fork()
            if pid == 0:
                os._exit(_talk_as_nobody(house.path))
            assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
            assert house.pools["api"].asked == []
            assert protocol.ask(house.path, "hello")["pid"] == os.getpid()
        finally:
            house.control.close()


def _talk_as_nobody(path: Path) -> int:
    os.setresuid(NOBODY, NOBODY, NOBODY)
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(WAIT_SECONDS)
        connection.connect(os.fspath(path))
        try:
            protocol.send(connection, {"command": "drain"})
            return 0 if connection.recv(1) == b"" else 1
        except (BrokenPipeError, ConnectionResetError):
            return 0


# Dead ones.


def test_what_dead_dispatchers_left_is_passed_over_and_removed(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    tmp_path = tmp_path_factory.mktemp("dead")  # the path of a socket is short
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    folder = protocol.folder()
    folder.mkdir(mode=0o700)
    config = tmp_path / "clutch.toml"
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
    assert protocol.running() == []
    served = server.open_default(
        config, Commands(Identity(str(config), str(config.parent)), {}, lambda names: {}, lambda now: None)
    )
    try:
        assert list(folder.iterdir()) == [served.path]
        assert [one.pid for one in protocol.running()] == [os.getpid()]
    finally:
        served.close()


def test_two_at_one_place(house: House) -> None:
    with pytest.raises(OSError, match="in use"):
        server.open_at(house.path, lambda request: None)
    assert house.clutch("ps").exit_code == 0
    house.control.close()
    house.control = server.open_at(house.path, lambda request: None)


# Hostile and silent ones (failure 42).


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"x" * (protocol.REQUEST_BYTES_MAX + 10) + b"\n", "at most"),
        (b"no json\n", "Expecting"),
        (b"[1, 2]\n", "JSON object"),
        (b"{}\n", "no command None; allowed: cancel, drain"),
        (b'{"command": "__class__"}\n', "no command '__class__'"),
        (b'{"command": "stop", "when": "soon"}\n', "when"),
        (b'{"command": "scale"}\n', "missing"),
        (b"\xff\xfe\n", "decode"),
        (b"[" * 50_000 + b"\n", "nested"),
    ],
)
def test_failure_42_requests_that_are_none(house: House, text: bytes, words: str) -> None:
    with protocol.connected(house.path, WAIT_SECONDS) as connection:
        connection.sendall(text)
        answer = protocol.receive(connection, protocol.ANSWER_BYTES_MAX)
    assert words in answer["error"]
    assert house.stops == []
    assert house.clutch("ps").exit_code == 0


def test_failure_42_silent_clients_hold_up_nobody(house: House) -> None:
    with protocol.connected(house.path, WAIT_SECONDS), protocol.connected(house.path, WAIT_SECONDS) as half:
        half.sendall(b'{"command": "p')
        assert house.clutch("ps").exit_code == 0
        begun = time.monotonic()
        house.control.close()
        assert time.monotonic() - begun < server.CLOSE_SECONDS_MAX
    assert not house.path.exists()


def test_failure_42_too_many_clients_are_turned_away(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "CONNECTIONS_MAX", 1)
    with protocol.connected(house.path, WAIT_SECONDS) as first:
        first.sendall(b'{"command":')
        with protocol.connected(house.path, WAIT_SECONDS) as second:
            assert second.recv(1) == b""
        first.sendall(b' "hello"}\n')
        assert protocol.receive(first, protocol.ANSWER_BYTES_MAX)["result"]["pid"] == os.getpid()


def test_a_command_under_way_does_not_hold_up_the_end_for_long(house: House) -> None:
    with protocol.connected(house.path, WAIT_SECONDS) as connection:
        protocol.send(connection, {"command": "reload"})
        assert house.is_held.wait(WAIT_SECONDS)
        begun = time.monotonic()
        house.control.close()
        assert time.monotonic() - begun < 2 * server.CLOSE_SECONDS_MAX
