"""Programs whose own executable is no interpreter for workers: one error before anything starts, never a chain."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from clutch import ConfigError, Pool

AGAIN = """
import os, sys
from clutch import Pool
if __name__ == "__main__":
    with open(os.environ["STARTS"], "a") as file:
        file.write("x")
    with Pool(1) as pool:
        pool.call(abs, 1)
"""

AS_COVERAGE_DOES = """
import multiprocessing, sys, types
assert sys.modules["__mp_main__"] is sys.modules["__main__"]
main = sys.modules["__main__"] = types.ModuleType("__main__")
main.__file__ = "script.py"
with open("script.py") as file:
    exec(compile(file.read(), "script.py", "exec"), vars(main))
"""

OF_THE_SCRIPT = """
from dataclasses import dataclass
from clutch import Pool

@dataclass
class Point:
    x: int

def make(x):
    return Point(x)

if __name__ == "__main__":
    with Pool(1) as pool:
        made = pool.call(make, 3)
        assert type(made) is Point and made == Point(3), made
"""

PATCHED = """
import threading

old = threading.Thread.start

def start(self):
    self.is_instrumented = True
    return old(self)

threading.Thread.start = start

def is_instrumented():
    thread = threading.Thread(target=int)
    thread.start()
    thread.join()
    return getattr(thread, "is_instrumented", False)
"""


@pytest.mark.parametrize("executable", ["", None, "/nowhere/python"])
def test_no_executable(monkeypatch: pytest.MonkeyPatch, executable: str | None) -> None:
    monkeypatch.setattr(sys, "executable", executable)
    with pytest.raises(ConfigError, match="no interpreter of its own"):
        Pool(1)


def test_a_frozen_program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    with pytest.raises(ConfigError, match="this program is frozen"):
        Pool(1)


def test_a_program_that_is_started_as_the_interpreter_starts_no_other(tmp_path: Path) -> None:
    """As a frozen one that does not say so: whatever it is asked, it runs itself."""
    (tmp_path / "app.py").write_text(AGAIN)
    program = tmp_path / "app"
    program.write_text(
        f"#!/bin/sh\nexec {sys.executable} -c \"import sys; sys.executable = '{program}'; "
        f"exec(open('{tmp_path}/app.py').read())\"\n"
    )
    program.chmod(0o755)
    environment = {**os.environ, "STARTS": str(tmp_path / "starts")}
    done = subprocess.run([program], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=100)
    assert done.returncode != 0
    assert "give that pool an interpreter with the option python=" in done.stderr, done.stderr
    assert 1 < len((tmp_path / "starts").read_text()) < 20, "each try of the pool's own, and none of theirs"


def test_classes_of_a_script_that_another_program_runs(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(OF_THE_SCRIPT)
    (tmp_path / "runner.py").write_text(AS_COVERAGE_DOES)
    done = subprocess.run([sys.executable, "runner.py"], cwd=tmp_path, capture_output=True, text=True, timeout=100)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", ""), done.stderr


@pytest.mark.parametrize("preload", ["auto", True, False])
def test_what_the_target_patches_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, preload: object) -> None:
    (tmp_path / "patching.py").write_text(PATCHED)
    monkeypatch.syspath_prepend(tmp_path)
    start = threading.Thread.start
    with Pool("patching", workers=1, preload=preload) as pool:  # type: ignore[arg-type]
        patching = __import__("patching")
        threading.Thread.start = start  # type: ignore[method-assign]
        assert pool.call(patching.is_instrumented)
