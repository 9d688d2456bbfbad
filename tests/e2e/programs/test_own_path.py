"""A program that finds clutch by its own means, as PEX, shiv and `sys.path.insert` do: so do its workers."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import clutch

PROGRAM = """
import sys
sys.path.insert(0, {package!r})
from clutch import Pool

def double(number):
    return 2 * number

if __name__ == "__main__":
    for start in ("fork", "spawn"):
        with Pool(workers=1, start=start) as pool:
            print(pool.submit(double, 4).result(60))
"""


def test_workers_find_the_package_of_the_program(tmp_path: Path) -> None:
    """The interpreter below the virtual environment, which knows no clutch."""
    package = str(Path(clutch.__file__).parents[1])
    (tmp_path / "main.py").write_text(PROGRAM.format(package=package))
    variables = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    interpreter = getattr(sys, "_base_executable", sys.executable)
    done = subprocess.run(
        [interpreter, "main.py"], cwd=tmp_path, env=variables, capture_output=True, text=True, timeout=120
    )
    assert done.stdout == "8\n8\n", done.stderr
