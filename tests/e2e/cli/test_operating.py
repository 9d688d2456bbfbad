"""A real `clutch run` under commands, terminals, a service manager, and as the first process of a container."""

from __future__ import annotations

import json
import os
import pty
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from clutch import Pool
from clutch.cli import EXIT_CODES
from clutch.control import sockets
from clutch.testing import Processes, children
from support.clutch_process import COMMAND, FRONTS, WAIT_SECONDS, Server, answer, clutch, environment, soon
from support.rendezvous import Rendezvous
from support.serve_process import ANY_PORT, Serving

ONE_POOL = f'[pools.api]\ntarget = "http_tools"\nworkers = 2\n{FRONTS}'
OWN = "from clutch import tool\n@tool\ndef version() -> int:\n    return {}\n"
OPERATING = Path(__file__).resolve().parents[3] / "docs/operating.md"
needs_reload = pytest.mark.skipif(not hasattr(Pool, "reload"), reason="this version of the core does not reload")


@pytest.fixture(autouse=True)
def _own_runtime_folder(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of each test: some leave the socket of a dispatcher that was killed."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path_factory.mktemp("run")))


# Commands


def test_ps_tells_of_pools_and_workers(tmp_path: Path) -> None:
    with Server(tmp_path, ONE_POOL) as server:
        server.wait_ready("api")
        pid = server.call("pid").result
        found = json.loads(clutch("ps", "--json", cwd=tmp_path).stdout)
        assert (found["pid"], found["config"]) == (server.process.pid, str(tmp_path / "clutch.toml"))
        (pool,) = found["pools"]
        workers = {worker["pid"]: worker for worker in pool["workers"]}
        assert (pool["ready"], workers[pid]["calls"], workers[pid]["state"]) == (2, 1, "ready")
        assert workers[pid]["rss"] > 1 << 20 and 0 <= workers[pid]["age_s"] < 60
        assert 0 <= workers[pid]["cpu_s"] < 60
        text = clutch("ps", cwd=tmp_path).stdout
        assert "api: ready, 2 of 2 workers ready" in text and "api/0 " in text and str(pid) in text


def test_stack_shows_where_a_worker_is_and_it_goes_on(tmp_path: Path, rendezvous: Rendezvous) -> None:
    with Server(tmp_path, ONE_POOL.replace("workers = 2", "workers = 1")) as server:
        server.wait_ready("api")
        with server.calling("meet", {"port": rendezvous.port}) as running:
            guest = rendezvous.guest()
            for what in ("api", "api/0"):
                done = clutch("stack", what, cwd=tmp_path)
                assert done.stdout.startswith("api/0\n") and "rendezvous.py" in done.stdout, done
            (text,) = json.loads(clutch("stack", "api/0", "--json", cwd=tmp_path).stdout).values()
            assert "in meet" in text
            guest.let_go("went on")
            assert answer(running).result == "went on"
        assert clutch("stack", "api/9", cwd=tmp_path).returncode == 1


def workers(server: Server) -> list[dict[str, Any]]:
    (pool,) = json.loads(clutch("ps", "--json", cwd=server.folder).stdout)["pools"]
    return [worker for worker in pool["workers"] if worker["state"] == "ready"]


@needs_reload
def test_drain_and_resume(tmp_path: Path, rendezvous: Rendezvous) -> None:
    with Server(tmp_path, ONE_POOL) as server:
        server.wait_ready("api")
        with server.calling("meet", {"port": rendezvous.port}) as running:
            guest = rendezvous.guest()
            assert clutch("drain", "api", cwd=tmp_path).stdout == "api: takes no more work\n"
            assert server.call("pid").status == 503
            guest.let_go("finished")
            assert answer(running).result == "finished"
        assert clutch("drain", "--resume", cwd=tmp_path).returncode == 0
        assert server.call("add", {"a": 1}).result == 2


@needs_reload
def test_scale(tmp_path: Path) -> None:
    with Server(tmp_path, ONE_POOL) as server:
        server.wait_ready("api")
        for count in (3, 1):
            assert clutch("scale", "api", str(count), cwd=tmp_path).returncode == 0
            soon(lambda count=count: len(workers(server)) == count)
        done = clutch("scale", "api", "5-2", cwd=tmp_path)
        assert (done.returncode, "allowed" in done.stderr) == (1, True), done.stderr


@needs_reload
def test_recycle_waits_until_the_workers_are_others(tmp_path: Path) -> None:
    with Server(tmp_path, ONE_POOL) as server:
        server.wait_ready("api")
        before = {worker["nr"]: worker["pid"] for worker in workers(server)}
        assert clutch("recycle", "api/1", cwd=tmp_path).returncode == 0
        between = {worker["nr"]: worker["pid"] for worker in workers(server)}
        assert between[0] == before[0] and between[1] != before[1]
        assert clutch("recycle", cwd=tmp_path).returncode == 0
        after = {worker["nr"]: worker["pid"] for worker in workers(server)}
        assert not set(after.values()) & set(between.values()) and len(after) == 2
        assert clutch("recycle", "api/9", cwd=tmp_path).returncode == 1


def test_of_two_the_one_of_the_folder_or_of_the_pid_is_meant(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("one", "two", "neither")]
    for folder in folders:
        folder.mkdir()
    with Server(folders[0], ONE_POOL) as one, Server(folders[1], ONE_POOL) as two:
        one.wait_ready("api")
        two.wait_ready("api")
        for server, folder in ((one, folders[0]), (two, folders[1])):
            assert json.loads(clutch("ps", "--json", cwd=folder).stdout)["pid"] == server.process.pid
        unclear = clutch("ps", cwd=folders[2])
        assert unclear.returncode == 2
        for server in (one, two):
            assert f"pid {server.process.pid}: {server.folder}/clutch.toml" in unclear.stderr
        chosen = clutch("ps", "--json", "--pid", str(two.process.pid), cwd=folders[2])
        assert json.loads(chosen.stdout)["pid"] == two.process.pid


def test_a_place_of_ones_own(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    with Server(tmp_path, ONE_POOL, "--control", "here.sock") as server:
        server.wait_ready("api")
        assert clutch("ps", cwd=elsewhere).returncode == 1
        there = environment() | {"CLUTCH_CONTROL": str(tmp_path / "here.sock")}
        assert clutch("ps", cwd=elsewhere, env=there).returncode == 0
    with Server(tmp_path, f'control = "there.sock"\n{ONE_POOL}') as server:
        server.wait_ready("api")
        assert clutch("ps", cwd=tmp_path).returncode == 0
        assert (tmp_path / "there.sock").is_socket()


def test_stop_waits_for_running_work_and_for_the_end(tmp_path: Path, rendezvous: Rendezvous) -> None:
    with Server(tmp_path, ONE_POOL) as server:
        server.wait_ready("api")
        with server.below() as processes, server.calling("meet", {"port": rendezvous.port}) as running:
            guest = rendezvous.guest()
            stopping = subprocess.Popen(
                [*COMMAND, "stop"], cwd=tmp_path, env=environment(), stdout=subprocess.PIPE, text=True
            )
            server.err.wait("SIGTERM: stopping")
            assert clutch("ps", "--json", cwd=tmp_path).returncode == 0, "it answers until its end"
            assert stopping.poll() is None
            guest.let_go("done")
            assert answer(running).result == "done"
            out, _ = stopping.communicate(timeout=WAIT_SECONDS)
            assert out == f"stopped: pid {server.process.pid}\n"
            assert server.wait() == 0
            processes.wait_ended()
    assert list(sockets.folder().iterdir()) == []


def test_stop_of_one_that_stops_already_waits_as_well(tmp_path: Path, rendezvous: Rendezvous) -> None:
    with Server(tmp_path, ONE_POOL) as server:
        server.wait_ready("api")
        with server.calling("meet", {"port": rendezvous.port}) as running:
            guest = rendezvous.guest()
            server.process.send_signal(signal.SIGTERM)
            server.err.wait("SIGTERM: stopping")
            with subprocess.Popen([*COMMAND, "stop"], cwd=tmp_path, stderr=subprocess.PIPE, env=environment()) as stop:
                assert stop.stderr is not None
                assert b"waiting for api/" in stop.stderr.readline()
                assert "shutting down" in clutch("ps", cwd=tmp_path).stdout
                guest.let_go("done")
                assert answer(running).result == "done"
                assert stop.wait(WAIT_SECONDS) == 0
        assert server.wait() == 0


def test_stop_now_cuts_running_work(tmp_path: Path, rendezvous: Rendezvous) -> None:
    with Server(tmp_path, ONE_POOL) as server:
        server.wait_ready("api")
        with server.below() as processes, server.calling("meet", {"port": rendezvous.port}):
            guest = rendezvous.guest()
            assert clutch("stop", "--now", cwd=tmp_path).returncode == 0
            assert server.wait() == 128 + signal.SIGTERM
            processes.wait_ended()
            guest.wait_gone()
    assert list(sockets.folder().iterdir()) == []


def test_what_a_killed_one_left_is_no_obstacle(tmp_path: Path) -> None:
    with Server(tmp_path, ONE_POOL) as server:
        server.wait_ready("api")
        server.process.kill()
        server.process.wait(WAIT_SECONDS)
    assert len(list(sockets.folder().iterdir())) == 1
    assert clutch("ps", cwd=tmp_path).returncode == 1
    with Server(tmp_path, ONE_POOL) as server:
        server.wait_ready("api")
        assert json.loads(clutch("ps", "--json", cwd=tmp_path).stdout)["pid"] == server.process.pid
        assert len(list(sockets.folder().iterdir())) == 1


# New code


@needs_reload
@pytest.mark.parametrize("how", ["HUP", "command", "files"])
def test_failure_36_new_code_without_a_refused_connection(tmp_path: Path, how: str) -> None:
    (tmp_path / "own.py").write_text(OWN.format(1))
    flags = ("--reload",) if how == "files" else ()
    with Server(tmp_path, ONE_POOL.replace("http_tools", "own"), *flags) as server:
        server.wait_ready("api")
        assert server.call("version").result == 1
        load(server, how, OWN.format(22))
        while (version := server.call("version").result) == 1:
            pass
        assert version == 22


@pytest.mark.parametrize("how", ["HUP", "command"])
def test_failure_36_code_that_does_not_import_leaves_the_old_serving(tmp_path: Path, how: str) -> None:
    (tmp_path / "own.py").write_text(OWN.format(1))
    with Server(tmp_path, ONE_POOL.replace("http_tools", "own")) as server:
        server.wait_ready("api")
        load(server, how, "def wrong(:\n")
        server.err.wait("SyntaxError")
        server.err.wait("the old code stays in use")
        assert server.call("version").result == 1
        load(server, how, OWN.format(333))
        while server.call("version").result == 1:
            pass
        server.terminate()
        assert server.wait() == 0


def load(server: Server, how: str, text: str) -> None:
    if how == "files":
        before = len(server.err.lines)
        server.err.wait("watching")
        write(server, text)
        soon(lambda: "changed:" in "\n".join(server.err.lines[before:]))
        return
    write(server, text)
    if how == "HUP":
        server.process.send_signal(signal.SIGHUP)
    else:
        done = clutch("reload", cwd=server.folder)
        assert (done.returncode, "SyntaxError" in done.stderr) in ((0, False), (1, True)), done.stderr


def write(server: Server, text: str) -> None:
    """In one step: an empty file is code that imports, too."""
    (server.folder / "own.new").write_text(text)
    (server.folder / "own.new").replace(server.folder / "own.py")


def test_reload_without_watchfiles_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "watchfiles.py").write_text("raise ImportError('not here')")
    (tmp_path / "clutch.toml").write_text(ONE_POOL)
    there = environment()
    there["PYTHONPATH"] = f"{tmp_path}{os.pathsep}{there['PYTHONPATH']}"
    done = clutch("run", "--reload", cwd=tmp_path, env=there)
    assert (done.returncode, "pip install 'clutch[reload]'" in done.stderr) == (2, True), done.stderr


# Terminals


@pytest.fixture
def terminal() -> Iterator[tuple[int, int]]:
    """Our end and the program's."""
    ours, theirs = pty.openpty()
    yield ours, theirs
    for fd in (ours, theirs):
        try:
            os.close(fd)
        except OSError:
            continue


def test_failure_07_ctrl_c_in_a_terminal_is_one_clean_stop(
    tmp_path: Path, rendezvous: Rendezvous, terminal: tuple[int, int]
) -> None:
    with Server(tmp_path, ONE_POOL, stdin=terminal[1]) as server:
        server.wait_ready("api")
        with server.below() as processes, server.calling("meet", {"port": rendezvous.port}) as running:
            guest = rendezvous.guest()
            os.write(terminal[0], b"\x03")
            server.err.wait("SIGINT: stopping")
            guest.let_go("done")
            assert answer(running).result == "done"
            assert server.wait() == 0
            processes.wait_ended()
        assert "Traceback" not in server.err.text + server.out.text


def test_failure_07_ctrl_c_twice_ends_all_at_once(
    tmp_path: Path, rendezvous: Rendezvous, terminal: tuple[int, int]
) -> None:
    with Server(tmp_path, ONE_POOL, stdin=terminal[1]) as server:
        server.wait_ready("api")
        with server.below() as processes, server.calling("meet", {"port": rendezvous.port}):
            guest = rendezvous.guest()
            os.write(terminal[0], b"\x03")
            server.err.wait("SIGINT: stopping")
            assert server.hurry(lambda: os.write(terminal[0], b"\x03")) == 128 + signal.SIGINT
            assert processes.alive(2.0) == []
            guest.wait_gone()
        assert "Traceback" not in server.err.text + server.out.text


def test_a_terminal_that_is_closed_stops_it(tmp_path: Path, terminal: tuple[int, int]) -> None:
    """The kernel's word for that is HUP too."""
    with Server(tmp_path, ONE_POOL, stdin=terminal[1]) as server:
        server.wait_ready("api")
        os.close(terminal[1])
        os.close(terminal[0])
        server.err.wait("SIGHUP: stopping")
        assert server.wait() == 0


# A service manager


TELLS = """
import os
from clutch import tool

@tool
def variable() -> str | None:
    return os.environ.get("NOTIFY_SOCKET")
"""


@pytest.mark.parametrize("abstract", [False, True])
def test_a_service_manager_hears_of_start_and_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, abstract: bool
) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.settimeout(WAIT_SECONDS)
        name = f"@clutch-e2e-{os.getpid()}" if abstract else str(tmp_path / "notify")
        manager.bind(name.replace("@", "\0", 1))
        monkeypatch.setenv("NOTIFY_SOCKET", name)
        (tmp_path / "tells.py").write_text(TELLS)
        with Server(tmp_path, ONE_POOL.replace("http_tools", "tells")) as server:
            assert manager.recv(4096) == b"STATUS=starting api"
            assert manager.recv(4096) == b"READY=1\nSTATUS=serving"
            assert server.call("variable").result is None, "workers cannot speak for the dispatcher"
            server.terminate()
            assert manager.recv(4096) == b"STOPPING=1\nSTATUS=stopping"
            assert server.wait() == 0


