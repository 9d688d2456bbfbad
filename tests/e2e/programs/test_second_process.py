"""What the tests of tests/unit cannot see, as it takes a second process."""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import select
import subprocess
import sys
import time
from pathlib import Path
from typing import cast

import pytest
from benches.hostile.server import answers_tcp, module, running

from clutch import _core, config
from clutch.errors import ConfigError, Problem
from clutch.lab import watching
from support.rendezvous import WAIT_SECONDS


def test_a_fork_shares_it() -> None:
    flag = mmap.mmap(-1, 1)
    if (child := os.fork()) == 0:
        os._exit(_core.test_and_set(flag))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert _core.test_and_set(flag)


def test_multiprocessing_is_not_imported_for_an_error_that_nobody_asks_for() -> None:
    code = "import sys, clutch, clutch.pool; sys.exit('multiprocessing' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


FORKED = """
import os
from clutch._dispatcher import logs

logs.set_up("text", "info")
queued = logs.Queued()
queued.start()
logs.info("from the parent")
if os.fork() == 0:
    logs.info("from the copy")
    os._exit(0)
_, status = os.wait()
print(status, queued.finish(30.0))
"""


def test_a_copy_of_the_process_logs_directly(tmp_path: Path) -> None:
    command = [sys.executable, "-W", "ignore", "-c", FORKED]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=WAIT_SECONDS)
    assert done.stdout == "0 True\n", done.stderr
    assert sorted(line.split(maxsplit=2)[2] for line in done.stderr.splitlines()) == [
        "from the copy",
        "from the parent",
    ]


BUSY_THREAD = """
import threading, time
def work():
    while time.thread_time() < 0.05: pass
thread = threading.Thread(target=work)
thread.start()
thread.join()
print("done", flush=True)
input()
"""


def test_cpu_time_counts_threads_that_have_ended_and_no_process_that_has() -> None:
    command = [sys.executable, "-c", BUSY_THREAD]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin and process.stdout
        before = time.process_time()
        assert process.stdout.readline()
        assert watching.cpu_s(process.pid) >= 0.05
        assert watching.cpu_s(os.getpid()) >= before
        process.stdin.close()
        process.wait()
        assert watching.cpu_s(process.pid) == 0


def test_a_server_that_does_not_start_shows_what_it_printed() -> None:
    server = module("broken", "benches.no_such_module", "{port}")
    with pytest.raises(RuntimeError, match="No module named"), running(server, lambda port: False):
        pass


def test_nothing_is_left_of_a_server_that_was_stopped() -> None:
    with contextlib.ExitStack() as opened:
        # A process of its own has answered: it is one of them.
        with running(module("plain", "clutch.lab.samples.tcp", "process", "{port}"), answers_tcp) as answering:
            pids = [os.pidfd_open(pid) for pid in watching.below(answering.pid)]
            for pidfd in pids:
                opened.callback(os.close, pidfd)
        assert len(pids) > 1
        for pidfd in pids:
            assert select.select([pidfd], [], [], 10)[0], "a process outlived its server"


def pool_on(folder: Path, python: str) -> Path:
    file = folder / "clutch.toml"
    file.write_text(f'[pools.api]\ntarget = "json"\npython = "{python}"\n')
    return file


def test_python_is_relative_to_the_folder_of_the_config(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").symlink_to(sys.executable)
    pool = config.load(pool_on(tmp_path, "bin/python")).pools[0]
    assert pool.core["python"] == str(tmp_path / "bin" / "python"), "the link itself, not what it points to"


def test_an_executable_that_is_no_python(tmp_path: Path) -> None:
    assert "does not run" in problem_of(pool_on(tmp_path, "/bin/false")).what
    assert "as a Python" in problem_of(pool_on(tmp_path, "/bin/echo")).what


def problem_of(file: Path) -> Problem:
    with pytest.raises(ConfigError) as caught:
        config.load(file)
    (problem,) = caught.value.problems
    assert problem.place == "pools.api.python"
    return problem


UNCAUGHT = """
import sys, threading
from clutch._worker.json_lines import write_tracebacks
from clutch._worker.tracebacks import print_at_once
print_at_once()
write_tracebacks(sys.stderr)
class Broken:
    def __del__(self):
        raise ValueError("in del")
def fail():
    raise KeyError("in a thread")
thread = threading.Thread(target=fail, name="t")
thread.start()
thread.join()
Broken()
raise RuntimeError("in main")
"""


def test_what_nobody_catches_is_one_record_each() -> None:
    ended = subprocess.run([sys.executable, "-c", UNCAUGHT], stderr=subprocess.PIPE, env=os.environ, check=False)
    messages = [cast(str, json.loads(line)["message"]) for line in ended.stderr.splitlines()]
    in_thread, in_del, in_main = messages
    assert in_thread == "Exception in thread t: KeyError: 'in a thread'"
    assert in_del.startswith("Exception ignored in: <function Broken.__del__") and in_del.endswith("ValueError: in del")
    assert in_main == "RuntimeError: in main"
