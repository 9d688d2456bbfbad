"""docs/events.md is what tools/events_page.py makes of the facts in the crates; the log has lines for events only."""

from __future__ import annotations

import runpy
from pathlib import Path

from clutch import _core
from clutch._dispatcher.event_log import LINES

ROOT = Path(__file__).parents[2]
NAMES = [name for name, *_ in _core.EVENTS]


def test_the_page_is_generated() -> None:
    made = runpy.run_path(str(ROOT / "tools/events_page.py"))["page"]()
    assert made == (ROOT / "docs/events.md").read_text(), "run `make docs`"


def test_each_event_is_declared_once_and_described() -> None:
    assert len(set(NAMES)) == len(NAMES)
    assert all(about.endswith(".") for *_, about in _core.EVENTS)


def test_lines_of_the_log_are_about_events() -> None:
    assert set(LINES) <= set(NAMES)
