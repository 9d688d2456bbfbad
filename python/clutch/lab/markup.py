"""Text and tables as HTML. Nothing in a text can end the element or the quotes that it stands in."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Sequence

_UNFIT = re.compile("[^\t\n\r -~\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]|[\u202a-\u202e\u2066-\u2069]")
_FLAG = re.compile(r"(?<!\S)--?[a-z][a-z-]*")


def clean(text: str) -> str:
    """Without the characters that neither HTML nor XML can hold, and those that turn around what follows them."""
    return _UNFIT.sub("\ufffd", text)


def escaped(text: str) -> str:
    """As it stands between tags and in quotes."""
    return html.escape(clean(text))


def prose(text: str) -> str:
    """Text between tags, whose lines do not break within a flag."""
    return _FLAG.sub(r'<span class="flag">\g<0></span>', escaped(text))


def items(name: str, parts: Iterable[str]) -> str:
    """A list of parts that are HTML already."""
    return f'<ul class="{name}">{"".join(f"<li>{part}</li>" for part in parts)}</ul>'


def beside(notes: Iterable[str]) -> str:
    """Small print."""
    return "".join(f'<p class="beside">{prose(note)}</p>' for note in notes)


def scrolling(label: str, content: str) -> str:
    """What may be wider than the page scrolls inside itself; a keyboard can reach it."""
    return f'<div class="scrolls" tabindex="0" role="region" aria-label="{escaped(label)}">{content}</div>'


def head(headings: Sequence[str]) -> str:
    """The line of a table that names its columns."""
    cells = [f'<th scope="col"{"" if nr else FIRST}>{escaped(heading)}</th>' for nr, heading in enumerate(headings)]
    return f"<tr>{''.join(cells)}</tr>"


def table(label: str, heads: Iterable[str], lines: Iterable[Sequence[str]]) -> str:
    """The first of each line names it."""
    rows = "\n".join(map(_row, lines))
    return scrolling(label, f"<table><thead>{''.join(heads)}</thead>\n<tbody>\n{rows}\n</tbody></table>")


def _row(cells: Sequence[str]) -> str:
    first, *others = cells or [""]
    figures = "".join(f"<td>{escaped(cell)}</td>" for cell in others)
    return f'<tr><th scope="row"><span>{prose(first)}</span></th>{figures}</tr>'


FIRST = ' class="first"'
