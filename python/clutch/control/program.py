"""The control socket of a program with pools: one for the process, while it has any.

Owns the names by which the commands know the pools; a second of one name is `name-2`. Promises that no pool and no
program fails, waits or prints because of it: what goes wrong is in the log at level debug. A forked copy of the program
has none of it, a worker never opens one, nor does a program that gevent has patched, whose threads would be greenlets;
and `CLUTCH_CONTROL=off` leaves it out. `show`, `leaves` and `hide` may come
from any thread, also from a destructor in the middle of one of them.
"""

from __future__ import annotations

import _thread
import itertools
import logging
import os
import sys
import threading
import time
import weakref
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from clutch._caller import is_patched
from clutch.errors import ClutchError
from clutch.options import CONTROL_OFF

if TYPE_CHECKING:
    from clutch.control.server import Control

log = logging.getLogger("clutch")

LOOK_SECONDS = 0.5
"""How often it is looked whether pools are over whose end nobody waits for."""

RELOAD = "{}: call reload() of the pool, or of the server, in the program, or start the program (pid {}) anew"
STOP = "{}: it ends with its program, or by shutdown() there; to end the program: kill {}"


class Names(Mapping[str, Any]):
    """The pools by their names, kept by nobody here. A destructor may change it while it is looked through."""

    def __init__(self) -> None:
        self._pools: dict[str, weakref.ref[Any]] = {}

    def add(self, pool: Any) -> None:
        taken = dict(self._living())
        names = itertools.chain([pool.name], (f"{pool.name}-{nr}" for nr in itertools.count(2)))
        self._pools[next(name for name in names if name not in taken)] = weakref.ref(pool)

    def remove(self, pools: Iterable[Any]) -> None:
        kept = [(name, pool) for name, pool in self._living() if pool not in pools]
        self._pools = {name: weakref.ref(pool) for name, pool in kept}

    def _living(self) -> list[tuple[str, Any]]:
        pools = [(name, reference()) for name, reference in tuple(self._pools.items())]
        return [(name, pool) for name, pool in pools if pool is not None]

    def __getitem__(self, name: str) -> Any:
        return dict(self._living())[name]

    def __iter__(self) -> Iterator[str]:
        return iter([name for name, _ in self._living()])

    def __len__(self) -> int:
        return len(self._living())


class Program:
    """All open pools of this process."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._pools = Names()
        self._leaving: set[Any] = set()
        """Shut, and not over: kept while their work goes on, as nobody else may."""
        self._control: Control | None = None
        self._is_looking = False

    def show(self, pool: Any) -> None:
        """A pool has started."""
        if os.environ.get("CLUTCH_CONTROL") == CONTROL_OFF or is_worker() or is_patched():
            return
        with self._lock:
            self._pools.add(pool)
            pool._is_found = True
            if self._control is None and (control := opened(self._pools)) is not None:
                self._control = control  # else a signal's handler may have opened it meanwhile

    def leaves(self, pool: Any) -> None:
        """Nobody waits for its end: it goes when it is over.

        Takes no lock and waits for nothing: a destructor may come in the middle of whatever this thread does, while
        another one with the lock waits for it.
        """
        if not pool._is_found:
            return
        self._leaving.add(pool)
        if not self._is_looking:
            self._is_looking = True
            try:
                _thread.start_new_thread(self._look, ())
            except RuntimeError:  # it stays until the end of the program
                self._is_looking = False

    def hide(self, pools: Iterable[Any]) -> None:
        """They are over."""
        over = set(pools)
        with self._lock:
            self._leaving.difference_update(over)
            self._pools.remove(over)
            control = None if self._pools else self._take()
        if control is not None:
            control.close(0)

    def close(self) -> None:
        """The program ends."""
        with self._lock:
            control = self._take()
        if control is not None:
            control.close(0)

    # A copy of the process is made while no thread is in here.

    def hold(self) -> None:
        self._lock.acquire()

    def let_go(self) -> None:
        self._lock.release()

    def leave_to_the_parent(self) -> None:
        control = self._control
        self.__init__()  # type: ignore[misc]
        if control is not None:
            control.leave_to_the_parent()

    # Inside

    def _take(self) -> Control | None:
        """The next one will have the same file, so this one's goes at once."""
        control, self._control = self._control, None
        if control is not None:
            control.remove_file()
        return control

    def _look(self) -> None:
        while True:
            self._keep_leaving()
            self.hide([pool for pool in tuple(self._leaving) if pool._wait_closed(0)])
            self._is_looking = False  # before it is looked whether there are more: one that comes now begins anew
            if not self._leaving:
                return
            self._is_looking = True
            time.sleep(LOOK_SECONDS)

    def _keep_leaving(self) -> None:
        """Those that the garbage collector gave up have lost their names."""
        with self._lock:
            for pool in self._leaving.difference(self._pools.values()):
                self._pools.add(pool)


def opened(pools: Names) -> Control | None:
    """A socket in this user's folder; None where there can be none."""
    # What a program without pools does not pay for.
    from clutch.control.commands import Commands, Identity, working_folder
    from clutch.control.server import open_default

    who = Identity(program_name(), working_folder(), is_program=True)
    commands = Commands(who, pools, lambda names: refuse(RELOAD, names), lambda now: refuse(STOP, list(pools)))
    try:
        return open_default(Path("/", who.config), commands, logging.DEBUG)
    except Exception as error:
        log.debug("no control socket, so `clutch ps` and the like do not find this program: %s", error)
        return None


def refuse(text: str, names: list[str]) -> NoReturn:
    whose = f"pool{'s' * (len(names) > 1)} {', '.join(names)} of the program {program_name()}"
    raise ClutchError(text.format(whose, os.getpid()))


def is_worker() -> bool:
    """Or a zygote."""
    image = sys.modules.get("clutch._worker.image")
    return image is not None and image.is_here


def program_name() -> str:
    """The path of its script, or what it is where it has none."""
    main = sys.modules.get("__main__")
    spec, path = getattr(main, "__spec__", None), getattr(main, "__file__", None)
    if spec is not None and spec.name not in ("", "__main__"):
        return f"python -m {spec.name.removesuffix('.__main__')}"
    if path is not None and os.path.exists(path):
        return os.path.abspath(path)
    if "ipykernel" in sys.modules:
        # As the servers of notebooks and VS Code tell it.
        return getattr(main, "__vsc_ipynb_file__", None) or os.environ.get("JPY_SESSION_NAME") or "a notebook"
    if hasattr(sys, "ps1") or sys.flags.interactive:
        return "an interactive Python"
    arguments = getattr(sys, "argv", None)  # an interpreter within another program may have none
    return "python -c" if arguments and arguments[0] == "-c" else Path(sys.executable or "python").name


program = Program()
