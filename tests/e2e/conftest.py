"""What these tests share: code that a test writes and pools run, and a certificate."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.changing_code import Code
from support.serve_process import make_certificate


@pytest.fixture
def code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Code]:
    """On the workers' sys.path, which is this process's."""
    monkeypatch.syspath_prepend(str(tmp_path))
    yield Code(tmp_path)
    sys.modules.pop("written_code", None)


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `certificate.pem` and `key.pem`."""
    return make_certificate(tmp_path_factory.mktemp("certificate"))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder for modules that a test writes; the workers' sys.path is this process's."""
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    for name in [name for name in sys.modules if name.startswith("written_")]:
        del sys.modules[name]