# The first process of a container

UNSHARE = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child")


def may_unshare() -> bool:
    return (
        shutil.which("nsenter") is not None and subprocess.run([*UNSHARE, "true"], capture_output=True).returncode == 0
    )


needs_unshare = pytest.mark.skipif(not may_unshare(), reason="no pid namespace may be made here")


@needs_unshare
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_as_pid_1_it_answers_signals(tmp_path: Path, rendezvous: Rendezvous, number: signal.Signals) -> None:
    with Server(tmp_path, ONE_POOL, before=UNSHARE) as server:
        server.wait_ready("api")
        (first,) = children(server.process.pid)
        with server.below() as processes, server.calling("meet", {"port": rendezvous.port}) as running:
            guest = rendezvous.guest()
            os.kill(first, number)
            server.err.wait(f"{number.name}: stopping")
            guest.let_go("done")
            assert answer(running).result == "done"
            assert server.wait() == 0
            processes.wait_ended()


@needs_unshare
def test_as_pid_1_it_passes_gunicorns_signals_on(tmp_path: Path) -> None:
    command = [*UNSHARE, *COMMAND, "serve", "web:app", "-w", "1", "-b", ANY_PORT]
    with Serving(tmp_path, command=command) as serving:
        serving.wait_ready("web")
        (first,) = children(serving.process.pid)
        os.kill(first, signal.SIGTTIN)
        serving.err.wait("pool web: 2 workers")
        os.kill(first, signal.SIGQUIT)
        assert serving.wait() == 0


