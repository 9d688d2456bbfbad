"""The end of a program whose futures end at the last moment: their callbacks are called, and nothing breaks it off."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from clutch.testing import Processes
from support.clutch_process import environment
from support.script_process import Script

pytestmark = pytest.mark.timeout(120)

SCRIPT = """
import time
from clutch import Pool
if __name__ == "__main__":
    called = []
    with Pool(2) as pool:
        futures = [pool.submit(time.sleep, 600) for _ in range(40)]
        for future in futures:
            future.add_done_callback(lambda _: called.append(1))
        pool.wait_ready()
        pool.kill_workers()
    import atexit
    atexit.register(print, "end")
"""


@pytest.mark.parametrize("run", range(5))
def test_callbacks_that_come_last_do_not_break_the_program_off(tmp_path: Path, run: int) -> None:
    (tmp_path / "main.py").write_text(SCRIPT)
    done = subprocess.run([sys.executable, "main.py"], cwd=tmp_path, env=environment(), capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "end\n", "")


WAITING = """
import atexit
atexit.register(print, "all that it does at its end", flush=True)
import os, time
from clutch import Pool

if __name__ == "__main__":
    busy, idle = Pool(2, name="busy"), Pool(1, name="idle")
    busy.map(time.sleep, [600] * 9)
    print("idle", idle.call(os.getpid), flush=True)
"""


def test_ctrl_c_while_the_program_waits_at_its_end_is_told(tmp_path: Path) -> None:
    with Script(tmp_path, WAITING) as script:
        idle = int(script.hear(r"idle (\d+)"))
        with script.below() as processes, Processes([idle]) as first:
            first.wait_ended()  # that pool was closed: the program is at its end, and waits for the other one
            script.process.send_signal(signal.SIGINT)
            assert script.process.wait(30) == -signal.SIGINT
            processes.wait_ended()
        script.hear("all that it does at its end")
        # The worker of the other one is gone; that may not have been noticed.
        script.err.wait("clutch: interrupted while pools still worked: busy(, idle)?; the rest was dropped")


UNREAD = """
import os
from clutch import Pool

def talk():
    print("x" * 100_000)

if __name__ == "__main__":
    _unread, full = os.pipe()
    told = os.dup(1)
    os.dup2(full, 1)
    pools = [Pool(1) for _ in range(8)]
    for pool in pools:
        pool.call(abs, 1)
    pools.pop().call(talk)
    os.write(told, b"printed\\n")
"""


def test_ctrl_c_while_only_output_is_awaited_is_told_after_one_wait_for_all_pools(tmp_path: Path) -> None:
    with Script(tmp_path, UNREAD) as script:
        script.hear("printed")
        with script.below() as processes:
            processes.wait_ended()
        script.process.send_signal(signal.SIGINT)
        assert script.process.wait(12) == -signal.SIGINT, "2 s for each pool would be 16"
        script.err.wait("clutch: interrupted while the output of workers waited for a reader; the rest was dropped")


def test_a_second_ctrl_c_does_not_wait_for_the_reader(tmp_path: Path) -> None:
    patient = UNREAD.replace("import Pool", "import Pool\nfrom clutch._pool import ends\nends.PRINTED_SECONDS = 600")
    with Script(tmp_path, patient) as script:
        script.hear("printed")
        with script.below() as processes:
            processes.wait_ended()
        with Processes([script.process.pid]) as itself:
            for _ in range(2):
                itself.send(signal.SIGINT)
                itself.alive(1.0)  # two that are pending would be one
        assert script.process.wait(30) == -signal.SIGINT
        script.err.wait("clutch: interrupted while the output of workers waited for a reader; the rest was dropped")
        assert "Traceback" not in script.err.wait_end()


LEAVING = """
import asyncio, os, sys, time
from clutch import Pool

def talk():
    print("x" * 100_000)

async def main():
    _unread, full = os.pipe()
    told = os.dup(1)
    os.dup2(full, 1)
    async with Pool(1) as pool:
        if sys.argv[1] == "output":
            await pool.submit(talk)
        else:
            pool.submit(time.sleep, 600)
        os.write(told, b"leaving\\n")

