"""Tables of text, ages in them, and text of others that is to be shown."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable


def aligned(rows: Iterable[tuple[str, ...]]) -> list[str]:
    """Each row as a line, its cells below those of the others."""
    rows = list(rows)
    widths = [max(map(width, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(map(padded, row, widths)).rstrip() for row in rows]


def padded(text: str, most: int) -> str:
    return text + " " * (most - width(text))


def width(text: str) -> int:
    """Returns how many columns of a terminal it takes: letters of East Asia take two, accents of their own none."""
    if text.isascii():
        return len(text)
    return sum(map(width_of, text))


def width_of(letter: str) -> int:
    if unicodedata.combining(letter) or unicodedata.category(letter) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(letter) in "WF" else 1


def cut(text: str, most: int) -> str:
    """Returns as much as has room in so many columns, marked if that is not all."""
    if width(text) <= most:
        return text
    taken, kept = 0, 0
    for letter in text:
        taken += width_of(letter)
        if taken >= most:
            break
        kept += 1
    return f"{text[:kept]}…"


def age(seconds: float | None) -> str:
    """Returns a time in its largest unit: `3h`; nothing without a time."""
    if seconds is None:
        return ""
    for unit, length in (("d", 86_400), ("h", 3600), ("m", 60)):
        if round(seconds / length, 2) >= 1:
            return f"{seconds / length:.0f}{unit}"
    return f"{seconds:.0f}s"


def printable(text: str, kept: str = "") -> str:
    """Escapes characters that cannot be shown, as Python's literals do: a server may say anything."""

    def shown(letter: str) -> str:
        has_shape = letter.isprintable() or letter in kept or unicodedata.category(letter) == "Zs"
        return letter if has_shape else letter.encode("unicode_escape").decode()

    return "".join(map(shown, text))
