"""`clutch.serve` and `clutch.serving`: apps that programs, tests and threads serve, and what is left of it in them."""

from __future__ import annotations

import contextlib
import http.client
import json
import logging
import signal
import socket
import subprocess
import sys
import threading
import urllib.request
from pathlib import Path
from typing import Any

import pytest
import web

import clutch
from clutch import ConfigError
from support.changing_code import Code
from support.clutch_process import WAIT_SECONDS, Dispatcher, answer, environment
from support.rendezvous import Rendezvous

MAIN = """
import logging, signal, threading
import clutch
from web import app as inner

async def app(scope, receive, send):
    await inner(scope, receive, send)

def state():
    left = [thread.name for thread in threading.enumerate() if thread.name.startswith("clutch")]
    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    return [*handlers, logging.getLogger("clutch").handlers[:], left]

if __name__ == "__main__":
    before = state()
    clutch.serve(APP, port=0, workers=1)
    print("as before:", state() == before)
"""


def get(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=WAIT_SECONDS) as response:
        return json.load(response)


class Program(Dispatcher):
    """`python main.py`."""

    def __init__(self, folder: Path, text: str, *arguments: str) -> None:
        (folder / "main.py").write_text(text)
        super().__init__(folder, [sys.executable, *(arguments or ["main.py"])])

    @property
    def address(self) -> str:
        return self.err.wait(r"serve: http://(\S+)")[1]


# In a program


@pytest.mark.parametrize(
    ("app", "arguments", "name"),
    [
        ('"main:app"', (), "main:app"),
        ("app", (), "main:app"),
        ("app", ("-m", "main"), "main:app"),
        ("inner", (), "web:app"),
    ],
)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda number: number.name)
def test_a_program_serves_until_a_signal_and_goes_on(
    tmp_path: Path, app: str, arguments: tuple[str, ...], name: str, number: signal.Signals
) -> None:
    with Program(tmp_path, MAIN.replace("APP", app), *arguments) as program:
        program.wait_ready("web")
        program.err.wait(f"pool web: {name},")
        assert get(f"http://{program.address}/")["pid"] != program.process.pid
        with program.below() as processes:
            program.process.send_signal(number)
            assert program.wait() == 0
            processes.wait_ended()
        assert program.out.text == "as before: True"
        assert f"{number.name}: stopping" in program.err.text


def test_a_running_request_has_its_grace(tmp_path: Path, rendezvous: Rendezvous) -> None:
    with Program(tmp_path, MAIN.replace("APP", '"web:app"')) as program:
        program.wait_ready("web")
        connection = http.client.HTTPConnection(program.address, timeout=WAIT_SECONDS)
        with contextlib.closing(connection):
            connection.request("GET", f"/meet?port={rendezvous.port}")
            guest = rendezvous.guest()
            program.terminate()
            program.err.wait("SIGTERM: stopping")
            guest.let_go()
            assert answer(connection).status == 200
        assert program.wait() == 0


def test_a_second_signal_ends_running_requests(tmp_path: Path, rendezvous: Rendezvous) -> None:
    with Program(tmp_path, MAIN.replace("APP", '"web:app", grace="600s"')) as program:
        program.wait_ready("web")
        connection = http.client.HTTPConnection(program.address, timeout=WAIT_SECONDS)
        with contextlib.closing(connection):
            connection.request("GET", f"/meet?port={rendezvous.port}")
            guest = rendezvous.guest()
            program.interrupt()
            program.err.wait("SIGINT: stopping")
            program.terminate()  # another one: it is not taken for the first
            guest.wait_gone()
            assert program.wait() == 0
        assert program.out.text == "as before: True"


def test_a_program_without_a_guard_is_told_so(tmp_path: Path) -> None:
    text = 'import clutch\nfrom web import app\nclutch.serve("main:app", port=0, workers=1)\n'
    with Program(tmp_path, text) as program:
        assert program.wait() == 1
        assert "Call it under a guard" in program.err.text
        assert "ConfigError" in program.err.text


