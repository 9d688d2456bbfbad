"""A script of a user's own: what is defined in it works in workers and comes back."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from support.clutch_process import WAIT_SECONDS, environment

SCRIPT = """
from dataclasses import dataclass
from clutch import Pool

@dataclass
class Point:
    x: int

class Wrong(Exception):
    pass

def moved(point):
    return Point(point.x + 1)

def fail():
    raise Wrong("no")

if __name__ == "__main__":
    with Pool(workers=1) as pool:
        point = pool.call(moved, Point(1))
        print(point, type(point) is Point)
        try:
            pool.call(fail)
        except Wrong as error:
            print("caught", error)
"""

NO_GUARD = """
from clutch import Pool

with Pool(workers=1) as pool:
    print(pool.call(abs, -1))
"""


def run(folder: Path, text: str) -> subprocess.CompletedProcess[str]:
    (folder / "script.py").write_text(text)
    command = [sys.executable, "script.py"]
    return subprocess.run(command, cwd=folder, env=environment(), capture_output=True, text=True, timeout=WAIT_SECONDS)


def test_classes_and_exceptions_of_the_script_come_back_as_they_are(tmp_path: Path) -> None:
    done = run(tmp_path, SCRIPT)
    assert done.stdout == "Point(x=2) True\ncaught no\n", done.stderr


UNNAMED = """
from clutch import Pool

class Wrong(Exception):
    pass

class Narrower(Wrong):
    pass

def fail(kind):
    raise kind("no")

with Pool(workers=1) as pool:
    for kind in (Wrong, Narrower):
        try:
            pool.call(fail, kind)
        except Wrong as error:
            print("caught", type(error) is kind, error)
"""


@pytest.mark.parametrize("how", ["-c", "stdin"])
def test_exceptions_of_a_program_without_a_file_come_back_as_they_are(tmp_path: Path, how: str) -> None:
    command = [sys.executable, "-c", UNNAMED] if how == "-c" else [sys.executable, "-"]
    done = subprocess.run(command, input=UNNAMED, cwd=tmp_path, env=environment(), capture_output=True, text=True)
    assert done.stdout == "caught True no\n" * 2, done.stderr


CONDITIONS = """
import functools
from clutch import Pool, errors, tool
import written

@tool(serial=True)
def mine():
    return 1

with Pool(profile="thread", threads=2, workers=1) as pool:
    print(*{pool.call(written.runs_in_main) for _ in range(4)})
    partial = functools.partial
    travel_by_value = (mine, tool(main_thread=True)(lambda: 1), written.Holder().method, written.Holder())
    for function in (*travel_by_value, partial(mine), partial(partial(written.runs_in_main), 1)):
        try:
            pool.call(function)
        except errors.BadArguments as error:
            print("put it into a module, and pass the function itself" in str(error))

    class Answers:
        def __getattr__(self, name):
            if name.startswith("__") and name != "__clutch_tool__":
                raise AttributeError(name)
            return True

        def __call__(self):
            return True

    print(pool.call(Answers()))
"""

WRITTEN = """
import os, threading
from clutch import tool

@tool(main_thread=True)
def runs_in_main():
    return threading.get_native_id() == os.getpid()

class Holder:
    @tool(serial=True)
    def method(self):
        return 1

    @tool(main_thread=True)
    def __call__(self):
        return 1
"""


VALUES = """
import functools, operator, os
from clutch import Pool

class Value:
    def __init__(self, n):
        self.n = n

@functools.cache
def fib(n):
    return n if n < 2 else fib(n - 1) + fib(n - 2)

def start():
    os.environ["BEGUN"] = str(Value(8).n)

@functools.cache
def limited(n):
    return n + limited.limit

limited.limit = 1
cached_neg = functools.lru_cache(maxsize=2, typed=True)(operator.neg)

