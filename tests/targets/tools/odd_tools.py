"""A tool whose name, docstring and default hold what a terminal would obey."""

from __future__ import annotations

import clutch


class Red:
    def __repr__(self) -> str:
        return "\x1b[31mred"


def named(value: object = Red()) -> int:
    return 1


named.__name__ = named.__qualname__ = "a/b\nc\x1b[2J"
named.__doc__ = "Says \x1b]0;title\x07 — 日本\u3000語.\n\nMore\u202e."
globals()[named.__name__] = clutch.tool(named)
del named
