"""Values that a program writes into one memory for all workers: `Pool.share`, and large arguments of an initializer."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from clutch import Pool
from clutch.testing import InlinePool

PREFACE = """
import gc, os, pickle, sys
from clutch import BadArguments, Pool, Shared

SIZE = 8 << 20
profile = sys.argv[1]
shape = {"profile": profile, "workers": 2}

class Table:
    def __init__(self, size=SIZE):
        self.column = bytearray(size)
        self.index = list(range(100_000))
        self.readings = 0

    def __reduce_ex__(self, protocol):
        return restored, (pickle.PickleBuffer(self.column), self.index)

def restored(column, index):
    table = Table(0)
    table.column, table.index, table.readings = memoryview(column), index, 1
    return table

def mapped(what):
    '''Kilobytes of this process in memory of this name: in all, and those that it alone has.'''
    lines = open("/proc/self/smaps").read().splitlines()
    sizes = {"Rss": 0, "Anonymous": 0}
    is_it = False
    for line in lines:
        name, *rest = line.split()
        if "-" in name and not name.endswith(":"):
            is_it = what in line
        elif is_it and name[:-1] in sizes:
            sizes[name[:-1]] += int(rest[0])
    return sizes
"""

SHARED = """
def look(table, number):
    assert type(table.value) is Table and table.value.readings == 1, table
    table.value.index.append(number)
    return len(table.value.index), sum(table.value.column[::4096]), mapped("clutch-shared"), os.getpid()

def write(table, number):
    table.value.column[0] = number
    return table.value.column[0], mapped("clutch-shared")["Anonymous"]

if __name__ == "__main__":
    given = Table()
    with Pool(**shape) as pool:
        table = pool.share(given)
        assert table.value is given and "Table" in repr(table)
        seen = list(pool.map(look, [table] * 20, range(20), chunksize=1))
        by_worker = {}
        for length, total, memory, pid in seen:
            by_worker.setdefault(pid, []).append(length)
            assert total == 0 and memory["Anonymous"] < 1000 and memory["Rss"] >= SIZE >> 10, memory
        # Threads of one worker may both append before one of them looks; whoever appends last sees all.
        assert all(max(lengths) == 100_000 + len(lengths) for lengths in by_worker.values()), by_worker
        assert pool.call(write, table, 7)[1] <= 64
        assert given.column[0] == 0 and bytes(pool.share(given).value.column[:1]) == b"\\0"
        assert pool.call(lambda: table.value.column[1]) == 0
        assert pool.call(lambda handle: handle, table) is table, "it comes back as itself"
        with Pool(1) as other:
            assert other.call(write, table, 9)[0] == 9
        small = pool.share([1, 2])
        assert pool.call(lambda: small.value) == [1, 2]
        assert list(pool.map(lambda item: small.value[item], [0, 1])) == [1, 2]
"""

LET_GO = """
def read(table):
    return table.value.index[-1]

def descriptors():
    links = [f"/proc/self/fd/{number}" for number in os.listdir("/proc/self/fd")]
    return sum("clutch-shared" in os.readlink(link) for link in links if os.path.islink(link))

class Late:
    '''A handle that is dropped on its way.'''
    def __init__(self, handle): self.pickle = pickle.dumps(handle)
    def __reduce__(self): return pickle.loads, (self.pickle,)

if __name__ == "__main__":
    with Pool(**shape) as pool:
        table = pool.share(Table())
        assert pool.call(read, table) == 99_999 and descriptors() == 1
        late = Late(table)
        del table
        gc.collect()
        assert descriptors() == 0
        kept = [pool.share(Table()) for _ in range(3)]
        try:
            with Pool(1) as fresh:
                raise SystemExit(f"it has read {fresh.call(read, late)}")
        except BadArguments as error:
            assert "keep what Pool.share returned" in str(error), error
        assert [pool.call(read, one) for one in kept] == [99_999] * 3
"""

INITIALIZED = """
def keep(given, other):
    global table
    table = given
    assert other is given, "what was one object is one"

def look(number):
    table.column[number] = 1
    return sum(table.column), mapped("clutch-shared")["Anonymous"], os.getpid()

if __name__ == "__main__":
    given = Table()
    for start in ("fork", "spawn"):
        with Pool(**shape, start=start, initializer=keep, initargs=(given, given)) as pool:
            seen = list(pool.map(look, range(0, 40_960, 4096), chunksize=1))
            for total, private, pid in seen:
                assert 1 <= total <= 10 and private <= 64, (total, private)
            pool.recycle()
            assert pool.call(look, 0)[0] == 1, "a new worker has it as it was given"
    assert sum(given.column) == 0
"""


@pytest.mark.parametrize("profile", ["process", "thread", "async", "greenlet"])
@pytest.mark.parametrize("has_file", [True, False], ids=["file", "no_file"])
def test_what_is_shared_is_one_memory(tmp_path: Path, profile: str, has_file: bool) -> None:
    run(tmp_path, SHARED, profile, has_file)


def test_what_was_let_go_is_not_read(tmp_path: Path) -> None:
    run(tmp_path, LET_GO, "process", has_file=True)


@pytest.mark.parametrize("has_file", [True, False], ids=["file", "no_file"])
def test_large_arguments_of_an_initializer_are_one_memory(tmp_path: Path, has_file: bool) -> None:
    run(tmp_path, INITIALIZED, "process", has_file)


def test_a_pool_without_workers_shares_too() -> None:
    with InlinePool() as pool:
        table = pool.share(list(range(100_000)))
        assert pool.call(length_of, table) == 100_000


def length_of(table: object) -> int:
    return len(table.value)  # type: ignore[attr-defined]


def test_what_cannot_be_pickled_is_told_at_once() -> None:
    with Pool(1) as pool, pytest.raises(TypeError, match="cannot pickle"):
        pool.share(threading.Lock())


def run(folder: Path, program: str, profile: str, has_file: bool) -> None:
    (folder / "main.py").write_text(PREFACE + program)
    how = ["main.py"] if has_file else ["-c", PREFACE + program]
    done = subprocess.run([sys.executable, *how, profile], cwd=folder, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", ""), done.stdout + done.stderr
