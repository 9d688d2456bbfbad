"""docs/api.md is what tools/api_page.py makes of the docstrings, and has every public name."""

from __future__ import annotations

import re
import runpy

import clutch
from clutch import testing
from support.pages import ROOT

PAGE = (ROOT / "docs/api.md").read_text()
LEFT_OUT = {"Event", "children", "descendants", "describe"}
"""Names of `clutch.testing` that few tests need."""


def test_the_page_is_up_to_date() -> None:
    assert runpy.run_path(str(ROOT / "tools/api_page.py"))["page"]() == PAGE, "run `make docs`"


def test_every_public_name_is_there() -> None:
    names = {*clutch.__all__, *testing.__all__} - LEFT_OUT
    assert names - set(re.findall(r"(?m)^### (\w+)$", PAGE)) == set()
