"""docs/failures.md is true: each number has tests, in the files that the page names, and in no others."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/failures.md").read_text()
PROMISED = {*range(1, 38), 41, *range(43, 67), 71}
"""What this version has to hold. Others may have tests, too."""
TEST = re.compile(r"^\s*(?:def test_|(?:pub )?(?:async )?fn )failure_(\d+)_\w+", re.MULTILINE)


def files_of_page() -> dict[int, set[str]]:
    rows = re.findall(r"(?m)^\| (\d+) \| .*? → .*? \| (.*) \|$", PAGE)
    return {int(number): set(re.findall(r"`([^`]+)`", files)) for number, files in rows}


def files_of_tests() -> dict[int, set[str]]:
    found = defaultdict(set)
    for folder, pattern in (("tests", "test_*.py"), ("crates", "*.rs")):
        for file in (ROOT / folder).rglob(pattern):
            for number in TEST.findall(file.read_text()):
                found[int(number)].add(str(file.relative_to(ROOT)))
    return dict(found)


def test_every_number_has_tests() -> None:
    assert PROMISED - files_of_tests().keys() == set()


def test_the_page_names_every_file_that_has_tests_of_a_number() -> None:
    page, tests = files_of_page(), files_of_tests()
    assert page.keys() == tests.keys()
    for number, files in tests.items():
        assert page[number] == files, f"failure {number}"
