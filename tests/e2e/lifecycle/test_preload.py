"""`preload = "auto"`: what an import leaves behind decides whether workers are forked from it."""

from __future__ import annotations

import os
import socket
import sysconfig
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from clutch import Pool
from clutch.testing import Watch
from support.stderr import Stderr

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
    "file": (
        "catalogue = open({folder!r} + '/written_file.py', 'rb')",
        "written_file.py:7 opened {folder}/written_file.py",
    ),
    "output": ("output = open({folder!r} + '/output.txt', 'w')", "opened {folder}/output.txt"),
    "program": (
        "import subprocess\ncat = subprocess.Popen(['cat'], stdin=subprocess.PIPE, stdout=subprocess.PIPE)\n"
        "cat.stdin.write(b'here\\n'); cat.stdin.flush(); cat.stdout.readline()",  # its name comes late in an exec
        "started program cat",
    ),
    "timer": ("import signal\nsignal.setitimer(signal.ITIMER_REAL, 3600)", "set a timer"),
    "loop": ("import asyncio\nloop = asyncio.new_event_loop()", "made an event loop that never runs"),
    "task": (
        "import asyncio\nasync def tick(): pass\nloop = asyncio.new_event_loop(); task = loop.create_task(tick())",
        "made an event loop that never runs; made a task for it: tick ({folder}/written_task.py:8)",
    ),
    "epoll": ("import select\npoller = select.epoll()", "(made an event loop)"),
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


@pytest.mark.parametrize(("does", "kind"), [("", "info"), (LEFT["timer"][0], "warning")])
def test_what_a_library_does_by_its_import_is_no_warning(
    folder: Path, events: Watch, monkeypatch: pytest.MonkeyPatch, does: str, kind: str
) -> None:
    monkeypatch.setenv("PYTHONUSERBASE", str(folder))
    library = Path(sysconfig.get_path("purelib", "posix_user", {"userbase": str(folder)})) / "restless"
    library.mkdir(parents=True)
    (library / "__init__.py").write_text(LEFT["thread"][0])
    monkeypatch.syspath_prepend(str(library.parent))
    name = f"written_restless_{kind}"
    (folder / f"{name}.py").write_text(f"{BEGIN}import restless\n{does}\n{TOOLS}")
    with Stderr() as stderr, Pool(name, workers=1) as pool:
        loaded_in, pid, _ = pool.call("facts")
        assert loaded_in == pid
        told = stderr.wait("forks would share or lack")
    (line,) = (line for line in told.splitlines() if "forks would share" in line)
    assert f"{kind}: " in line and f"{name}.py:7 started thread busy-bee" in line
    assert ("@clutch.on_start" in line) == (kind == "warning")
    warnings = events.wait("zygote_ready", pool="pool")["warnings"]
    assert len(warnings) == (kind == "warning")


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


ODD = {
    "open as a name of a class": "class Files:\n    opened = open\nassert Files().opened(__file__).read()",
    "its own output": "import codecs\nsys.stdout = codecs.getwriter('utf-8')(sys.stdout.buffer)",
    "no output": "sys.stdout = sys.stderr = None",
    "closed output": "import io\nsys.stdout = io.StringIO(); sys.stdout.close()",
    "an environment of its own": "os.environ = os.environ.copy()",
    "a file that is none": """
import io
class Below(io.RawIOBase):
    def writable(self): return True
    def fileno(self): raise NotImplementedError
log, file = open({folder!r} + '/log.txt', 'a'), io.BufferedWriter(Below())
""",
    "a generator that takes a seed": """
import random
class Noisy(random.Random):
    def __init__(self): super().__init__()
    def seed(self, *given): super().seed(*given) if given and given != (None,) else super().seed()
noisy = Noisy()
Noisy.seed = lambda self, value: None
""",
    "a module that is none": """
class Odd:
    def __getattr__(self, name): raise LookupError(name)
sys.modules['odd'] = Odd()
import threading
threading.Thread(target=threading.Event().wait, daemon=True).start()
""",
}


@pytest.mark.parametrize("name", ODD)
def test_odd_targets_start_as_they_do_fresh(folder: Path, name: str) -> None:
    module = f"written_odd_{list(ODD).index(name)}"
    (folder / f"{module}.py").write_text(f"{BEGIN}{ODD[name].replace('{folder!r}', repr(str(folder)))}\n{TOOLS}")
    with Pool(module, workers=1) as pool:
        assert pool.call("other") == "other"


LAZY = """
class Lazy:
    \"\"\"As Django's: whatever is asked of it evaluates it.\"\"\"
    def __getattr__(self, name):
        print("evaluated", name, file=sys.stderr, flush=True)
        raise RuntimeError
    __class__ = property(lambda self: self.__getattr__("__class__"))
lazy = Lazy()
"""


def test_no_lazy_object_is_evaluated(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("numpy")
    more = "import numpy\ndrawn, seeded = numpy.random.default_rng(), numpy.random.default_rng([1, 2])\n"
    log = f"log = open({str(folder / 'log.txt')!r}, 'a')\n"
    (folder / "written_lazy.py").write_text(f"{BEGIN}{more}{log}{LAZY}{TOOLS}")
    with Pool("written_lazy", workers=1) as pool:
        assert pool.call("other") == "other"
    assert "evaluated" not in capfd.readouterr().err


FILTERS = """
import logging, warnings
warnings.filterwarnings("ignore", message="noisy")
warnings.filterwarnings("error", message="bad")
logging.captureWarnings(True)

@tool
def warned():
    warnings.warn("noisy")
    try:
        warnings.warn("bad")
    except UserWarning:
        return warnings.showwarning.__module__
"""


@pytest.mark.parametrize("preload", ["auto", True, False])
def test_what_the_target_does_with_warnings_stays(folder: Path, preload: bool) -> None:
    (folder / f"written_filters_{preload}.py").write_text(f"{BEGIN}{FILTERS}")
    with Pool(f"written_filters_{preload}", workers=1, preload=preload) as pool:
        assert pool.call("warned") == "logging"


def test_what_is_frozen_for_the_collector_is_looked_at_too(folder: Path) -> None:
    pytest.importorskip("numpy")
    text = "import gc, numpy\ndrawn = numpy.random.default_rng()\ngc.freeze()\n"
    draw = "@tool\ndef draw():\n    return os.getpid(), drawn.random()\n"
    (folder / "written_frozen.py").write_text(f"{BEGIN}{text}{TOOLS}{draw}")
    with Pool("written_frozen", workers=2) as pool:
        found = dict(pool.call("draw") for _ in range(40))
        assert len(set(found.values())) == len(found)


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
