"""Programs with pools under the commands: found by `clutch ps`, and by nobody when they are over, killed or copies."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from clutch.control import sockets as control_sockets
from support.clutch_process import FRONTS, WAIT_SECONDS, Dispatcher, Server, clutch, environment, soon

PROGRAM = """
import os, sys, threading, time
from clutch import Pool

def spin(name):
    while True:
        time.sleep(0.01)

def sockets(_=None):
    from clutch.control import sockets as control_sockets
    return sorted(path.name for path in control_sockets.folder().glob("*.sock"))

def begun(pool, *others):
    future = pool.submit(spin, pool.name)
    while not any(pool.running().values()):
        time.sleep(0.01)
    return future

def say(*what):
    print(" ".join(map(str, what)) + "\\n", end="", flush=True)  # one write: two processes say something
"""
SERVER = f'[pools.api]\ntarget = "http_tools"\nworkers = 1\n{FRONTS}'


@pytest.fixture(autouse=True)
def _own_runtime_folder(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path_factory.mktemp("run")))


class Program(Dispatcher):
    """A script that goes on when a line comes."""

    def __init__(self, folder: Path, text: str, **more: Any) -> None:
        body = "\n".join(f"    {line}" for line in text.strip().splitlines())
        (folder / "report.py").write_text(f'{PROGRAM}\nif __name__ == "__main__":\n{body}\n')
        super().__init__(folder, [sys.executable, "report.py"], subprocess.PIPE, **more)

    def go_on(self) -> None:
        assert self.process.stdin is not None
        print(file=self.process.stdin, flush=True)


def run(folder: Path, text: str, **more: Any) -> subprocess.CompletedProcess[str]:
    with Program(folder, text, **more) as program:
        code = program.wait()
        return subprocess.CompletedProcess("report.py", code, program.out.text, program.err.text)


def sockets() -> list[str]:
    return sorted(path.name for path in control_sockets.folder().glob("*.sock"))


def ps(folder: Path, *arguments: str) -> dict[str, Any]:
    done = clutch("ps", "--json", *arguments, cwd=folder)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


TWO = """
with Pool(1, name="work") as one, Pool(1, name="work") as other:
    futures = [begun(one), begun(other)]
    say("there")
    input()
    for future in futures:
        future.cancel()
    one.terminate_workers(), other.terminate_workers()
say("closed", sockets())
"""


def test_two_pools_of_one_name_are_told_apart(tmp_path: Path) -> None:
    with Program(tmp_path, TWO) as program:
        program.out.wait("there")
        found = ps(tmp_path)
        script = str(tmp_path / "report.py")
        assert (found["pid"], found["config"], found["is_program"]) == (program.process.pid, script, True)
        assert [pool["name"] for pool in found["pools"]] == ["work", "work-2"]
        assert [pool["workers"][0]["running"][0]["what"] for pool in found["pools"]] == ["spin", "spin"]
        assert ps(tmp_path.parent, "--pid", str(program.process.pid))["config"] == script
        text = clutch("ps", cwd=tmp_path).stdout
        assert text.startswith(f"pid {program.process.pid}, {script}, for ") and "\n  work-2/0 " in text
        call = str(found["pools"][1]["workers"][0]["running"][0]["id"])
        assert "in spin" in clutch("stack", "work-2/0", cwd=tmp_path).stdout
        assert clutch("cancel", call, cwd=tmp_path).returncode == 1, "both have it"
        assert clutch("cancel", call, "--pool=work-2", cwd=tmp_path).returncode == 0
        soon(lambda: [bool(pool["workers"][0]["running"]) for pool in ps(tmp_path)["pools"]] == [True, False])
        program.go_on()
        assert program.wait() == 0
        assert program.out.lines[-1] == "closed []" and program.err.text == ""


def test_commands_of_a_program(tmp_path: Path) -> None:
    text = """
with Pool(1, name="work") as pool:
    pool.wait_ready()
    say("there")
    input()
    print(pool.call(abs, -1))
