"""Draws the README's chart from the figures of a run: `python tools/chart.py docs/figures/serve.json`.

Writes NAME-light.svg and NAME-dark.svg beside the file. The figures are those of docs/serve/speed.md; a test compares
them, and the drawings with what this draws.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

WIDTH, MARGIN, GAP = 880, 24, 28
"""In pixels, as all that follows."""
TITLE_Y, UNIT_Y, BARS_Y = 62, 80, 100
ROW, BAR = 42, 14
LABEL = 14
"""From a bar's name to the bar below it."""
ROOM_FOR_VALUE = 62
FONT = "system-ui, -apple-system, 'Segoe UI', Helvetica, Arial, sans-serif"


@dataclass(frozen=True)
class Colours:
    text: str
    faint: str
    ours: str
    others: str


SCHEMES = {
    "light": Colours(text="#1f2328", faint="#59636e", ours="#0969da", others="#b7c0ca"),
    "dark": Colours(text="#e6edf3", faint="#9198a1", ours="#4493f8", others="#484f58"),
}


def draw(run: dict[str, Any], colours: Colours) -> str:
    """The chart as SVG, on no ground of its own."""
    panels, measured = run["panels"], run["measured"]
    rows = max(len(panel["bars"]) for panel in panels)
    below = BARS_Y + rows * ROW
    height = below + 44
    parts = [text(MARGIN, 26, run["title"], colours.text, 17, 600)]
    for nr, panel in enumerate(panels):
        parts += draw_panel(panel, left_of(nr, len(panels)), width_of(len(panels)), colours)
    about = f"{measured['date']} · {measured['machine']} · {measured['load']}"
    parts.append(text(MARGIN, below + 10, about, colours.faint, 12))
    parts.append(text(MARGIN, below + 28, f"{measured['versions']}; {measured['command']}", colours.faint, 12))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
        f'role="img" aria-label="{escape(spoken(run))}" font-family="{FONT}">\n' + "\n".join(parts) + "\n</svg>\n"
    )


def draw_panel(panel: dict[str, Any], left: float, width: float, colours: Colours) -> Iterator[str]:
    yield text(left, TITLE_Y, panel["title"], colours.text, 14, 600)
    yield text(left, UNIT_Y, f"{panel['unit']}, {panel['better']} is better", colours.faint, 12)
    most = max(bar["value"] for bar in panel["bars"])
    for nr, bar in enumerate(panel["bars"]):
        is_ours = nr == 0
        y = BARS_Y + nr * ROW
        length = round((width - ROOM_FOR_VALUE) * bar["value"] / most, 1)
        shade = colours.ours if is_ours else colours.others
        yield text(left, y + 9, bar["name"], colours.text if is_ours else colours.faint, 12, 600 if is_ours else 400)
        if length:
            yield f'<rect x="{left}" y="{y + LABEL}" width="{length}" height="{BAR}" rx="3" fill="{shade}"/>'
        beside = left + length + (6 if length else 0)
        yield text(beside, y + LABEL + 11, f"{bar['value']:,}", colours.text, 12, 600 if is_ours else 400)


def text(x: float, y: float, words: str, colour: str, size: int, weight: int = 400) -> str:
    return f'<text x="{x}" y="{y}" fill="{colour}" font-size="{size}" font-weight="{weight}">{escape(words)}</text>'


def width_of(panels: int) -> float:
    return round((WIDTH - 2 * MARGIN - (panels - 1) * GAP) / panels, 1)


def left_of(nr: int, panels: int) -> float:
    return round(MARGIN + nr * (width_of(panels) + GAP), 1)


def spoken(run: dict[str, Any]) -> str:
    """For those who do not see it."""
    panels = (
        f"{panel['title']}, {panel['unit']}: " + ", ".join(f"{bar['name']} {bar['value']:,}" for bar in panel["bars"])
        for panel in run["panels"]
    )
    return "; ".join(panels)


def drawings(file: Path) -> dict[Path, str]:
    """What is to be in which file."""
    run = json.loads(file.read_text())
    return {file.with_name(f"{file.stem}-{name}.svg"): draw(run, colours) for name, colours in SCHEMES.items()}


if __name__ == "__main__":
    for drawn, svg in drawings(Path(sys.argv[1])).items():
        drawn.write_text(svg)
        print(f"written: {drawn}")
