"""A zygote that starts afresh with the libraries of its target alone: `preload = "auto"`.

What the import of the target has left behind (threads that a fork would lack, connections that it would share) ends
with an exec: the process, its parent and its control socket stay. The new program imports what the target had imported
from outside the user's own code; each worker imports the user's modules itself.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import signal
import sys
import time
from collections.abc import Iterable, Iterator
from typing import Any

from clutch._worker.leftovers import (
    IDLE_LOOP,
    LISTENS,
    ImportWatch,
    descendants,
    is_running,
    is_users,
    stop_timers,
)

VARIABLE = "CLUTCH_ZYGOTE_AFRESH"
TRIES_MAX = 4
FOUND_MAX = 4
END_SECONDS_MAX = 1.0
"""Time that a program has to end by SIGTERM."""


class StartedWith:
    """The environment, folder and umask that the process was started with; code that is imported may change them."""

    def __init__(self) -> None:
        self.environ = dict(os.environ)
        self.folder = os.getcwd()
        os.umask(umask := os.umask(0))
        self.umask = umask

    def restore(self) -> None:
        with contextlib.suppress(OSError):
            os.chdir(self.folder)
        os.umask(self.umask)


Changes = dict[str, str | None]
"""Variables of the environment with their values; None: it was removed."""


class Roots:
    """A finder that finds nothing: it notes what the environment was when each package was imported."""

    def __init__(self) -> None:
        self._environ = dict(os.environ)
        self._raw = raw_environ()
        self.changes: dict[str, Changes] = {}

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        if "." not in name and raw_environ() != self._raw:
            now = dict(os.environ)
            removed: Changes = dict.fromkeys(self._environ.keys() - now.keys())
            self.changes[name] = removed | {key: value for key, value in now.items() if self._environ.get(key) != value}


def raw_environ() -> dict[Any, Any]:
    """A copy of the environment, cheaply. The target may have put another mapping in its place."""
    return dict(getattr(os.environ, "_data", os.environ))


@contextlib.contextmanager
def changed(changes: Changes) -> Iterator[None]:
    """The environment with these changes."""
    before = {name: os.environ.get(name) for name in changes}
    set_variables(changes)
    try:
        yield
    finally:
        set_variables(before)


def set_variables(changes: Changes) -> None:
    for name, value in changes.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def libraries(before: Iterable[str]) -> list[str]:
    """Names of modules from outside the user's own code that were imported since, in order."""
    known = set(before)
    if getattr(sys.modules.get("gevent.monkey"), "saved", None):
        return []  # what was imported after the patch is not what it would be without
    names = []
    for name, module in list(sys.modules.items()):
        with contextlib.suppress(Exception):  # anything may be in there
            spec = getattr(module, "__spec__", None)
            if name not in known and spec is not None and spec.name == name and spec.has_location:
                names += [] if is_users(spec.origin) else [name]
    return names


def private_bytes() -> int:
    """Memory of this process that is not mapped from files."""
    with open("/proc/self/status") as file:
        for line in file:
            if line.startswith("RssAnon:"):
                return int(line.split()[1]) << 10
    return 0


class Plan:
    """What the next program does: handed over in memory whose descriptor the variable names."""

    def __init__(
        self,
        launch: dict[str, Any],
        report: dict[str, Any],
        found: list[str],
        names: list[str],
        changes: dict[str, Changes],
    ) -> None:
        """`names`: of the libraries, in order. `changes`: of the environment, by package."""
        self.launch, self.report = launch, report
        self.found, self.names, self.changes = found, names, changes
        self.of_libraries: list[str] = []
        """What importing libraries alone has left, without the places in the user's code."""
        self.private = private_bytes()
        self.tries = 0

    @classmethod
    def taken(cls) -> Plan | None:
        """None: this zygote has just been started."""
        descriptor = os.environ.pop(VARIABLE, None)
        if descriptor is None:
            return None
        with os.fdopen(int(descriptor)) as file:
            plan = cls.__new__(cls)
            vars(plan).update(json.load(file))
        return plan

    def carry_out(self, surroundings: StartedWith, control: int) -> None:
        """Replaces this program; does not return. `control`: the descriptor of the control socket."""
        self.tries += 1
        memory = os.memfd_create("clutch-afresh", 0)
        with open(memory, "w", encoding="utf-8", closefd=False) as file:
            json.dump(vars(self), file)
        os.lseek(memory, 0, os.SEEK_SET)
        for entry in os.listdir("/proc/self/fd"):
            if int(entry) > 2:
                with contextlib.suppress(OSError):
                    os.set_inheritable(int(entry), int(entry) == memory)
        end_children()
        stop_timers()  # which an exec keeps
        surroundings.restore()
        os.dup2(control, 0)
        sys.stdout.flush()
        sys.stderr.flush()
        os.execve(sys.executable, sys.orig_argv, surroundings.environ | {VARIABLE: str(memory)})

    def import_libraries(self) -> bool:
        """Imports them. False: one has left something behind; the plan is without it now."""
        watch = ImportWatch()
        for name in self.names:
            if name in sys.modules:
                continue
            root = name.partition(".")[0]
            with contextlib.suppress(Exception, SystemExit), changed(self.changes.get(root, {})):
                importlib.import_module(name)
            if found := watch.found():
                self.of_libraries += found
                kept = [other for other in self.names if other.partition(".")[0] != root]
                self.names = kept if self.tries < TRIES_MAX else []
                return False
        return True

    def is_of_libraries(self) -> bool:
        """Returns whether the user's code has no part in it, beside the imports."""
        return all(any(one == other or one.endswith(f" {other}") for other in self.of_libraries) for one in self.found)

    def words(self) -> str:
        """One line: what was found, what becomes of it, and, where the user's code did it, what to do."""
        found = "; ".join(self.found[:FOUND_MAX])
        if len(self.found) > FOUND_MAX:
            found += f"; {len(self.found) - FOUND_MAX} more"
        more = max(0, self.private - private_bytes()) >> 20
        cost = f" (+{more} MB)" if more else ""
        shared = "your own modules itself" if self.names else "the target itself"
        told = (
            f"importing the target left what forks would share or lack ({found}), so each worker imports {shared}{cost}"
        )
        if not self.is_of_libraries():
            told += "; @clutch.on_start or Pool(initializer=…) avoids it, preload = true forks nevertheless"
        return told + about(self.found)


def about(found: list[str]) -> str:
    """What becomes of some of it, which nothing else would tell."""
    told = ""
    if any(LISTENS in one for one in found):
        told += ". Workers share a port of a fixed number: each connection reaches one of them"
    if IDLE_LOOP in found:
        told += (
            ". Requests run on another event loop than one that is made or asked for at import: use "
            "asyncio.get_running_loop() in the code that runs, and begin tasks in a lifespan handler"
        )
    return told


def end_children() -> None:
    """Processes that the import has started, and theirs: each worker starts its own, perhaps on the same port."""
    left = descendants(os.getpid())
    for number in (signal.SIGTERM, signal.SIGKILL):
        for pid in left:
            with contextlib.suppress(OSError):
                os.kill(pid, number)
        until = time.monotonic() + END_SECONDS_MAX
        while (left := {pid for pid in left if is_running(pid)}) and time.monotonic() < until:
            time.sleep(0.01)
