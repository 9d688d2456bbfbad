"""docs/differences.md says what the table says."""

from __future__ import annotations

from pathlib import Path

from differences import DIFFERENCES, LAST

PAGE = Path(__file__).parents[2] / "docs/differences.md"


def test_the_page_has_the_list() -> None:
    listed = "\n".join(map(str, DIFFERENCES))
    assert listed in PAGE.read_text()
    assert PAGE.read_text().count("\n* ") == len(DIFFERENCES)


def test_no_case_is_listed_twice() -> None:
    cases = [case for difference in DIFFERENCES for case in difference.cases_of(LAST)]
    assert len(cases) == len(set(cases))
