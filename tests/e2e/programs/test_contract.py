"""What the standard library promises of a process pool to whole programs: its own cases ask that of its own class."""

from __future__ import annotations

import threading
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

import harmful_tools
import pytest

from clutch import BadArguments, Pool
from support.rendezvous import Rendezvous
from support.script_process import Script, run_script

LEAVES = """
import gc, sys
from clutch import Pool
from support.rendezvous import meet

kept = None

def work(port, path):
    with open(path, "a") as file:
        file.write(meet(port))

def dropped(pool):
    pass

def kept_open(pool):
    global kept
    kept = pool

def shut_without_waiting(pool):
    pool.shutdown(wait=False)

def shut_and_kept(pool):
    kept_open(pool)
    pool.shutdown(wait=False)

def in_a_cycle(pool):
    pool.itself = pool

def mapped(pool):
    kept_open(pool)
    pool.map(work, [int(sys.argv[2])] * 3, ["done"] * 3)

def main(how, port):
    pool = Pool(workers=1)
    pool.submit(work, port, "done")
    globals()[how](pool)

if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
    gc.collect()
    print("the end", flush=True)
"""


@pytest.mark.parametrize(
    ("how", "count"),
    [
        ("dropped", 1),
        ("kept_open", 1),
        ("shut_without_waiting", 1),
        ("shut_and_kept", 1),
        ("in_a_cycle", 1),
        ("mapped", 4),
    ],
)
def test_the_interpreters_end_waits_for_what_was_submitted(
    tmp_path: Path, rendezvous: Rendezvous, how: str, count: int
) -> None:
    with Script(tmp_path, LEAVES, how, str(rendezvous.port)) as script:
        script.hear("the end")
        for number in range(count):
            guest = rendezvous.guest()
            assert script.process.poll() is None
            guest.let_go(str(number))
        assert script.process.wait(30) == 0
        assert script.err.wait_end() == ""
    assert (tmp_path / "done").read_text() == "0123"[:count]


ATEXIT = """
import atexit

@atexit.register
def late():
    try:
        pool.submit(abs, -1)
    except RuntimeError as error:
        print(error)

from clutch import Pool
if __name__ == "__main__":
    pool = Pool(workers=1)
    print(pool.submit(abs, -2).result())
"""


def test_nothing_is_taken_at_the_interpreters_end(tmp_path: Path) -> None:
    done = run_script(tmp_path, ATEXIT)
    assert done.stdout.splitlines() == ["2", "pool 'pool' is closed: cannot schedule new futures after shutdown"]
    assert (done.stderr, done.returncode) == ("", 0)


MANAGER = """
import multiprocessing
from clutch import Pool

def put(queue, lock):
    with lock:
        queue.put("from a worker")

def take(queue):
    global taken
    taken = queue

def put_there():
    taken.put("by the initializer's")

if __name__ == "__main__":
    with multiprocessing.Manager() as manager:
        queue = manager.Queue()
        with Pool(workers=1, initializer=take, initargs=(queue,)) as pool:
            pool.call(put, queue, manager.Lock())
            pool.call(put_there)
        print(queue.get(), queue.get())
"""


def test_what_a_manager_of_the_program_made_works_in_workers(tmp_path: Path) -> None:
    done = run_script(tmp_path, MANAGER)
    assert done.stdout == "from a worker by the initializer's\n", done.stderr


def fail() -> None:
    raise ValueError("no database")


def test_a_failed_initializer_is_a_broken_pool_to_who_knows_that_word() -> None:
    with Pool("harmful_tools", workers=1, initializer=fail) as pool:
        for _ in range(2):
            with pytest.raises(BrokenProcessPool, match="no database"):
                pool.submit("pid").result(30)


def test_so_is_a_lost_worker_and_the_next_work_runs() -> None:
    with Pool("harmful_tools", workers=1) as pool:
        with pytest.raises(BrokenProcessPool):
            pool.submit(harmful_tools.die_by_segfault).result(30)
        assert pool.submit("echo", 1).result(30) == 1


def test_an_initializer_that_cannot_be_sent() -> None:
    with pytest.raises(BadArguments, match="initializer"):
        Pool(initializer=print, initargs=(threading.Lock(),))
