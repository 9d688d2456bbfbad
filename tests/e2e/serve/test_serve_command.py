"""`clutch serve` as a process: flags, variables, signals and sockets as gunicorn's users know them."""

from __future__ import annotations

import contextlib
import http.client
import os
import re
import signal
import socket
from pathlib import Path

import pytest

from support.clutch_process import COMMAND, WAIT_SECONDS, answer, clutch, environment, soon
from support.rendezvous import Rendezvous
from support.serve_process import ANY_PORT, Serving


def variables(**more: str) -> dict[str, str]:
    """Of the process, with nothing of gunicorn's but what is given."""
    return environment() | more


# Letters, variables and files


def test_a_line_of_a_procfile_with_one_word_changed(tmp_path: Path) -> None:
    """As a platform runs it: by a shell, with PORT and WEB_CONCURRENCY set."""
    line = "gunicorn --chdir code web_app:app -b 127.0.0.1:$PORT --max-requests 1000 --max-requests-jitter 100 -t 60"
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "web_app.py").write_text("from web import app\n")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "clutch").write_text(f'#!/bin/sh\nexec {" ".join(COMMAND)} "$@"\n')
    (tmp_path / "bin" / "clutch").chmod(0o755)
    path = f"{tmp_path}/bin{os.pathsep}{os.environ['PATH']}"
    command = ["sh", "-c", "exec " + line.replace("gunicorn", "clutch serve")]
    env = variables(PORT="0", WEB_CONCURRENCY="3", PATH=path)
    with Serving(tmp_path, command=command, env=env) as serving:
        serving.wait_ready("web")
        found = serving.get()
        assert (found.status, found.json["cwd"]) == (200, str(tmp_path / "code"))
        assert len(serving.workers()) == 3
        serving.terminate()
        assert serving.wait() == 0


def test_several_addresses_and_a_unix_socket(tmp_path: Path) -> None:
    with Serving(tmp_path, "web:app", "-w", "1", "-b", ANY_PORT, "-b", "unix:web.sock") as serving:
        serving.wait_ready("web")
        serving.err.wait(rf"serve: unix:{tmp_path}/web\.sock")
        over_tcp, over_unix = serving.get(), serving.get(at=str(tmp_path / "web.sock"))
        assert (over_tcp.status, over_tcp.json["pid"]) == (200, over_unix.json["pid"])
        assert (tmp_path / "web.sock").stat().st_mode & 0o777 == 0o666, "a proxy in front is mostly another user"
        serving.terminate()
        assert serving.wait() == 0


def test_settings_of_all_layers(tmp_path: Path) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "in_lib.py").write_text("from web import app\n")
    (tmp_path / "gunicorn.conf.py").write_text(
        f"bind = {ANY_PORT!r}\nworkers = 9\nraw_env = ['A=file']\nproc_name = 'shop'\n"
        "def post_fork(server, worker):\n    raise SystemExit\n"
    )
    env = variables(GUNICORN_CMD_ARGS="--workers 2 --pythonpath lib", A="outside")
    with Serving(tmp_path, "in_lib:app", "--root-path", "/shop", env=env) as serving:
        serving.wait_ready("shop")
        serving.err.wait("the hook post_fork is not supported: use @clutch.on_start")
        found = serving.get().json
        assert (found["env"]["A"], found["root_path"]) == ("file", "/shop")
        assert len(serving.workers()) == 2


@pytest.mark.parametrize(
    ("flags", "is_multithread"),
    [("-k sync", False), ("-k sync --threads 2", True), ("-k gthread --threads 2", True), ("-k gevent", True)],
)
def test_worker_classes_with_a_wsgi_app(tmp_path: Path, flags: str, is_multithread: bool) -> None:
    if "gevent" in flags:
        pytest.importorskip("gevent")
    with Serving(tmp_path, "web:wsgi", "-w", "1", "-b", ANY_PORT, "--root-path", "/shop", *flags.split()) as serving:
        serving.wait_ready("web")
        found = serving.get().json
        assert (found["root_path"], found["multithread"]) == ("/shop", is_multithread)