def test_a_program_that_ends_stops_what_it_serves(tmp_path: Path) -> None:
    text = 'import clutch\nserver = clutch.serving("web:app", port=0, workers=1)\nprint(server)\n'
    with Program(tmp_path, f"if __name__ == '__main__':\n    {text.replace(chr(10), chr(10) + '    ')}") as program:
        assert program.wait() == 0
        assert "<clutch.AppServer 127.0.0.1:" in program.out.text
        assert program.err.lines[-1].endswith("stopped")


def test_a_prompt_serves_an_app_of_a_module(tmp_path: Path) -> None:
    """There is no file of the program."""
    text = "import clutch, web\nwith clutch.serving(web.app, port=0, workers=1) as server: print(server.url)"
    done = subprocess.run(
        [sys.executable, "-c", text], env=environment(), cwd=tmp_path, capture_output=True, timeout=60
    )
    assert (done.returncode, done.stdout[:17]) == (0, b"http://127.0.0.1:"), done.stderr


@pytest.mark.parametrize(
    ("keyword", "said"),
    [
        ({"ssl_certfile": "a.pem"}, 'did you mean tls={"certificate": …}?'),
        ({"limit_max_requests": 1000}, 'did you mean recycle={"calls": N}?'),
        ({"timeout_keep_alive": 5}, "did you mean keep_alive?"),
        ({"uds": "/run/web.sock"}, 'did you mean bind="unix:PATH"?'),
        ({"date_header": True}, "this is the default; remove it"),
        ({"headers": []}, "let a middleware add headers"),
        ({"reload_dirs": ["src"]}, "did you mean clutch serve --reload-dir?"),
        ({"wokers": 4}, "did you mean workers?"),
        ({"app_name": "x"}, "allowed: access_log, "),
    ],
)
def test_keywords_of_others_are_told_what_they_are_here(keyword: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        clutch.serving("web:app", port=0, **keyword)
    (problem,) = caught.value.problems
    assert said in str(problem)
    assert problem.place == f"{next(iter(keyword))}="


def test_an_access_log_is_asked_for_as_in_uvicorn(tmp_path: Path) -> None:
    with Program(tmp_path, MAIN.replace("APP", '"web:app", access_log=True')) as program:
        get(f"http://{program.address}/")
        program.out.wait('"GET / HTTP/1.1" 200')


# In a test


def test_a_test_starts_asks_and_stops() -> None:
    log = logging.getLogger("clutch")
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)], log.handlers[:], log.level
    with clutch.serving("web:app", port=0, workers=1) as server:
        (address,) = server.addresses
        assert server.url == f"http://{address}"
        assert get(server.url)["cwd"] == str(Path.cwd())
        assert log.handlers[:] == before[1]
    assert server.addresses == [] and "stopped" in repr(server)
    with pytest.raises(RuntimeError, match="has no address"):
        server.url  # noqa: B018
    with pytest.raises(OSError, match="refused"):
        get(f"http://{address}")
    server.stop()
    after = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)], log.handlers[:], log.level
    assert after == before


