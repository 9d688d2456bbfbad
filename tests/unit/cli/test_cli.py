"""The commands that need no pool, and `clutch call` against a server of the test's own."""

from __future__ import annotations

import http.server
import json
import threading
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from clutch import config
from clutch.cli import doctor, program
from clutch.cli.flags import pool_options
from clutch.config import options
from clutch.errors import PoolClosed


def clutch(*arguments: str, **more: Any) -> Result:
    return CliRunner().invoke(program, list(arguments), prog_name="clutch", **more)


@pytest.mark.parametrize("command", ["run", "call", "doctor", "init"])
def test_help(command: str) -> None:
    done = clutch(command, "--help")
    assert done.exit_code == 0
    assert done.stdout.startswith(f"Usage: clutch {command}")


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("status", "clutch ps"),
        ("restart", "clutch reload"),
        ("stpo", "clutch stop"),
        ("a.b:app", "clutch serve a.b:app"),
        ("main.py", "clutch serve main"),
    ],
)
def test_a_command_of_another_tool_is_answered_with_ours(given: str, meant: str) -> None:
    done = clutch(given)
    assert done.exit_code == 2 and f"no command '{given}'; did you mean: {meant}" in done.stderr


def test_an_option_that_help_does_not_show_is_not_meant() -> None:
    done = clutch("serve", "app:app", "--workrs", "2")
    assert done.exit_code == 2
    assert "(Did you mean one of: '--worker-class', '--workers'?)" in done.stderr


def test_a_command_like_no_other_is_answered_with_all() -> None:
    assert "no command 'frobnicate'; commands: run, serve, work, jobs, ps" in clutch("frobnicate").stderr


# init and run --check


def test_init_writes_a_config_that_run_accepts(tmp_path: Path) -> None:
    folder = tmp_path / "shop"
    assert clutch("init", str(folder)).exit_code == 0
    done = clutch("run", str(folder / "clutch.toml"), "--check")
    assert (done.exit_code, "no problems; pools: tools" in done.stdout) == (0, True)
    compile((folder / "tools.py").read_text(), "tools.py", "exec")


def test_init_keeps_what_is_there(tmp_path: Path) -> None:
    (tmp_path / "tools.py").write_text("mine")
    done = clutch("init", str(tmp_path), "--json")
    assert json.loads(done.stdout) == {"written": [f"{tmp_path}/clutch.toml"], "kept": [f"{tmp_path}/tools.py"]}
    assert (tmp_path / "tools.py").read_text() == "mine"
    assert clutch("init", str(tmp_path)).exit_code == 1


def test_run_reports_every_problem_and_exits_with_2(tmp_path: Path) -> None:
    file = tmp_path / "clutch.toml"
    file.write_text('[pools.api]\nprofil = "process"\n')
    done = clutch("run", str(file), "--set", "pools.api.workers=none")
    assert done.exit_code == 2
    assert "3 problems" in done.stderr
    assert "did you mean profile?" in done.stderr
    assert "pools.api.target: is missing" in done.stderr
    assert "[--set pools.api.workers=none]" in done.stderr


def test_run_logs_warnings_as_json(tmp_path: Path) -> None:
    file = tmp_path / "clutch.toml"
    file.write_text('[pools.api]\ntarget = "x"\nworkers = 4000\nenv = { OMP_NUM_THREADS = "64" }\n')
    done = clutch("run", str(file), "--check", "--log-format", "json")
    line = json.loads(done.stderr.splitlines()[0])
    assert (line["level"], "OMP_NUM_THREADS=64" in line["message"]) == ("warning", True)


def test_an_error_is_a_message_not_a_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def closed(*_: object, **__: object) -> None:
        raise PoolClosed("the pool was shut down")

    monkeypatch.setattr(config, "load", closed)
    done = clutch("run")
    assert (done.exit_code, done.stderr) == (1, "Error: the pool was shut down\n")


# doctor


def test_doctor_advises() -> None:
    facts = {
        "kernel": "4.19.0-x",
        "extension": "missing",
        "descriptors": {"soft": 1024, "hard": 1024},
        "interpreters": [],
        "extras": {"gevent": None},
        "cpus": {"usable": 16},
        "memory": {"limit_bytes": 512 << 20, "workers": 4},
    }
    advice, broken = doctor.advise(facts)
    assert broken
    expected = ["4.19.0-x is too old", "extension", "at most 1024 descriptors", "free-threaded", "gevent"]
    for words in (*expected, "16 usable CPUs, and a memory limit of 0.5 GiB: room for 4 workers"):
        assert any(words in line for line in advice), words


# call


