"""What workers have of a program's `__main__`: when they run its script, and what they say is not there."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.clutch_process import WAIT_SECONDS, environment
from support.script_process import run_script

pytestmark = pytest.mark.timeout(120)

TOOLS = """
from clutch import tool

@tool
def double(value):
    return 2 * value

def apply(function, *args):
    return function(*args)
"""
GUARD = 'if __name__ == "__main__":'


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=folder, env=environment(), capture_output=True, text=True, timeout=WAIT_SECONDS)


# ---- a pool with a target


@pytest.mark.parametrize("options", ["", ", start='spawn'", ", preload=False", ", profile='thread'"])
@pytest.mark.parametrize("form", [("script.py",), ("-m", "script")], ids=["file", "module"])
def test_a_script_that_calls_tools_by_name_needs_no_guard(tmp_path: Path, options: str, form: tuple[str, ...]) -> None:
    (tmp_path / "tools.py").write_text(TOOLS)
    text = f"""
from clutch import Pool
print("run")
with Pool("tools", workers=1{options}) as pool:
    print(pool.call("double", 2), *pool.map("double", [3, 4]))
"""
    (tmp_path / "script.py").write_text(text)
    done = run(tmp_path, *form)
    assert (done.stdout, done.stderr, done.returncode) == ("run\n4 6 8\n", "", 0)


SHARED = """
import shelve, sys
from statistics import mean
import own
from clutch import Pool

def loaded():
    return sorted({"shelve", "statistics", "own", "clutch.pool"} & set(sys.modules)), mean([1, 3])

if __name__ == "__main__":
    with Pool("tools", workers=1) as pool:
        print(pool.call("loaded"), *pool.call(loaded))
"""


@pytest.mark.parametrize("form", [("script.py",), ("-m", "script"), ("-m", "package.script")])
def test_workers_share_what_a_script_imports_of_the_standard_library(tmp_path: Path, form: tuple[str, ...]) -> None:
    """And nothing of the user's, before something of the script is called."""
    tools = 'import sys\nfrom clutch import tool\n\n@tool\ndef loaded():\n    names = "shelve", "statistics", "own"\n'
    (tmp_path / "tools.py").write_text(tools + "    return [name for name in names if name in sys.modules]\n")
    (tmp_path / "own.py").write_text("")
    (tmp_path / "package").mkdir()
    for path in ("script.py", "package/script.py"):
        (tmp_path / path).write_text(SHARED)
    done = run(tmp_path, *form)
    expected = "['shelve', 'statistics'] ['clutch.pool', 'own', 'shelve', 'statistics'] 2\n"
    assert (done.stdout, done.stderr, done.returncode) == (expected, "", 0)
    assert not list(tmp_path.glob("__pycache__/script.*")) or form[0] == "-m"


LAZY = f"""
import os, sys
import tools
from clutch import Pool
with open("runs", "a") as file:
    print(os.getpid(), file=file)

class Point:
    def __init__(self, x):
        self.x = x

def main(value):
    return Point(value + 1)

def set_up():
    global ready
    ready = True

def is_ready():
    return ready

def runs():
    with open("runs") as file:
        return len(file.readlines())

{GUARD}
    with Pool("tools", workers=1, start=sys.argv[1]) as pool:
        print(pool.call("double", 2), runs())
        point = pool.call(main, 1)
        print(point.x, type(point) is Point, runs())
        print([point.x for point in pool.map(main, [2, 3])], pool.call(tools.apply, main, 4).x, runs())
    with Pool("tools", workers=1, start=sys.argv[1], initializer=set_up) as pool:
        print(pool.call(is_ready))
"""


@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_a_worker_runs_the_script_when_something_of_it_is_called(tmp_path: Path, start: str) -> None:
    """Once. And it has the script's own names, also those that a process of Clutch's has: `main`."""
    (tmp_path / "tools.py").write_text(TOOLS)
    done = run_script(tmp_path, LAZY, start)
    assert done.stdout.splitlines() == ["4 1", "2 True 2", "[3, 4] 5 2", "True"], done.stderr


THREADS = f"""
import tools
from clutch import Pool
with open("runs", "a") as file:
    file.write("run\\n")

def mine(value):
    return value

{GUARD}
    with Pool("tools", workers=1, profile="thread", threads=4) as pool:
        print(sorted(pool.map(mine, range(40), chunksize=1)) == list(range(40)))
    print(open("runs").read().count("run"))
"""


