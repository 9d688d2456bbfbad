"""Failure 72: somebody reads the log alone."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
from pathlib import Path

import pytest

from support.clutch_process import COMMAND, FRONTS, Server, clutch, environment, with_http_option
from support.rendezvous import Rendezvous

pytestmark = pytest.mark.timeout(120)

POOL = """
[pools.api]
target = "harmful_tools"
workers = 1
"""


def worker_pid(server: Server) -> int:
    (worker,) = server.pool()["workers"]
    return int(worker["pid"])


def test_failure_72_a_death_is_said_with_its_cause_and_what_was_running(tmp_path: Path, rendezvous: Rendezvous) -> None:
    with Server(tmp_path, POOL + FRONTS) as server:
        server.wait_ready("api")
        server.err.wait(r"INFO    worker api/0 \(pid \d+\): ready")
        idle = worker_pid(server)
        os.kill(idle, signal.SIGKILL)
        server.err.wait(
            rf"WARNING worker api/0 \(pid {idle}\) was killed by signal 9 \(SIGKILL\)"
            r" \(by the kernel, out of memory\?\); it was idle"
        )
        with server.calling("visit", {"port": rendezvous.port}):
            guest = rendezvous.guest()
            os.kill(guest.pid, signal.SIGSEGV)
            server.err.wait(
                rf"WARNING worker api/0 \(pid {guest.pid}\) was killed by signal 11 \(SIGSEGV\)"
                r"; it was running visit \(call \d+, \d+\.\d+ s\)"
            )
        server.call("exit_with", {"code": 7})
        server.err.wait(r"WARNING worker api/0 \(pid \d+\) exited with code 7; it was running exit_with \(call \d+")


def test_failure_72_poison_is_named(tmp_path: Path) -> None:
    with Server(tmp_path, POOL + "deaths_max = 1\n" + FRONTS) as server:
        server.call("exit_with", {"code": 7})
        assert b'clutch_pool_workers_ended_total{pool="api",reason="exit"} 1' in server.get("/metrics").body
        server.err.wait(
            r"ERROR   pool api: exit_with \(call \d+\) is not retried \(deaths_max\); workers it has killed: 1"
        )


def test_failure_72_a_kill_is_said_with_its_reason(tmp_path: Path, rendezvous: Rendezvous) -> None:
    options = 'interrupt_grace = "100ms"\nterm_grace = "100ms"\n'
    with Server(tmp_path, POOL + options + FRONTS) as server, server.calling("ignore_term", {"port": rendezvous.port}):
        rendezvous.guest()
        (running,) = json.loads(clutch("ps", "--json", cwd=tmp_path).stdout)["pools"][0]["workers"][0]["running"]
        assert clutch("cancel", str(running["id"]), cwd=tmp_path).returncode == 0
        for name in ("SIGTERM", "SIGKILL"):
            server.err.wait(
                rf"WARNING worker api/0 \(pid \d+\): sent {name}: its work was cancelled and did not stop"
                r"; it was running ignore_term \(call \d+"
            )


def test_failure_72_one_kill_is_said_once(tmp_path: Path, rendezvous: Rendezvous) -> None:
    options = 'interrupt_grace = "100ms"\n'
    with (
        Server(tmp_path, POOL + options + FRONTS) as server,
        server.calling("ignore_all_but_term", {"port": rendezvous.port}),
    ):
        rendezvous.guest()
        (running,) = json.loads(clutch("ps", "--json", cwd=tmp_path).stdout)["pools"][0]["workers"][0]["running"]
        assert clutch("cancel", str(running["id"]), cwd=tmp_path).returncode == 0
        server.err.wait(
            r"WARNING worker api/0 \(pid \d+\) was killed by signal 15 \(SIGTERM\) \(its work was cancelled"
        )
        assert server.err.text.count("sent SIGTERM") == 1 and "sent SIGKILL" not in server.err.text


def test_failure_72_commands_are_said(tmp_path: Path) -> None:
    with Server(tmp_path, POOL + FRONTS) as server:
        server.wait_ready("api")
        old = worker_pid(server)
        assert clutch("recycle", "api/0", cwd=tmp_path).returncode == 0
        server.err.wait(rf"worker api/0 \(pid {old}\): takes no more work: recycled by command")
        server.err.wait(rf"INFO    worker api/0 \(pid {old}\): gone: recycled by command")
        assert b'clutch_pool_workers_ended_total{pool="api",reason="recycle"} 1' in server.get("/metrics").body
        assert clutch("scale", "api", "2", cwd=tmp_path).returncode == 0
        server.err.wait(r"pool api: 2 workers, by command")
        server.err.wait(r"worker api/1 \(pid \d+\): ready")
        assert clutch("drain", "api", cwd=tmp_path).returncode == 0
        server.err.wait(r"pool api: takes no more work, by command")
        server.terminate()
        assert server.wait() == 0
        assert server.err.text.count("gone: the pool is shutting down") == 2


def test_failure_72_a_full_queue_is_said_once_a_second_at_most(tmp_path: Path, rendezvous: Rendezvous) -> None:
    with Server(tmp_path, POOL + "queue = { limit = 1 }\n" + FRONTS) as server, contextlib.ExitStack() as calls:
        calls.enter_context(server.calling("visit", {"port": rendezvous.port}))
        rendezvous.guest()
        calls.enter_context(server.calling("pid"))
        server.until(lambda figures: figures["queued"] == 1)
        for _ in range(3):
            assert server.call("pid").status == 503
        server.err.wait(r"WARNING pool api: full: 1 calls are waiting \(queue.limit\); refused since .*: 1$")


def test_failure_72_as_json_each_line_has_its_fields(tmp_path: Path) -> None:
    with Server(tmp_path, POOL + FRONTS, "--log-format", "json") as server:
        server.call("exit_with", {"code": 7})
        server.err.wait('"event": "worker_gone"')
        server.terminate()
        assert server.wait() == 0
    lines = [json.loads(line) for line in server.err.lines]
    gone = next(line for line in lines if line.get("event") == "worker_gone")
    assert (gone["level"], gone["pool"], gone["worker"]) == ("warning", "api", "api/0")
    assert gone["pid"] > 0
    assert gone["running"][0]["what"] == "exit_with"
    assert all({"time", "level", "message"} <= set(line) for line in lines)


def test_what_a_worker_runs_is_shown_and_can_be_cancelled(tmp_path: Path, rendezvous: Rendezvous) -> None:
    with Server(tmp_path, POOL + FRONTS) as server:
        with server.calling("visit", {"port": rendezvous.port}) as connection:
            rendezvous.guest()
            shown = clutch("ps", cwd=tmp_path)
            assert "runs visit for " in shown.stdout
            (pool,) = json.loads(clutch("ps", "--json", cwd=tmp_path).stdout)["pools"]
            (running,) = pool["workers"][0]["running"]
            assert clutch("stack", str(running["id"]), cwd=tmp_path).returncode == 0
            assert clutch("cancel", str(running["id"]), cwd=tmp_path).stdout == f"api: call {running['id']} cancelled\n"
            assert connection.getresponse().status == 503
        again = clutch("cancel", str(running["id"]), cwd=tmp_path)
        assert again.returncode == 1
        assert "clutch ps" in again.stderr


def test_a_worker_that_hangs_is_named_and_can_be_killed(tmp_path: Path, rendezvous: Rendezvous) -> None:
    with Server(tmp_path, POOL + FRONTS) as server, contextlib.ExitStack() as calls:
        calls.enter_context(server.calling("visit", {"port": rendezvous.port}))
        guest = rendezvous.guest()
        command = [*COMMAND, "recycle", "api"]
        recycling = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True, env=environment())
        assert recycling.stderr is not None
        waits = recycling.stderr.readline()
        assert re.match(r"waiting for api/0, which runs visit for \d+s \(call \d+\); --kill ends it$", waits)
        assert clutch("recycle", "api", "--kill", cwd=tmp_path).returncode == 2
        assert clutch("recycle", "api/0", "--kill", cwd=tmp_path).returncode == 0
        guest.wait_gone()
        assert recycling.wait(30) == 0
        recycling.stderr.close()
        server.err.wait(
            rf"WARNING worker api/0 \(pid {guest.pid}\) was killed by signal 9 \(SIGKILL\) \(it was killed by command\)"
            r"; it was running visit"
        )


def test_processes_are_named(tmp_path: Path) -> None:
    with Server(tmp_path, POOL + FRONTS) as server:
        server.wait_ready("api")
        (pool,) = json.loads(clutch("ps", "--json", cwd=tmp_path).stdout)["pools"]
        titles = [titled(pool["workers"][0]["pid"]), titled(pool["zygote_pid"])]
        assert titles == ["clutch: worker api/0", "clutch: zygote api"]


def titled(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\0").decode()


def test_what_runs_in_this_folder_is_found(tmp_path: Path) -> None:
    with Server(tmp_path, POOL + FRONTS) as server:
        server.wait_ready("api")
        (tmp_path / "clutch.toml").unlink()
        assert "api: ready" in clutch("ps", cwd=tmp_path).stdout
        assert clutch("call", "api.pid", cwd=tmp_path).stdout == f"{worker_pid(server)}\n"


def test_a_call_finds_address_and_token(tmp_path: Path) -> None:
    with Server(tmp_path, POOL + with_http_option('token = "s3cret"')) as server:
        server.wait_ready("api")
        assert clutch("call", "api.pid", cwd=tmp_path).stdout == f"{worker_pid(server)}\n"
