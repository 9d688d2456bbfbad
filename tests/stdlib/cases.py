"""The interpreter's own cases for process pools, with `clutch.Pool` as the executor.

Nothing of them is copied: they are loaded from `test.test_concurrent_futures` of the Python that runs this. Two things
are put right for them, since they are no matter of the executor: scripts that import the executor by its name get it
from `clutch`, and what workers print comes without the `[pool/nr]` that Clutch puts before it.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import multiprocessing
import re
from multiprocessing.context import BaseContext
from types import ModuleType
from typing import Any

from clutch import Pool

PACKAGE = "test.test_concurrent_futures"
# Module of the package: its classes of cases. test_future and test_thread_pool are about neither processes nor pools.
CASES = {
    "test_process_pool": ["ProcessPoolExecutorTest"],
    "test_shutdown": ["ProcessPoolShutdownTest"],
    "test_wait": ["WaitTests"],
    "test_as_completed": ["AsCompletedTests"],
    "test_init": ["InitializerMixin", "FailingInitializerMixin"],
    "test_deadlock": ["ExecutorDeadlockTest"],
}
PREFIX = re.compile(rb"^\[[\w-]+/\w+\] ", re.MULTILINE)


def load(name: str) -> ModuleType:
    return importlib.import_module(f"{PACKAGE}.{name}")


class Named(Pool):
    """What cases get that name ProcessPoolExecutor themselves; not `Pool`, since some ask whether it is theirs."""


class Impatient(Pool):
    """A case that fails in a `with` block may leave calls behind that wait for something of its own."""

    def __exit__(self, kind: type[BaseException] | None, *error: Any) -> bool | None:
        if kind is not None:
            self.kill_workers()
        return super().__exit__(kind, *error)


Impatient.__name__ = Pool.__name__  # which scripts of cases import


def make_cases() -> dict[str, type]:
    """By the name of the class that the cases are defined in."""
    util = load("util")

    class PoolMixin(util.ExecutorMixin):  # type: ignore[name-defined, misc]
        executor_type = Impatient

        def get_context(self) -> BaseContext:
            """Of all, the one that is most like our way: forked from a process that was started afresh."""
            return multiprocessing.get_context("forkserver")

        def create_event(self) -> Any:
            """Asked for by cases of 3.14 and later."""
            manager = self.get_context().Manager()
            self.addCleanup(manager.shutdown)
            return manager.Event()

        def tearDown(self) -> None:
            """A case that fails may leave calls behind that wait for a semaphore of its own."""
            if self.executor is not None:
                self.executor.kill_workers()
            super().tearDown()

    made = {}
    for module, names in CASES.items():
        for name in names:
            mixin = getattr(load(module), name)
            made[name] = type(name, (mixin, PoolMixin, util.BaseTestCase), {"__module__": __name__})
    return made


def run_script(run: Any) -> Any:
    """`assert_python_ok`, for scripts about our pool."""

    def adapted(option: str, source: str, **variables: str) -> tuple[int, bytes, bytes]:
        source = source.replace("from concurrent.futures import Pool", "from clutch import Pool")
        code, out, err = run(option, source, **variables)
        return code, PREFIX.sub(b"", out), err

    return adapted


def own(kind: type, test: str) -> Any:
    """A case as a function that may be marked: what it is made from belongs to the interpreter's own classes too."""
    inherited = getattr(kind, test)

    @functools.wraps(inherited)
    def case(self: Any) -> None:
        self.subTest = lambda **_: contextlib.nullcontext()  # to fail in one of them is to fail
        inherited(self)

    return case