@pytest.mark.parametrize(("flags", "is_multithread"), [("", False), ("--threads 3", True)])
def test_a_wsgi_app_chooses_its_profile_as_under_gunicorn(tmp_path: Path, flags: str, is_multithread: bool) -> None:
    with Serving(tmp_path, "web:wsgi", "-w", "1", "-b", ANY_PORT, *flags.split()) as serving:
        serving.wait_ready("web")
        assert serving.get().json["multithread"] is is_multithread


@pytest.mark.parametrize("app", ["web", "web:make()", "web:make --factory"])
def test_an_app_by_its_module_alone_and_by_a_factory(tmp_path: Path, app: str) -> None:
    with Serving(tmp_path, *app.split(), "-w", "1", "-b", ANY_PORT) as serving:
        serving.wait_ready("web")
        assert serving.get().status == 200


@pytest.mark.parametrize("name", ["uvicorn.workers.UvicornWorker", "uvicorn_worker.UvicornWorker", "asgi"])
def test_worker_classes_with_an_asgi_app(tmp_path: Path, name: str) -> None:
    with Serving(tmp_path, "web:app", "-w", "1", "-b", ANY_PORT, "-k", name) as serving:
        serving.wait_ready("web")
        assert serving.get().status == 200


def test_the_pid_is_in_a_file_until_the_end(tmp_path: Path) -> None:
    with Serving(tmp_path, "web:app", "-w", "1", "-b", ANY_PORT, "--pid", "web.pid") as serving:
        serving.wait_ready("web")
        assert (tmp_path / "web.pid").read_text() == f"{serving.process.pid}\n"
        second = clutch("serve", "web:app", "-b", ANY_PORT, "--pid", "web.pid", cwd=tmp_path)
        assert (second.returncode, f"process {serving.process.pid} is already running" in second.stderr) == (1, True)
        serving.terminate()
        assert serving.wait() == 0
    assert not (tmp_path / "web.pid").exists()


def test_our_log_goes_into_a_file_that_may_be_moved_away(tmp_path: Path) -> None:
    log, old = tmp_path / "log", tmp_path / "log.1"
    with Serving(tmp_path, "web:app", "-w", "1", "-b", "unix:s", "--log-file", "log") as serving:
        soon(lambda: log.exists() and "pool web: ready" in log.read_text())
        log.rename(old)
        serving.send(signal.SIGUSR1)
        soon(lambda: log.exists() and log.read_text())
        serving.terminate()
        assert serving.wait() == 0
        assert serving.err.text == ""
    assert ("ready" in old.read_text(), "stopped" in log.read_text()) == (True, True)


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("no_such_module:app",), 2, "No module named 'no_such_module'"),
        (("web.py",), 2, "a module is named as in `import`: 'web'"),
        (("sub/web.py:app",), 2, '"package.module:object"'),
        (("web:no_such_app",), 2, "no_such_app"),
        (("web:app", "-b", "unix:/nowhere/at/all"), 1, "/nowhere/at/all"),
        (("web:app", "--daemon"), 2, "nohup"),
    ],
)
def test_what_cannot_be_served_ends_with_a_reason(
    tmp_path: Path, arguments: tuple[str, ...], code: int, words: str
) -> None:
    done = clutch("serve", "-b", ANY_PORT, *arguments, cwd=tmp_path)
    assert (done.returncode, words in done.stderr) == (code, True), done.stderr


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("chat.py:app", "chat:app"),
        ("chat.py", "chat"),
        ("./chat.py:app", "chat:app"),
        ("sub/chat.py:app", "sub.chat:app"),
    ],
)
def test_a_file_in_place_of_a_module_is_told_before_anything_starts(tmp_path: Path, given: str, meant: str) -> None:
    (tmp_path / "sub").mkdir()
    for folder in (tmp_path, tmp_path / "sub"):
        (folder / "chat.py").touch()
    done = clutch("serve", "-b", ANY_PORT, given, cwd=tmp_path)
    told = f"{given!r} names a file, but APP is a module, as in `import`: clutch serve {meant}\n"
    assert (done.returncode, done.stderr.endswith(told), "http://" in done.stderr) == (2, True, False), done.stderr


