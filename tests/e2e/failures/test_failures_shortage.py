"""Failure 59: who is short of descriptors, or of memory, has one call fail, by name; no worker ends for it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from support.clutch_process import environment

pytestmark = pytest.mark.timeout(180)

KEPT_OR_QUEUED = """
import resource, sys
from clutch import Pool
import shortage
if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_NOFILE, (128, 128))
    with Pool("shortage", workers=2, profile=sys.argv[1]) as pool:
        kept = [pool.call("make", nr % 251, 70_000) for nr in range(700)]
        assert [array[-1] for array in kept] == [nr % 251 for nr in range(700)]
        kept[0][0] = 7
        futures = [pool.submit("size", bytes(70_000)) for _ in range(700)]
        assert [future.result() for future in futures] == [70_000] * 700
        assert list(pool.map(shortage.make, range(200), [70_000] * 200))[199][0] == 199
        assert pool.stats()["restarts"] == 0
    print("held")
"""

NONE_LEFT_IN_THE_PROGRAM = """
import os
from clutch import ClutchError, Pool
if __name__ == "__main__":
    with Pool("shortage", workers=1) as pool:
        pool.call("size", b"")
        taken = []
        try:
            while True:
                taken.append(os.dup(0))
        except OSError:
            pass
        outcomes = []
        for nr in range(5):
            try:
                outcomes.append(len(pool.call("make", 1, 70_000)))
            except ClutchError as error:
                outcomes.append("descriptor" in str(error))
        assert all(outcome in (70_000, True) for outcome in outcomes), outcomes
        assert pool.call("size", b"small") == 5
        for fd in taken:
            os.close(fd)
        assert len(pool.call("make", 1, 70_000)) == 70_000
        assert pool.stats()["restarts"] == 0
    print("held")
"""

NONE_LEFT_IN_THE_WORKER = """
import sys
from clutch import ClutchError, Pool
if __name__ == "__main__":
    with Pool("shortage", workers=1, profile=sys.argv[1]) as pool:
        pool.call("take_descriptors")
        for function, arguments in (("make", (1, 70_000)), ("size", (bytes(70_000),))):
            for _ in range(5):
                try:
                    pool.call(function, *arguments)
                except ClutchError as error:
                    assert "descriptor" in str(error) or "Too many open files" in str(error), error
        assert pool.call("size", b"small") == 5
        pool.call("give_back_descriptors")
        assert len(pool.call("make", 1, 70_000)) == 70_000
        assert pool.call("size", bytes(70_000)) == 70_000
        assert pool.stats()["restarts"] == 0
    print("held")
"""

LIMITED = """
import resource
HEADROOM = 200 << 20
LARGE = 120 << 20
def limit(headroom=HEADROOM):
    used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + headroom,) * 2)
"""

NO_MEMORY_IN_THE_PROGRAM = """
import limited
from clutch import Pool, RemoteError
if __name__ == "__main__":
    with Pool("shortage", workers=1) as pool:
        pool.wait_ready()
        limited.limit()
        for kind in ("bytes", "bytearray", "str", "tuple"):
            try:
                print(kind, pool.call("large", kind, limited.LARGE))
            except RemoteError as error:
                assert error.kind == "decode" and isinstance(error.__cause__, MemoryError), error
                assert "memory" in str(error).lower(), error
            assert pool.call("large", kind, 10)
        assert pool.stats()["restarts"] == 0
    print("held")
"""

NO_MEMORY_IN_THE_WORKER = """
import sys
import limited
from clutch import BadArguments, Pool
if __name__ == "__main__":
    with Pool("shortage", workers=1, profile=sys.argv[1]) as pool:
        pool.call(limited.limit)
        text = "x" * limited.LARGE
        for value in (text.encode(), bytearray(text, "ascii"), text, (text,)):
            try:
                print(type(value), pool.call("size", value))
            except BadArguments as error:
                assert "memory" in str(error).lower() and "descriptor" not in str(error), error
            assert pool.call("size", b"small") == 5
        assert pool.stats()["restarts"] == 0
    print("held")
"""

NO_THREAD_IN_THE_WORKER = """
import limited
from clutch import Pool
if __name__ == "__main__":
    with Pool("shortage", workers=1, profile="async") as pool:
        pool.call("size", b"")
        pool.call(limited.limit, 4 << 20)
        futures = [pool.submit("size", b"small") for _ in range(100)]
        assert [future.result() for future in futures] == [5] * 100
        assert pool.stats()["restarts"] == 0
    print("held")
