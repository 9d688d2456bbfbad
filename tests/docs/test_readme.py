"""The README's own words are run: its Python as a program, its TOML as a config, its paths and targets exist."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

from clutch import config

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()
SECONDS_MAX = 60


def blocks(language: str) -> list[str]:
    return re.findall(rf"(?ms)^```{language}\n(.*?)^```", README)


def write_files(folder: Path, language: str) -> list[Path]:
    """Each block begins with the name of the file that it is."""
    files = []
    for block in blocks(language):
        name = re.match(r"# (\S+)\n", block)
        assert name is not None, f"a block without a file name: {block[:40]}"
        files.append(folder / name[1])
        files[-1].write_text(block)
    return files


@pytest.mark.skipif(importlib.util.find_spec("clutch._core") is None, reason="the extension is not built")
def test_python_blocks_run_and_print_what_they_say(tmp_path: Path) -> None:
    write_files(tmp_path, "python")
    command = [sys.executable, "main.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=SECONDS_MAX)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["36.0", "[3, 2, 1]", "[0, 1, 4, 9, 16]", "144", "1.5"]


def test_toml_blocks_are_configs(tmp_path: Path) -> None:
    for file in write_files(tmp_path, "toml"):
        loaded = config.load(file, environ={})
        assert loaded.pools
        assert loaded.warnings == []


def test_make_targets_exist() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for page in ("README.md", "CONTRIBUTING.md"):
        for target in re.findall(r"\bmake ([a-z-]+)\b", "\n".join(re.findall(r"`[^`]+`", (ROOT / page).read_text()))):
            assert re.search(rf"(?m)^{target}:", makefile), f"{page}: make {target}"


@pytest.mark.parametrize("page", sorted(path.name for path in ROOT.glob("*.md")))
def test_links_lead_somewhere(page: str) -> None:
    for link in re.findall(r"\]\(([^)#:]+)\)", (ROOT / page).read_text()):
        assert (ROOT / link).exists(), f"{page} links to {link}"


def test_pages_name_no_machine() -> None:
    for page in [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]:
        assert not re.search(r"/(root|work|home)/", page.read_text()), page
