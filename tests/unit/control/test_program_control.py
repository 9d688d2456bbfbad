"""The control socket of a program's pools, without workers: many threads, no descriptors, destructors, copies."""

from __future__ import annotations

import logging
import os
import resource
import subprocess
import sys
import threading
import time
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from clutch.control import protocol
from clutch.control.program import Program, program_name
from clutch.control.server import CLOSE_SECONDS_MAX

WAIT_SECONDS = 30.0
THREADS, ROUNDS = 8, 25


class FakePool:
    def __init__(self, name: str = "pool") -> None:
        self.name = name
        self.over = threading.Event()
        self._is_found = False

    def _wait_closed(self, timeout: float) -> bool:
        return self.over.is_set()

    def stats(self) -> dict[str, Any]:
        return {"name": self.name, "workers": []}

    def running(self) -> dict[str, Any]:
        return {}


@pytest.fixture(autouse=True)
def _own_runtime_folder(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path_factory.mktemp("run")))
    monkeypatch.delenv("CLUTCH_CONTROL", raising=False)


@pytest.fixture
def program() -> Iterator[Program]:
    program = Program()
    yield program
    program.close()


def files() -> list[Path]:
    return list(protocol.folder().glob("*.sock"))


def shown() -> list[str]:
    (path,) = files()
    return [pool["name"] for pool in protocol.ask(path, "ps", WAIT_SECONDS)["pools"]]


def test_names_stay_while_others_come_and_go(program: Program) -> None:
    one, two, three, other = FakePool(), FakePool(), FakePool(), FakePool("pool-2")
    for pool in (one, two, other):
        program.show(pool)
    assert shown() == ["pool", "pool-2", "pool-2-2"]
    program.hide([one])
    assert shown() == ["pool-2", "pool-2-2"]
    program.show(three)
    assert sorted(shown()) == ["pool", "pool-2", "pool-2-2"]
    program.hide([two, three, other])
    assert files() == []
    program.hide([two])


def test_many_threads_open_and_close(program: Program) -> None:
    failed: list[BaseException] = []
    together = threading.Barrier(THREADS)

    def open_and_close() -> None:
        try:
            for _ in range(ROUNDS):
                together.wait(WAIT_SECONDS)
                pool = FakePool()
                program.show(pool)
                assert program._control is not None, "one that is open has a socket"
                program.hide([pool])
        except BaseException as error:
            failed.append(error)
            together.abort()

    threads = [threading.Thread(target=open_and_close) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_SECONDS)
    assert not failed and files() == []
    assert not [thread for thread in threading.enumerate() if thread.name == "clutch-control"]


def test_a_pool_that_leaves_is_shown_until_it_is_over(program: Program) -> None:
    first, second = FakePool("first"), FakePool("second")
    program.show(first)
    program.show(second)
    control = program._control
    program.leaves(first)
    program.hide([second])
    over = first.over
    del first
    assert shown() == ["first"], "and kept, where nobody else does"
    over.set()
    assert control is not None
    control._thread.join(WAIT_SECONDS)
    assert not control._thread.is_alive() and files() == []


def test_a_destructor_waits_for_no_lock(program: Program) -> None:
    """Another thread may hold it and wait for the one that the destructor runs in."""
    pool = FakePool()
    program.show(pool)
    with program._lock:
        thread = threading.Thread(target=program.leaves, args=(pool,))
        thread.start()
        thread.join(WAIT_SECONDS)
        assert not thread.is_alive()
    pool.over.set()


def test_what_the_garbage_collector_gave_up_is_named_again(program: Program) -> None:
    pool, other = FakePool(), FakePool("other")
    program.show(pool)
    program.show(other)
    program._pools.remove([pool])  # as its references are cleared before a destructor in a cycle runs
    program.leaves(pool)
    while shown() != ["other", "pool"]:
        pass
    pool.over.set()
    while shown() != ["other"]:
        pass


def test_without_descriptors_nothing_fails(program: Program, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "clutch")
    pool = FakePool()
    program.show(pool)  # what it imports is there from now on
    program.hide([pool])
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
    assert files() == [] and "no control socket" in caplog.text
    program.show(FakePool("later"))
    assert [one.pid for one in protocol.running()] == [os.getpid()], "the next one tries again"


def test_it_answers_when_no_thread_can_be_started(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    """As at the end of the interpreter."""
    pool = FakePool()
    program.show(pool)

    def refuse(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    assert shown() == ["pool"] and shown() == ["pool"]
    program.hide([pool])
    program.show(pool)
    assert files() == [], "without its thread there is no socket"


def test_a_command_under_way_does_not_hold_up_the_last_pool(program: Program) -> None:
    pool, asked, go_on = FakePool(), threading.Event(), threading.Event()

    def recycle(*_: object) -> None:
        asked.set()
        go_on.wait(WAIT_SECONDS)

    pool.recycle = recycle  # type: ignore[attr-defined]
    program.show(pool)
    with protocol.connected(files()[0], WAIT_SECONDS) as connection:
        protocol.send(connection, {"command": "recycle"})
        assert asked.wait(WAIT_SECONDS)
        begun = time.monotonic()
        program.hide([pool])
        assert files() == [] and time.monotonic() - begun < CLOSE_SECONDS_MAX
        go_on.set()
        assert protocol.receive(connection, protocol.ANSWER_BYTES_MAX) == {"result": ["pool"]}


def test_a_command_that_fails_as_none_should_prints_nothing(
    program: Program, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = FakePool()
    monkeypatch.setattr(pool, "stats", lambda: 1 / 0)
    program.show(pool)
    caplog.set_level(logging.DEBUG, "clutch")
    with pytest.raises(protocol.ControlError, match="ZeroDivisionError"):
        shown()
    assert [record.levelno for record in caplog.records] == [logging.DEBUG]


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
