"""The web app of docs/jobs/README.md is run, beside the tools of the page."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from support.pages import ROOT, SECONDS_MAX, write_files

ASKS = """
from clutch.testing import drain
from fastapi.testclient import TestClient

import api

with TestClient(api.app) as client:
    job = client.post("/welcome", params={"to": "ann@example.org"}).json()["job"]
    print(client.get(f"/welcome/{job}").json())
    drain(api.jobs)
    print(client.get(f"/welcome/{job}").json(), client.get("/welcome/99").status_code)
"""


def test_its_web_app_enqueues_and_tells_what_became_of_it(tmp_path: Path) -> None:
    pytest.importorskip("fastapi")
    assert {"mail.py", "api.py"} <= set(write_files(ROOT / "docs/jobs/README.md", tmp_path))
    command = [sys.executable, "-c", ASKS]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=SECONDS_MAX)
    assert done.stdout.splitlines() == [
        "{'state': 'available', 'result': None}",
        "{'state': 'completed', 'result': 'sent to ann@example.org (en)'} 404",
    ], done.stderr