"""

NO_THREAD = """
import resource, threading
from concurrent.futures import wait
from clutch import ConfigError, Pool
def limit(more):
    used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + more if more else resource.RLIM_INFINITY, resource.RLIM_INFINITY))
"""

NONE_FOR_THE_OUTPUT = """
import os
import clutch.config.pools, clutch.control.program  # what the first pool imports needs memory, too
from no_thread import *
def talk():
    os.write(2, b"from a worker\\n")
def outcome(more):
    limit(more)
    try:
        with Pool("shortage", workers=1) as pool: return pool.call("size", b"")
    except (ConfigError, OSError) as error:
        return type(error)
    finally:
        limit(0)
if __name__ == "__main__":
    # First there is no thread for a pool, then one, and none for what its workers print.
    sizes = iter(range(1 << 20, 64 << 20, 1 << 20))
    assert ConfigError in set(iter(lambda: outcome(next(sizes)), 0))
    with Pool("shortage", workers=1) as pool:
        pool.call(talk)
    print("held")
"""

NONE_FOR_CALLBACKS = """
from no_thread import *
if __name__ == "__main__":
    with Pool("shortage", workers=1) as pool:
        future = pool.submit("size", b"x")
        future.result()
        limit(1 << 20)
        try: future.add_done_callback(print)
        except OSError: limit(0)
        assert wait([future], 30).done == {future}
        called = threading.Event()
        pool.submit("size", b"").add_done_callback(lambda done: called.set())
        assert called.wait(30)
    print("held")
"""

SHORTAGE = """
import os
from clutch import tool
taken = []
@tool
def make(value, count):
    return bytearray([value]) * count
@tool
def size(value):
    return len(value)
@tool
def large(kind, size):
    text = "x" * size
    return {"bytes": text.encode, "bytearray": lambda: bytearray(text, "ascii"), "str": lambda: text,
        "tuple": lambda: (text,)}[kind]()
@tool
def take_descriptors():
    try:
        while True:
            taken.append(os.dup(0))
    except OSError:
        return len(taken)
@tool
def give_back_descriptors():
    while taken:
        os.close(taken.pop())
"""


def run(folder: Path, script: str, *arguments: str, told: str = "") -> None:
    (folder / "shortage.py").write_text(SHORTAGE)
    (folder / "limited.py").write_text(LIMITED)
    (folder / "no_thread.py").write_text(NO_THREAD)
    (folder / "main.py").write_text(script)
    command = [sys.executable, "main.py", *arguments]
    # Else glibc reserves 64 MiB of a limited address space for each thread, and at times none is left to start one.
    variables = environment() | {"MALLOC_ARENA_MAX": "1"}
    done = subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, timeout=150)
    assert (done.stdout, done.stderr) == ("held\n", told), done.stdout + done.stderr


@pytest.mark.parametrize("profile", ["process", "thread", "async"])
def test_failure_59_more_large_values_than_descriptors(tmp_path: Path, profile: str) -> None:
    run(tmp_path, KEPT_OR_QUEUED, profile)


def test_failure_59_none_left_in_the_program(tmp_path: Path) -> None:
    run(tmp_path, NONE_LEFT_IN_THE_PROGRAM)


@pytest.mark.parametrize("profile", ["process", "thread", "async", "greenlet"])
def test_failure_59_none_left_in_the_worker(tmp_path: Path, profile: str) -> None:
    run(tmp_path, NONE_LEFT_IN_THE_WORKER, profile)


def test_no_memory_for_a_result_in_the_program(tmp_path: Path) -> None:
    run(tmp_path, NO_MEMORY_IN_THE_PROGRAM)


@pytest.mark.parametrize("profile", ["process", "thread", "async", "greenlet"])
def test_no_memory_for_arguments_in_the_worker(tmp_path: Path, profile: str) -> None:
    run(tmp_path, NO_MEMORY_IN_THE_WORKER, profile)


def test_no_more_threads_for_blocking_code_beside_tasks(tmp_path: Path) -> None:
    """The thread that there is runs it."""
    run(tmp_path, NO_THREAD_IN_THE_WORKER)


def test_no_thread_for_what_workers_print_at_first(tmp_path: Path) -> None:
    run(tmp_path, NONE_FOR_THE_OUTPUT, told="[pool/0] from a worker\n")


def test_no_thread_for_callbacks_at_first(tmp_path: Path) -> None:
    run(tmp_path, NONE_FOR_CALLBACKS)
