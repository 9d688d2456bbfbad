"""Python interpreters: version, and whether one is free-threaded.

Another interpreter is asked by running it once; the answer is kept for the life of the process.
"""

from __future__ import annotations

import functools
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

OLDEST = (3, 11)
NEWEST_LOOKED_FOR = 15
PROBE_TIMEOUT_S = 20.0

_QUESTION = """
import json, os, sys
print(json.dumps([os.path.realpath(sys.executable), sys.implementation.name, list(sys.version_info[:3]),
                  "t" in sys.abiflags]))
"""


@dataclass(frozen=True, slots=True)
class Interpreter:
    path: str
    """The given path, without resolving links: the link is what makes a virtual environment."""
    implementation: str
    version: tuple[int, int, int]
    free_threaded: bool
    real_path: str
    """The path with links resolved: equal for a virtual environment and its base interpreter."""

    @property
    def label(self) -> str:
        return ".".join(map(str, self.version)) + ("t" if self.free_threaded else "")


class NotAnInterpreter(Exception):
    """The path does not run as a Python that Clutch supports; the text says why."""


def current() -> Interpreter:
    free_threaded = "t" in sys.abiflags
    return Interpreter(
        *(sys.executable or "", sys.implementation.name, sys.version_info[:3], free_threaded),
        os.path.realpath(sys.executable or ""),
    )


def resolve(python: str | None, folder: Path | None) -> Interpreter:
    """The interpreter that an option `python` names: a path relative to `folder`, or a name on the PATH."""
    if python is None:
        check_own()
        return current()
    path = _path(python, folder)
    if path == sys.executable:
        return current()
    found = probe(path)
    if found.implementation != "cpython" or found.version[:2] < OLDEST:
        oldest = ".".join(map(str, OLDEST))
        raise NotAnInterpreter(f"is {found.implementation} {found.label}; CPython {oldest} or newer is needed")
    return found


def check_own() -> None:
    """Raises where this program's own executable is no interpreter that workers could run."""
    if getattr(sys, "frozen", False):
        raise NotAnInterpreter(
            f"this program is frozen: {sys.executable} would start it again instead of a worker. Give the path of a "
            "Python that has clutch and the modules of the tools"
        )
    if not sys.executable or not os.access(sys.executable, os.X_OK):
        raise NotAnInterpreter(f"this program has no interpreter of its own (sys.executable is {sys.executable!r})")


def _path(python: str, folder: Path | None) -> str:
    if os.sep not in python:
        found = shutil.which(python)
        if found is None:
            raise NotAnInterpreter("is not on the PATH")
        return found
    # Joined but not resolved: see Interpreter.path.
    path = os.path.normpath(Path(folder or Path.cwd()) / Path(python).expanduser())
    if not os.access(path, os.X_OK) or os.path.isdir(path):
        raise NotAnInterpreter("is not an executable file")
    return path


@functools.lru_cache(maxsize=64)
def probe(path: str) -> Interpreter:
    """Run `path` to find out its version."""
    try:
        answer = subprocess.run(
            [path, "-I", "-S", "-c", _QUESTION], capture_output=True, text=True, timeout=PROBE_TIMEOUT_S, check=True
        )
        real_path, implementation, version, free_threaded = json.loads(answer.stdout)
    except subprocess.CalledProcessError as error:
        last = error.stderr.strip().splitlines()[-1:] or [f"exit code {error.returncode}"]
        raise NotAnInterpreter(f"does not run: {last[0]}") from error
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        raise NotAnInterpreter(f"does not run as a Python: {error}") from error
    return Interpreter(path, implementation, (version[0], version[1], version[2]), free_threaded, real_path)


def find_all() -> list[Interpreter]:
    """Every supported interpreter on the PATH and in the usual places, each once, this one first."""
    found = {_installation(current()): current()}
    for path in _candidates():
        try:
            interpreter = resolve(path, None)
        except NotAnInterpreter:
            continue
        found.setdefault(_installation(interpreter), interpreter)
    here, *others = found.values()
    return [here, *sorted(others, key=lambda interpreter: (interpreter.version, interpreter.free_threaded))]


def _installation(interpreter: Interpreter) -> tuple[str, str]:
    return os.path.dirname(interpreter.real_path), interpreter.label


def _candidates() -> Iterator[str]:
    for minor in range(OLDEST[1], NEWEST_LOOKED_FOR + 1):
        for name in (f"python3.{minor}t", f"python3.{minor}"):
            if on_path := shutil.which(name):
                yield on_path
            for pattern in _INSTALL_PATTERNS:
                base, _, rest = pattern.format(name=name).partition("*")
                yield from map(str, Path(base).expanduser().glob(f"*{rest}"))


_INSTALL_PATTERNS = (
    "/opt/*/bin/{name}",
    "~/.pyenv/versions/*/bin/{name}",
    "~/.local/share/uv/python/*/bin/{name}",
    "~/.local/share/clutch/*/bin/{name}",
)
