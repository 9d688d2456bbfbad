"""Charts of a report as SVG, drawn by Vega-Lite.

They are drawn here and not by the reader's browser, so that a page needs no library, opens at once and prints as it
looks. Colors are variables of the page's style, `var(--line-1)`, so that one drawing serves light and dark. Scales that
are not linear are computed here: the drawing is told where a point goes and what is written beside a tick.

Drawing needs the extra `report`. What is left out of a chart, and why, is known without it.
"""

from __future__ import annotations

import importlib.util
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple
from xml.etree import ElementTree

from clutch.lab.markup import clean
from clutch.lab.report import Axis, Chart, HeatMap, Line, Lines
from clutch.lab.scales import Point, domain_of, exact, place_of, short, ticks_of

WIDE, NARROW = 860, 358
"""Widths in pixels: of a page, and of a phone's."""
HEIGHTS = {WIDE: 340, NARROW: 260}
CELL_HEIGHT, CELL_WIDTH_MIN = 36, 44
CHARACTER = 7.2
"""Room for one, in pixels, at the size of the text."""
LABEL_MAX = 120
FONT_SLACK = 0.87
"""Text is measured in one font and shown in the reader's, which may be wider."""

LINES_MAX = 16
"""Lines that are drawn of one chart: more could not be told apart."""
COLORS = 8
MARKED_MAX = 24
"""Points of a line that all have a marker. Of more, about half as many have one."""
HOVERED_MAX = 600
"""Points of a chart that tell their figures when they are pointed at."""
IDEAL_MAX = 1.25
"""How far above the measured points a chart reaches for the sake of an ideal line."""

STEPS = 7
"""Colors of a heat map."""

# In a square from -1 to 1, as Vega takes them. After the eighth line they come again, hollow.
SHAPES = (
    "M.9,0A.9,.9,0,1,1,-.9,0A.9,.9,0,1,1,.9,0Z",
    "M-.8,-.8H.8V.8H-.8Z",
    "M0,-1L1,.75H-1Z",
    "M0,-1.1L1.1,0L0,1.1L-1.1,0Z",
    "M0,1L-1,-.75H1Z",
    "M-.35,-1H.35V-.35H1V.35H.35V1H-.35V.35H-1V-.35H-.35Z",
    "M-.75,-1L1,0L-.75,1Z",
    "M0,-1.1L.33,-.36L1.1,-.34L.53,.17L.68,.9L0,.5L-.68,.9L-.53,.17L-1.1,-.34L-.33,-.36Z",
)
IDEAL_DASHES = ([3, 4], [9, 4], [9, 3, 2, 3])


class Look(NamedTuple):
    """How a line is told from the others: by its color, and without it by its markers or dashes."""

    color: str
    shape: str | None
    is_hollow: bool
    dash: list[int]


@dataclass(frozen=True)
class Drawn:
    """A line, with the points that its axes have a place for, by x."""

    line: Line
    look: Look
    points: Sequence[Point]


def is_possible() -> bool:
    """Whether the extra is installed."""
    return importlib.util.find_spec("vl_convert") is not None


def draw(chart: Chart, width: int, bounds: Point | None = None) -> str:
    """Return an SVG element that can stand in a page. `bounds`: the least and the greatest value that the colors of
    a heat map are for. Figures are in `data-tip`. Raises ImportError without the extra."""
    from vl_convert import vegalite_to_svg

    spec = _heat_map(chart, bounds) if isinstance(chart, HeatMap) else _lines(chart, width)
    return _tidied(vegalite_to_svg({**spec, "config": _CONFIG, "background": "transparent"}))


# What is drawn of lines, and what is not


def looks(lines: Sequence[Line]) -> list[Look]:
    """Of each line, in their order. Computed ones take no color from the measured."""
    found: list[Look] = []
    measured = ideal = 0
    for line in lines:
        if line.is_ideal:
            found.append(Look("var(--faint)", None, False, IDEAL_DASHES[ideal % len(IDEAL_DASHES)]))
            ideal += 1
        else:
            shape = SHAPES[measured % len(SHAPES)]
            found.append(Look(f"var(--line-{measured % COLORS + 1})", shape, measured >= len(SHAPES), []))
            measured += 1
    return found