@pytest.mark.parametrize(("value", "warns"), [("true", True), ("false", False)])
def test_whoever_wants_messages_compressed_is_told_that_they_are_not(tmp_path: Path, value: str, warns: bool) -> None:
    flags = ["-b", ANY_PORT, "--check-config", "--ws-per-message-deflate", value]
    done = clutch("serve", "web:app", *flags, cwd=tmp_path)
    told = "WARNING --ws-per-message-deflate has no effect: WebSocket messages are not compressed"
    assert (done.returncode, told in done.stderr) == (0, warns), done.stderr


def test_no_timeout_may_be_written_as_in_a_configuration(tmp_path: Path) -> None:
    done = clutch("serve", "web:app", "-b", ANY_PORT, "--check-config", "--timeout", "none", cwd=tmp_path)
    assert done.returncode == 0, done.stderr


def test_our_log_goes_where_a_configuration_of_logging_says(tmp_path: Path) -> None:
    """As a gunicorn.conf.py has it; the configuration is executed in the dispatcher."""
    (tmp_path / "gunicorn.conf.py").write_text(
        "logconfig_dict = {'version': 1, 'handlers': {'own': {'class': 'logging.FileHandler',\n"
        "    'filename': 'our.log'}},\n"
        "    'loggers': {'gunicorn.error': {'level': 'INFO', 'handlers': ['own']},\n"
        "                'gunicorn.access': {'handlers': ['own']}}}\n"
    )
    log = tmp_path / "our.log"
    with Serving(tmp_path, "web:app", "-w", "1", "-b", "unix:web.sock", "--error-logfile", "other.log") as serving:
        soon(lambda: log.exists() and "pool web: ready" in log.read_text())
        serving.terminate()
        assert serving.wait() == 0
        assert serving.err.text == ""
    text = log.read_text()
    assert "logconfig_dict, gunicorn.conf.py: gunicorn.access: the access log is written by the dispatcher" in text
    assert "--error-logfile: without effect beside logconfig_dict" in text
    assert text.endswith("stopped\n") and not (tmp_path / "other.log").exists()