def test_threads_of_a_worker_run_the_script_once(tmp_path: Path) -> None:
    (tmp_path / "tools.py").write_text(TOOLS)
    done = run_script(tmp_path, THREADS)
    assert done.stdout.splitlines() == ["True", "2"], done.stderr


FAILING = """
import sys
import tools
from clutch import Pool, errors

def mine():
    pass

if __name__ != "__main__":
    with open("runs", "a") as file:
        file.write("run\\n")
    BODY

with Pool("tools", workers=1, name="shop") if __name__ == "__main__" else sys.exit() as pool:
    for _ in range(2):
        try:
            pool.call(mine)
        except errors.BadArguments as error:
            print(error)
    print(pool.call("double", 2))
"""


@pytest.mark.parametrize(
    ("body", "said"), [("raise ValueError('no database')", "ValueError: no database"), ("sys.exit(3)", "SystemExit: 3")]
)
def test_a_script_that_raises_in_a_worker_is_named_with_what_to_do(tmp_path: Path, body: str, said: str) -> None:
    """Each time, and it is not run again. The worker lives on."""
    (tmp_path / "tools.py").write_text(TOOLS)
    done = run_script(tmp_path, FAILING.replace("BODY", body))
    first = f"the script {str(tmp_path / 'script.py')!r} does not load in a worker: {said}; workers run it for"
    assert done.stdout.count(first) == 2, done
    assert done.stdout.count(GUARD) == 2 and f"line 12, in <module>\n    {body}" in done.stdout
    assert done.stdout.splitlines()[-1] == "4"
    assert (tmp_path / "runs").read_text() == "run\n"


HANGING = f"""
import os, threading
import tools
from clutch import Pool, errors

class Point:
    pass

def mine():
    return 1

if __name__ != "__main__":
    threading.Event().wait()

{GUARD}
    for call in [(mine,), ("double", Point())]:
        with Pool("tools", workers=1, OPTIONS, grace=0.1, interrupt_grace=1.0, term_grace=0.1) as pool:
            pool.wait_ready(timeout=60)
            try:
                pool.options(deadline=2.0).call(*call)
            except errors.DeadlineExceeded as error:
                print(error.where)
            print(pool.call("double", 2))
"""


@pytest.mark.parametrize("options", ["profile='process'", "profile='thread', threads=2", "profile='async'"])
def test_a_script_that_does_not_return_in_a_worker_costs_its_caller_alone(tmp_path: Path, options: str) -> None:
    """Also where an argument needs it."""
    (tmp_path / "tools.py").write_text(TOOLS)
    done = run_script(tmp_path, HANGING.replace("OPTIONS", options))
    assert done.stdout.splitlines() == ["running", "4"] * 2, (done.stdout, done.stderr)


SCANNED = f"""
import tools
from clutch import Pool, errors

class Point:
    pass

if __name__ != "__main__":
    raise ValueError("no database")

{GUARD}
    with Pool("tools", workers=1) as pool:
        print(pool.call("scan", "odd_name"))
        for call in [("double", Point()), ("import_of",), ("scan", "odd_name")]:
            try:
                print(pool.call(*call))
            except errors.BadArguments as error:
                print(str(error).partition(";")[0])
            except ImportError as error:
                print("ImportError")
"""
SCAN = """
import sys

@tool
def scan(name):
    return any(hasattr(module, name) for module in list(sys.modules.values()))

@tool
def import_of():
    from __main__ import odd_name
"""


def test_a_scan_of_all_modules_finds_nothing_in_a_script_that_does_not_load(tmp_path: Path) -> None:
    """An argument that needs the script tells why it does not."""
    (tmp_path / "tools.py").write_text(TOOLS + SCAN)
    done = run_script(tmp_path, SCANNED)
    why = f"the script {str(tmp_path / 'script.py')!r} does not load in a worker: ValueError: no database"
    first, argument, imported, last = done.stdout.splitlines() or [done.stderr] * 4
    assert (first, imported, last) == ("False", "ImportError", "False")
    assert argument == f"the arguments cannot be read in the worker: ScriptError: {why}", done.stdout


@pytest.mark.parametrize("target", ['"tools", ', ""])
def test_a_missing_guard_names_the_script(tmp_path: Path, target: str) -> None:
    (tmp_path / "tools.py").write_text(TOOLS)
    text = f"""
from clutch import Pool
def mine():
    pass
def main():
    with Pool({target}workers=1) as pool:
        pool.call(mine)
main()
"""
    done = run_script(tmp_path, text)
    last = done.stderr[done.stderr.index("clutch.errors.") :]
    script = str(tmp_path / "script.py")
    assert f"the script {script!r} does not load in a worker: RuntimeError: A pool was created" in last
    assert GUARD in last and "line 6, in main" in last and done.returncode == 1


