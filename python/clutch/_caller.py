"""The program that makes a pool: what its workers have of it, and where in it there can be no pool."""

from __future__ import annotations

import base64
import functools
import importlib
import os
import pickle
import site
import sys
from collections.abc import Callable
from typing import Any

from clutch._pickle import dumps
from clutch.errors import BadArguments


def encode_initializer(
    initializer: Callable[..., object] | None, initargs: tuple[Any, ...], has_main: bool
) -> str | None:
    """`has_main`: workers find this program's `__main__`."""
    if initializer is None:
        return None
    # Each by itself: a function that has a name keeps it, and the globals that it sets, whatever its arguments need.
    try:
        both = [dumps(initializer, has_main), dumps(initargs, has_main)]
    except Exception as error:
        raise BadArguments(f"the initializer and its arguments cannot be sent to workers: {error}") from error
    return base64.b64encode(pickle.dumps(both)).decode()


def own_authkey() -> str | None:
    """With which workers may connect to the managers of this program; None where it does not use multiprocessing."""
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
    """How a worker loads this process's `__main__`; None where there is no file to load (a notebook, a prompt)."""
    main = sys.modules.get("__main__")
    spec = getattr(main, "__spec__", None)
    if spec is not None and spec.name not in ("", "__main__"):  # "__main__": of a folder or an archive
        return {"module": spec.name}
    path = getattr(main, "__file__", None)
    if path is None or not os.path.isfile(path):
        return None
    return {"path": os.path.abspath(path)}


def refuse_in_main_import() -> None:
    """A script without a guard would make pools in its own workers, without end."""
    image = sys.modules.get("clutch._worker.image")
    if image is not None and image.main_is_loading:
        raise RuntimeError(GUARD)


@functools.cache
def refuse_in_subinterpreter() -> None:
    """A pool's threads are the process's, and wait for the main interpreter: the end of another one waits for them."""
    try:
        interpreters = importlib.import_module("_interpreters" if sys.version_info >= (3, 13) else "_xxsubinterpreters")
    except ImportError:  # this Python has none
        return
    if interpreters.get_current() != interpreters.get_main():
        raise RuntimeError(SUBINTERPRETER)


SUBINTERPRETER = """A pool is made in a subinterpreter, and pools work in a process's main interpreter only.
Make it there, or in a process of its own. With mod_wsgi: WSGIApplicationGroup %{GLOBAL}"""

GUARD = """A pool is made while a worker loads this script: the script makes it when it is imported.
Put what starts the program under a guard:

    if __name__ == "__main__":
        with Pool() as pool:
            ...
"""
