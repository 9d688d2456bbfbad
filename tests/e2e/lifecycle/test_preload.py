"""`preload = "auto"`: what an import leaves behind decides whether workers are forked from it."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from clutch import Pool
from clutch.testing import Watch

TOOLS = """
@tool
def facts():
    return LOADED_IN, os.getpid(), WAS_THERE

@tool
def other():
    return "other"
"""
BEGIN = """
import os, sys
from clutch import tool
LOADED_IN = os.getpid()
WAS_THERE = "colorsys" in sys.modules
import colorsys
"""

NATIVE_THREAD = (
    "import ctypes\nthread = ctypes.c_ulong()\n"
    "ctypes.CDLL(None).pthread_create(ctypes.byref(thread), None, "
    "ctypes.cast(ctypes.CDLL(None).pause, ctypes.c_void_p), None)"
)
LEFT = {
    "thread": (
        "import threading\nthreading.Thread(target=threading.Event().wait, name='busy-bee', daemon=True).start()",
        r"written_{name}.py:8 started thread busy-bee",
    ),
    "connection": (
        "import socket\nserver = socket.socket(); server.connect(('127.0.0.1', {port}))",
        "written_{name}.py:8 connected to 127.0.0.1:{port}",
    ),
    "listener": (
        "import socket\nserver = socket.create_server(('127.0.0.1', 0))",
        "listens on 127.0.0.1:",
    ),
    "database": (
        "import sqlite3\nshop = sqlite3.connect({folder!r} + '/shop.db')\nshop.execute('pragma user_version = 1')",
        "opened {folder}/shop.db",
    ),
    "file": ("catalogue = open({folder!r} + '/written_file.py', 'rb')", "opened {folder}/written_file.py"),
    "output": ("output = open({folder!r} + '/output.txt', 'w')", "opened {folder}/output.txt"),
    "program": (
        "import subprocess\ncat = subprocess.Popen(['cat'], stdin=subprocess.PIPE, stdout=subprocess.PIPE)\n"
        "cat.stdin.write(b'here\\n'); cat.stdin.flush(); cat.stdout.readline()",  # its name comes late in an exec
        "started program cat",
    ),
    "timer": ("import signal\nsignal.setitimer(signal.ITIMER_REAL, 3600)", "set a timer"),
    "loop": ("import asyncio\nloop = asyncio.new_event_loop()", "made an event loop"),
    "openmp": (NATIVE_THREAD, "1 thread of native code"),
}
CLEAN = {
    "nothing": "",
    "log": "log = open({folder!r} + '/log.txt', 'a')",
    "jemalloc": NATIVE_THREAD + "\nctypes.CDLL(None).pthread_setname_np(thread, b'jemalloc_bg_thd')",
    "proj": "open({folder!r} + '/proj.db', 'w').close()\ndatabase = open({folder!r} + '/proj.db')",
}


@pytest.fixture
def peer() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        kept: list[socket.socket] = []

        def accept() -> None:
            while True:
                try:
                    kept.append(server.accept()[0])
                except OSError:
                    return

        threading.Thread(target=accept, daemon=True).start()
        yield server.getsockname()[1]


@pytest.mark.parametrize("name", LEFT)
def test_what_a_fork_would_share_or_lack_is_imported_by_each_worker(
    folder: Path, events: Watch, peer: int, name: str
) -> None:
    does, told = (text.format(port=peer, folder=str(folder), name=name) for text in LEFT[name])
    (folder / f"written_{name}.py").write_text(f"{BEGIN}{does}\n{TOOLS}")
    with Pool(f"written_{name}", workers=2) as pool:
        found = [pool.call("facts") for _ in range(10)]
        assert all(loaded_in == pid for loaded_in, pid, _ in found), "each worker has run the user's own code"
        assert all(was_there for _, _, was_there in found), "its libraries were there"
        (warning,) = events.wait("zygote_ready", pool="pool")["warnings"]
        assert told in warning and "preload = true" in warning and "@clutch.on_start" in warning
        pool.reload(timeout=60)
        assert pool.call("other") == "other"


@pytest.mark.parametrize("name", CLEAN)
def test_a_clean_import_is_forked(folder: Path, events: Watch, name: str) -> None:
    (folder / f"written_clean_{name}.py").write_text(f"{BEGIN}{CLEAN[name].format(folder=str(folder))}\n{TOOLS}")
    with Pool(f"written_clean_{name}", workers=2) as pool:
        loaded_in, pid, _ = pool.call("facts")
        assert loaded_in == pool.stats()["zygote_pid"] != pid
        assert events.wait("zygote_ready", pool="pool")["warnings"] == []


def test_what_was_not_written_yet_is_written_once(folder: Path) -> None:
    file = folder / "log.txt"
    text = f"log = open({str(file)!r}, 'a')\nlog.write('begin\\n')\n"
    ends = "\nfrom clutch import on_stop\n@on_stop\ndef write():\n    log.write('end\\n'); log.flush()\n"
    (folder / "written_log.py").write_text(f"{BEGIN}{text}{TOOLS}{ends}")
    with Pool("written_log", workers=2) as pool:
        assert pool.call("other") == "other"
        pool.reload(timeout=60)
    lines = file.read_text().splitlines()
    assert lines.count("begin") == 2, "once for each image"


def test_true_forks_nevertheless_and_says_what_is_shared(folder: Path, events: Watch) -> None:
    (folder / "written_true.py").write_text(f"{BEGIN}{LEFT['thread'][0]}\n{TOOLS}")
    with Pool("written_true", workers=1, preload=True) as pool:
        loaded_in, pid, _ = pool.call("facts")
        assert loaded_in != pid
        (warning,) = events.wait("zygote_ready", pool="pool")["warnings"]
        assert "written_true.py:8 started thread busy-bee" in warning and 'preload at "auto"' in warning


def test_a_list_names_the_modules(folder: Path) -> None:
    (folder / "written_listed.py").write_text(BEGIN + TOOLS)
    with Pool("written_listed", workers=1, preload=["colorsys"]) as pool:
        loaded_in, pid, was_there = pool.call("facts")
        assert loaded_in == pid and was_there


def test_what_the_program_had_changed_is_as_it_was(folder: Path) -> None:
    """The environment, when a library was imported; afterwards it is the user's code that changes it."""
    (folder / "written_environ.py").write_text(
        BEGIN + "os.environ['SHOP'] = 'open'\nimport chunk_of_environ\nSEEN = chunk_of_environ.SEEN\n"
        f"{LEFT['thread'][0]}\n{TOOLS}\n@tool\ndef seen():\n    return SEEN, os.environ['SHOP']\n"
    )
    (folder / "chunk_of_environ.py").write_text("import os\nSEEN = os.environ.get('SHOP')\n")
    with Pool("written_environ", workers=1) as pool:
        assert pool.call("seen") == ("open", "open")


