"""The life of a real `clutch run`: start, logs, signals, mistakes, and that nothing is left of it."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import time
from pathlib import Path

import pytest

from clutch.testing import Processes
from support.clutch_process import FRONTS, Server, answer, clutch, with_http_option
from support.rendezvous import Rendezvous

POOL = '[pools.api]\ntarget = "http_tools"\nworkers = 2\n'
ONE_POOL = POOL + FRONTS
IMPORT_ERROR_SECONDS_MAX = 2.0

FIVE_MISTAKES = """
[pools.api]
target = "http_tools"
profil = "process"
workers = 0
queue = { overflow = "rejekt" }
deadline = "soon"

[front.http]
"""


def test_starts_serves_and_stops(tmp_path: Path) -> None:
    with Server(tmp_path, ONE_POOL) as server:
        server.wait_ready("api")
        assert server.call("add", {"a": 1}).result == 2
        with server.below() as processes:
            assert len(processes.pids) >= 3  # the zygote and two workers
            server.terminate()
            assert server.wait() == 0
            processes.wait_ended()
        assert "stopped" in server.err.lines[-1]
        assert not re.search("Traceback|Error|warning", server.err.text)


@pytest.mark.parametrize("by_ctrl_c", [True, False], ids=["INT", "TERM"])
def test_a_signal_lets_running_work_end(tmp_path: Path, rendezvous: Rendezvous, by_ctrl_c: bool) -> None:
    with Server(tmp_path, ONE_POOL) as server:
        server.wait_ready("api")
        with server.below() as processes, server.calling("meet", {"port": rendezvous.port}) as running:
            guest = rendezvous.guest()
            server.interrupt() if by_ctrl_c else server.terminate()
            server.err.wait("SIGINT: stopping" if by_ctrl_c else "SIGTERM: stopping")
            guest.let_go("done")
            assert answer(running).result == "done"
            assert server.wait() == 0
            processes.wait_ended()


@pytest.mark.parametrize("by_ctrl_c", [True, False], ids=["INT", "TERM"])
def test_a_second_signal_ends_all_at_once(tmp_path: Path, rendezvous: Rendezvous, by_ctrl_c: bool) -> None:
    with Server(tmp_path, ONE_POOL) as server:
        server.wait_ready("api")
        with server.below() as processes, server.calling("meet", {"port": rendezvous.port}):
            guest = rendezvous.guest()
            end = server.interrupt if by_ctrl_c else server.terminate
            end()
            server.err.wait(": stopping")
            assert server.hurry(end) == 128 + (signal.SIGINT if by_ctrl_c else signal.SIGTERM)
            processes.wait_ended()
            guest.wait_gone()


def test_work_that_outlasts_the_grace_is_cut(tmp_path: Path, rendezvous: Rendezvous) -> None:
    with Server(tmp_path, ONE_POOL.replace("workers = 2", 'workers = 2\ngrace = "200ms"')) as server:
        server.wait_ready("api")
        with server.below() as processes, server.calling("meet", {"port": rendezvous.port}):
            guest = rendezvous.guest()
            server.terminate()
            guest.wait_gone()
            assert server.wait() == 0
            processes.wait_ended()


def test_ctrl_c_while_the_target_is_imported(tmp_path: Path, rendezvous: Rendezvous) -> None:
    (tmp_path / "slow.py").write_text(f"from support.rendezvous import meet\nmeet({rendezvous.port})\n")
    with Server(tmp_path, f'[pools.api]\ntarget = "slow"\n{FRONTS}') as server:
        guest = rendezvous.guest()
        with server.below() as processes:
            server.interrupt()
            assert server.wait() == 0
            processes.wait_ended()
        guest.wait_gone()


def test_nothing_is_left_when_it_is_killed(tmp_path: Path, rendezvous: Rendezvous) -> None:
    with Server(tmp_path, ONE_POOL) as server:
        server.wait_ready("api")
        with server.below() as processes, server.calling("meet", {"port": rendezvous.port}):
            rendezvous.guest()
            server.process.kill()
            processes.wait_ended()


# Output


def test_what_tools_print_has_the_pool_and_the_worker_before_it(tmp_path: Path) -> None:
    with Server(tmp_path, ONE_POOL.replace("workers = 2", "workers = 1")) as server:
        server.wait_ready("api")
        assert server.call("say", {"text": "grüße\nsecond line"}).status == 200
        for output in (server.out, server.err):
            output.wait(r"^\[api/0\] grüße$")
            output.wait(r"^\[api/0\] second line$")


def test_logs_for_machines(tmp_path: Path) -> None:
    """Our own, those of workers and those of calls have the same keys."""
    fronts = with_http_option('access_log = "-"')
    with Server(tmp_path, POOL + fronts, "--log-format", "json") as server:
        server.err.wait('"pool api: ready"')
        assert server.call("say", {"text": "from a tool"}).status == 200
        server.err.wait("from a tool")
        server.out.wait('"total_s"')
        server.terminate()
        assert server.wait() == 0
        lines = [json.loads(line) for line in server.err.lines]
        of_tools = [line for line in lines if line["message"] == "from a tool"]
        assert [(line["pool"], line["worker"][:4], line["stream"]) for line in of_tools] == [("api", "api/", "stderr")]
        said, called = sorted(map(json.loads, server.out.lines), key=lambda line: "front" in line)
        assert (said["message"], said["stream"]) == ("from a tool", "stdout")
        assert (called["front"], called["status"]) == ("http", 200)
        assert called["message"] == "POST /pools/api/tools/say HTTP/1.1 200"
        assert called["queue_s"] < called["total_s"]
        lines += [said, called]
        assert {line["level"] for line in lines} == {"info"}
        assert all(line["time"] and line["message"] for line in lines)
        assert any({"pool": "api", "ready": True}.items() <= line.items() for line in lines)
        assert {line.get("front"): line.get("address") for line in lines if "address" in line} == {
            "http": server.http,
            "admin": server.admin,
        }


def test_calls_have_an_access_log(tmp_path: Path) -> None:
    with Server(tmp_path, POOL + with_http_option('access_log = "log/calls"')) as server:
        assert server.wait() == 1
        assert re.search("cannot start: fronts.http.access_log '.*/log/calls': No such file", server.err.text)
    (tmp_path / "log").mkdir()
    with Server(tmp_path, POOL + with_http_option('access_log = "log/calls"')) as server:
        server.call("say", {"text": "x"})
        server.call("none", {})
        server.call("say", {"text": "x"}, Clutch_Timeout="soon")
        with socket.create_connection(server.http.split(":")) as client:
            client.sendall(b"no HTTP at all\r\n\r\n")
            assert client.recv(100).startswith(b"HTTP/1.1 400")
        (tmp_path / "log" / "calls").rename(tmp_path / "calls.1")
        server.process.send_signal(signal.SIGUSR1)
        server.err.wait("log files opened anew")
        server.call("say", {"text": "x"})
        server.terminate()
        assert server.wait() == 0
    after = (tmp_path / "log" / "calls").read_text().splitlines()
    assert after, "a line is written when its call has ended, which may be after the file was moved"
    lines = (tmp_path / "calls.1").read_text().splitlines() + after
    shown = [re.sub(r"^.*?\"(.*?)\" (\S+) .* (\S+)$", r"\1 \2 \3", line) for line in lines]
    assert sorted(shown) == [
        "POST /pools/api/tools/none HTTP/1.1 404 refused",
        "POST /pools/api/tools/say HTTP/1.1 200 whole",
        "POST /pools/api/tools/say HTTP/1.1 200 whole",
        "POST /pools/api/tools/say HTTP/1.1 400 refused",
        "no HTTP at all 400 refused",
    ]


def test_a_log_level(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("raise ValueError('no')")
    with Server(tmp_path, '[pools.api]\ntarget = "broken"\n', "--log-level", "error") as server:
        assert server.wait() == 2
        assert "stopping" not in server.err.text
        assert "ValueError" in server.err.text


# Mistakes


def test_a_config_with_five_mistakes(tmp_path: Path) -> None:
    (tmp_path / "clutch.toml").write_text(FIVE_MISTAKES)
    done = clutch("run", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("Error: 5 problems in the configuration")
    for place, *words in (
        ("front", "did you mean fronts?"),
        ("pools.api.profil", "did you mean profile?"),
        ("pools.api.workers", "given 0", "allowed: a whole number from 1"),
        ("pools.api.queue.overflow", "given 'rejekt'", "allowed: reject, block"),
        ("pools.api.deadline", "given 'soon'", '"30s"'),
    ):
        (line,) = (line for line in done.stderr.splitlines() if line.strip().startswith(f"{place}: "))
        assert all(word in line for word in (*words, "clutch.toml")), line


def test_no_config_at_all(tmp_path: Path) -> None:
    done = clutch("run", "nowhere.toml", cwd=tmp_path)
    assert done.returncode == 2
    assert "nowhere.toml" in done.stderr


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("def start():\n    raise RuntimeError('no database')\nstart()\n", ["no database", "target.py", "in start"]),
        ("import no_such_module_here\n", ["no_such_module_here", "target.py"]),
        ("def wrong(:\n", ["SyntaxError", "target.py", "line 1"]),
        ("import sys; sys.exit('left')\n", ["SystemExit", "left"]),
    ],
)
@pytest.mark.parametrize("start", ["", 'start = "spawn"', "preload = false"])
def test_a_target_that_does_not_import(tmp_path: Path, text: str, words: list[str], start: str) -> None:
    """The good pool beside it is stopped in order."""
    (tmp_path / "target.py").write_text(text)
    good = '[pools.good]\ntarget = "http_tools"\nworkers = 1\n'
    with Server(tmp_path, f'{good}[pools.api]\ntarget = "target"\nworkers = 1\n{start}\n') as server:
        code = server.wait()
        assert code == 2, server.err.text
        for word in words:
            assert word in server.err.text
        assert "importlib" not in server.err.text  # the traceback begins with the user's own line
        # What workers print comes by another way, and may come after it.
        assert any(line.endswith("stopped") for line in server.err.lines[-20:])


def test_a_broken_target_is_told_at_once_while_another_still_imports(tmp_path: Path, rendezvous: Rendezvous) -> None:
    (tmp_path / "slow.py").write_text(f"from support.rendezvous import meet\nmeet({rendezvous.port})\n")
    word = f"from support.rendezvous import meet\nmeet({rendezvous.port}, 'broken')\nraise ValueError('no')\n"
    (tmp_path / "broken.py").write_text(word)
    config = '[pools.slow]\ntarget = "slow"\nworkers = 1\n[pools.broken]\ntarget = "broken"\nworkers = 1\n'
    with Server(tmp_path, config) as server:
        broken = next(guest for guest in rendezvous.guests(2) if guest.word == "broken")
        with server.below() as processes:
            broken.let_go()
            begun = time.monotonic()
            assert server.wait() == 2
            assert time.monotonic() - begun < IMPORT_ERROR_SECONDS_MAX
            processes.wait_ended()
        assert "ValueError: no" in server.err.text


def test_an_address_that_is_taken(tmp_path: Path, rendezvous: Rendezvous) -> None:
    fronts = f'[fronts.http]\nbind = "127.0.0.1:{rendezvous.port}"\n'
    with Server(tmp_path, f'[pools.api]\ntarget = "http_tools"\nworkers = 1\n{fronts}') as server:
        assert server.wait() == 1
        assert f"127.0.0.1:{rendezvous.port}" in server.err.text
        assert "in use" in server.err.text


def test_a_tool_that_cannot_be_called_by_names_is_told_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "target.py").write_text("from clutch import tool\n@tool\ndef f(a, /): ...\n@tool\ndef g(): ...\n")
    with Server(tmp_path, f'[pools.api]\ntarget = "target"\nworkers = 1\n{FRONTS}') as server:
        server.err.wait("warning: tool 'f': parameter 'a' is positional-only")
        server.wait_ready("api")
        assert server.call("g").result is None
        assert "positional-only" in server.call("f", {"a": 1}).json["detail"]


# The first five minutes


def test_init_then_run_then_call(tmp_path: Path) -> None:
    assert clutch("init", "shop", cwd=tmp_path).stdout.endswith("next: cd shop && clutch run\n")
    folder = tmp_path / "shop"
    with Server(folder, (folder / "clutch.toml").read_text(), *free_ports()) as server:
        server.wait_ready("tools")
        url = ("--url", f"http://{server.http}")
        for arguments, printed in (
            (("tools.greet", "name=Ada"), '"Hello, Ada"\n'),
            (("tools.primes_below", "limit=100"), "25\n"),
            (("tools.countdown", "n=3"), "3\n2\n1\n"),
            (("tools.wait", "seconds=0.01"), "0.01\n"),
        ):
            done = clutch("call", *arguments, *url, cwd=folder)
            assert (done.returncode, done.stdout) == (0, printed), done.stderr
        with server.below() as processes:
            server.interrupt()
            assert server.wait() == 0
            processes.wait_ended()


def free_ports() -> list[str]:
    """The file that `init` writes has the ports that people know; tests share a machine."""
    return ["--set", "fronts.http.bind=127.0.0.1:0", "--set", "fronts.admin.bind=127.0.0.1:0"]


def test_descendants_of_tools_go_too(tmp_path: Path, rendezvous: Rendezvous) -> None:
    (tmp_path / "target.py").write_text(
        "import subprocess\nfrom clutch import tool\n@tool\ndef start() -> int:\n"
        "    return subprocess.Popen(['sleep', '1000']).pid\n"
    )
    with Server(tmp_path, f'[pools.api]\ntarget = "target"\nworkers = 1\n{FRONTS}') as server:
        server.wait_ready("api")
        pid = server.call("start").result
        with Processes([pid]) as process:
            assert process.pids == [pid]
            server.terminate()
            assert server.wait() == 0
            process.wait_ended()
    assert not os.path.exists(f"/proc/{pid}")