"""
    with Program(tmp_path, text) as program:
        program.out.wait("there")
        assert clutch("scale", "work", "2", cwd=tmp_path).stdout == "work: 2 workers\n"
        soon(lambda: ps(tmp_path)["pools"][0]["ready"] == 2)
        before = [worker["pid"] for worker in ps(tmp_path)["pools"][0]["workers"]]
        assert clutch("recycle", "work", cwd=tmp_path).stdout == "work: recycled\n"
        assert not set(before) & {worker["pid"] for worker in ps(tmp_path)["pools"][0]["workers"]}
        assert clutch("drain", cwd=tmp_path).stdout == "work: takes no more work\n"
        assert ps(tmp_path)["pools"][0]["state"] == "draining"
        assert clutch("drain", "--resume", cwd=tmp_path).returncode == 0
        for command, instead in ((["reload"], "reload() of the pool"), (["stop", "--now"], "to end the program: kill")):
            done = clutch(*command, cwd=tmp_path)
            said = f"the program {tmp_path / 'report.py'}"
            assert (done.returncode, said in done.stderr, instead in done.stderr) == (1, True, True), done.stderr
        program.go_on()
        assert (program.wait(), program.out.lines[-1], program.err.text) == (0, "1", "")


WAITS = 'pool = Pool(1)\npool.wait_ready()\nsay("there")\ninput()'


def test_beside_a_server_and_another_program(tmp_path: Path) -> None:
    with Server(tmp_path, SERVER) as server, Program(tmp_path, WAITS) as one, Program(tmp_path, WAITS) as two:
        server.wait_ready("api")
        one.out.wait("there")
        two.out.wait("there")
        heads = [line for line in clutch("ps", cwd=tmp_path).stdout.splitlines() if line.startswith("pid ")]
        pids = [int(head.split()[1].rstrip(",")) for head in heads]
        assert pids[0] == server.process.pid, "the server is the first"
        assert sorted(pids[1:]) == sorted([one.process.pid, two.process.pid])
        assert ps(tmp_path)["pid"] == server.process.pid
        assert ps(tmp_path, "--pid", str(two.process.pid))["pid"] == two.process.pid
        assert clutch("drain", cwd=tmp_path).stdout == "api: takes no more work\n", "the server is meant"
        done = clutch("cancel", "7", cwd=tmp_path)
        assert (done.returncode, "--pid" in done.stderr) == (2, True), "any of them may have a call of this number"
        assert all(f"pid {pid}: " in done.stderr for pid in pids), done.stderr
        server.terminate()
        server.wait()
        (tmp_path / "clutch.toml").unlink()
        done = clutch("drain", cwd=tmp_path)
        assert (done.returncode, f"pid {two.process.pid}: {tmp_path / 'report.py'}" in done.stderr) == (2, True)


def test_what_a_killed_program_left_is_passed_over(tmp_path: Path) -> None:
    with Program(tmp_path, WAITS) as program:
        program.out.wait("there")
        with program.below() as processes:
            program.process.kill()
            program.process.wait(WAIT_SECONDS)
            processes.wait_ended()
    assert len(sockets()) == 1
    done = clutch("ps", cwd=tmp_path)
    assert (done.returncode, "no server or program was started in this folder" in done.stderr) == (1, True)
    with Program(tmp_path, WAITS) as program:
        program.out.wait("there")
        assert ps(tmp_path)["pid"] == program.process.pid
        assert len(sockets()) == 1, "the one that was left has gone"


FORKS = """
pool = Pool(1)
pool.wait_ready()
reading, writing = os.pipe()
child = os.fork()
if child == 0:
    os.close(writing)
    HOW
os.close(reading)
say("child", child)
if not KEEPS:
    os.waitpid(child, 0)
say("there")
input()
"""


@pytest.mark.parametrize("how", ["sys.exit()", "pool.shutdown(); os._exit(0)", "Pool(1).shutdown(); sys.exit()"])
def test_a_fork_that_ends_leaves_the_socket_alone(tmp_path: Path, how: str) -> None:
    with Program(tmp_path, FORKS.replace("HOW", how).replace("KEEPS", "False")) as program:
        program.out.wait("there")
        assert ps(tmp_path)["pid"] == program.process.pid
        assert len(sockets()) == 1
        program.go_on()
        assert (program.wait(), sockets()) == (0, [])


def test_a_fork_that_lives_on_does_not_serve_it(tmp_path: Path) -> None:
    """The child has no copy of the listener either: else its parent would seem to live, and never answer."""
    text = FORKS.replace("HOW", "say('waits'); os.read(reading, 1); os._exit(0)").replace("KEEPS", "True")
    with Program(tmp_path, text) as program:
        child = int(program.out.wait(r"child (\d+)")[1])
        program.out.wait("waits")
        (name,) = sockets()
        mine, theirs = listening(program.process.pid), listening(child)
        assert len(mine) == 1, mine
        assert theirs == [], "the copy of the listener is closed"
        assert clutch("ps", "--pid", str(child), cwd=tmp_path).returncode == 1
        program.process.kill()
        program.process.wait(WAIT_SECONDS)
        assert sockets() == [name]
        assert clutch("ps", cwd=tmp_path).returncode == 1


def listening(pid: int) -> list[str]:
    """Sockets of ours that the process has open and that listen."""
    lines = Path("/proc/net/unix").read_text().splitlines()[1:]
    bound = {fields[6]: fields[7] for fields in map(str.split, lines) if len(fields) > 7 and fields[3] == "00010000"}
    found = []
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        link = os.readlink(entry)
        if (
            link.startswith("socket:[")
            and (path := bound.get(link[8:-1]))
            and path.startswith(str(control_sockets.folder()))
        ):
            found.append(path)
    return found


def test_a_daemon_that_forks_first_is_found_and_one_that_forks_later_has_its_own(tmp_path: Path) -> None:
    text = """
