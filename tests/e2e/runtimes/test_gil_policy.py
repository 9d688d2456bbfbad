"""An import that turns the GIL back on, on a real free-threaded interpreter: named, and treated by policy."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from clutch import ConfigError, Pool

ROOT = Path(__file__).parents[3]
PYTHON = os.environ.get("CLUTCH_TEST_FT_PYTHON") or str(ROOT / ".venv-ft/bin/python")
needs = [
    pytest.mark.skipif(not os.path.exists(PYTHON), reason="no free-threaded interpreter: make free-threaded"),
    pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler"),
]
pytestmark = [*needs, pytest.mark.timeout(120)]

SOURCE = """
#include <Python.h>
static PyModuleDef definition = {PyModuleDef_HEAD_INIT, "needs_gil", NULL, 0, NULL};
PyMODINIT_FUNC PyInit_needs_gil(void) { return PyModule_Create(&definition); }
"""
TARGET = """
import os, clutch, needs_gil

@clutch.tool
def pid() -> int:
    return os.getpid()
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A target that imports an extension which does not say that it can do without the GIL."""
    folder = tmp_path_factory.mktemp("gil")
    (folder / "needs_gil.c").write_text(SOURCE)
    (folder / "gil_target.py").write_text(TARGET)
    script = "import sysconfig; print(sysconfig.get_path('include'), sysconfig.get_config_var('EXT_SUFFIX'))"
    found = subprocess.run([PYTHON, "-c", script], capture_output=True, text=True, check=True)
    include, suffix = found.stdout.split()
    library = str(folder / f"needs_gil{suffix}")
    subprocess.run(["cc", "-shared", "-fPIC", f"-I{include}", str(folder / "needs_gil.c"), "-o", library], check=True)
    return folder


@pytest.fixture(autouse=True)
def on_path(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(folder))


def pool_of(policy: str) -> Pool:
    return Pool("gil_target", profile="thread", workers=1, threads=3, python=PYTHON, gil_policy=policy)


def test_warn_names_the_module_and_runs() -> None:
    with pool_of("warn") as pool:
        assert pool.call("pid") > 0
        image = pool.stats()["image"]
        assert image["gil"] is True
        assert any("'needs_gil'" in warning for warning in image["warnings"])


def test_fail_names_the_module() -> None:
    with pool_of("fail") as pool, pytest.raises(ConfigError, match="needs_gil"):
        pool.call("pid")


def test_processes_replace_the_threads() -> None:
    with pool_of("processes") as pool:
        pool.wait_ready(3, timeout=60)
        assert len({worker["pid"] for worker in pool.stats()["workers"]}) == 3
        assert pool.call("pid") in {worker["pid"] for worker in pool.stats()["workers"]}