@needs_unshare
def test_as_pid_1_its_exit_code_is_the_dispatchers(tmp_path: Path, rendezvous: Rendezvous) -> None:
    (tmp_path / "broken.py").write_text("raise ValueError('no')")
    with Server(tmp_path, '[pools.api]\ntarget = "broken"\n', before=UNSHARE) as server:
        assert server.wait() == 2
    with Server(tmp_path, ONE_POOL, before=UNSHARE) as server:
        server.wait_ready("api")
        (first,) = children(server.process.pid)
        (dispatcher,) = children(first)
        with server.below() as processes:
            os.kill(dispatcher, signal.SIGKILL)
            assert server.wait() == 128 + signal.SIGKILL
            processes.wait_ended()


ORPHAN = """
import os, sys
from support.rendezvous import meet
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        meet(int(sys.argv[1]), "orphan")
    os._exit(0)
os.wait()
"""


@needs_unshare
def test_as_pid_1_it_reaps_orphans(tmp_path: Path, rendezvous: Rendezvous) -> None:
    with Server(tmp_path, ONE_POOL, before=UNSHARE) as server:
        server.wait_ready("api")
        (first,) = children(server.process.pid)
        (dispatcher,) = children(first)
        enter = ["nsenter", "--target", str(first), "--pid", "--mount", sys.executable, "-c", ORPHAN]
        subprocess.run([*enter, str(rendezvous.port)], env=environment(), check=True, timeout=WAIT_SECONDS)
        guest = rendezvous.guest()
        (orphan,) = set(children(first)) - {dispatcher}
        with Processes([orphan]) as process:
            guest.let_go()
            process.wait_ended()
        soon(lambda: children(first) == [dispatcher])
        assert not os.path.exists(f"/proc/{orphan}"), "no zombie"
        assert server.call("add", {"a": 1}).result == 2