# ---- a pool of a module


LIBRARY = """
import os
from clutch import Pool, PoolClosed, tool

pool = Pool(TARGETworkers=2, name="shared")

@tool
def double(value):
    return 2 * value

def use_it():
    try:
        with pool:
            return list(pool.map(double, [1]))
    except PoolClosed as error:
        return str(error)

def make_one():
    with Pool(1) as own:
        return own.call(os.getpid) != os.getpid()
"""
USER = f"""
SHARED
{GUARD}
    import lib
    print(*lib.pool.map(lib.double, range(3)), lib.pool.call(lib.use_it))
    print(lib.pool.call(lib.make_one), len(lib.pool.stats()["workers"]))
"""


@pytest.mark.parametrize("shared", ["import lib", ""], ids=["by the script", "by a worker"])
@pytest.mark.parametrize("target", ["", "'lib', "], ids=["no target", "itself the target"])
def test_a_pool_of_a_module_is_the_programs_and_nobody_elses(tmp_path: Path, shared: str, target: str) -> None:
    """Imported by the script, by the worker that loads the script, by a worker that looks for a function."""
    (tmp_path / "lib.py").write_text(LIBRARY.replace("TARGET", target))
    done = run_script(tmp_path, USER.replace("SHARED", shared))
    first, second = done.stdout.splitlines() or [done.stderr, ""]
    assert first.startswith("0 2 4 pool 'shared' was made while a worker imported the module 'lib', and has no workers")
    assert "must create it in a function, when it runs" in first
    assert second == "True 2"
    assert (done.stderr, done.returncode) == ("", 0)


def test_a_pool_of_a_module_is_warned_of_where_it_has_workers(tmp_path: Path) -> None:
    options = '"lib", workers=2, name="shared", env={"OPENBLAS_NUM_THREADS": str(10**6)}'
    (tmp_path / "lib.py").write_text(LIBRARY.replace('TARGETworkers=2, name="shared"', options))
    done = run_script(tmp_path, USER.replace("SHARED", ""))
    assert done.stdout.splitlines()[1:] == ["True 2"], done.stderr
    assert done.stderr.count("pool 'shared': OPENBLAS_NUM_THREADS=1000000") == 1, done.stderr


# ---- what is set under the guard


GLOBALS = f"""
import helper
from clutch import Pool

def scaled(value):
    return FACTOR * value

def misspelt(value):
    return FACTR * value

def made_late(value):
    return LATE

def set_late():
    global LATE
    LATE = 1

{GUARD}
    FACTOR = 3
    set_late()
    with Pool(TARGETworkers=1) as pool:
        for function in (scaled, made_late, misspelt, helper.scaled):
            for call in (lambda: pool.call(function, 1), lambda: list(pool.map(function, [1, 2]))):
                try:
                    call()
                except NameError as error:
                    print(error, *getattr(error, "__notes__", []), sep="; ")
"""


@pytest.mark.parametrize("target", ["", '"helper", '])
def test_a_global_that_is_set_under_the_guard_is_named_in_the_error(tmp_path: Path, target: str) -> None:
    """Not one that the program does not have either, nor one of another module."""
    (tmp_path / "helper.py").write_text("def scaled(value):\n    return FACTOR * value\n")
    done = run_script(tmp_path, GLOBALS.replace("TARGET", target))
    lines = done.stdout.splitlines()
    assert len(lines) == 8, done.stderr
    for name, line in zip(("FACTOR", "FACTOR", "LATE", "LATE"), lines, strict=False):
        assert line.startswith(f"name '{name}' is not defined; '{name}' is set in this program and not in its workers")
        assert "Set it above the guard" in line
    note = "; item 0 of the map: 1"
    assert lines[4:] == [f"name '{name}' is not defined{end}" for name in ("FACTR", "FACTOR") for end in ("", note)]


LOGGING = f"""
import logging, sys, time
from clutch import Pool

log = logging.getLogger("shop")
TOP

def work(nr):
    log.info("item %s", nr)
    log.LEVEL("careful %s", nr)
    return nr

{GUARD}
    GUARDED
    with Pool(workers=2OPTIONS) as pool:
        list(pool.map(work, range(20), chunksize=1))
        pool.recycle()
        list(pool.map(work, range(20), chunksize=1))
"""
HINT = "warning: log records of workers have no handler"


