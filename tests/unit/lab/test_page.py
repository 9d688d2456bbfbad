"""Reports as one file of HTML: whole, escaped, and made without the extra too."""

from __future__ import annotations

import base64
import hashlib
import importlib.util
import json
import math
import re
from dataclasses import dataclass, field
from html.parser import HTMLParser
from itertools import pairwise

import pytest

from clutch.lab import drawing
from clutch.lab.figures import ROWS_MAX, WITHOUT_EXTRA
from clutch.lab.page import page
from clutch.lab.report import Axis, HeatMap, Line, Lines, Report, Sheet
from support import reports

with_extra = pytest.mark.skipif(
    importlib.util.find_spec("vl_convert") is None, reason="vl-convert-python is missing: pip install 'clutch[report]'"
)
VOID = {"meta", "br", "img", "input", "link"}
HOSTILE = "</script></style></title></pre><img src=x onerror=alert(1)>\"' onload='x' &lt;!--]]>{{}}\u202e\x00\x01\ud800"
SHOWN = HOSTILE.replace("\u202e\x00\x01\ud800", "\ufffd" * 4)
"""What is left of it to be read."""


@dataclass
class Element:
    tag: str
    attributes: dict[str, str]
    within: tuple[str, ...]
    text: str = ""


@dataclass
class Page(HTMLParser):
    """The elements of a page. Fails on one that is not closed where it should be."""

    elements: list[Element] = field(default_factory=list)
    open: list[Element] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        element = Element(tag, {name: value or "" for name, value in attrs}, tuple(one.tag for one in self.open))
        self.elements.append(element)
        if tag not in VOID:
            self.open.append(element)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop().tag == tag

    def handle_data(self, data: str) -> None:
        for one in self.open:
            one.text += data

    def all(self, tag: str, within: str = "html") -> list[Element]:
        return [one for one in self.elements if one.tag == tag and (tag == within or within in one.within)]


def parsed(report: Report) -> Page:
    found = Page()
    found.feed(page(report))
    found.close()
    assert not found.open
    return found


@pytest.fixture
def without_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drawing, "is_possible", lambda: False)


def hostile() -> Report:
    points = [(1.0, 2.0), (2.0, 3.0)]
    return Report(
        HOSTILE,
        {HOSTILE: HOSTILE},
        [Sheet(HOSTILE, [HOSTILE, HOSTILE], [[HOSTILE, HOSTILE]], [HOSTILE])],
        [
            Lines(HOSTILE, Axis(HOSTILE), Axis(HOSTILE, "log"), [Line(HOSTILE, points), Line(HOSTILE, points, True)]),
            Lines(HOSTILE, Axis(HOSTILE, "log"), Axis(HOSTILE), [Line(HOSTILE, [(0, 1)])]),
            HeatMap(HOSTILE, HOSTILE, [HOSTILE], HOSTILE, [HOSTILE, HOSTILE], [[1.0], [None]], HOSTILE),
        ],
        [HOSTILE, f"Warning: {HOSTILE}"],
        [HOSTILE],
        {HOSTILE: [HOSTILE, math.inf]},
    )


def harmless() -> Report:
    """The same with another text: whatever is in a text, the page has the same elements."""
    points = [(1.0, 2.0), (2.0, 3.0)]
    return Report(
        "a",
        {"a": "a"},
        [Sheet("a", ["a", "a"], [["a", "a"]], ["a"])],
        [
            Lines("a", Axis("a"), Axis("a", "log"), [Line("a", points), Line("a", points, True)]),
            Lines("a", Axis("a", "log"), Axis("a"), [Line("a", [(0, 1)])]),
            HeatMap("a", "a", ["a"], "a", ["a", "a"], [[1.0], [None]], "a"),
        ],
        ["a", "Warning: a"],
        ["a"],
        {"a": ["a", math.inf]},
    )


def shape(found: Page) -> list[tuple[str, tuple[str, ...], list[str]]]:
    return [(one.tag, one.within, sorted(one.attributes)) for one in found.elements]


@pytest.mark.parametrize("is_possible", [pytest.param(True, marks=with_extra), False])
def test_no_text_breaks_out(is_possible: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drawing, "is_possible", lambda: is_possible)
    found = parsed(hostile())
    assert shape(found) == shape(parsed(harmless()))
    assert found.all("h1")[0].text == found.all("title")[0].text == SHOWN
    assert {one.text for one in found.all("td", "section")} == {SHOWN}
    assert not {name for one in found.elements for name in one.attributes if name.startswith("on") or name == "style"}
    page(hostile()).encode()  # it has nothing that a file cannot


def test_data_is_json_whatever_is_in_it() -> None:
    found = parsed(hostile())
    data = next(one for one in found.elements if one.attributes.get("id") == "data")
    assert json.loads(data.text) == {HOSTILE: [HOSTILE, None]}