def test_an_address_that_is_taken(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        done = clutch("serve", "web:app", "-b", address, cwd=tmp_path)
    assert done.returncode == 1
    said = rf"cannot listen on {address}: Address already in use .*; another program listens there"
    assert re.search(said, done.stderr), done.stderr


# Signals


def test_ttin_and_ttou(tmp_path: Path) -> None:
    with Serving(tmp_path, "web:app", "-w", "1", "-b", ANY_PORT) as serving:
        serving.wait_ready("web")
        serving.send(signal.SIGTTIN)
        serving.err.wait("pool web: 2 workers")
        serving.until(lambda pids: len(pids) == 2)
        serving.send(signal.SIGTTOU)
        serving.err.wait("pool web: 1 workers")
        serving.until(lambda pids: len(pids) == 1)
        assert serving.get().status == 200


def test_hup_loads_the_code_anew(tmp_path: Path) -> None:
    code = tmp_path / "changing.py"
    text = "import os\nos.environ['A'] = {!r}\nfrom web import app\n"
    code.write_text(text.format("old"))
    with Serving(tmp_path, "changing:app", "-w", "1", "-b", ANY_PORT, env=variables(PYTHONDONTWRITEBYTECODE="1")) as it:
        it.wait_ready("web")
        assert it.get().json["env"]["A"] == "old"
        code.write_text(text.format("new"))
        it.send(signal.SIGHUP)
        it.err.wait("pool web: reloaded")
        assert it.get().json["env"]["A"] == "new"


def test_reload_follows_the_files(tmp_path: Path) -> None:
    pytest.importorskip("watchfiles")
    code = tmp_path / "changing.py"
    code.write_text("from web import app\n")
    with Serving(tmp_path, "changing:app", "-w", "1", "-b", ANY_PORT, "--reload") as serving:
        serving.wait_ready("web")
        serving.err.wait("watching ")
        new, numbers = "from web import app\nimport os\nos.environ['A'] = 'new'\n", iter(range(1000))
        # When the kernel has begun to watch is told to nobody: write until it is seen.
        soon(lambda: code.write_text(f"{new}# {next(numbers)}\n") and "changed:" in serving.err.text)
        serving.err.wait("pool web: reloaded")
        assert serving.get().json["env"]["A"] == "new"


def test_a_death_is_logged_once_with_what_was_running(tmp_path: Path, rendezvous: Rendezvous) -> None:
    pytest.importorskip("watchfiles")
    with Serving(tmp_path, "web:app", "-w", "1", "-b", ANY_PORT, "--reload") as serving:
        serving.wait_ready("web")
        with serving.asking(f"/meet?port={rendezvous.port}") as asked:
            guest = rendezvous.guest()
            os.kill(guest.pid, signal.SIGKILL)
            assert answer(asked).status == 502
        serving.send(signal.SIGTERM)
        assert serving.wait() == 0
        (line,) = re.findall(rf"(?m)^.*\(pid {guest.pid}\) was killed by signal 9.*$", serving.err.text)
        assert "it was running GET /meet" in line


def test_term_lets_a_running_request_end(tmp_path: Path, rendezvous: Rendezvous) -> None:
    with Serving(tmp_path, "web:app", "-w", "1", "-b", ANY_PORT) as serving:
        serving.wait_ready("web")
        with serving.asking(f"/meet?port={rendezvous.port}") as running, serving.below() as processes:
            guest = rendezvous.guest()
            serving.terminate()
            serving.err.wait("SIGTERM: stopping")
            guest.let_go()
            assert answer(running).status == 200
            assert serving.wait() == 0
            processes.wait_ended()


@pytest.mark.parametrize("number", [signal.SIGQUIT, signal.SIGINT], ids=lambda number: number.name)
def test_quit_and_int_cut_it_off(tmp_path: Path, rendezvous: Rendezvous, number: signal.Signals) -> None:
    with Serving(tmp_path, "web:app", "-w", "1", "-b", ANY_PORT, "--graceful-timeout", "600") as serving:
        serving.wait_ready("web")
        with serving.asking(f"/meet?port={rendezvous.port}") as running, serving.below() as processes:
            guest = rendezvous.guest()
            serving.send(number)
            guest.wait_gone()
            with contextlib.suppress(http.client.HTTPException, ConnectionError):
                assert answer(running).status >= 500
            assert serving.wait() == 0
            processes.wait_ended()


@pytest.mark.parametrize("flags", [[], ["--graceful-timeout", "0"]], ids=["grace", "no_grace"])
def test_idle_workers_run_their_shutdown_on_ctrl_c(tmp_path: Path, rendezvous: Rendezvous, flags: list[str]) -> None:
    env = environment() | {"SHUTDOWN_PORT": str(rendezvous.port)}
    with Serving(tmp_path, "web:with_lifespan", "-w", "2", "-b", ANY_PORT, *flags, env=env) as serving:
        for nr in (0, 1):  # one that starts is not idle
            serving.err.wait(rf"worker web/{nr} \(pid \d+\): ready")
        with serving.below() as processes:
            serving.interrupt()
            for guest in [rendezvous.guest(), rendezvous.guest()]:
                guest.let_go()
            assert serving.wait() == 0
            processes.wait_ended()
        assert "SIGKILL" not in serving.err.wait_end()


def test_a_request_is_told_to_stop_before_the_shutdown_of_its_app(tmp_path: Path, rendezvous: Rendezvous) -> None:
    env = environment() | {"SHUTDOWN_PORT": str(rendezvous.port)}
    with Serving(tmp_path, "web:with_lifespan", "-w", "1", "-b", ANY_PORT, env=env) as serving:
        serving.wait_ready("web")
        with serving.asking(f"/meet?port={rendezvous.port}"):
            running = rendezvous.guest()
            serving.interrupt()
            running.wait_gone()
            rendezvous.guest().let_go()
            assert serving.wait() == 0
        assert "was killed by" not in serving.err.wait_end()


@pytest.mark.parametrize(("app", "flags"), [("app", "-k async"), ("wsgi", "-k sync"), ("wsgi", "-k gthread")])
def test_failure_68_a_stop_takes_the_grace_once(tmp_path: Path, rendezvous: Rendezvous, app: str, flags: str) -> None:
    """Its request never ends, and hears of nothing."""
    grace = 5
    flags_of_app = [f"misbehaving_apps:{app}", *flags.split(), "-w", "1", "-b", ANY_PORT]
    with Serving(tmp_path, *flags_of_app, "--graceful-timeout", str(grace), "--timeout", "0") as serving:
        serving.wait_ready("web")
        with serving.asking(f"/silent?port={rendezvous.port}"):
            rendezvous.guest()
            serving.terminate()
            serving.err.wait("SIGTERM: stopping")
            assert serving.wait(timeout=1.8 * grace) == 0


def test_usr2_is_said_to_be_unsupported(tmp_path: Path) -> None:
    with Serving(tmp_path, "web:app", "-w", "1", "-b", ANY_PORT) as serving:
        serving.wait_ready("web")
        serving.send(signal.SIGUSR2)
        serving.err.wait("SIGUSR2 is not supported")
        assert serving.get().status == 200


# Sockets of the service manager

HANDED_OVER = 'exec 3<&"$1"-; shift; LISTEN_PID=$$ LISTEN_FDS=1 LISTEN_FDNAMES=web exec "$@"'


def test_a_socket_that_the_service_manager_handed_over(tmp_path: Path) -> None:
    """It takes the place of PORT; the manager's clients wait in it before anybody serves."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        client = http.client.HTTPConnection("127.0.0.1", port, timeout=WAIT_SECONDS)
        client.request("GET", "/")
        shell = ["bash", "-c", HANDED_OVER, "bash", str(listening.fileno())]
        command = [*shell, *COMMAND, "serve", "web:app", "-w", "1"]
        fds = (listening.fileno(),)
        with Serving(tmp_path, command=command, env=variables(PORT="1"), pass_fds=fds) as serving:
            serving.wait_ready("web")
            with contextlib.closing(client):
                found = answer(client)
            assert (found.status, serving.address) == (200, f"127.0.0.1:{port}")
            assert not [name for name in found.json["env"] if name.startswith("LISTEN_")]
            sockets = open_sockets(found.json["pid"])
            assert f"socket:[{os.fstat(listening.fileno()).st_ino}]" not in sockets, "no worker holds it"
            serving.terminate()
            assert serving.wait() == 0


def open_sockets(pid: int) -> set[str]:
    links = set()
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            links.add(os.readlink(entry))
    return links


def test_a_socket_that_was_meant_for_another_process_is_left_alone(tmp_path: Path) -> None:
    env = variables(LISTEN_FDS="1", LISTEN_PID="1")
    with Serving(tmp_path, "web:app", "-w", "1", "-b", ANY_PORT, env=env) as serving:
        serving.wait_ready("web")
        assert serving.get().status == 200


@pytest.mark.parametrize("flags", ["", "-k gthread --threads 2", "-k gevent"])
def test_a_handler_of_connections(tmp_path: Path, flags: str) -> None:
    if "gevent" in flags:
        pytest.importorskip("gevent")
    binds = ["-b", ANY_PORT, "-b", "unix:s"]
    with Serving(tmp_path, "--tcp", "web:shout", "-w", "1", *binds, *flags.split()) as serving:
        serving.wait_ready("tcp")
        host, _, port = serving.err.wait(r"tcp: (127\S+)")[1].partition(":")
        over_tcp = socket.create_connection((host, int(port)), WAIT_SECONDS)
        with over_tcp, socket.socket(socket.AF_UNIX) as over_unix:
            over_unix.settimeout(WAIT_SECONDS)
            over_unix.connect(str(tmp_path / "s"))
            assert [shouted(over_tcp), shouted(over_unix)] == [b"HELLO", b"HELLO"]
        serving.terminate()
        assert serving.wait() == 0


def shouted(connection: socket.socket) -> bytes:
    connection.sendall(b"hello")
    return connection.recv(5, socket.MSG_WAITALL)


# The command itself


def test_control_socket_and_reload_by_command(tmp_path: Path) -> None:
    with Serving(tmp_path, "web:app", "-w", "1", "-b", ANY_PORT, "--control", "c.sock") as serving:
        serving.wait_ready("web")
        first = serving.get().json["pid"]
        assert clutch("reload", "--control", "c.sock", cwd=tmp_path).returncode == 0
        assert serving.get().json["pid"] != first
        assert clutch("stop", "--control", "c.sock", cwd=tmp_path).returncode == 0
        assert serving.wait() == 0