with Pool(workers=1) as pool:
    get = operator.attrgetter("n")
    print(pool.call(getattr, Value(1), "n"), pool.submit(get, Value(2)).result(), *pool.map(get, [Value(3), Value(4)]))
    print(*pool.map(operator.neg, range(3)), pool.call(lambda: Value(5)).n)
    print(pool.call(fib, 50), *pool.map(fib, [3, 4]), pool.call(cached_neg, 6), pool.call(limited, 7))
with Pool(workers=1, initializer=start) as pool:
    print(pool.call(os.getenv, "BEGUN"))
"""


def test_values_of_a_program_without_a_file_travel(tmp_path: Path) -> None:
    command = [sys.executable, "-c", VALUES]
    done = subprocess.run(command, cwd=tmp_path, env=environment(), capture_output=True, text=True)
    assert done.stdout == "1 2 3 4\n0 -1 -2 5\n12586269025 2 3 -6 8\n8\n", done.stderr


CLASSES = """
import functools
import typing
from clutch import Pool

LIMIT = 1

def use():
    class Account:
        total = 0
        def __init__(self, value):
            self.value = value
        def is_over(self):
            return self.value > LIMIT
        @functools.cached_property
        def double(self):
            return 2 * self.value

    class Slots:
        __slots__ = ("value", "__hidden")
        def __init__(self, value):
            self.value = self.__hidden = value
        def hidden(self):
            return self.__hidden

    class More(Slots):
        __slots__ = {"more": "a word"}

    class Named(typing.NamedTuple):
        number: int

    def same(value):
        return value

    global LIMIT
    with Pool(workers=1) as pool:
        for number in range(2):
            was, way = pool.submit(same, Account(5)), Account.is_over
            Account.total, LIMIT = 7 + number, 10
            back = was.result()
            print(type(back) is Account, Account.is_over is way, Account.total, back.is_over(), end=" ")
        print(pool.call(lambda account: account.double, Account(4)), pool.call(lambda: Account.total), end=" ")
        more = More(3)
        more.more = 4
        came = pool.call(same, more)
        print(pool.call(same, Slots(2)).hidden(), came.hidden(), came.more, hasattr(came, "__dict__"), end=" ")
        Slots.alias = Slots.value
        print(pool.call(same, Slots(6)).alias, pool.call(same, Named(7)).number)

if __name__ == "__main__":
    use()
"""


@pytest.mark.parametrize("has_file", [True, False])
def test_classes_by_value_are_the_same_when_they_come_back(tmp_path: Path, has_file: bool) -> None:
    """And nothing that the program has set of them meanwhile is undone."""
    (tmp_path / "script.py").write_text(CLASSES)
    command = [sys.executable, *(["script.py"] if has_file else ["-c", CLASSES])]
    done = subprocess.run(command, cwd=tmp_path, env=environment(), capture_output=True, text=True)
    assert done.stdout == "True True 7 False True True 8 False 8 8 2 3 4 False 6 7\n", done.stderr


WRAPPING = """
import functools

model = "the module's"

def wrapping(function):
    @functools.wraps(function)
    def call(*args):
        return f"{model}: {function(*args)}"
    return call
"""
INITIALIZED = """
import functools, math, threading
from clutch import Pool
from wrapping import wrapping

model, label, counts, begun = None, "first", {"inits": 0}, []

def load(name):
    global model
    model = name

def start(name):
    load(name)
    counts["inits"] += 1
    begun.append(lambda: 1)

class Reader:
    def read(self):
        return model

class Starter:
    def __call__(self, name):
        thread = threading.Thread(target=start, args=[name])
        thread.start()
        thread.join()

@wrapping
def wrapped():
    return model

@functools.wraps(math.sqrt)
def disguised():
    return model

def work(number):
    return f"{model}-{label}-{counts['inits']}-{number}"

