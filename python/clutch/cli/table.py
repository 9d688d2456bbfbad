"""Tables of text, and ages in them."""

from __future__ import annotations

from collections.abc import Iterable


def aligned(rows: Iterable[tuple[str, ...]]) -> list[str]:
    """Each row as a line, its cells below those of the others."""
    rows = list(rows)
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]


def age(seconds: float | None) -> str:
    """In the largest unit of which it has one: `3h`; without a time, nothing."""
    if seconds is None:
        return ""
    for unit, length in (("d", 86_400), ("h", 3600), ("m", 60)):
        if seconds >= length:
            return f"{seconds / length:.0f}{unit}"
    return f"{seconds:.0f}s"
