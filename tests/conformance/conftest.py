"""What these tests share: a certificate."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `certificate.pem` and `key.pem`."""
    folder = tmp_path_factory.mktemp("certificate")
    command = "openssl req -x509 -newkey rsa:2048 -nodes -keyout key.pem -out certificate.pem -subj /CN=localhost"
    subprocess.run([*command.split(), "-addext", "subjectAltName=DNS:localhost"], cwd=folder, check=True, timeout=60)
    return folder
