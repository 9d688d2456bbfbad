"""Tables of text, ages in them, and text of others that is to be shown."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable


def aligned(rows: Iterable[tuple[str, ...]]) -> list[str]:
    """Each row as a line, its cells below those of the others."""
    rows = list(rows)
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]


def age(seconds: float | None) -> str:
    """Returns a time in its largest unit: `3h`; nothing without a time."""
    if seconds is None:
        return ""
    for unit, length in (("d", 86_400), ("h", 3600), ("m", 60)):
        if seconds >= length:
            return f"{seconds / length:.0f}{unit}"
    return f"{seconds:.0f}s"


def printable(text: str, kept: str = "") -> str:
    """Escapes characters that cannot be shown, as Python's literals do: a server may say anything."""

    def shown(letter: str) -> str:
        has_shape = letter.isprintable() or letter in kept or unicodedata.category(letter) == "Zs"
        return letter if has_shape else letter.encode("unicode_escape").decode()

    return "".join(map(shown, text))