for initializer in (start, functools.partial(Starter()), functools.cache(start)):
    with Pool(1, initializer=initializer, initargs=("m",)) as pool:
        print(*pool.map(work, range(2)), pool.call(lambda: model), Reader().read(), pool.call(Reader().read))
        label = "second"
        print(pool.call(work, 2), pool.call(wrapped), pool.call(disguised))
    label = "first"
print(model, counts)
"""


def test_functions_find_what_the_initializer_of_a_program_without_a_file_has_set(tmp_path: Path) -> None:
    """Though each comes with a copy of the caller's globals. What it has not set is the caller's at each call."""
    (tmp_path / "wrapping.py").write_text(WRAPPING)
    command = [sys.executable, "-c", INITIALIZED]
    done = subprocess.run(command, cwd=tmp_path, env=environment(), capture_output=True, text=True)
    each = "m-first-1-0 m-first-1-1 m None m\nm-second-1-2 the module's: m m\n"
    assert done.stdout == 3 * each + "None {'inits': 0}\n", done.stderr


def test_conditions_of_a_tool_hold_in_a_program_without_a_file(tmp_path: Path) -> None:
    """Or are refused: a worker does not know a function that is new there with each call."""
    (tmp_path / "written.py").write_text(WRITTEN)
    command = [sys.executable, "-c", CONDITIONS]
    done = subprocess.run(command, cwd=tmp_path, env=environment(), capture_output=True, text=True)
    assert done.stdout == "True\n" * 8, done.stderr


def test_a_missing_guard_is_one_clear_error(tmp_path: Path) -> None:
    done = run(tmp_path, NO_GUARD)
    assert done.returncode == 1
    assert 'if __name__ == "__main__":' in done.stderr


SUBINTERPRETER = """
import sys
if sys.version_info >= (3, 13):
    import _interpreters as interpreters
    other = interpreters.create("legacy")
else:
    import _xxsubinterpreters as interpreters
    other = interpreters.create(**({} if sys.version_info < (3, 12) else {"isolated": False}))
from clutch import Pool

CODE = '''
from clutch import Pool
try:
    Pool(1)
except RuntimeError as error:
    print(error, flush=True)
'''
interpreters.run_string(other, CODE)
with Pool(1) as pool:
    print(pool.call(abs, -1))
"""


def test_a_pool_in_a_subinterpreter_is_one_clear_error(tmp_path: Path) -> None:
    """Some are refused by Python itself, already the import."""
    done = subprocess.run(
        [sys.executable, "-c", SUBINTERPRETER],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=WAIT_SECONDS,
    )
    first, *_, last = done.stdout.splitlines()
    assert "only in the main interpreter" in first and last == "1", done.stderr


@pytest.mark.parametrize(("closed", "shown"), [("1 2", ""), ("1", "err"), ("2", "out")])
def test_a_stream_that_was_closed_at_the_start_is_no_file_of_the_programs(
    tmp_path: Path, closed: str, shown: str
) -> None:
    text = """
import os, sys
from clutch import Pool, WorkerLost
def talk():
    os.write(1, b"out\\n"), os.write(2, b"err\\n")
    os._exit(1)
if __name__ == "__main__":
    files = [open(f"file {number}", "w") for number in range(3)]
    assert {file.fileno() for file in files} > {int(number) for number in sys.argv[1].split()}
    with Pool(1) as pool:
        try:
            pool.call(talk)
        except WorkerLost as lost:
            output = lost.output
    written = [os.stat(file.fileno()).st_size for file in files]
    open("found", "w").write(f"{written} {output.split()}")
"""
    (tmp_path / "script.py").write_text(text)
    closing = " ".join(f"{number}>&-" for number in closed.split())
    command = ["bash", "-c", f'"$0" script.py "{closed}" {closing}', sys.executable]
    done = subprocess.run(command, cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=60)
    assert (tmp_path / "found").read_text() == "[0, 0, 0] ['out', 'err']", done
    assert done.stdout + done.stderr == (f"[pool/0] {shown}\n" if shown else "")