GENERATORS = """
import random, sqlite3
try:
    import numpy
except ImportError:
    numpy = None
from clutch import tool

GIVEN = {"own": random.Random(), "seeded": random.Random(7)}
if numpy is not None:
    GIVEN |= {"numpy": numpy.random.default_rng(), "numpy seeded": numpy.random.default_rng(7)}
    GIVEN |= {"old": numpy.random.RandomState(), "old seeded": numpy.random.RandomState(7)}

database = sqlite3.connect(":memory:", check_same_thread=False)
database.execute("select random()").fetchone()

class OfSqlite:
    def random(self):
        return database.execute("select random()").fetchone()[0]

GIVEN["sqlite"] = OfSqlite()

@tool
def draw():
    return {name: float(one.random() if hasattr(one, "random") else one.random_sample()) for name, one in GIVEN.items()}
"""


def test_generators_that_the_system_has_seeded_differ(folder: Path) -> None:
    (folder / "written_draws.py").write_text(GENERATORS)
    drawn: dict[int, dict[str, Any]] = {}
    with Pool("written_draws", workers=1, max_tasks_per_child=1) as pool:
        for number in range(3):
            drawn[number] = pool.call("draw")
    for name in drawn[0]:
        distinct = len({one[name] for one in drawn.values()})
        assert distinct == (1 if "seeded" in name else 3), name


def test_the_environment_of_each_library_is_noted() -> None:
    from clutch._worker.afresh import Roots, changed

    roots = Roots()
    roots.find_spec("first")
    with changed({"CLUTCH_TEST_SHOP": "open", "PATH": None}):
        roots.find_spec("second")
        roots.find_spec("second.part")
    assert roots.changes == {"second": {"CLUTCH_TEST_SHOP": "open", "PATH": None}}
    assert "CLUTCH_TEST_SHOP" not in os.environ and os.environ["PATH"]
