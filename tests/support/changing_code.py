"""Code of a pool that a test writes, again and again."""

from __future__ import annotations

from pathlib import Path

HEAD = """
import clutch
from support.rendezvous import meet

@clutch.tool
def version():
    return {version}

@clutch.tool
def visit(port):
    return meet(port)
"""


class Code:
    """The module `written_code`, in a folder of the workers' sys.path."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / "written_code.py"
        self.write(1)

    def write(self, version: int, more: str = "") -> None:
        # Python takes a source of the same second and size for the one that it has compiled.
        self.path.write_text(f"{HEAD.format(version=version)}{more}\n{'#' * version}\n")

    def break_(self) -> None:
        self.path.write_text("def inner():\n    raise ValueError('broken on purpose')\ninner()\n")