with Pool(1) as before:
    before.wait_ready()
    if os.fork() == 0:
        with Pool(1, name="later") as pool:
            pool.wait_ready()
            say("child", os.getpid())
            input()
        os._exit(0)
    os.wait()
    say("parent", sockets())
"""
    with Program(tmp_path, text) as program:
        child = int(program.out.wait(r"child (\d+)")[1])
        assert len(sockets()) == 2
        assert [pool["name"] for pool in ps(tmp_path, "--pid", str(child))["pools"]] == ["later"]
        assert [pool["name"] for pool in ps(tmp_path, "--pid", str(program.process.pid))["pools"]] == ["pool"]
        program.go_on()
        assert program.wait() == 0
        assert str(program.process.pid) in program.out.wait("parent.*")[0]
    assert sockets() == []


NESTED = """
from clutch import tool

@tool
def nested():
    with Pool(1) as pool:
        assert pool.call(abs, -1) == 1
        return sockets()
"""


@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_workers_never_open_one(tmp_path: Path, start: str) -> None:
    (tmp_path / "nesting.py").write_text(f"{PROGRAM}\n{NESTED}")
    done = run(tmp_path, f'with Pool("nesting", workers=1, start="{start}") as pool:\n    say(pool.call("nested"))')
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(".sock") == 1, "that of the program alone"


@pytest.mark.parametrize(
    "ending",
    ["", "sys.exit(3)", "pool.shutdown(wait=False)", "del pool", "raise ValueError", "pool.kill_workers()"],
)
def test_the_file_goes_with_the_program(tmp_path: Path, ending: str) -> None:
    done = run(tmp_path, f"pool = Pool(1)\npool.submit(abs, -1)\nsay(len(sockets()))\n{ending}")
    assert done.stdout == "1"
    assert sockets() == []


@pytest.mark.parametrize("ending", ["pool.shutdown(wait=False)", "del pool", "pool.kill_workers(); pool.shutdown()"])
def test_it_goes_with_the_last_pool_though_nobody_waits_for_its_end(tmp_path: Path, ending: str) -> None:
    text = f"pool = Pool(1)\npool.wait_ready()\npool.submit(time.sleep, 0.2)\n{ending}\nsay('over')\ninput()"
    with Program(tmp_path, text) as program:
        program.out.wait("over")
        soon(lambda: sockets() == [])
        program.go_on()
        assert (program.wait(), program.err.text) == (0, "")


def test_work_that_is_finished_at_the_exit_is_shown(tmp_path: Path) -> None:
    text = """