def test_only_its_own_script_and_style_run() -> None:
    found = parsed(reports.realistic())
    policy = next(one.attributes["content"] for one in found.all("meta") if "http-equiv" in one.attributes)
    rules = dict(rule.split(" ", 1) for rule in policy.split("; "))
    assert rules["default-src"] == "'none'"
    for tag in ("script", "style"):
        (one,) = found.all(tag)
        digest = base64.b64encode(hashlib.sha256(one.text.encode()).digest()).decode()
        assert rules[f"{tag}-src"] == f"'sha256-{digest}'"
    assert not [one for one in found.elements if one.attributes.keys() & {"src", "href", "xlink:href"}]
    assert "url(" not in page(reports.realistic())


def test_tables_name_their_lines_and_columns() -> None:
    found = parsed(reports.realistic())
    for head in found.all("th"):
        assert head.attributes["scope"] == ("row" if "tbody" in head.within else head.attributes["scope"])
        assert head.attributes["scope"] in ("row", "col", "colgroup")
    levels = [int(one.tag[1]) for one in found.elements if re.fullmatch("h[1-6]", one.tag)]
    assert levels[0] == 1 and levels.count(1) == 1
    assert all(below - above <= 1 for above, below in pairwise(levels))


def test_warnings_stand_out() -> None:
    found = parsed(Report("", {}, advice=["Take two.", "Warning: the machine was busy."]))
    assert [(one.text, one.attributes.get("class")) for one in found.all("li")] == [
        ("Take two.", None),
        ("Warning: the machine was busy.", "warning"),
    ]


def test_an_empty_report_is_a_page() -> None:
    found = parsed(Report("Nothing", {}))
    assert [one.text for one in found.all("h1")] == ["Nothing"] and not found.all("h2")


@pytest.mark.usefixtures("without_extra")
def test_without_the_extra_there_are_tables_and_a_sentence() -> None:
    found = parsed(reports.realistic())
    assert "pip install 'clutch[report]'" in WITHOUT_EXTRA
    assert [one.text for one in found.all("p", "main")].count(WITHOUT_EXTRA) == 1
    assert not found.all("svg")
    assert len(found.all("table", "figure")) == len(reports.realistic().charts)


@with_extra
def test_with_the_extra_each_chart_has_a_drawing_its_words_and_its_table() -> None:
    report = reports.realistic()
    found = parsed(report)
    assert WITHOUT_EXTRA not in page(report)
    drawings = [one for one in found.all("div", "figure") if one.attributes.get("role") == "img"]
    assert len(drawings) == len(found.all("table", "figure")) == len(report.charts)
    assert all("table below" in one.attributes["aria-label"] for one in drawings)
    assert [one.text for one in found.all("h3", "figure")] == [chart.title for chart in report.charts]


@with_extra
def test_a_drawing_has_no_more_than_a_page_may() -> None:
    """Ids would be found twice, and colors would not follow the theme."""
    for chart in reports.realistic().charts:
        svg = drawing.draw(chart, drawing.NARROW)
        assert not re.search(r'\b(id|class|style|href)="|<(image|script|style|a)\b', svg)
        assert set(re.findall(r'(?:fill|stroke)="([^"]*)"', svg)) <= {"none", "transparent"} | set(
            re.findall(r"var\(--[a-z0-9-]+\)", svg)
        )


@with_extra
def test_points_tell_exact_figures() -> None:
    line = Line("a", [(1, 1234.5678), (2, 0.000125)])
    svg = drawing.draw(Lines("", Axis("callers"), Axis("ms"), [line]), drawing.WIDE)
    first, second = re.findall('data-tip="([^"]*)"', svg)
    assert first == "a&#10;callers: 1&#10;ms: 1,234.568"
    assert second == "a&#10;callers: 2&#10;ms: 0.000125"


@with_extra
def test_a_grid_has_the_value_in_each_cell() -> None:
    svg = drawing.draw(HeatMap("", "x", ["1", "2"], "y", ["1"], [[4812.4, None]], "calls/s"), drawing.NARROW)
    assert re.findall(r">([^<>]+)</text>", svg)[:2] == ["4,812", "–"]
    assert "not measured" in svg


@with_extra
def test_percentiles_are_equally_far_apart_by_nines() -> None:
    line = Line("a", [(percentile, 1.0) for percentile in (90, 99, 99.9, 99.99)])
    svg = drawing.draw(Lines("", Axis("p", "percentile"), Axis("ms"), [line]), drawing.WIDE)
    places = [float(x) for x in re.findall(r'<path transform="translate\(([\d.]+),', svg)]
    steps = [right - left for left, right in pairwise(places)]
    assert steps == pytest.approx([steps[0]] * 3, abs=0.1) and steps[0] > 100


