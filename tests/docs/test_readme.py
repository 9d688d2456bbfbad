"""What only the README has: its chart and its make targets. Its programs are run by test_pages.py and the e2e tests."""

from __future__ import annotations

import json
import re
import runpy

from support.pages import ROOT

FIGURES = ROOT / "docs/figures/serve.json"


def test_make_targets_exist() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for page in ("README.md", "CONTRIBUTING.md"):
        for target in re.findall(r"\bmake ([a-z-]+)\b", "\n".join(re.findall(r"`[^`]+`", (ROOT / page).read_text()))):
            assert re.search(rf"(?m)^{target}:", makefile), f"{page}: make {target}"


def test_pages_name_no_machine() -> None:
    for page in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]:
        assert not re.search(r"/(root|work|home)/", page.read_text()), page


# The chart


def test_the_drawings_are_what_the_figures_make() -> None:
    drawings = runpy.run_path(str(ROOT / "tools/chart.py"))["drawings"](FIGURES)
    assert len(drawings) == 2
    for file, svg in drawings.items():
        assert file.read_text() == svg, f"{file.name}: python tools/chart.py docs/figures/serve.json"


def test_the_figures_are_those_of_the_tables() -> None:
    """Each is in the row of docs/serve/speed.md that it says it is from."""
    rows = re.findall(r"(?m)^\| .* \|$", (ROOT / "docs/serve/speed.md").read_text())
    for panel in json.loads(FIGURES.read_text())["panels"]:
        for bar in panel["bars"]:
            (row,) = (row for row in rows if row.startswith(bar["row"]))
            assert re.search(rf"(?<![\d,.]){bar['value']:,}(?![\d,.])", row), (panel["title"], bar)