def drawn(chart: Lines) -> list[Drawn]:
    lines = chart.lines[:LINES_MAX]
    return [
        Drawn(line, look, sorted(point for point in line.points if not _reason(chart, point)))
        for line, look in zip(lines, looks(lines), strict=True)
    ]


def left_out(chart: Lines) -> Iterator[str]:
    """Sentences about points and lines that are not drawn."""
    if len(chart.lines) > LINES_MAX:
        yield f"Only the first {LINES_MAX} of {len(chart.lines)} lines are drawn; the table has all of them."
    lines = chart.lines[:LINES_MAX]
    reasons = [reason for line in lines for point in line.points if (reason := _reason(chart, point))]
    for reason in dict.fromkeys(reasons):
        count = reasons.count(reason)
        yield f"{count} point{'s are' if count > 1 else ' is'} left out: {reason}."
    if (top := _top(chart)) is not None:
        highest = max(y for one in drawn(chart) if one.line.is_ideal for _, y in one.points)
        if highest > top:
            yield f"The ideal goes on above the chart, up to {short(highest)}."


def _reason(chart: Lines, point: Point) -> str:
    """Why a point has no place; empty if it has one."""
    for axis, value in zip((chart.x, chart.y), point, strict=True):
        if not math.isfinite(value):
            return "not a finite number"
        if axis.scale == "log" and value <= 0:
            return f"a logarithmic axis ({axis.title}) has no place for zero and below"
        if axis.scale == "percentile" and not 0 <= value / 100 < 1:
            return f"an axis of percentiles ({axis.title}) comes near 100, but never there"
    return ""


def _top(chart: Lines) -> float | None:
    """Where an ideal line is cut off, if it would press the measured ones to the ground."""
    measured = [y for one in drawn(chart) if not one.line.is_ideal for _, y in one.points]
    has_ideal = any(one.points for one in drawn(chart) if one.line.is_ideal)
    if chart.y.scale != "linear" or not has_ideal or not measured or max(measured) <= 0:
        return None
    return IDEAL_MAX * max(measured)


# Lines


def _lines(chart: Lines, width: int) -> dict[str, Any]:
    shown = [one for one in drawn(chart) if one.points]
    top = _top(chart)
    encoding, params = {}, []
    for side, axis in enumerate((chart.x, chart.y)):
        name = "xy"[side]
        values = [point[side] for one in shown for point in one.points]
        kept = [min(value, top) for value in values] if side and top is not None else values
        encoding[name], found = _encoding(name, axis, kept, width)
        params += found
    return {
        "width": width,
        "height": HEIGHTS[width],
        "autosize": {"type": "fit", "contains": "padding"},
        "padding": {"left": 1, "right": 12, "top": 8, "bottom": 2},
        "params": params,
        "encoding": encoding,
        "layer": [
            *(_stroke(one, chart, top) for one in sorted(shown, key=lambda one: not one.line.is_ideal)),
            _markers(shown, chart, top),
        ],
    }


