"""Functions by value with large globals: sent once, read once for each slot of a map, and nobody's changes last."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PREFACE = """
import os, sys, time
from clutch import Pool

class Heavy:
    '''Tells each time that it is pickled and read.'''
    def __init__(self, letter="x"):
        self.letter = letter
        self.content = [os.urandom(4).hex() for _ in range(50_000)]
        self.view = memoryview(bytearray(1 << 20))

    def __getstate__(self):
        tell("P")
        return self.__dict__

    def __setstate__(self, state):
        tell("L")
        self.__dict__.update(state)

def tell(word):
    with open(os.environ["LEDGER"], "a") as file:
        file.write(word)

def told():
    path = os.environ["LEDGER"]
    words = open(path).read() if os.path.exists(path) else ""
    open(path, "w").close()
    return words

def regions():
    links = [os.path.join("/proc/self/fd", name) for name in os.listdir("/proc/self/fd")]
    return sum("clutch-region" in os.readlink(link) for link in links if os.path.islink(link))

heavy = Heavy()
profile = sys.argv[1]
one_slot = {"async": {"tasks": 1}, "greenlet": {"tasks": 1}, "thread": {"threads": 1}}
shape = {"profile": profile, **one_slot.get(profile, {})}
"""

MAPPED = """
def letter(item):
    return heavy.letter * item

with Pool(workers=1, **shape) as pool:
    assert list(pool.map(letter, [1, 2] * 500, chunksize=10)) == ["x", "xx"] * 500
    assert (words := told()) == "PL", words
    assert sum(map(len, pool.map(letter, [1, 2] * 500))) == 1500
    assert (words := told()) == "PL", words
"""

CHANGED = """
def count(item):
    heavy.content.append(item)
    heavy.view[0] += 1
    return len(heavy.content), heavy.view[0]

with Pool(workers=1, **shape) as pool:
    first = 50_001, 1
    assert [pool.call(count, 0) for _ in range(3)] == [first] * 3, "changes end with their call"
    assert list(pool.map(count, range(3), chunksize=1)) == [first, (50_002, 2), (50_003, 3)], "or with their map"
    assert list(pool.map(count, range(1))) == [first]
    heavy.letter, heavy.view[0] = "y", 7
    assert pool.call(lambda: (heavy.letter, heavy.view[0])) == ("y", 7)
    assert list(pool.map(count, range(1))) == [(50_001, 8)]
    assert pool.call(count, item=0) == (50_001, 8)

def fail(item):
    heavy.content.append(item)
    raise KeyboardInterrupt if item == 1 else ValueError(len(heavy.content))

with Pool(workers=1, **shape) as pool:
    made = list(pool.map(fail, [0, 1, 2], chunksize=1, return_exceptions=True))
    assert made[0].args == (50_001,) and made[2].args[0] in (50_001, 50_003), made
"""

SAME_MEMORY = """
def letter(wait):
    return heavy.letter, os.read(wait, 1) if wait else b""

def first_of_view(item):
    return heavy.view[0]

read, write = os.pipe()
os.set_inheritable(read, True)
with Pool(workers=2, **shape) as pool:
    futures = [pool.submit(letter, 0) for _ in range(20)]
    assert [future.result(60) for future in futures] == [("x", b"")] * 20
    assert regions() == 2, regions()  # its pickle, and the view
    heavy.letter = "y"
    futures = [pool.submit(letter, 0) for _ in range(20)]
    assert [future.result(60) for future in futures] == [("y", b"")] * 20
    assert regions() == 4, regions()
    assert pool.call(sorted, [2, 1], key=lambda item: heavy.view[0] + item) == [1, 2]
    # A worker that takes the place of another one gets it, too.
    pool.recycle()
    assert pool.call(letter, 0) == ("y", b"")
    assert set(pool.map(first_of_view, range(1000), chunksize=1)) == {0}
"""

GONE = """
def first_of(item):
    return heavy.view[0]

with Pool(workers=1, **shape) as pool:
    assert set(pool.map(first_of, range(100))) == {0}
    pid = pool.call(os.getpid)
    maps = f"/proc/{pid}/maps"
    until = time.monotonic() + 60
    while "clutch-region" in open(maps).read():  # of an idle worker
        assert time.monotonic() < until, [line for line in open(maps) if "clutch-region" in line]
        time.sleep(0.1)
"""

CLASSES = """
class Conf:
    factor = 1

def f(x):
    time.sleep(0.001)
    return Conf.factor

def leave():
    Conf.extra = 1

with Pool(workers=2, **shape) as pool:
    first = pool.map(f, range(100), chunksize=1)
    Conf.factor = 100
    second = pool.map(f, range(100), chunksize=1)
    assert (set(first), set(second)) == ({1}, {100})
    pool.call(leave)
    assert not any(pool.map(lambda _: hasattr(Conf, "extra"), range(10), chunksize=1))
"""

SHARED_WITH_ARGUMENTS = """
class Box:
    def __init__(self): self.filler = "x"
    def is_me(self, other): return self is other

def of_two(box, other):
    return box is other

with Pool(workers=1, **shape) as pool:
    box = Box()
    assert pool.call(box.is_me, box), "what a small function and its arguments refer to is one object"
    assert isinstance(pool.call(lambda: (heavy.letter, box)[1]), Box)
    assert list(pool.map(lambda number: 2 * number, [20, 21])) == [40, 42]
    shown = {call.what for call in pool.insights().slowest}
    assert shown & {"<lambda>(20)", "<lambda>(21)"}, shown
"""

UNSENDABLE = """
import threading
from clutch import BadArguments
lock = threading.Lock()

def locked(item):
    return heavy, lock

def refused(call):
    try:
        call()
    except BadArguments as error:
        return "locked" in str(error) and "cannot pickle '_thread.lock' object" in str(error)

with Pool(workers=1, **shape) as pool:
    assert refused(lambda: pool.call(locked, 1))
    assert refused(lambda: list(pool.map(locked, range(3))))
    assert list(pool.map(locked, [])) == []
    made = list(pool.map(lambda item: heavy.letter, [1, lock, 3], return_exceptions=True))
    assert (made[0], type(made[1]), made[2]) == ("x", BadArguments, "x"), made
"""


@pytest.mark.parametrize("profile", ["process", "thread", "async", "greenlet"])
@pytest.mark.parametrize("program", [MAPPED, CHANGED, SAME_MEMORY], ids=["mapped", "changed", "same_memory"])
def test_a_function_with_large_globals(tmp_path: Path, program: str, profile: str) -> None:
    run(tmp_path, program, profile)


@pytest.mark.parametrize(
    "program",
    [SHARED_WITH_ARGUMENTS, UNSENDABLE, CLASSES, GONE],
    ids=["with_arguments", "unsendable", "classes", "gone"],
)
def test_a_function_and_its_arguments_by_value(tmp_path: Path, program: str) -> None:
    run(tmp_path, program, "process")


def run(folder: Path, program: str, profile: str) -> None:
    command = [sys.executable, "-c", PREFACE + program, profile]
    environment = {"PATH": "/usr/bin:/bin", "LEDGER": str(folder / "ledger")}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", ""), done.stdout + done.stderr