def run_logging(folder: Path, guarded: str, top: str = "", options: str = "", level: str = "debug") -> str:
    text = LOGGING.replace("TOP", top).replace("GUARDED", guarded).replace("OPTIONS", options)
    done = run_script(folder, text.replace("LEVEL", level))
    assert done.returncode == 0, done.stderr
    return done.stderr


def test_logging_that_is_set_up_under_the_guard_is_missed_once(tmp_path: Path) -> None:
    """By all workers of a pool together."""
    said = run_logging(tmp_path, 'logging.basicConfig(level="INFO")', level="warning")
    assert said.count(HINT) == 1 and "(first: INFO of 'shop')" in said and "Pool(initializer=…)" in said


def test_records_of_the_usual_level_are_missed_too(tmp_path: Path) -> None:
    said = run_logging(tmp_path, 'logging.basicConfig(level="INFO")')
    assert said.count(HINT) == 1 and "(first: INFO of 'shop')" in said


def test_levels_of_workers_stay_as_they_are(tmp_path: Path) -> None:
    text = f"""
import logging
from clutch import Pool

def levels():
    logging.getLogger("shop").info("missed")
    return logging.root.level, logging.getLogger("shop").isEnabledFor(logging.DEBUG)

{GUARD}
    logging.basicConfig(level="DEBUG", filename="log")
    with Pool(workers=1) as pool:
        print(*pool.call(levels))
"""
    assert run_script(tmp_path, text).stdout == "30 False\n"


@pytest.mark.parametrize(
    "form", [("-m", "shop"), ("shop",), ("-m", "unittest", "checks")], ids=["package", "folder", "unittest"]
)
def test_an_entry_file_that_only_starts_the_program_needs_no_guard(tmp_path: Path, form: tuple[str, ...]) -> None:
    (tmp_path / "shop").mkdir()
    (tmp_path / "work.py").write_text("def square(value):\n    return value * value\n")
    (tmp_path / "checks.py").write_text(CHECKS)
    (tmp_path / "shop" / "__main__.py").write_text(f"import sys\nsys.path.insert(0, {str(tmp_path)!r})\n{ENTRY}")
    done = run(tmp_path, *form)
    assert done.returncode == 0, done.stderr
    assert "[0, 1, 4, 9]" in done.stdout


ENTRY = """
from clutch import Pool
from work import square
with Pool(2) as pool:
    print(list(pool.map(square, range(4))))
"""
CHECKS = """
import unittest
from clutch import Pool
from work import square

class Checks(unittest.TestCase):
    def test_squares(self):
        with Pool(2) as pool:
            print(list(pool.map(square, range(4))))
"""


def test_records_that_are_shown_all_the_same_still_are(tmp_path: Path) -> None:
    said = run_logging(tmp_path, "logging.basicConfig()", level="warning")
    assert said.count(HINT) == 1 and said.count("careful") == 40


@pytest.mark.parametrize(
    ("guarded", "more"),
    [
        ("pass", {}),
        ("logging.getLogger().addHandler(logging.NullHandler())", {}),
        ("logging.basicConfig()", {}),
        ("logging.basicConfig(level='ERROR')", {"level": "info"}),
        ("pass", {"top": "logging.basicConfig(level='WARNING')"}),
        (
            "logging.basicConfig(level='INFO')",
            {"options": ", initializer=logging.basicConfig"},
        ),
    ],
    ids=["none", "null", "nothing to handle", "nothing so severe", "above the guard", "initializer"],
)
def test_no_hint_where_no_record_is_lost(tmp_path: Path, guarded: str, more: dict[str, str]) -> None:
    assert run_logging(tmp_path, guarded, **more) == ""


def test_the_loops_of_workers_are_no_reason_for_a_hint(tmp_path: Path) -> None:
    """They log at DEBUG that they are made."""
    text = f"""
import asyncio, logging
from clutch import Pool
{GUARD}
    logging.basicConfig(level="DEBUG", filename="log")
    for profile in ("async", "process"):
        with Pool(workers=1, profile=profile) as pool:
            pool.call(asyncio.sleep, 0)
"""
    done = run_script(tmp_path, text)
    assert (done.stderr, done.returncode) == ("", 0)
    assert os.path.exists(tmp_path / "log")
