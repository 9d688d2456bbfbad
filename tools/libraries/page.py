"""The page, docs/libraries.md, from rows of results."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from cases import CASES, FIELDS, Case

PAGE = Path(__file__).parents[2] / "docs/libraries.md"
BY_NAME = {case.name: case for case in CASES}
HEAD = """\
# Libraries: what real ones do in workers

<!-- Written by `python tools/libraries`. Do not edit. -->

{ran} uses of real libraries, each with the release that was the newest on {date}, on CPython {python}. Each
target makes at its import what programs usually make there: a client, a session, a model. A pool with its defaults
calls a tool six times that uses it, in two workers, and the answers must be those of a program without a pool.

**{works} work, {answered} {are} answered, {failed} do not work, {skipped} were skipped.** Answered means that the
library or its use has a limit of its own, which the row names.

| column | what it says |
|---|---|
| threads, sockets | how many the import has left |
| in a plain fork | what the same calls do without Clutch, in two children that the program forks after the import. \
So does `ProcessPoolExecutor`, by default before Python 3.14 |
| in a pool | what they do in the pool |
| found | what Clutch has found after the import ([preload](processes.md#preload)), and the memory that it costs. \
Nothing: workers are forked from one image |

`python tools/libraries` runs all again and writes this page; with names of rows it runs these. What needs a server
(Redis, PostgreSQL, MariaDB, memcached, NATS, MQTT) is skipped where its program is not installed.
"""
TABLE = """\
| use | version | made at import | threads | sockets | in a plain fork | in a pool | found |
|---|---|---|---|---|---|---|---|"""


def page(rows: list[dict[str, Any]]) -> str:
    known = {row["name"]: row for row in rows if row["name"] in BY_NAME}
    kinds = [kind_of(row) for row in known.values()]
    answered = kinds.count("answered")
    head = HEAD.format(
        ran=len(known) - kinds.count("skipped"),
        date=max(row["date"] for row in known.values()),
        python=", ".join(sorted({row["python"] for row in known.values()})),
        works=kinds.count("works"),
        answered=answered,
        are="is" if answered == 1 else "are",
        failed=kinds.count("fails"),
        skipped=kinds.count("skipped"),
    )
    parts = [head]
    for title, cases in FIELDS.items():
        shown = [line(case, known[case.name]) for case in sorted(cases, key=lambda one: one.name) if case.name in known]
        if shown:
            parts.append("\n".join([f"## {title}", "", TABLE, *shown, ""]))
    return "\n".join(parts)


def works(row: dict[str, Any]) -> bool:
    return kind_of(row) != "fails"


def kind_of(row: dict[str, Any]) -> str:
    if row["verdict"] == "works":
        return "works"
    if row["verdict"].startswith("skipped"):
        return "skipped"
    return "answered" if BY_NAME[row["name"]].answered else "fails"


def line(case: Case, row: dict[str, Any]) -> str:
    pooled = case.answered if kind_of(row) == "answered" else row["verdict"]
    cells = [
        case.name,
        row["version"],
        case.what,
        str(row["threads"]),
        str(row["sockets"]),
        plain(row["forked"])[:120],
        plain(pooled)[:300],
        plain("; ".join(map(found_in, row["said"]))),
    ]
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def found_in(said: str) -> str:
    """What Clutch has found, of the sentence that says it."""
    sentence = r"forks would share or lack \((.*?)\), so each worker imports [\w ]+(\(\+\d+ MB\))?"
    match = re.search(sentence, said)
    if match is None:
        return re.sub(r"^\[.*?\] ", "", said)
    return f"{match[1]} {match[2]}" if match[2] else match[1]


def plain(text: str) -> str:
    """The text without what is of the machine that it was written on: folders, ports, process ids."""
    text = re.sub(r"(?<![\w.…])(?:/[\w.@+-]+)+/([\w.@+-]+)", r"…/\1", text)
    text = re.sub(r"\b(127\.0\.0\.1|localhost):\d{2,}", r"\1", text)
    text = re.sub(r"0x[0-9a-f]{6,}|\btmp[a-z0-9_]{8}\b|(?<=PID is )\d+|(?<=created by )\d+", "…", text)
    return re.sub(r"[<>]", lambda found: f"&{'lt' if found[0] == '<' else 'gt'};", text)
