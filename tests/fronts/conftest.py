"""Fronts of every kind: each test of this folder runs over all kinds.

Whatever a test does, its dispatcher leaves no descriptor and no thread behind, and nothing listens any more.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from front_house import House, left_in_process, wait_left
from front_kinds import KINDS, Kind


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Path, str], None]:
    """Puts a certificate of this name, and its key, into a folder."""

    def make(folder: Path, name: str) -> None:
        made = tmp_path_factory.getbasetemp() / f"certificate-{name}"
        if not made.exists():
            made.mkdir()
            files = ["-keyout", "key.pem", "-out", "certificate.pem"]
            command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
            subprocess.run([*command, *files, "-subj", f"/CN={name}"], check=True, capture_output=True, cwd=made)
        for file in made.iterdir():
            shutil.copy(file, folder)

    return make


@pytest.fixture(params=KINDS, ids=str)
def kind(request: pytest.FixtureRequest) -> Kind:
    return request.param


@pytest.fixture(scope="session")
def _process_is_warm(tmp_path_factory: pytest.TempPathFactory) -> None:
    """What a process has once, it has from now on."""
    folder = tmp_path_factory.mktemp("warm")
    shutil.copy(Path(__file__).with_name("front_targets.py"), folder)
    with ExitStack() as stack:
        House(KINDS[0], folder, stack).start().assert_serves()


@pytest.fixture
def house(
    kind: Kind, tmp_path: Path, certificates: Callable[[Path, str], None], _process_is_warm: None
) -> Iterator[House]:
    shutil.copy(Path(__file__).with_name("front_targets.py"), tmp_path)
    if kind.has_tls:
        certificates(tmp_path, "first")
    before = left_in_process()
    with ExitStack() as stack:
        yield House(kind, tmp_path, stack)
    wait_left(before)
