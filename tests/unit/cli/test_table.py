"""Tables in a terminal."""

from __future__ import annotations

import pytest

from clutch.cli.jobs_shown import rate_text
from clutch.cli.table import age, aligned, cut, width


def test_columns_are_as_wide_as_a_terminal_shows_them() -> None:
    assert aligned([("名前", "x"), ("abcde", "y"), ("e\u0301", "z")]) == ["名前   x", "abcde  y", "e\u0301      z"]
    assert (width("名前"), width("e\u0301"), width("abc")) == (4, 1, 3)


@pytest.mark.parametrize(
    ("text", "most", "shown"),
    [("abcdef", 6, "abcdef"), ("abcdefg", 6, "abcde…"), ("名前名前", 6, "名前…"), ("ab", 1, "…")],
)
def test_what_has_no_room_is_cut_with_a_mark(text: str, most: int, shown: str) -> None:
    assert cut(text, most) == shown and width(shown) <= most


def test_ages_are_in_their_largest_unit() -> None:
    told = {0.2: "0s", 59.0: "59s", 59.9: "1m", 90.0: "2m", 3599.9: "1h", 7200.0: "2h", 86_399.9: "1d"}
    assert {seconds: age(seconds) for seconds in told} == told


def test_rates_are_shown_as_they_are_written() -> None:
    assert [rate_text(rate) for rate in ("1/1s", "100/60s", "5/30s", "9/3600s")] == ["1/s", "100/m", "5/30s", "9/h"]
