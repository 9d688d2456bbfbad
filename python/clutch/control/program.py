"""The control socket of a program with pools: one for the process, while it has any.

Promises that no pool and no program fails, waits or prints because of it: what goes wrong is in the log at level
debug. A forked copy of the program has none of it, a worker never opens one, and `CLUTCH_CONTROL=off` leaves it out.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
from typing import TYPE_CHECKING, Any, NoReturn

from clutch.errors import ClutchError

if TYPE_CHECKING:
    from pathlib import Path

    from clutch import _core

log = logging.getLogger("clutch")

RELOAD = "{}: call reload() of the pool, or of the server, in the program, or start the program (pid {}) anew"
STOP = "{}: it ends with its program, or by shutdown() there; to end the program: kill {}"


class Program:
    """All open pools of this process. The core knows when the last of them is over, and closes the socket then."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._plane: _core.Plane | None = None
        self._socket: Path | None = None

    def show(self, pool: Any) -> None:
        """A pool has started."""
        from clutch.config.options import CONTROL_OFF

        if os.environ.get("CLUTCH_CONTROL") == CONTROL_OFF or is_worker():
            return
        try:
            with self._lock:
                if self._plane is None:
                    made = plane_of_program()
                    # A signal handler may have made a pool meanwhile, and a plane with it.
                    self._plane = self._plane or made
                plane = self._plane
            plane.add(pool)
            if not plane.is_open():
                from pathlib import Path

                from clutch.control.sockets import place_for

                place = place_for(Path("/", program_name()))
                plane.open(place, while_pools=True)
                self._socket = place
        except Exception as error:
            log.debug("no control socket, so `clutch ps` and the like do not find this program: %s", error)

    def socket(self) -> Path | None:
        """The socket, if there is one."""
        return self._socket

    def hide_closed(self) -> None:
        """Some are over."""
        if self._plane is not None:
            self._plane.retire()

    def close(self) -> None:
        """The program ends."""
        if self._plane is not None:
            self._plane.close(waits=False)

    def leave_to_the_parent(self) -> None:
        self.__init__()  # type: ignore[misc]


class ProgramHost:
    """Says what a program's pools do not do for operators."""

    def reload(self, pools: list[str]) -> NoReturn:
        refuse(RELOAD, pools)

    def stop(self, now: bool) -> NoReturn:
        refuse(STOP, [])

    def fronts(self) -> str:
        return "{}"


def plane_of_program() -> _core.Plane:
    from clutch import _core
    from clutch.config.limits import usable_cpus
    from clutch.control.sockets import working_folder

    identity = {"config": program_name(), "folder": working_folder(), "is_program": True, "cpus": usable_cpus()}
    return _core.Plane(json.dumps(identity), ProgramHost())


def refuse(text: str, names: list[str]) -> NoReturn:
    whose = f"pool{'s' * (len(names) > 1)} {', '.join(names)} of the program" if names else "the program"
    raise ClutchError(text.format(f"{whose} {program_name()}", os.getpid()))


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
    return "python -c" if arguments and arguments[0] == "-c" else os.path.basename(sys.executable or "python")


program = Program()