def test_several_at_once_from_any_thread(tmp_path: Path) -> None:
    found: list[Any] = []

    def serve() -> None:
        bind = f"unix:{tmp_path}/web.sock"
        with (
            clutch.serving(web.wsgi, bind=bind, workers=1, threads=2) as server,
            socket.socket(socket.AF_UNIX) as connection,
        ):
            connection.connect(server.addresses[0].removeprefix("unix:"))
            connection.sendall(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
            with connection.makefile("rb") as response:
                found.append(json.loads(response.read().partition(b"\r\n\r\n")[2]))

    with clutch.serving(web.make, factory=True, host="localhost", port=0, workers=1) as server:
        thread = threading.Thread(target=serve)
        thread.start()
        thread.join(WAIT_SECONDS)
        assert get(server.url)["pid"] != found[0]["pid"]
    assert found[0]["multithread"]


def test_new_code(code: Code) -> None:
    # Of another length each: Python takes a source of the same second and size for the one that it has compiled.
    text = "from web import app\nimport os\nos.environ['A'] = {!r}\n"
    code.path.write_text(text.format("older"))
    with clutch.serving("written_code:app", port=0, workers=1) as server:
        assert get(server.url)["env"]["A"] == "older"
        code.path.write_text(text.format("new"))
        server.reload()
        assert get(server.url)["env"]["A"] == "new"
        code.path.write_text("syntax error")
        with pytest.raises(clutch.ConfigError, match="SyntaxError"):
            server.reload()
        assert get(server.url)["env"]["A"] == "new"


# What cannot be served


def test_an_app_that_does_not_start_is_an_error(code: Code) -> None:
    code.path.write_text("1 / 0\n")
    with pytest.raises(clutch.ConfigError, match="ZeroDivisionError"):
        clutch.serving("written_code:app", port=0, workers=1)


def test_an_address_that_is_taken() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other, pytest.raises(OSError, match="in use"):
        clutch.serving("web:app", port=other.getsockname()[1], workers=1)


def test_an_app_that_only_this_process_has() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        pass

    with pytest.raises(clutch.ConfigError, match=r'clutch\.serve\("package\.module:app"\)'):
        clutch.serving(app, port=0)


def test_all_wrong_options_are_named() -> None:
    with pytest.raises(clutch.ConfigError) as caught:
        clutch.serving("web:app", timeout="soon", workers=0, head_maxx=1, settings=["fronts.serve.nothing=1"])
    assert {problem.place for problem in caught.value.problems} == {
        "fronts.serve.timeout",
        "pools.web.workers",
        "head_maxx=",
        "fronts.serve.nothing",
    }
    assert "did you mean head_max?" in str(caught.value)


def test_what_is_given_wins_over_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLUTCH_POOLS_WEB_WORKERS", "3")
    monkeypatch.setenv("CLUTCH_FRONTS_SERVE_BIND", "nonsense")
    monkeypatch.setenv("CLUTCH_FRONTS_SERVE_ROOT_PATH", "/shop")
    with clutch.serving("web:app", bind=["127.0.0.1:0", "127.0.0.1:0"], workers=1) as server:
        assert len(server.addresses) == 2
        assert get(server.url)["root_path"] == "/shop"


def test_used_wrongly() -> None:
    with pytest.raises(TypeError, match="the same option: give one"):
        clutch.serving("web:app", bind="127.0.0.1:0", port=1)
    caught: list[BaseException] = []

    def serve() -> None:
        try:
            clutch.serve("web:app", port=0)
        except RuntimeError as error:
            caught.append(error)

    thread = threading.Thread(target=serve)
    thread.start()
    thread.join(WAIT_SECONDS)
    assert "with clutch.serving" in str(caught[0])


FORKS = """
import multiprocessing, os, sys
import clutch

def work():
    print("worked", flush=True)

if __name__ == "__main__":
    with clutch.serving("web:app", port=0, workers=1) as server:
        child = multiprocessing.get_context("fork").Process(target=work)
        child.start()
        child.join()
        print("exit code", child.exitcode, len(server.addresses), flush=True)
"""


def test_a_copy_of_the_program_ends_by_itself(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(FORKS)
    command = [sys.executable, "program.py"]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=WAIT_SECONDS, check=True
    )
    assert done.stdout.splitlines() == ["worked", "exit code 0 1"]


def test_the_log_is_as_before_whichever_server_ends_first() -> None:
    log = logging.getLogger("clutch")
    before = log.handlers[:], log.propagate, log.level
    first = clutch.serving("web:app", port=0, workers=1, log_level="warning")
    second = clutch.serving("web:app", port=0, workers=1)
    first.stop()
    first.stop()
    assert first.addresses == []
    second.stop()
    assert (log.handlers, log.propagate, log.level) == before
    with pytest.raises(ConfigError, match="'loud' is not a log level; allowed: debug"):
        clutch.serving("web:app", port=0, log_level="loud")
    assert (log.handlers, log.propagate, log.level) == before