ODD = {
    "one point": Lines("", Axis("x", "log"), Axis("y"), [Line("a", [(4, 100.5)])]),
    "zero alone": Lines("", Axis("x"), Axis("y"), [Line("a", [(0, 0)])]),
    "one percentile": Lines("", Axis("x", "percentile"), Axis("y", "log"), [Line("a", [(99, 3)])]),
    "an ideal alone": Lines("", Axis("x"), Axis("y"), [Line("a", [(1, 1), (2, 2)], True)]),
    "next to 100": Lines("", Axis("x", "percentile"), Axis("y"), [Line("a", [(math.nextafter(100, 0), 3), (1, 1)])]),
    "an empty line": Lines("", Axis("x"), Axis("y"), [Line("a", []), Line("b", [(1, -1), (2, 3)])]),
    "one cell": HeatMap("", "x", ["1"], "y", ["1"], [[5.0]], "u"),
    "not a number": HeatMap("", "x", ["1", "2"], "y", ["1"], [[math.nan, 1.0]], "u"),
}


@with_extra
@pytest.mark.parametrize("chart", ODD.values(), ids=ODD)
def test_odd_charts_are_drawn(chart: Lines | HeatMap) -> None:
    found = parsed(Report("", {}, charts=[chart]))
    assert [one for one in found.all("div") if one.attributes.get("role") == "img"]
    assert "NaN" not in page(Report("", {}, charts=[chart]))


@pytest.mark.parametrize(
    "chart",
    [
        Lines("", Axis("x"), Axis("y"), []),
        HeatMap("", "x", [], "y", [], [], "u"),
        HeatMap("", "x", ["1"], "y", ["1"], [[None]], "u"),
    ],
)
def test_charts_of_nothing_say_so(chart: Lines | HeatMap, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drawing, "is_possible", lambda: True)
    (figure,) = parsed(Report("", {}, charts=[chart])).all("figure")
    assert "to draw." in figure.text


def test_what_is_left_out_is_said() -> None:
    line = Line("a", [(0, 1), (1, 0), (2, 5), (4, math.nan), (9, 700)])
    assert list(drawing.left_out(Lines("", Axis("callers", "log"), Axis("ms", "log"), [line]))) == [
        "1 point is left out: a logarithmic axis (callers) has no place for zero and below.",
        "1 point is left out: a logarithmic axis (ms) has no place for zero and below.",
        "1 point is left out: not a finite number.",
    ]
    lines = [Line("a", [(50, 1), (100, 9)]), Line("b", [(100, 9)])]
    assert list(drawing.left_out(Lines("", Axis("p", "percentile"), Axis("ms"), lines))) == [
        "2 points are left out: an axis of percentiles (p) comes near 100, but never there."
    ]
    steep = [Line("a", [(1, 10), (2, 12)]), Line("b", [(1, 10), (2, 1000)], True)]
    assert list(drawing.left_out(Lines("", Axis("x"), Axis("y"), steep))) == [
        "The ideal goes on above the chart, up to 1,000."
    ]
    many = [Line(f"{nr}", [(1, 1)]) for nr in range(drawing.LINES_MAX + 1)]
    assert list(drawing.left_out(Lines("", Axis("x"), Axis("y"), many))) == [
        "Only the first 16 of 17 lines are drawn; the table has all of them."
    ]


def test_lines_are_told_apart_without_color() -> None:
    looks = drawing.looks([Line(f"{nr}", []) for nr in range(drawing.LINES_MAX)])
    assert len({(look.shape, look.is_hollow) for look in looks}) == drawing.LINES_MAX
    assert len({look.color for look in looks[: drawing.COLORS]}) == drawing.COLORS


def test_a_long_table_is_cut_and_says_so() -> None:
    chart = Lines("", Axis("x"), Axis("y"), [Line("a", [(x, x) for x in range(ROWS_MAX + 1)])])
    (figure,) = parsed(Report("", {}, charts=[chart])).all("figure")
    assert "The first 1,000 of 1,001 lines." in figure.text


def contrast(one: str, other: str) -> float:
    """As WCAG 2 has it."""
    low, high = sorted(map(luminance, (one, other)))
    return (high + 0.05) / (low + 0.05)


def luminance(color: str) -> float:
    digits = color[1:] if len(color) == 7 else "".join(digit * 2 for digit in color[1:])
    parts = [int(digits[at : at + 2], 16) / 255 for at in (0, 2, 4)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return sum(share * part for share, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_colors_are_readable(scheme: str) -> None:
    style = page(Report("", {}))
    light, _, rest = style.partition("@media screen and (prefers-color-scheme: dark)")
    pattern = r"--([a-z0-9-]+): (#[0-9a-f]+);"
    colors = dict(re.findall(pattern, light)) | (dict(re.findall(pattern, rest)) if scheme == "dark" else {})
    lines = [contrast(colors[f"line-{nr + 1}"], colors["ground"]) for nr in range(drawing.COLORS)]
    cells = [contrast(colors[f"heat-{nr}"], colors[f"on-heat-{nr}"]) for nr in range(drawing.STEPS)]
    texts = [contrast(colors[name], colors["ground"]) for name in ("text", "faint", "accent")]
    warning = contrast(colors["warning"], colors["warned"])
    assert min(lines) >= 3 and min(*cells, *texts, warning) >= 4.5


@with_extra
def test_a_page_is_small() -> None:
    assert len(page(reports.realistic()).encode()) < 700_000