if __name__ == "__main__":
    asyncio.run(main())
"""


@pytest.mark.parametrize("awaited", ["work", "output"])
def test_one_ctrl_c_is_enough_while_async_with_is_left(tmp_path: Path, awaited: str) -> None:
    with Script(tmp_path, LEAVING, awaited) as script:
        script.hear("leaving")
        with script.below() as processes:
            if awaited == "output":
                processes.wait_ended()
            script.process.send_signal(signal.SIGINT)
            assert script.process.wait(30) == -signal.SIGINT, script.err.text
            processes.wait_ended()
        assert "in __aexit__" in script.err.wait_end(), "it was being left"


LOCKED = """
import multiprocessing
from clutch import Pool

def keep(lock, number):
    global kept
    kept = lock, number

class Point:
    pass

def kept_number(_):
    with kept[0]:
        return kept[1]

def is_point(value, _):
    return isinstance(value, Point)

if __name__ == "__main__":
    lock = multiprocessing.get_context("spawn").Lock()
    with Pool(2, initializer=keep, initargs=(lock, 42)) as pool:
        print(list(pool.map(kept_number, range(3))))
        print(pool.call(is_point, Point(), lambda: 1))
"""


def test_what_a_script_defines_keeps_its_name_beside_what_has_none(tmp_path: Path) -> None:
    (tmp_path / "main.py").write_text(LOCKED)
    done = subprocess.run([sys.executable, "main.py"], cwd=tmp_path, env=environment(), capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "[42, 42, 42]\nTrue\n", "")


DAEMONS = """
import select, signal, socket, sys, threading, time
from clutch import Pool

def begin():
    print("begun")
    time.sleep(600)

def values():
    yield 1
    begin()

def count():
    yield from range(50)

def forever(use):
    while True:
        try:
            use()
            ready.release()
        except Exception:
            pass

if __name__ == "__main__":
    # CPython forgets a signal that comes while the main thread gives up the GIL before it reads: it reads on.
    woken, wakes = socket.socketpair()
    wakes.setblocking(False)
    signal.set_wakeup_fd(wakes.fileno())
    pool = Pool(2)
    ready = threading.Semaphore(0)
    waiting = {
        "call": lambda: pool.call(begin),
        "result": lambda: pool.submit(begin).result(),
        "stream": lambda: list(pool.stream(values)),
        "map": lambda: list(pool.map(lambda _: begin(), [1, 2])),
    }
    busy = {
        "calls": lambda: pool.call(abs, 1),
        "results": lambda: pool.submit(abs, 1).result(),
        "streams": lambda: list(pool.stream(count)),
        "maps": lambda: list(pool.map(abs, range(50))),
        "stats": pool.stats,
    }
    use = sys.argv[1]
    for _ in range(8):
        threading.Thread(target=forever, args=[{**waiting, **busy}[use]], daemon=True).start()
    if use in busy:
        for _ in range(8):
            ready.acquire()
        print("begun")
    select.select([sys.stdin, woken], [], [])
"""
WAITING_USES = ["call", "result", "stream", "map"]
BUSY_USES = ["calls", "results", "streams", "maps", "stats"]


@pytest.mark.parametrize("use", [*WAITING_USES, *BUSY_USES])
def test_ctrl_c_while_daemon_threads_use_a_pool_ends_the_program(tmp_path: Path, use: str) -> None:
    with Script(tmp_path, DAEMONS, use) as script:
        script.hear("begun")
        script.process.send_signal(signal.SIGINT)
        assert script.process.wait(30) == -signal.SIGINT, script.err.text


@pytest.mark.parametrize("use", BUSY_USES)
def test_a_program_ends_while_daemon_threads_use_a_pool(tmp_path: Path, use: str) -> None:
    with Script(tmp_path, DAEMONS, use) as script:
        script.hear("begun")
        script.tell()
        assert script.process.wait(30) == 0, script.err.text
