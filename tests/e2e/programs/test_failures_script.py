"""Pools in programs of every form: scripts, modules, folders, prompts; Ctrl-C; pools within pools."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from clutch.testing import Processes
from support.clutch_process import WAIT_SECONDS, environment
from support.rendezvous import Rendezvous
from support.script_process import Script, run_script

pytestmark = pytest.mark.timeout(120)

DEFINITIONS = """
import os, sys
from dataclasses import dataclass
from clutch import Pool

@dataclass
class Point:
    x: int

def increment(value):
    return value + 1

def moved(point):
    return Point(point.x + 1)

def apply(function, value):
    return function(value)

def argument():
    return sys.argv[1]

def use():
    with Pool(workers=2) as pool:
        print(pool.call(increment, 1), list(pool.map(increment, [2, 3])), pool.submit(increment, 4).result())
        print(pool.call(moved, Point(5)) == Point(6), pool.call(apply, increment, 6))
        print(pool.call(lambda: increment(7)), list(pool.stream(lambda: (increment(n) for n in [8]))))
        print(pool.call(argument))
"""
PRINTS = ["2 [3, 4] 5", "True 7", "8 [9]", "argument"]
GUARDED = f"{DEFINITIONS}\nassert sys.argv[1] == 'argument'\nif __name__ == '__main__':\n    use()\n"


def check(done: subprocess.CompletedProcess[str]) -> None:
    assert done.stdout.splitlines() == PRINTS, done.stderr
    assert (done.stderr, done.returncode) == ("", 0)


def run(folder: Path, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *arguments]
    return subprocess.run(
        command, cwd=folder, env=environment(), capture_output=True, text=True, timeout=WAIT_SECONDS, **more
    )


def test_a_script(tmp_path: Path) -> None:
    check(run_script(tmp_path, GUARDED, "argument"))


@pytest.mark.parametrize("name", ["app.main", "app"])
def test_a_module(tmp_path: Path, name: str) -> None:
    (tmp_path / "app").mkdir()
    for file in ("__init__.py", "main.py", "__main__.py"):
        (tmp_path / "app" / file).write_text("" if file == "__init__.py" else GUARDED)
    check(run(tmp_path, "-m", name, "argument"))


def test_a_folder(tmp_path: Path) -> None:
    (tmp_path / "app").mkdir()
    (tmp_path / "app/__main__.py").write_text(GUARDED)
    check(run(tmp_path, "app", "argument"))


def test_standard_input_and_a_command(tmp_path: Path) -> None:
    """As a notebook: there is no file, so code travels by value and needs no guard."""
    check(run(tmp_path, "-", "argument", input=DEFINITIONS + "\nuse()\n"))
    check(run(tmp_path, "-c", DEFINITIONS + "\nuse()\n", "argument"))


def test_a_prompt(tmp_path: Path) -> None:
    lines = [
        "from clutch import Pool",
        "def f(x):",
        "    return x + 1",
        "",
        "pool = Pool(workers=1)",
        "pool.call(f, 41)",
    ]
    done = run(tmp_path, "-i", "-q", input="\n".join([*lines, ""]))
    assert "42" in done.stdout, done.stderr
    assert done.returncode == 0 and "Traceback" not in done.stderr


def test_what_was_submitted_is_done_though_a_line_before_was_interrupted(tmp_path: Path) -> None:
    lines = [
        "import pathlib",
        "from clutch import Pool",
        "pool = Pool(workers=1)",
        "raise KeyboardInterrupt",
        "submitted = pool.submit(pathlib.Path.write_text, pathlib.Path('done'), 'yes')",
    ]
    done = run(tmp_path, "-i", "-q", input="\n".join([*lines, ""]))
    assert (tmp_path / "done").read_text() == "yes", done.stderr


def test_a_script_that_fails_in_workers_only(tmp_path: Path) -> None:
    text = f"{DEFINITIONS}\nif __name__ != '__main__':\n    raise ValueError('in workers only')\nuse()\n"
    done = run_script(tmp_path, text)
    assert done.returncode == 1
    assert "ConfigError" in done.stderr and "in workers only" in done.stderr and "script.py" in done.stderr


def test_without_a_guard_nothing_recurses(tmp_path: Path) -> None:
    with Script(tmp_path, f"{DEFINITIONS}\nuse()\n", "argument") as script:
        assert script.process.wait(WAIT_SECONDS) == 1
        text = script.err.wait_end()
    assert 'if __name__ == "__main__":' in text
    assert text.count("RuntimeError: ") <= 2


INTERRUPTED = """
import asyncio, harmful_tools, sys
from clutch import Pool

def call(pool, port):
    pool.call("visit", port)

def result(pool, port):
    pool.submit("visit", port).result()

def several(pool, port):
    list(pool.map("visit", [port] * 10))

def stream(pool, port):
    list(pool.stream(lambda: (harmful_tools.visit(port) for _ in range(2))))

def leave(pool, port):
    pool.submit("visit", port)

async def wait(port):
    async with Pool("harmful_tools", workers=1) as pool:
        await pool.submit("visit", port)

if __name__ == "__main__":
    how, port = sys.argv[1], int(sys.argv[2])
    if how == "wait":
        asyncio.run(wait(port))
    elif how.startswith("no_with_"):
        pool = Pool("harmful_tools", workers=1)
        globals()[how.removeprefix("no_with_")](pool, port)
    else:
        with Pool("harmful_tools", workers=1) as pool:
            globals()[how](pool, port)
"""
WAYS = ["call", "result", "several", "stream", "leave", "wait", "no_with_call", "no_with_result", "no_with_leave"]


@pytest.mark.parametrize("how", WAYS)
def test_failure_07_one_ctrl_c_ends_a_program(tmp_path: Path, rendezvous: Rendezvous, how: str) -> None:
    """The terminal sends it to the whole group; workers have groups of their own and take no notice."""
    (tmp_path / "script.py").write_text(INTERRUPTED)
    process = subprocess.Popen(
        [sys.executable, "script.py", how, str(rendezvous.port)],
        cwd=tmp_path,
        env=environment(),
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    guest = rendezvous.guest()
    with Processes.below(process.pid) as processes:
        os.killpg(process.pid, signal.SIGINT)
        _, text = process.communicate(timeout=WAIT_SECONDS)
        assert processes.alive(2.0) == []
    guest.wait_gone()
    assert process.returncode in (-signal.SIGINT, 1, 0)
    assert "[pool/" not in text, "no tracebacks from workers"
    assert "Exception ignored" not in text


def test_a_tool_may_have_a_pool_of_its_own(tmp_path: Path, rendezvous: Rendezvous) -> None:
    text = """
import sys
from clutch import Pool

def outer(port):
    with Pool("harmful_tools", workers=2) as inner:
        return inner.call("echo", 1), inner.call("visit", port)

if __name__ == "__main__":
    with Pool(workers=1) as pool:
        print("first", pool.call(outer, int(sys.argv[1])), flush=True)
        print("second", pool.call(outer, int(sys.argv[1])))
"""
    with Script(tmp_path, text, str(rendezvous.port)) as script:
        rendezvous.guest().let_go("w")
        script.hear(r"first \(1, 'w'\)")
        inner = rendezvous.guest()
        with script.below() as processes:
            assert inner.pid in processes.pids and len(processes.pids) >= 5
            script.kill()
            assert processes.alive(2.0) == []