def _encoding(
    name: str, axis: Axis, values: Sequence[float], width: int
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """One side of the chart, and the words beside its ticks."""
    is_y = name == "y"
    domain = domain_of([place_of(value, axis.scale) for value in values], axis, has_zero=is_y)
    ticks = ticks_of(values, axis, domain)
    shown: dict[str, Any] = {"title": None, "grid": is_y, "domain": not is_y, "ticks": not is_y, "labelFlush": False}
    params = []
    if ticks is None:
        shown |= {"tickCount": 5 if is_y or width == NARROW else 8, "labelExpr": _SHORT}
    else:
        places = [place_of(tick, axis.scale) for tick in ticks]
        params = [
            {"name": f"{name}_places", "value": places},
            {"name": f"{name}_labels", "value": [exact(tick) for tick in ticks]},
        ]
        # Labels are looked up: text is never part of an expression.
        shown |= {"values": places, "labelExpr": f"{name}_labels[indexof({name}_places, datum.value)]"}
    scale = {"domain": domain, "zero": False, "nice": is_y and axis.scale == "linear"}
    return {"field": name, "type": "quantitative", "scale": scale, "axis": shown}, params


_SHORT = "format(datum.value, abs(datum.value) < 1e6 ? ',~r' : '~s')"


def _stroke(one: Drawn, chart: Lines, top: float | None) -> dict[str, Any]:
    points = _placed(one.points, chart)
    if one.line.is_ideal and top is not None:
        points = list(_below(points, top))
    mark = {
        "type": "line",
        "stroke": one.look.color,
        "strokeWidth": 1.5 if one.line.is_ideal else 2,
        "strokeJoin": "round",
        "strokeCap": "butt" if one.line.is_ideal else "round",
    }
    if one.look.dash:
        mark["strokeDash"] = one.look.dash
    return {"mark": mark, "data": {"values": [{"x": x, "y": y} for x, y in points]}}


def _placed(points: Sequence[Point], chart: Lines) -> list[Point]:
    return [(place_of(x, chart.x.scale), place_of(y, chart.y.scale)) for x, y in points]


def _below(points: Sequence[Point], top: float) -> Iterator[Point]:
    """The part of a line up to where it first leaves the chart."""
    for nr, (x, y) in enumerate(points):
        if y > top:
            if nr:
                before_x, before_y = points[nr - 1]
                yield before_x + (x - before_x) * (top - before_y) / (y - before_y), top
            return
        yield x, y


def _markers(shown: Sequence[Drawn], chart: Lines, top: float | None) -> dict[str, Any]:
    """The points that are seen or can be pointed at, those of ideal lines among them."""
    total = sum(len(one.points) for one in shown)
    rows = []
    for nr, one in enumerate(shown):
        count = len(one.points)
        mark_every = 1 if count <= MARKED_MAX else math.ceil(2 * count / MARKED_MAX)
        hover_every = math.ceil(total / HOVERED_MAX)
        for at, ((x, y), place) in enumerate(zip(one.points, _placed(one.points, chart), strict=True)):
            # Those of neighbors are not side by side.
            is_marked = one.look.shape is not None and (at + nr * mark_every // 3) % mark_every == 0
            if (top is not None and y > top) or (at % hover_every and not is_marked):
                continue
            rows.append(
                {
                    "x": place[0],
                    "y": place[1],
                    "color": one.look.color,
                    "fill": "var(--ground)" if one.look.is_hollow else one.look.color,
                    "shape": one.look.shape or SHAPES[0],
                    "opacity": int(is_marked),
                    "tip": clean(
                        f"{one.line.name}\n{chart.x.title}: {exact(x)}\n{chart.y.title}: {exact(y)}",
                    ),
                }
            )
    channels = {channel: {"field": field, "scale": None} for channel, field in _MARKER.items()}
    return {
        "mark": {"type": "point", "size": 44, "strokeWidth": 1.5},
        "data": {"values": rows},
        "encoding": {**channels, "description": {"field": "tip"}},
    }


_MARKER = {"stroke": "color", "fill": "fill", "shape": "shape", "opacity": "opacity"}


# Heat maps


def measured(chart: HeatMap) -> list[float]:
    return [value for row in chart.values for value in row if value is not None and math.isfinite(value)]


def step_of(value: float, bounds: Point) -> int:
    """Its color, from 0 to STEPS - 1."""
    low, high = bounds
    return STEPS // 2 if low == high else min(STEPS - 1, int((value - low) / (high - low) * STEPS))


def width_of(chart: HeatMap) -> int:
    """The width at which each cell has room for its value."""
    longest = max((len(short(value)) for value in measured(chart)), default=1)
    cell = max(CELL_WIDTH_MIN, CHARACTER * longest + 12)
    return max(NARROW, math.ceil(_labels_width(chart) + cell * len(chart.columns)))


def _labels_width(chart: HeatMap) -> float:
    return min(LABEL_MAX, CHARACTER * max(map(len, chart.rows), default=1)) + 12


def _heat_map(chart: HeatMap, bounds: Point | None) -> dict[str, Any]:
    width, labels = width_of(chart), _labels_width(chart)
    values = measured(chart)
    ends = bounds or (min(values), max(values))
    cells = [
        {"x": x, "y": y, **_cell(chart, (row, column), value, ends)}
        for y, (row, cells) in enumerate(zip(chart.rows, chart.values, strict=True))
        for x, (column, value) in enumerate(zip(chart.columns, cells, strict=True))
    ]
    sides = {
        name: {
            "field": name,
            "type": "ordinal",
            "scale": {"paddingInner": 0.06, "paddingOuter": 0},
            "axis": {
                "title": None,
                "domain": False,
                "ticks": False,
                "labelAngle": 0,
                "labelExpr": f"{name}_labels[datum.value]",
                "labelLimit": LABEL_MAX if name == "y" else FONT_SLACK * (width - labels) / len(chart.columns),
            },
        }
        for name in "xy"
    }
    return {
        "width": width,
        "height": CELL_HEIGHT * len(chart.rows) + 24,
        "autosize": {"type": "fit", "contains": "padding"},
        "padding": {"left": (1 / FONT_SLACK - 1) * labels, "right": 1, "top": 1, "bottom": 1},
        "params": [
            {"name": "x_labels", "value": [clean(name) for name in chart.columns]},
            {"name": "y_labels", "value": [clean(name) for name in chart.rows]},
        ],
        "data": {"values": cells},
        "encoding": sides,
        "layer": [
            {
                "mark": {"type": "rect", "cornerRadius": 3},
                "encoding": {"fill": {"field": "fill", "scale": None}, "description": {"field": "tip"}},
            },
            {
                "mark": {"type": "text", "fontSize": 13},
                "encoding": {"text": {"field": "text"}, "fill": {"field": "color", "scale": None}},
            },
        ],
    }


def _cell(chart: HeatMap, names: tuple[str, str], value: float | None, bounds: Point) -> dict[str, str]:
    where = f"{chart.y}: {names[0]}\n{chart.x}: {names[1]}"
    if value is None or not math.isfinite(value):
        tip = clean(f"{where}\nnot measured")
        return {"fill": "var(--blank)", "color": "var(--faint)", "text": "–", "tip": tip}
    step = step_of(value, bounds)
    tip = clean(f"{where}\n{exact(value)} {chart.unit}")
    return {"fill": f"var(--heat-{step})", "color": f"var(--on-heat-{step})", "text": short(value), "tip": tip}


# What comes of it

_CONFIG = {
    "font": "Arial, sans-serif",
    "view": {"stroke": None},
    "axis": {
        "labelColor": "var(--faint)",
        "labelFontSize": 12,
        "labelPadding": 7,
        "gridColor": "var(--rule)",
        "domainColor": "var(--line)",
        "tickColor": "var(--line)",
        "labelOverlap": "greedy",
        "labelSeparation": 6,
    },
}
_KEPT = {
    *("d", "x", "y", "x2", "y2", "width", "height", "viewBox", "transform", "opacity"),
    *("fill", "stroke", "stroke-width", "stroke-dasharray", "stroke-linejoin", "stroke-linecap"),
    *("text-anchor", "font-size"),
}
_TOLD = re.compile(r"mark-(symbol|rect) role-mark")


def _tidied(svg: str) -> str:
    """Only what is seen, and the figures behind it. All text is escaped anew, whoever wrote it before."""
    root = ElementTree.fromstring(svg)
    _tidy(root, is_told=False)
    return ElementTree.tostring(root, encoding="unicode")


def _tidy(element: ElementTree.Element, is_told: bool) -> None:
    element.tag = element.tag.rpartition("}")[2]
    tip = element.get("aria-label") if is_told else None
    tells = bool(_TOLD.search(element.get("class", "")))
    element.attrib = {name: value for name, value in element.attrib.items() if name in _KEPT}
    if tip is not None:
        element.set("data-tip", tip)
    for child in list(element):
        if child.get("display") == "none" or child.get("class") in ("background", "foreground"):
            element.remove(child)
            continue
        _tidy(child, tells)
        if child.tag == "g" and not len(child):
            element.remove(child)
