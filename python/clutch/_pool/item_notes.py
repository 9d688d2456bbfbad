"""Notes on exceptions that name the failed item of a map. Type and arguments of the exception stay unchanged."""

from __future__ import annotations

import contextlib
from sys import getsizeof
from typing import Any

from clutch.insights import REPR, cut

KEPT_BYTES_MAX = 1 << 20
"""Size of a batch above which only its small items are kept for notes."""

SMALL_BYTES_MAX = 256
SCALARS = {int, float, str, bytes, bool, type(None)}


class Shown:
    """Stands for an item that is not kept."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text


def kept(items: list[Any], payload_bytes: int) -> list[Any]:
    """The part of items that is kept for notes if they need not be sent again."""
    if payload_bytes <= KEPT_BYTES_MAX:
        return items
    return [item if type(item) in SCALARS and getsizeof(item) <= SMALL_BYTES_MAX else too_large(item) for item in items]


def too_large(item: Any) -> Shown:
    return Shown(f"<{type(item).__name__}, too large to be kept>")


def note_item(error: BaseException, at: int, item: Any) -> None:
    """`at`: its number in the map, from 0."""
    add_once(error, f"item {at} of the map: {shown(item)}")


def note_items(error: BaseException, start: int, items: list[Any]) -> None:
    """A note for items that failed together, with one error."""
    if len(items) == 1:
        note_item(error, start, items[0])
    elif items:
        add_once(error, f"items {start} to {start + len(items) - 1} of the map, from {shown(items[0])} on")


def shown(item: Any) -> str:
    return repr(item) if type(item) is Shown else cut(REPR.repr(item))


def add_once(error: BaseException, note: str) -> None:
    # Whose __notes__ are no list, or who forbids attributes, is raised without one.
    with contextlib.suppress(Exception):
        if note not in getattr(error, "__notes__", ()):
            BaseException.add_note(error, note)
