"""Charts in a page: the drawing, what tells its lines and colors apart, and a table of the same figures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from clutch.lab import drawing
from clutch.lab.markup import beside, escaped, head, items, table
from clutch.lab.report import Chart, HeatMap, Line, Lines
from clutch.lab.scales import exact, short

ROWS_MAX = 1_000
"""Of a table behind a chart."""
SPREAD_MIN = 440
"""Width in pixels of a heat map from which on it has a row to itself."""
WITHOUT_EXTRA = "The charts are not drawn, as their library is missing: pip install 'clutch[report]' installs it."


def figures(charts: Sequence[Chart]) -> Iterator[str]:
    """Each chart as a figure, all of them in a frame. Without the extra, their tables alone and a sentence."""
    is_possible = drawing.is_possible()
    if not is_possible:
        yield f'<p class="without">{escaped(WITHOUT_EXTRA)}</p>'
    yield '<div class="charts">'
    for chart in charts:
        if isinstance(chart, HeatMap):
            alike = [one for one in charts if isinstance(one, HeatMap) and one.unit == chart.unit]
            yield _figure(chart, _heat_map(chart, alike) if is_possible else "", _table_of_cells(chart))
        else:
            yield _figure(chart, _lines(chart) if is_possible else "", _table_of_points(chart))
    yield "</div>"


def _figure(chart: Chart, drawn: str, figures: str) -> str:
    is_spread = isinstance(chart, Lines) or drawing.width_of(chart) > SPREAD_MIN
    return (
        f'<figure class="{"spread" if is_spread else "shared"}">'
        f"<figcaption><h3>{escaped(chart.title)}</h3></figcaption>\n{drawn}\n"
        f"<details><summary>The figures as a table</summary>{figures}</details></figure>"
    )


def _between(upper: str, drawings: str, told: str, lower: str) -> str:
    """A drawing with the titles of its axes, which are no part of it: so they can wrap."""
    return (
        f'<p class="axis">{escaped(upper)}</p><div class="drawing" role="img" aria-label="{escaped(told)}">'
        f'{drawings}</div><p class="axis">{escaped(lower)}</p>'
    )


# Lines


def _lines(chart: Lines) -> str:
    lines, notes = drawing.drawn(chart), beside(drawing.left_out(chart))
    if not any(one.points for one in lines):
        return beside(["There is no point to draw."]) + notes
    keys = items("keys", (_key(one.look) + f"<span>{escaped(_name(one.line))}</span>" for one in lines))
    names = ", ".join(_name(one.line) for one in lines)
    told = f"Lines of {chart.y.title} over {chart.x.title}: {names}. The table below has the figures."
    # The style shows the one that fits.
    drawings = (
        f'<div class="wide">{drawing.draw(chart, drawing.WIDE)}</div>'
        f'<div class="narrow">{drawing.draw(chart, drawing.NARROW)}</div>'
    )
    return keys + _between(chart.y.title, drawings, told, chart.x.title) + notes


def _name(line: Line) -> str:
    return f"{line.name} (ideal)" if line.is_ideal and "ideal" not in line.name.lower() else line.name


def _key(look: drawing.Look) -> str:
    """A piece of the line."""
    dash = f' stroke-dasharray="{" ".join(map(str, look.dash))}"' if look.dash else ""
    fill = "var(--ground)" if look.is_hollow else look.color
    marker = (
        f'<path transform="translate(15 7) scale(3.7)" d="{look.shape}" fill="{fill}" stroke-width=".4"/>'
        if look.shape
        else ""
    )
    return (
        f'<svg width="30" height="14" aria-hidden="true" stroke="{look.color}">'
        f'<path d="M1 7H29" stroke-width="2" fill="none"{dash}/>{marker}</svg>'
    )


def _table_of_points(chart: Lines) -> str:
    """A line for each x, a column for each line of the chart."""
    columns = [dict(line.points) for line in chart.lines]
    places = sorted({x for column in columns for x in column})
    cut = [f"The first {ROWS_MAX:,} of {len(places):,} lines."] if len(places) > ROWS_MAX else []
    rows = ([exact(x), *(exact(column[x]) if x in column else "" for column in columns)] for x in places[:ROWS_MAX])
    headings = [chart.x.title, *map(_name, chart.lines)]
    unit = (
        f'<tr><td></td><th scope="colgroup" colspan="{len(columns)}" class="group">{escaped(chart.y.title)}</th></tr>'
    )
    return table(chart.title, [unit if columns else "", head(headings)], rows) + beside(cut)


# Heat maps


def _heat_map(chart: HeatMap, alike: Sequence[HeatMap]) -> str:
    """Those of one unit have the same colors for the same values."""
    values = [value for one in alike for value in drawing.measured(one)]
    if not drawing.measured(chart):
        return beside(["There is no value to draw."])
    bounds = min(values), max(values)
    told = f"Map of {chart.unit} by {chart.y} (down) and {chart.x} (across). The table below has the figures."
    drawings = f'<div class="scrolls" tabindex="-1">{drawing.draw(chart, drawing.NARROW, bounds)}</div>'
    return _between(chart.y, drawings, told, chart.x) + _colors(chart, bounds)


def _colors(chart: HeatMap, bounds: tuple[float, float]) -> str:
    """What the colors stand for."""
    low, high = bounds
    if low == high:
        return ""
    steps = "".join(
        f'<rect x="{nr * 18}" width="18" height="12" fill="var(--heat-{nr})"/>' for nr in range(drawing.STEPS)
    )
    scale = f'<svg width="{drawing.STEPS * 18}" height="12" aria-hidden="true">{steps}</svg>'
    return f'<p class="colors"><span>{short(low)}</span>{scale}<span>{short(high)} {escaped(chart.unit)}</span></p>'


def _table_of_cells(chart: HeatMap) -> str:
    across = (
        f'<tr><td></td><th scope="colgroup" colspan="{len(chart.columns)}" class="group">{escaped(chart.x)}</th></tr>'
    )
    rows = (
        [name, *("" if value is None else exact(value) for value in cells)]
        for name, cells in zip(chart.rows, chart.values, strict=True)
    )
    heads = [across if chart.columns else "", head([chart.y, *chart.columns])]
    return table(f"{chart.title}, {chart.unit}", heads, rows) + beside([f"Values in {chart.unit}."])
