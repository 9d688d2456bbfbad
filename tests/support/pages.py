"""Pages as data, for tests: their fenced blocks, the files that these are, the commands that they show."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BIN = Path(sys.executable).parent
SECONDS_MAX = 60.0


class Shown(NamedTuple):
    """A command, and what the page says that it prints."""

    command: str
    output: str


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def blocks(page: Path, *languages: str) -> list[str]:
    """The text of each block in one of these languages."""
    found = re.findall(r"(?ms)^```([a-z]*)\n(.*?)^```$", page.read_text())
    return [text for language, text in found if language in languages]


def write_files(page: Path, folder: Path) -> list[str]:
    """Each Python, TOML or text block that begins with the name of a file becomes that file. Returns their names."""
    names = []
    for text in blocks(page, "python", "toml", "text"):
        if named := re.match(r"# ([\w./-]+\.[a-z]+)\n", text):
            (folder / named[1]).write_text(text)
            names.append(named[1])
    return names


def shown(page: Path) -> list[Shown]:
    """What a page shows in `console` blocks: `$ command`, then its output."""
    found = []
    for text in blocks(page, "console"):
        for command, output in re.findall(r"(?m)^\$ (.*)\n((?:(?!\$ ).*\n)*)", text):
            found.append(Shown(command, output))
    return found


def environment() -> dict[str, str]:
    """`python` and `clutch` are those that run the tests."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("CLUTCH_")}
    return kept | {"PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"}


def run(command: str, folder: Path) -> str:
    """What it prints to stdout. Its exit code has to be 0."""
    done = subprocess.run(
        ["bash", "-c", command], cwd=folder, env=environment(), capture_output=True, text=True, timeout=SECONDS_MAX
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout


def fits(output: str, promised: str) -> bool:
    """`…` stands for anything, and on a line of its own for any lines, or none."""
    pattern = ".*".join(map(re.escape, re.split(r"(?:\n(?=…$))?…", promised.strip(), flags=re.MULTILINE)))
    return re.fullmatch(pattern, output.strip(), re.DOTALL) is not None


def clutch_commands(page: Path) -> list[list[str]]:
    """The words after each `clutch` of the page's shell blocks."""
    found = []
    for line in "".join(blocks(page, "sh", "console")).splitlines():
        words = shlex.split(line.removeprefix("$ "), comments=True) if "clutch" in line else []
        for at in [nr for nr, word in enumerate(words) if word == "clutch" and words[nr - 1] != "install"]:
            ends = [nr for nr, word in enumerate(words) if nr > at and word in {"|", "&&", ";", "&"}]
            found.append(words[at + 1 : min(ends, default=None)])
    return found
