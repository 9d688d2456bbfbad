"""Failures 58, 61, 62 and 65: zygotes that are stopped, hang or leave something; signals; links that break."""

from __future__ import annotations

import errno
import os
import re
import signal
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from test_failures_process_tree import wait_none_with

from clutch import Pool, WorkerLost
from clutch._worker.zygote import advice
from clutch.testing import Processes, Watch
from support.rendezvous import Rendezvous
from support.script_process import Script, run_script

pytestmark = pytest.mark.timeout(120)
START_TIMEOUT_SECONDS = 5.0
STATUS_SECONDS_MAX = 0.5
"""How long the dispatcher waits for a zygote to tell how a worker ended."""
SLOW_MACHINE_SECONDS = 1.5
INITARGS_BYTES = 20 << 20


@pytest.fixture
def mark(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Is in the environment of whatever is started from now on; nothing of that is left in the end."""
    mark = f"CLUTCH_TEST_MARK={uuid.uuid4()}"
    monkeypatch.setenv(*mark.split("="))
    yield mark
    wait_none_with(mark)


# A zygote that does not answer.


@pytest.mark.parametrize("end", ["shutdown", "terminate_workers", "kill_workers"])
def test_failure_62_a_pool_with_a_stopped_zygote_ends(rendezvous: Rendezvous, end: str) -> None:
    pool = Pool("harmful_tools", workers=2, grace=0.5, term_grace=0.2)
    pool.wait_ready(timeout=60)
    stats = pool.stats()
    running = None if end == "shutdown" else pool.submit("ignore_term", rendezvous.port)
    if running is not None:
        rendezvous.guest()
    with Processes([stats["zygote_pid"], *(worker["pid"] for worker in stats["workers"])]) as processes:
        os.kill(stats["zygote_pid"], signal.SIGSTOP)
        started = time.monotonic()
        getattr(pool, end)()
        pool.shutdown()
        assert time.monotonic() - started < 0.5 + 0.2 + STATUS_SECONDS_MAX + SLOW_MACHINE_SECONDS
        assert processes.alive(0.5) == []
    if running is not None:
        error = running.exception(0)
        assert isinstance(error, WorkerLost) and "its zygote does not answer" in str(error)


def test_failure_62_a_pool_whose_zygote_is_stopped_while_it_forks_ends(folder: Path, rendezvous: Rendezvous) -> None:
    """What it was told to fork is never heard of."""
    (folder / "written_hangs.py").write_text(HANGS_IN_FORK.format(port=rendezvous.port, first=1))
    pool = Pool("written_hangs", workers=2)
    zygote = rendezvous.guest()
    with Processes([zygote.pid]) as processes:
        os.kill(zygote.pid, signal.SIGSTOP)
        started = time.monotonic()
        pool.kill_workers()
        pool.shutdown()
        assert time.monotonic() - started < STATUS_SECONDS_MAX + SLOW_MACHINE_SECONDS
        assert processes.alive(0.5) == []


def test_failure_62_a_stopped_zygote_is_followed_by_another(events: Watch) -> None:
    with Pool("harmful_tools", workers=2, start_timeout=START_TIMEOUT_SECONDS) as pool:
        pool.wait_ready(timeout=60)
        stats = pool.stats()
        os.kill(stats["zygote_pid"], signal.SIGSTOP)
        for worker in stats["workers"]:
            os.kill(worker["pid"], signal.SIGKILL)
        cause = events.wait("worker_gone", pid=stats["workers"][0]["pid"])["cause"]  # not of a pool before
        assert "its zygote does not answer" in cause
        assert pool.submit("echo", 1).result(30) == 1, "it waited"
        assert pool.stats()["generation"] == 2 and pool.stats()["zygote_pid"] != stats["zygote_pid"]
        assert events.all("pool_failing", pool="pool") == []


HANGS_IN_FORK = """
import os
from clutch import tool
from support import rendezvous

forks = 0

def hang():
    global forks
    forks += 1
    if forks >= {first}:
        rendezvous.meet({port})

os.register_at_fork(before=hang)

@tool
def work():
    return "works"
"""


def test_failure_62_a_hook_before_each_fork_that_hangs(folder: Path, rendezvous: Rendezvous, events: Watch) -> None:
    (folder / "written_hangs.py").write_text(HANGS_IN_FORK.format(port=rendezvous.port, first=2))
    with Pool("written_hangs", workers=1, start_timeout=START_TIMEOUT_SECONDS, recycle={"calls": 5}) as pool:
        worker = pool.call(os.getpid)
        os.kill(worker, signal.SIGKILL)
        hanging = rendezvous.guest()
        waiting = pool.submit("work")
        hanging.wait_gone()
        events.until(lambda: "start_timeout" in (pool.stats()["reason"] or ""))
        assert waiting.result(30) == "works", "the next zygote's first fork does not hang"
        assert pool.stats()["reason"] is None


def test_failure_62_a_hook_that_always_hangs_makes_the_pool_failing(folder: Path, rendezvous: Rendezvous) -> None:
    (folder / "written_hangs.py").write_text(HANGS_IN_FORK.format(port=rendezvous.port, first=1))
    with Pool("written_hangs", workers=1, start_timeout=START_TIMEOUT_SECONDS) as pool:
        with pytest.raises(WorkerLost, match="forked no worker within start_timeout"):
            pool.call("work")
        # The call is answered first.
        while (state := pool.stats()["state"]) == "starting":
            pass
        assert state == "failing"


def test_failure_62_a_worker_that_left_its_group_is_ended_all_the_same() -> None:
    with Pool("harmful_tools", workers=1, grace=0.2, term_grace=0.2) as pool:
        pool.wait_ready(timeout=60)
        zygote = pool.stats()["zygote_pid"]
        assert pool.call(os.setpgid, 0, zygote) is None
        with Processes([pool.call("pid")]) as processes:
            pool.kill_workers()
            assert processes.alive(SLOW_MACHINE_SECONDS) == []


LEAVES_ITS_GROUP = """
import os, sys
from clutch import Pool

if __name__ == "__main__":
    with Pool("harmful_tools", workers=1) as pool:
        pool.wait_ready(timeout=60)
        zygote = pool.stats()["zygote_pid"]
        pool.call(os.setpgid, 0, zygote)
        print("pids", zygote, pool.call("pid"))
        sys.stdin.read()
"""


def test_failure_01_a_worker_that_left_its_group_goes_with_the_dispatcher(tmp_path: Path) -> None:
    with Script(tmp_path, LEAVES_ITS_GROUP) as script:
        zygote, worker = map(int, script.hear("pids (.*)").split())
        with Processes([zygote]) as stopped, Processes([worker]) as alone:
            os.kill(zygote, signal.SIGSTOP)
            script.kill()
            assert alone.alive(2.0) == []
            stopped.send(signal.SIGKILL)


def test_failure_12_a_zygote_that_is_killed_while_it_starts_is_no_mistake_of_the_configuration(folder: Path) -> None:
    (folder / "written_killed.py").write_text(
        f"import os, pathlib\nfrom clutch import tool\nseen = pathlib.Path({str(folder / 'seen')!r})\n"
        "seen.open('a').write('x')\nif seen.stat().st_size < 3:\n    os.kill(os.getpid(), 9)\n"
        "@tool\ndef work():\n    return 'works'\n"
    )
    with Pool("written_killed", workers=1) as pool:
        assert pool.submit("work").result(30) == "works"


def test_failure_12_a_zygote_that_is_killed_again_and_again_is_told_of(folder: Path) -> None:
    (folder / "written_killed.py").write_text("import os\nos.kill(os.getpid(), 9)\n")
    with Pool("written_killed", workers=1) as pool:
        error = pool.submit("work").exception(30)
        assert isinstance(error, WorkerLost) and "killed by signal 9 (SIGKILL)" in str(error)


# What the program has made of its signals.


CHILD_SIGNALS_IGNORED = """
import os, signal, subprocess, sys, time
from clutch import Pool, WorkerLost

def child():
    return subprocess.run([sys.executable, "-c", "raise SystemExit(3)"]).returncode

if __name__ == "__main__":
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    profile, start = sys.argv[1:]
    with Pool("harmful_tools", profile=profile, start=start, workers=2, grace=2) as pool:
        assert pool.call("echo", 1) == 1
        error = pool.submit("exit_with", 7).exception(30)
        assert isinstance(error, WorkerLost) and error.exit_code == 7, error
        assert pool.call(child) == 3
        for number in range(100):
            assert pool.call("echo", number) == number
    print("closed")
"""


@pytest.mark.parametrize("start", ["fork", "spawn"])
@pytest.mark.parametrize("profile", ["process", "async"])
def test_failure_61_child_signals_are_ignored(tmp_path: Path, profile: str, start: str) -> None:
    done = run_script(tmp_path, CHILD_SIGNALS_IGNORED, profile, start)
    assert done.stdout.splitlines()[-1:] == ["closed"], done.stderr


def test_failure_61_the_target_ignores_child_signals(folder: Path) -> None:
    (folder / "written_ignores.py").write_text(
        "import os, signal\nfrom clutch import tool\nsignal.signal(signal.SIGCHLD, signal.SIG_IGN)\n"
        "@tool\ndef leave():\n    os._exit(7)\n"
    )
    with Pool("written_ignores", workers=1) as pool:
        error = pool.submit("leave").exception(30)
        assert isinstance(error, WorkerLost) and error.exit_code == 7


# What it is told, and what it leaves.


def size_kept() -> int:
    return size_given


def keep_size(data: bytes) -> None:
    global size_given
    size_given = len(data)


@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_failure_58_large_arguments_of_the_initializer(start: str) -> None:
    with Pool(workers=1, initializer=keep_size, initargs=(bytes(INITARGS_BYTES),), start=start) as pool:
        assert pool.call(size_kept) == INITARGS_BYTES


def test_the_environment_arrives_as_it_was_when_the_pool_was_made(monkeypatch: pytest.MonkeyPatch) -> None:
    odd = b"no UTF-8: \xff"
    monkeypatch.setitem(os.environb, b"CLUTCH_TEST_ODD", odd)
    with Pool(workers=1, env={"CLUTCH_TEST_GIVEN": "given"}) as pool:
        os.environb[b"CLUTCH_TEST_ODD"] = b"later"
        assert pool.call(os.getenvb, b"CLUTCH_TEST_ODD") == odd
        assert pool.call(os.getenv, "CLUTCH_TEST_GIVEN") == "given"


MULTIPROCESSING_AT_IMPORT = """
import multiprocessing, os
from clutch import tool
others = multiprocessing.get_context("fork").Pool(2)
{then}
@tool
def work():
    return "works"
"""


@pytest.mark.parametrize("then", ["", "raise ValueError('broken')", "os._exit(0)"])
def test_failure_02_a_multiprocessing_pool_made_by_an_import_goes_too(folder: Path, mark: str, then: str) -> None:
    (folder / "written_pools.py").write_text(MULTIPROCESSING_AT_IMPORT.format(then=then))
    for _ in range(3):
        pool = Pool("written_pools", workers=1)
        found = pool.submit("work").exception(30)
        assert (found is None) == (not then)
        pool.shutdown()
        wait_none_with(mark)


# Closed descriptors would end the process in debug builds, whose standard library holds them to be its own.
REPLACES_ITS_POLLERS = """
import os, time
from contextlib import suppress
from clutch import ClutchError, Pool

if __name__ == "__main__":
    with Pool("harmful_tools", workers=2) as pool:
        pool.wait_ready(timeout=60)
        running = pool.submit(time.sleep, 3600)
        null = os.open(os.devnull, os.O_RDWR)
        for fd in os.listdir("/proc/self/fd"):
            try:
                if "eventpoll" in os.readlink(f"/proc/self/fd/{fd}"):
                    os.dup2(null, int(fd), inheritable=False)
            except FileNotFoundError:
                continue
        waiting = []
        with suppress(ClutchError):  # it may have closed by now
            for number in range(10):
                waiting.append(pool.submit("echo", number))
        for future in [running, *waiting]:
            error = future.exception(30)
            print(type(error).__name__, error)
    print("closed")
"""


def test_a_pool_that_cannot_watch_its_workers_any_more_says_so_and_closes(tmp_path: Path) -> None:
    done = run_script(tmp_path, REPLACES_ITS_POLLERS)
    assert "cannot watch its workers any more: Invalid argument" in done.stdout, done.stderr
    assert done.stdout.splitlines()[-1] == "closed"


BREAKS_ITS_LINK = """
import os, socket, stat
from clutch import tool

@tool
def babble():
    for fd in map(int, os.listdir("/proc/self/fd")):
        try:
            is_socket = stat.S_ISSOCK(os.fstat(fd).st_mode)
        except OSError:
            continue
        if is_socket:
            link = socket.socket(fileno=os.dup(fd))
            if link.family == socket.AF_UNIX and link.type & socket.SOCK_SEQPACKET == socket.SOCK_SEQPACKET:
                link.send(bytes([255]) * 64)
    while True:
        pass
"""


@pytest.mark.parametrize("profile", ["process", "thread", "async"])
def test_failure_65_the_reason_of_a_broken_link_is_told(folder: Path, profile: str) -> None:
    (folder / "written_babbles.py").write_text(BREAKS_ITS_LINK)
    with Pool("written_babbles", profile=profile, workers=1) as pool:
        error = pool.submit("babble").exception(30)
        assert isinstance(error, WorkerLost) and "its link broke" in str(error), error
        assert error.cause is None, "it was its own fault"
        assert pool.submit(abs, -1).result(30) == 1


CLOSES_ITS_LINK = """
import os, threading
from clutch import tool

@tool
def daemonize():
    os.closerange(3, 256)
"""


@pytest.mark.parametrize("profile", ["process", "thread", "async", "greenlet"])
def test_failure_65_code_closes_its_workers_descriptors(folder: Path, profile: str) -> None:
    """Whatever other thread waits at the link meanwhile."""
    (folder / "written_daemonizes.py").write_text(CLOSES_ITS_LINK)
    for _ in range(3):
        with Pool("written_daemonizes", profile=profile, workers=1) as pool:
            pool.wait_ready(timeout=60)
            assert isinstance(pool.submit("daemonize").exception(30), WorkerLost | None)
            assert pool.submit(abs, -1).result(30) == 1


def test_workers_that_are_not_forked_yet_have_no_pid(folder: Path, rendezvous: Rendezvous) -> None:
    (folder / "written_hangs.py").write_text(HANGS_IN_FORK.format(port=rendezvous.port, first=1))
    with Pool("written_hangs", workers=2) as pool:
        zygote = rendezvous.guest()
        workers = pool.stats()["workers"]
        assert [worker["pid"] for worker in workers] == [None, None]
        assert Processes(worker["pid"] for worker in workers).pids == []
        zygote.let_go()
        rendezvous.guest().let_go()
        pool.wait_ready(timeout=60)
        assert all(worker["pid"] > 1 for worker in pool.stats()["workers"])


def test_a_fork_that_fails_for_want_of_processes_names_the_limits() -> None:
    told = advice(BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN)))
    assert re.search(r"ulimit -u is (\d+|unlimited), pids.max of the cgroup (\d+|unlimited)", told)
    assert advice(OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))) == ""
