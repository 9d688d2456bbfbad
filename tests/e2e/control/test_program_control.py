"""The control socket of a program's pools: many threads, no descriptors, the last pool, copies."""

from __future__ import annotations

import contextlib
import logging
import os
import resource
import subprocess
import sys
import threading
import types
from collections.abc import Iterator
from pathlib import Path

import pytest

from clutch import Pool, _core
from clutch.control import client, sockets
from clutch.control import program as control_program
from clutch.control.program import Program, program_name

WAIT_SECONDS = 30.0
THREADS, ROUNDS = 4, 5


@pytest.fixture(autouse=True)
def _own_runtime_folder(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path_factory.mktemp("run")))
    monkeypatch.delenv("CLUTCH_CONTROL", raising=False)


@pytest.fixture
def pool() -> Iterator[Pool]:
    with Pool(1, name="shown") as pool:
        yield pool


@pytest.fixture
def program() -> Iterator[Program]:
    """Another one than the process's own."""
    program = Program()
    yield program
    program.close()


def files() -> list[Path]:
    return list(sockets.folder().glob("*.sock"))


def shown() -> list[str]:
    (path,) = files()
    return [pool["name"] for pool in client.get(path, "/pools", WAIT_SECONDS)["pools"]]


def is_served() -> bool:
    """Whether the socket's thread is there."""
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # another one that has just ended
            if (task / "comm").read_text().startswith("clutch-operato"):
                return True
    return False


def test_names_stay_while_others_come_and_go() -> None:
    with Pool(1, name="work") as one, Pool(1, name="work") as two, Pool(1, name="work-2") as other:
        assert shown() == ["work", "work-2", "work-2-2"]
        one.shutdown()
        assert shown() == ["work-2", "work-2-2"]
        with Pool(1, name="work"):
            assert sorted(shown()) == ["work", "work-2", "work-2-2"]
        two.shutdown()
        other.shutdown()
        assert files() == []


def test_many_threads_open_and_close() -> None:
    failed: list[BaseException] = []
    together = threading.Barrier(THREADS)

    def open_and_close() -> None:
        try:
            for _ in range(ROUNDS):
                together.wait(WAIT_SECONDS)
                with Pool(1):
                    assert files(), "one that is open has a socket"
        except BaseException as error:
            failed.append(error)
            together.abort()

    openers = [threading.Thread(target=open_and_close) for _ in range(THREADS)]
    for opener in openers:
        opener.start()
    for opener in openers:
        opener.join()
    assert not failed and files() == []
    while is_served():
        pass


def test_a_pool_that_leaves_is_shown_until_it_is_over(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    pool = Pool(1, name="leaves")
    future = pool.submit(os.open, str(gate), os.O_RDONLY)  # until somebody writes
    pool.shutdown(wait=False)
    del pool
    assert shown() == ["leaves"]
    os.close(os.open(gate, os.O_WRONLY))
    assert future.result(WAIT_SECONDS) > 0
    while files() or is_served():
        pass


def test_without_descriptors_nothing_fails(pool: Pool, program: Program, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "clutch")
    program.show(pool)  # what it imports is there from now on
    program.close()
    (own,) = files()
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken = [os.open("/dev/null", os.O_RDONLY)]
    resource.setrlimit(resource.RLIMIT_NOFILE, (taken[0] + 1, before[1]))
    try:
        while True:
            try:
                taken.append(os.open("/dev/null", os.O_RDONLY))
            except OSError:
                break
        program.show(pool)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
        for descriptor in taken:
            os.close(descriptor)
    assert files() == [own] and "no control socket" in caplog.text


def test_a_program_answers_while_it_holds_the_interpreter(tmp_path: Path) -> None:
    """Its Python does nothing for it."""
    script = tmp_path / "busy.py"
    script.write_text(
        "import ctypes, sys\nfrom clutch import Pool\nif __name__ == '__main__':\n"
        "    pool = Pool(1, name='held')\n    pool.wait_ready()\n    print('held', flush=True)\n"
        "    ctypes.PyDLL(None).pause()\n"  # with the GIL
    )
    process = subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None and process.stdout.readline() == "held\n"
        assert shown() == ["held"]
        (path,) = files()
        assert client.post(path, "/pools/held/recycle", WAIT_SECONDS) == {"pools": ["held"]}
    finally:
        process.kill()
        process.wait()


def test_importing_clutch_imports_none_of_it() -> None:
    code = "import clutch, sys; print([name for name in sys.modules if name.startswith('clutch.control')])"
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "[]\n"


@pytest.mark.parametrize(
    ("attributes", "variable", "name"),
    [
        ({}, "", "a notebook"),
        ({}, "/home/me/sales.ipynb", "/home/me/sales.ipynb"),
        ({"__vsc_ipynb_file__": "/home/me/code.ipynb"}, "", "/home/me/code.ipynb"),
    ],
)
def test_notebooks(attributes: dict[str, str], variable: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    main = types.ModuleType("__main__")
    vars(main).update(attributes)
    monkeypatch.setitem(sys.modules, "__main__", main)
    monkeypatch.setitem(sys.modules, "ipykernel", types.ModuleType("ipykernel"))
    monkeypatch.setenv("JPY_SESSION_NAME", variable)
    assert program_name() == name


@pytest.mark.parametrize("argv", [None, [], [""]])
def test_an_interpreter_in_another_program(argv: list[str] | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "__main__", types.ModuleType("__main__"))
    monkeypatch.setattr(sys, "executable", "/usr/sbin/httpd")
    monkeypatch.setattr(sys, "argv", argv)
    if argv is None:
        monkeypatch.delattr(sys, "argv")
    assert program_name() == "httpd"
    monkeypatch.setattr(sys, "executable", None)
    assert program_name() == "python"


def test_a_signal_handler_makes_a_pool_while_the_first_one_is_shown(
    program: Program, pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = control_program.plane_of_program
    with Pool(1, name="other") as other:

        def make_meanwhile() -> _core.Plane:
            monkeypatch.undo()
            monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
            program.show(other)
            return made()

        runtime = sockets.folder().parent
        for path in files():  # that of the process's own
            path.unlink()
        monkeypatch.setattr(control_program, "plane_of_program", make_meanwhile)
        program.show(pool)
        assert shown() == ["other", "shown"]
