"""The program that creates a pool: what workers inherit from it, and where it cannot create one."""

from __future__ import annotations

import base64
import contextlib
import functools
import importlib
import os
import pickle
import re
import site
import sys
import types
from collections.abc import Callable
from typing import Any

from clutch._pickle import dumps
from clutch._pickle.shared import written
from clutch._worker.surroundings import ZYGOTE_OF
from clutch.errors import BadArguments, ConfigError


def encode_initializer(
    initializer: Callable[..., object] | None, initargs: tuple[Any, ...], has_main: bool
) -> tuple[str | None, object]:
    """Returns the launch message's part, and what is to be kept as long as workers start. `has_main`: they find this
    program's `__main__`."""
    if initializer is None:
        return None, None
    # Each by itself: a function that has a name keeps it, and the globals that it sets, whatever its arguments need.
    try:
        function, arguments = dumps(initializer, has_main), written(initargs, has_main)
    except Exception as error:
        raise BadArguments(f"the initializer and its arguments cannot be sent to workers: {error}") from error
    place = arguments if isinstance(arguments, bytes) else arguments.place
    return base64.b64encode(pickle.dumps([function, place])).decode(), arguments


def own_authkey() -> str | None:
    """The key with which workers may connect to managers of this program; None if it does not use multiprocessing."""
    process = sys.modules.get("multiprocessing.process")
    return None if process is None else process.current_process().authkey.hex()


def caller_path(python: str) -> list[str]:
    """This interpreter's sys.path, with its empty entry spelt out; for another one only what is the user's own."""
    entries = [entry or os.getcwd() for entry in sys.path]
    if os.path.abspath(python) == os.path.abspath(sys.executable):
        return entries
    installed = tuple(os.path.join(prefix, "lib") for prefix in {sys.prefix, sys.base_prefix, sys.exec_prefix})
    return [entry for entry in entries if not entry.startswith((*installed, site.getuserbase()))]


def main_of_caller() -> dict[str, str] | None:
    """Returns how a worker loads this process's `__main__`; None without a file to load (a notebook, a prompt)."""
    main = sys.modules.get("__main__")
    spec = getattr(main, "__spec__", None)
    if spec is not None and spec.name not in ("", "__main__"):  # "__main__": of a folder or an archive
        return {"module": spec.name}
    path = getattr(main, "__file__", None)
    if path is None or not os.path.isfile(path):
        return None
    return {"path": os.path.abspath(path)}


def imports_of_main() -> list[str]:
    """Modules of the standard library and of Clutch that `__main__` uses and workers will import for it."""
    used = set()
    for one in list(vars(sys.modules["__main__"]).values()):
        # By its real type: what poses as something else may raise when it is looked at.
        if issubclass(type(one), types.ModuleType):
            used.add(one.__name__)
        elif issubclass(type(one), type | types.FunctionType | types.BuiltinFunctionType):
            with contextlib.suppress(Exception):  # a metaclass may say what it likes
                used.add(one.__module__)
    known = sys.stdlib_module_names | {"clutch"}
    return sorted(name for name in used if isinstance(name, str) and name.partition(".")[0] in known)


def refuse_in_place_of_zygote() -> None:
    """Raises in a program that another one has started as if it were an interpreter: each would start the next one."""
    if ZYGOTE_OF in os.environ:
        raise ConfigError(
            f"process {os.environ[ZYGOTE_OF]} has started {sys.executable or 'this program'} as the Python of its "
            "workers, and that runs a program of its own instead: give that pool an interpreter with the option python="
        )


def is_patched() -> bool:
    """Returns whether threads of this program are greenlets."""
    monkey = sys.modules.get("gevent.monkey")
    return monkey is not None and monkey.is_module_patched("threading")


def refuse_in_patched(what: str) -> None:
    """Refuses what waits in native code in threads: as greenlets, these would block the program for ever."""
    if is_patched():
        raise RuntimeError(PATCHED.format(what=what))


def importing_module() -> str | None:
    """The module whose import makes a pool in a zygote or a worker; None: whatever makes it may have one.

    Raises RuntimeError where the script makes it when it is run there: without a guard it would do so without end.
    """
    image, script = (sys.modules.get(f"clutch._worker.{name}") for name in ("image", "script"))
    if image is None or script is None or not image.is_here:
        return None
    frame: types.FrameType | None = sys._getframe(1)
    while frame is not None:
        name, spec = (frame.f_globals.get(name) for name in ("__name__", "__spec__"))
        if str(name).startswith("clutch._worker."):
            return None
        if frame.f_code.co_name == "<module>" and getattr(spec, "_initializing", False):
            return str(name)
        if frame.f_code.co_name == "<module>" and name == script.NAME and script.is_running:
            break
        frame = frame.f_back
    if script.is_running:
        raise RuntimeError(GUARD)
    return None


def log_level() -> int | None:
    """The lowest level at which the root logger and its handlers take records; None if the program has no handlers.
    Those of pytest do not count."""
    logging = sys.modules.get("logging")
    if logging is None:
        return None
    handlers = [one for one in logging.root.handlers if not isinstance(one, logging.NullHandler)]
    levels = [one.level for one in handlers if not type(one).__module__.startswith("_pytest.")]
    return max(min(levels), logging.root.level) if levels else None


def note_lost_global(error: NameError, traceback: str) -> None:
    """Says where a global went that the script has here and not in its workers. Called for each NameError of theirs."""
    main = sys.modules.get("__main__")
    name, files = UNDEFINED.fullmatch(str(error)), FRAME.findall(traceback)
    path = getattr(main, "__file__", None)
    if name and files and path and os.path.abspath(path) == files[-1] and name[1] in vars(main):
        error.add_note(LOST.format(name=name[1]))


@functools.cache
def refuse_in_subinterpreter() -> None:
    """A pool's threads are the process's, and wait for the main interpreter: the end of another one waits for them."""
    try:
        interpreters = importlib.import_module("_interpreters" if sys.version_info >= (3, 13) else "_xxsubinterpreters")
    except ImportError:  # this Python has none
        return
    if interpreters.get_current() != interpreters.get_main():
        raise RuntimeError(SUBINTERPRETER)


UNDEFINED = re.compile(r"name '(.+)' is not defined")
FRAME = re.compile(r'^  File "(.*)", line \d+', re.MULTILINE)
LOST = (
    "{name!r} is set in this program and not in its workers: they run the script without the code under "
    '`if __name__ == "__main__":`. Set it above the guard, pass it as an argument, or set it by Pool(initializer=…).'
)

IMPORTED = """pool {pool!r} was made while a worker imported the module {module!r}, and has no workers there: \
only the program that imports the module can use it. Code that needs a pool inside a worker must create it in a \
function, when it runs, not when its module is imported"""

SUBINTERPRETER = """Pools work only in the main interpreter of a process, and this is a subinterpreter.
Create the pool in the main interpreter or in another process. With mod_wsgi: WSGIApplicationGroup %{GLOBAL}"""

PATCHED = """{what} waits in threads, and gevent.monkey.patch_all() has made greenlets of them in this program.
Run it in a process of its own with `clutch run` or `clutch serve`, or patch with patch_all(thread=False)"""

GUARD = """A pool was created while a worker was loading this script.
Create it under a guard:

    if __name__ == "__main__":
        with Pool() as pool:
            ...
"""
