"""docs/testing.md's own tests are run."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

PAGE = (Path(__file__).resolve().parents[2] / "docs/testing.md").read_text()
SECONDS_MAX = 60


def test_its_tests_pass(tmp_path: Path) -> None:
    blocks = re.findall(r"(?ms)^```python\n# (\S+)\n(.*?)^```", PAGE)
    for name, text in blocks:
        (tmp_path / name).write_text(text)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=SECONDS_MAX)
    assert done.returncode == 0, done.stdout
    assert f"{len(blocks)} passed" in done.stdout
    assert len(blocks) == 3