@needs_unshare
def test_failure_07_ctrl_c_in_the_terminal_of_a_container(tmp_path: Path, terminal: tuple[int, int]) -> None:
    """The first process and the dispatcher both hear it from the terminal; it counts once."""
    with Server(tmp_path, ONE_POOL, before=UNSHARE, stdin=terminal[1]) as server:
        server.wait_ready("api")
        with server.below() as processes:
            os.write(terminal[0], b"\x03")
            server.err.wait("SIGINT: stopping")
            assert server.wait() == 0
            processes.wait_ended()


# Exit codes


def test_the_page_has_the_exit_codes() -> None:
    rows = [f"| {code} | {meaning} |" for code, meaning in EXIT_CODES.items()]
    assert "\n".join(rows) in OPERATING.read_text()


def test_exit_codes_of_commands(tmp_path: Path) -> None:
    """Those of a stop, of a signal and of a pool that cannot start are in test_run.py."""
    assert clutch("ps", cwd=tmp_path).returncode == 1
    assert clutch("stop", cwd=tmp_path).returncode == 1
    assert clutch("ps", "--nonsense", cwd=tmp_path).returncode == 2
    assert clutch("run", cwd=tmp_path).returncode == 2
    assert clutch("scale", "api", "x", cwd=tmp_path).returncode == 2
    assert clutch("--version", cwd=tmp_path).returncode == 0
