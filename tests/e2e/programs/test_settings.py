"""What a program sets for its whole process before it makes a pool: workers have it, or the difference is told."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SEEN = """
import csv, decimal, locale, logging, os, socket, sys, tempfile, threading, warnings
from clutch import Pool

class Odd(Warning):
    pass

def seen():
    return {
        "decimal": (decimal.getcontext().prec, decimal.getcontext().rounding, str(decimal.Decimal(1) / 7)),
        "in a thread": in_a_thread(),
        "locale": locale.setlocale(locale.LC_NUMERIC),
        "socket": socket.getdefaulttimeout(),
        "sys": (sys.getrecursionlimit(), sys.getswitchinterval(), sys.get_int_max_str_digits()),
        "csv": csv.field_size_limit(),
        "logging": logging.root.manager.disable,
        "tempfile": tempfile.gettempdir(),
        "threading": stack_size(),
        "warnings": outcome_of_warning(),
    }

def stack_size():
    size = threading.stack_size()  # which sets it to 0
    threading.stack_size(size)
    return size

def in_a_thread():
    found = []
    thread = threading.Thread(target=lambda: found.append(decimal.getcontext().prec))
    thread.start()
    thread.join()
    return found

def outcome_of_warning():
    try:
        warnings.warn("odd", Odd)
    except Odd:
        return "raised"

def set_all():
    decimal.DefaultContext.prec = decimal.getcontext().prec = 50
    decimal.getcontext().rounding = decimal.ROUND_UP
    locale.setlocale(locale.LC_NUMERIC, "C.UTF-8")
    socket.setdefaulttimeout(5)
    sys.setrecursionlimit(5000)
    sys.setswitchinterval(0.125)
    sys.set_int_max_str_digits(9000)
    csv.field_size_limit(1 << 20)
    logging.disable(logging.CRITICAL)
    tempfile.tempdir = "/"
    threading.stack_size(1 << 20)
    warnings.filterwarnings("error", category=Odd)

def check():
    set_all()
    for start in ("fork", "spawn"):
        with Pool(1, profile=sys.argv[1], start=start) as pool:
            here, there = seen(), pool.call(seen)
            assert here == there, {name: (here[name], there[name]) for name in here if here[name] != there[name]}
            assert there["decimal"][0] == 50 and there["warnings"] == "raised", there
            # What a worker's own code sets is its own.
            pool.call(decimal.setcontext, decimal.Context(9))
            pool.call(socket.setdefaulttimeout, None)
        assert seen() == here

if __name__ == "__main__":
    check()
"""

NOTHING_SET = """
import decimal, locale, logging, socket, tempfile, threading, warnings
from clutch import Pool
from clutch._worker import settings

LIMIT = 10

def seen():
    return LIMIT

if __name__ == "__main__":
    tempfile.gettempdir()
    assert settings.of_program(True) is None, settings.of_program(True)
    with Pool(1) as pool:
        assert pool.call(seen) == 10
"""

CONF = """
import os, time

LIMIT = 10
OPTIONS = {"strict": False, "names": ["a"]}
NAMED = dict(a=1)
PID, STARTED = os.getpid(), time.time()
COUNT = 0
UNUSED = 1

def more():
    global COUNT
    COUNT += 1
    return COUNT
"""

DIFFERING = """
import conf
from clutch import Pool

ALPHA = 1
same = (1, "two", 3.0)

def seen():
    assert conf.PID and conf.STARTED and conf.NAMED
    return conf.LIMIT, conf.OPTIONS, conf.more(), ALPHA, same

def main():
    global ALPHA
    ALPHA = 5

if __name__ == "__main__":
    conf.LIMIT = 3
    conf.OPTIONS["strict"] = True
    conf.UNUSED = 2
    conf.more()
    with Pool(2) as pool:
        pool.wait_ready()
        assert pool.call(seen) == (10, {"strict": False, "names": ["a"]}, 1, 1, same)
        pool.recycle()
    with Pool(2, initializer=setattr, initargs=(conf, "LIMIT", 3)) as pool:
        pool.wait_ready()
        pool.call(seen)
"""


def run(folder: Path, program: str, *arguments: str) -> str:
    (folder / "conf.py").write_text(CONF)
    (folder / "main.py").write_text(program)
    done = subprocess.run(
        [sys.executable, "main.py", *arguments], cwd=folder, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.mark.parametrize("profile", ["process", "async"])
def test_workers_have_the_settings_of_the_program(tmp_path: Path, profile: str) -> None:
    assert run(tmp_path, SEEN, profile) == ""


def test_also_those_of_a_program_without_a_file(tmp_path: Path) -> None:
    command = [sys.executable, "-c", SEEN, "process"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_what_is_as_at_the_start_is_not_sent(tmp_path: Path) -> None:
    assert run(tmp_path, NOTHING_SET) == ""


def test_values_that_differ_are_told_by_name(tmp_path: Path) -> None:
    first, second = run(tmp_path, DIFFERING).splitlines()
    assert "warning: workers have other values than this program in " in first
    assert "in conf.LIMIT, conf.OPTIONS: they" in first or "in conf.OPTIONS, conf.LIMIT: they" in first, first
    assert "in conf.OPTIONS: they" in second, "the initializer has set the other one"


def test_they_come_over_what_the_top_of_the_script_sets(tmp_path: Path) -> None:
    program = """
import decimal, threading
from clutch import Pool

decimal.getcontext().prec = decimal.DefaultContext.prec = 10

def seen():
    return decimal.getcontext().prec

def set_here():
    decimal.getcontext().prec = 70

if __name__ == "__main__":
    decimal.getcontext().prec = 50
    for options in ({}, {"preload": False}, {"start": "spawn"}, {"target": "json"}):
        with Pool(1, **options) if "target" not in options else Pool("json", workers=1) as pool:
            assert pool.call(seen) == 50, options
        with Pool(1, initializer=set_here, **options) if "target" not in options else Pool(1) as pool:
            assert pool.call(seen) == (50 if "target" in options else 70), options
"""
    assert run(tmp_path, program) == ""


def test_odd_values_of_a_module_do_no_harm(tmp_path: Path) -> None:
    program = """
import os
from clutch import Pool

class Proxy:
    def __getattr__(self, name): raise RuntimeError("no request")

class View:
    request = Proxy()
    def get(self): return BIG, ROWS, BLOB, KINDS, TAG, CACHE, recursive

class Row:
    def __repr__(self): raise RuntimeError("no session")

BIG = 10 ** 5000
ROWS = {Row(), Row()}
BLOB = bytes(10_000_000)
KINDS = list({"red", "green", "blue", "black"})
PID = os.getpid()
TAG = f"run-{PID}"
CACHE = {}
recursive = []
recursive.append(recursive)

def f(x):
    return x

if __name__ == "__main__":
    CACHE["a"] = 1
    with Pool(1) as pool:
        assert pool.call(f, 1) == 1
"""
    assert run(tmp_path, program) == ""


def test_options_of_numpy_and_pandas(tmp_path: Path) -> None:
    pytest.importorskip("numpy")
    program = """
import numpy
from clutch import Pool

def seen():
    return numpy.geterr(), numpy.get_printoptions()["precision"]

if __name__ == "__main__":
    numpy.seterr(divide="raise")
    numpy.set_printoptions(precision=3)
    with Pool(1) as pool:
        assert pool.call(seen) == seen()
"""
    assert run(tmp_path, program) == ""
