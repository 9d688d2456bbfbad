"""Prints docs/events.md, made from the facts in the crates: `python tools/events_page.py`."""

from __future__ import annotations

from clutch import _core

INTRODUCTION = """\
# Events

<!-- Generated from the facts in the crates by `make docs`. Do not edit. -->

What happens in pools, as [`GET /events`](operating.md#commands-for-running-servers), [`testing.watch()`](api.md#watch)
and, for most of them, [the log](operating.md#the-log) tell it. Each event has `event` (its name), `time` (UTC; when it
happened) and `pool`, beside the fields in the table. `nr` and `pid` are those of a worker, `id` is that of a call.

"""
PARTS = {
    "lives": ("Pools, workers and jobs", "Everybody who listens gets these."),
    "incidents": ("Single pieces of work", "With `scope=incidents` or `all`, and by `watch()`."),
    "all": ("All work", "With `scope=all`, and by `watch(work=True)`. Workers send one more frame for each call."),
}
"""Headings and introductions, by scope."""


def page() -> str:
    return INTRODUCTION + "\n".join(map(part, PARTS))


def part(scope: str) -> str:
    heading, introduction = PARTS[scope]
    rows = [row(name, fields, about) for name, in_scope, fields, about in _core.EVENTS if in_scope == scope]
    return "\n".join([f"## {heading}", "", introduction, "", "| event | fields | when |", "|---|---|---|", *rows, ""])


def row(name: str, fields: tuple[str, ...], about: str) -> str:
    return f"| `{name}` | {', '.join(f'`{field}`' for field in fields)} | {about} |"


if __name__ == "__main__":
    print(page(), end="")