pool = Pool(1, name="last")
pool.submit(wait_for, "go")
say("at the end")
"""
    (tmp_path / "go").touch()
    waiting = "def wait_for(name):\n    while os.path.exists(name):\n        time.sleep(0.01)\n"
    (tmp_path / "report.py").write_text(f'{PROGRAM}\n{waiting}\nif __name__ == "__main__":\n{indented(text)}\n')
    with Dispatcher(tmp_path, [sys.executable, "report.py"]) as program:
        program.out.wait("at the end")
        soon(lambda: [one["what"] for worker in last_workers(tmp_path) for one in worker["running"]] == ["wait_for"])
        (tmp_path / "go").unlink()
        assert (program.wait(), program.err.text, sockets()) == (0, "", [])


def last_workers(folder: Path) -> list[dict[str, Any]]:
    (pool,) = ps(folder)["pools"]
    return pool["workers"]


def indented(text: str) -> str:
    return "\n".join(f"    {line}" for line in text.strip().splitlines())


ONE_CALL = "with Pool(1) as pool:\n    say(pool.call(abs, -1), len(sockets()))"


def test_it_is_turned_off(tmp_path: Path) -> None:
    done = run(tmp_path, ONE_CALL, env={**environment(), "CLUTCH_CONTROL": "off"})
    assert (done.returncode, done.stdout, done.stderr) == (0, "1 0", "")


@pytest.mark.parametrize("how", [["control = 'off'\n"], ["", "--control", "off"]])
def test_it_is_turned_off_for_a_server(tmp_path: Path, how: list[str]) -> None:
    with Server(tmp_path, how[0] + SERVER, *how[1:]) as server:
        server.wait_ready("api")
        assert sockets() == [] and not (tmp_path / "off").exists()
        with Program(tmp_path, WAITS) as program:
            program.out.wait("there")
            assert ps(tmp_path)["pid"] == program.process.pid


def closed_to_us(folder: Path) -> None:
    folder.chmod(0o777)


def a_file(folder: Path) -> None:
    folder.rmdir()
    folder.write_text("")


@pytest.mark.parametrize("spoil", [closed_to_us, a_file])
def test_a_program_that_can_have_none_works_and_says_nothing(tmp_path: Path, spoil: Callable[[Path], None]) -> None:
    control_sockets.folder().mkdir(mode=0o700)
    spoil(control_sockets.folder())
    done = run(tmp_path, "with Pool(1) as pool:\n    say(pool.call(abs, -1))")
    assert (done.returncode, done.stdout, done.stderr) == (0, "1", "")
    text = "import logging; logging.basicConfig(level='DEBUG')\nwith Pool(1) as pool:\n    say(pool.call(abs, -1))"
    assert "no control socket, so `clutch ps`" in run(tmp_path, text).stderr


NO_SCRIPT = """
from clutch import Pool
pool = Pool(1)
print(pool.call(abs, -1), flush=True)
input() if {waits} else None
"""


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        (["-c", NO_SCRIPT.format(waits=True)], "python -c"),
        (["-i", "-c", NO_SCRIPT.format(waits=True)], "an interactive Python"),
        (["-m", "package"], "python -m package"),
        (["package"], "{}/package/__main__.py"),
    ],
)
def test_programs_without_a_script(tmp_path: Path, arguments: list[str], name: str) -> None:
    (tmp_path / "package").mkdir()
    body = f"if __name__ == '__main__':\n{indented(NO_SCRIPT.format(waits=True))}\n"
    (tmp_path / "package/__main__.py").write_text(body)
    with Dispatcher(tmp_path, [sys.executable, *arguments], subprocess.PIPE) as program:
        program.out.wait("1")
        assert ps(tmp_path)["config"] == name.format(tmp_path)


def test_an_app_that_a_program_serves(tmp_path: Path) -> None:
    (tmp_path / "web.py").write_text("def app(environ, start):\n    start('200 OK', [])\n    return [b'']\n")
    text = "import clutch\nwith clutch.serving('web:app', port=0, workers=1):\n    say('there')\n    input()"
    with Program(tmp_path, text) as program:
        program.out.wait("there")
        found = ps(tmp_path)
        assert (found["is_program"], [pool["name"] for pool in found["pools"]]) == (True, ["web"])
        program.go_on()
        assert (program.wait(), sockets()) == (0, [])


def test_a_program_that_gevent_has_patched_is_found_and_ends_by_itself(tmp_path: Path) -> None:
    """Its threads are greenlets, and it waits for all of them."""
    text = f"from gevent import monkey; monkey.patch_all()\n{PROGRAM}\nimport gevent\n"
    (tmp_path / "report.py").write_text(
        f"{text}if __name__ == '__main__':\n    with Pool(1) as pool:\n"
        "        say(pool.call(abs, -1), len(sockets()))\n        gevent.wait()\n"
    )
    with Dispatcher(tmp_path, [sys.executable, "report.py"]) as program:
        assert (program.wait(), program.out.text) == (0, "1 1"), program.err.text


FORKED = """
with Pool(1) as pool:
    pool.call(abs, -1)
    say("there")
    input()
    pid = os.fork()
    if pid == 0:
        time.sleep(60)
        os._exit(0)
    say("child", pid)
    input()
"""


def test_a_client_sees_the_end_of_a_program_whose_copy_lives_on(tmp_path: Path) -> None:
    with Program(tmp_path, FORKED) as program:
        program.out.wait("there")
        (path,) = control_sockets.all_of_user()
        with socket.socket(socket.AF_UNIX) as events:
            events.settimeout(WAIT_SECONDS)
            events.connect(str(path))
            events.sendall(b"GET /events HTTP/1.1\r\nHost: clutch\r\n\r\n")
            assert b"200 OK" in events.recv(1 << 16)
            program.go_on()
            child = int(program.out.wait(r"child (\d+)")[1])
            try:
                program.process.kill()
                while events.recv(1 << 16):
                    pass
            finally:
                os.kill(child, signal.SIGKILL)
