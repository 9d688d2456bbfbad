"""README and docs/ are true: programs run, commands and configs are accepted, links lead somewhere."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import click
import pytest

from clutch import config
from clutch.cli import program
from clutch.errors import ConfigError
from support.pages import PAGES, ROOT, blocks, clutch_commands, fits, name_of, run, shown, write_files

NEEDS_A_SERVER = {"docs/http.md", "docs/tutorial.md"}
"""Their console blocks are run by tests of their own."""
OF_READERS = ("is missing", "is not an executable file", "cannot be read", "there is no pool")
"""Problems of a config that is a part of one, or names files that readers have."""
OF_A_NOTEBOOK = ROOT / "docs/notebooks.md"
CELLS_PRINT = "[0, 3, 6, 9, 12]\n499999500000.0\n"

each_page = pytest.mark.parametrize("page", PAGES, ids=name_of)


@pytest.mark.parametrize(
    "page", [page for page in PAGES if shown(page) and name_of(page) not in NEEDS_A_SERVER], ids=name_of
)
def test_commands_print_what_the_page_shows(page: Path, tmp_path: Path) -> None:
    write_files(page, tmp_path)
    for command, promised in shown(page):
        printed = run(command, tmp_path)
        assert fits(printed, promised), f"{command}\n{printed}"


def test_the_cells_of_a_notebook_run(tmp_path: Path) -> None:
    """As a program without a file, which is what a notebook is to a pool."""
    cells = [re.sub(r"(?m)^(list\(.*)$", r"print(\1)", cell) for cell in blocks(OF_A_NOTEBOOK, "python")]
    (tmp_path / "cells").write_text("\n\n".join([*cells, "pool.shutdown()"]))
    assert run("python - < cells", tmp_path) == CELLS_PRINT


@each_page
def test_python_blocks_are_python(page: Path) -> None:
    for text in blocks(page, "python"):
        ast.parse(text)


@each_page
def test_toml_blocks_are_configs(page: Path, tmp_path: Path) -> None:
    for text in blocks(page, "toml"):
        file = tmp_path / "clutch.toml"
        file.write_text(text)
        try:
            loaded = config.load(file, environ={})
        except ConfigError as error:
            wrong = [problem for problem in error.problems if not any(words in problem.what for words in OF_READERS)]
            assert wrong == [], text
        else:
            assert loaded.warnings == []


def parse(words: list[str]) -> None:
    """Raises click.UsageError where a flag or an argument is not known, or missing."""
    group = click.Context(program, info_name="clutch")
    name, command, rest = program.resolve_command(group, list(words))
    assert command is not None
    command.make_context(name, rest, parent=group)


@each_page
def test_clutch_commands_are_accepted(page: Path) -> None:
    for words in clutch_commands(page):
        parse(words)


@pytest.mark.parametrize("words", [["servee", "main:app"], ["ps", "--al"], ["scale"], ["serve", "main:app", "--daemn"]])
def test_wrong_commands_would_be_found(words: list[str]) -> None:
    with pytest.raises(click.UsageError):
        parse(words)


def anchors(page: Path) -> set[str]:
    """Of its headings, as GitHub makes them."""
    prose = re.sub(r"(?ms)^```.*?^```$", "", page.read_text())
    titles = [re.sub(r"\[(.*?)\]\(.*?\)", r"\1", title) for title in re.findall(r"(?m)^#+ (.*)$", prose)]
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@each_page
def test_links_lead_somewhere(page: Path) -> None:
    text = re.sub(r"(?ms)^```.*?^```$", "", page.read_text())
    links = re.findall(r"\]\(([^)\s]+)\)", text) + re.findall(r"\bsrc(?:set)?=\"([^\"]+)\"", text)
    for link in links:
        if re.match(r"https?:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


def test_the_map_has_every_page() -> None:
    """Of its folders, their own README has them."""
    for page in (ROOT / "docs").rglob("README.md"):
        linked = set(re.findall(r"\]\(([\w-]+\.md)", page.read_text()))
        assert linked == {page.name for page in page.parent.glob("*.md")} - {"README.md"}, page
