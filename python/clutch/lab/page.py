"""A report as one file of HTML, that can be sent to someone and opened without a network.

All text goes through `markup.escaped`, so that nothing in it can end the element that it stands in. Should something
slip through all the same, the page's Content-Security-Policy lets no script run but its own, and nothing load.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
from collections.abc import Iterator
from importlib import resources
from typing import Any

from clutch.lab.figures import figures
from clutch.lab.markup import beside, escaped, head, items, prose, scrolling, table
from clutch.lab.report import WARNING, Report, Sheet

PAGE = """\
<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="referrer" content="no-referrer">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<main>
<h1>{title}</h1>
{body}
</main>
<footer>Made by Clutch. The whole report is in this file: it can be sent on, and opens without a network.</footer>
<div id="tip" aria-hidden="true" hidden></div>
<script>{script}</script>
</body>
</html>
"""


def page(report: Report) -> str:
    """Return the whole file, to be written as UTF-8. Charts need the extra `report`; without it a sentence says so."""
    style, script = _asset("page.css"), _asset("page.js")
    policy = "; ".join(
        [
            "default-src 'none'",
            f"style-src '{_hash(style)}'",
            f"script-src '{_hash(script)}'",
            "base-uri 'none'",
            "form-action 'none'",
        ]
    )
    body = "\n".join(_body(report))
    return PAGE.format(policy=policy, title=escaped(report.title), style=style, body=body, script=script)


def _asset(name: str) -> str:
    return resources.files("clutch.lab").joinpath(name).read_text("utf-8")


def _hash(source: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(source.encode()).digest()).decode()}"


def _body(report: Report) -> Iterator[str]:
    if report.machine:
        yield _machine(report.machine)
    if report.advice:
        yield f'<h2>Advice</h2><ul class="advice">{"".join(map(_advice, report.advice))}</ul>'
    if report.sheets:
        yield "<h2>Figures</h2>"
        yield from map(_sheet, report.sheets)
    if report.charts:
        yield "<h2>Charts</h2>"
        yield from figures(report.charts)
    if report.notes:
        yield f"<h2>Notes</h2>{items('notes', map(prose, report.notes))}"
    if report.data:
        yield _data(report.data)


def _machine(facts: dict[str, str]) -> str:
    parts = [f"<div><dt>{escaped(name)}</dt><dd>{escaped(fact)}</dd></div>" for name, fact in facts.items()]
    return f'<h2 class="unseen">Machine</h2><dl class="machine">{"".join(parts)}</dl>'


def _advice(advice: str) -> str:
    if advice.startswith(WARNING):
        return f'<li class="warning"><strong>{WARNING.strip()}</strong> {prose(advice.removeprefix(WARNING))}</li>'
    return f"<li>{prose(advice)}</li>"


def _sheet(sheet: Sheet) -> str:
    title = f"<h3>{escaped(sheet.title)}</h3>" if sheet.title else ""
    found = table(sheet.title or "Figures", [head(sheet.headings)], sheet.lines)
    return f'<section class="sheet">{title}{found}{beside(sheet.notes)}</section>'


def _data(data: dict[str, Any]) -> str:
    """In ASCII, whatever is in it. What JSON has no word for is null, or as Python prints it."""
    told = f'<pre id="data">{escaped(json.dumps(_plain(data), indent=1, default=str))}</pre>'
    return (
        '<section class="data"><h2>Data</h2><p>Every figure that was measured, as JSON.</p>'
        '<button type="button" id="save" hidden>Save as a file</button>'
        f"<details><summary>Show it here</summary>{scrolling('Data', told)}</details></section>"
    )


def _plain(data: Any) -> Any:
    if isinstance(data, dict):
        return {str(name): _plain(value) for name, value in data.items()}
    if isinstance(data, list | tuple):
        return [_plain(value) for value in data]
    return None if isinstance(data, float) and not math.isfinite(data) else data