class Handler(http.server.BaseHTTPRequestHandler):
    seen: list[tuple[str, dict[str, str], Any]]
    answer: tuple[int, str, bytes]

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.seen.append((self.path, dict(self.headers), json.loads(body)))
        status, kind, text = self.answer
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[type[Handler]]:
    handler = type("OneHandler", (Handler,), {"seen": [], "answer": (200, "application/json", b'{"result": null}')})
    with http.server.HTTPServer(("127.0.0.1", 0), handler) as listening:
        handler.url = f"http://127.0.0.1:{listening.server_port}"
        thread = threading.Thread(target=listening.serve_forever, args=(0.01,))
        thread.start()
        yield handler
        listening.shutdown()
        thread.join()


def test_call_sends_arguments_and_prints_the_result(server: Any) -> None:
    server.answer = (200, "application/json; charset=utf-8", '{"result": {"größe": 3}}'.encode())
    done = clutch("call", "api.make", "size=100", "name=Ada", "tags=[1]", "--url", server.url, "--timeout", "2.5s")
    assert (done.exit_code, done.stdout) == (0, '{"größe": 3}\n')
    ((path, headers, body),) = server.seen
    assert path == "/pools/api/tools/make"
    assert body == {"size": 100, "name": "Ada", "tags": [1]}
    assert (headers["Content-Type"], headers["Clutch-Timeout"]) == ("application/json", "2.5s")


def test_call_takes_json_and_a_token(server: Any) -> None:
    done = clutch("call", "api.make", "--json", "-", "--token", "secret", "--url", server.url, input='{"a": null}')
    assert (done.exit_code, done.stdout) == (0, "null\n")
    _, headers, body = server.seen[0]
    assert (headers["Authorization"], body) == ("Bearer secret", {"a": None})


def test_call_prints_a_stream_and_its_error(server: Any) -> None:
    lines = b'2\n{"error": 1}\n{"error": {"status": 500, "title": "The tool raised", "detail": "ValueError: no"}}\n'
    server.answer = (200, "application/x-ndjson", lines)
    done = clutch("call", "api.count", "--url", server.url)
    assert (done.exit_code, done.stdout) == (1, '2\n{"error": 1}\n')
    assert done.stderr == "Error: The tool raised: ValueError: no\n"


def test_call_makes_a_problem_document_readable(server: Any) -> None:
    problem = {
        "title": "Bad arguments",
        "detail": "size",
        "status": 422,
        "problems": [{"place": "size"}],
        "tool": "make",
        "traceback": "a\nb\n",
    }
    server.answer = (422, "application/problem+json", json.dumps(problem).encode())
    done = clutch("call", "api.make", "--url", server.url)
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr == 'Error: Bad arguments: size\n  {"place": "size"}\n  tool: make\na\nb\n'


def test_call_shows_whatever_else_came(server: Any) -> None:
    server.answer = (502, "text/html", b"<h1>Bad gateway</h1>")
    assert clutch("call", "api.make", "--url", server.url).stderr == "Error: status 502: <h1>Bad gateway</h1>\n"


def test_call_without_a_server(unused_port: int) -> None:
    done = clutch("call", "api.make", "--url", f"http://127.0.0.1:{unused_port}")
    assert done.exit_code == 1
    assert "clutch run" in done.stderr


@pytest.fixture
def unused_port() -> Iterator[int]:
    import socket

    with socket.socket() as bound_not_listening:
        bound_not_listening.bind(("127.0.0.1", 0))
        yield bound_not_listening.getsockname()[1]


@pytest.mark.parametrize(
    "arguments",
    [("api.make", "size"), ("api.make", "a=1", "--json", "{}"), ("api.make", "--workers", "2")],
)
def test_call_used_wrongly(arguments: tuple[str, ...]) -> None:
    assert clutch("call", *arguments).exit_code == 2


def test_flags_of_a_pool_are_read_as_the_table_says() -> None:
    texts = {"profile": "thread", "workers": "2", "queue.limit": "7", "deadline": "1s", "env": '{ A = "b" }'}
    flags: dict[str, str | None] = {f"pool_{option.name.replace('.', '_')}": None for option in options.POOL.options}
    flags |= {f"pool_{name.replace('.', '_')}": text for name, text in texts.items()}
    given = pool_options(flags)
    assert given == {"profile": "thread", "workers": 2, "queue.limit": 7, "deadline": "1s", "env": {"A": "b"}}
    assert config.resolve(**given).core["queue_limit"] == 7


def test_the_script_is_the_one_that_the_package_declares() -> None:
    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())
    assert project["project"]["scripts"] == {"clutch": "clutch.cli:main"}
