"""Texts made from the tables of options: the reference page and the commented file that `clutch init` writes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from clutch.config.options import ADMIN, CRON, FRONTS, HTTP, POOL, STORE, TOP, Option, Section

INTRODUCTION = """\
# Configuration

<!-- Generated from python/clutch/config/options.py by `make docs`. Do not edit. -->

`clutch run` reads `clutch.toml`, or `[tool.clutch]` of a `pyproject.toml`: the file it is given, else the nearest one
upward from the working folder. Later sources override earlier ones:

1. the file
2. environment variables: `CLUTCH_` and the option's place in capitals, `CLUTCH_POOLS_API_QUEUE_LIMIT=500` for
   `pools.api.queue.limit`
3. settings: `clutch run --set pools.api.queue.limit=500`, as often as needed

The options of a pool are the keyword arguments of `clutch.Pool` as well: `Pool("shop.tools", queue={"limit": 500})`.
`clutch serve` takes the same variables and settings; [serve/gunicorn.md](serve/gunicorn.md) has its flags.
Clutch reports all errors of a config at once, each with its place, the given value, the allowed values and the nearest
valid name.
"""

SEVERAL = """\
## Several fronts of one kind

The name of a front is its kind, unless `kind` names the kind. So there may be several fronts of one kind:

```toml
[fronts.shop]
kind = "serve"
app = "shop.web:app"
bind = "0.0.0.0:8000"

[fronts.blog]
kind = "serve"
app = "blog:app"
bind = "0.0.0.0:8001"
```

Each such front has a pool with its own name, here `[pools.shop]` and `[pools.blog]`, unless `pool` names another. The
name appears in log lines and in the label `front` of metrics. The options are those of the kind, see below.
"""

SHAPES = """\
## Profiles

| profile | workers | threads | tasks |
|---|---|---|---|
| `process` | usable CPUs | 1 | 1 |
| `thread` | usable CPUs; 1 on a free-threaded Python | 8 | 1 |
| `async` | usable CPUs | 1 | 256 |
| `greenlet` | usable CPUs | 1 | 256 |

Usable CPUs: the affinity mask, or the cgroup quota (rounded up) where that is less; `clutch doctor` shows both.
"""

EXAMPLE_HEAD = """\
# Pools and fronts of `clutch run`. Lines that begin with # and a name show a default.
"""


def reference() -> str:
    """docs/config.md."""
    pages = [
        INTRODUCTION,
        *(_section_page(section) for section in (TOP, POOL)),
        SEVERAL,
        *(_section_page(section) for section in (*FRONTS.values(), STORE, CRON)),
        SHAPES,
    ]
    return "\n".join(pages)


def _section_page(section: Section) -> str:
    rows = [_row(option) for option in section.options]
    head = [
        f"## `[{section.place}]`" if section.place else "## Top-level options",
        "",
        section.doc,
        "",
        "| option | default | what it does | allowed values |",
        "|---|---|---|---|",
    ]
    return "\n".join([*head, *rows, ""])


def _row(option: Option) -> str:
    default = option.default_text or f"`{as_toml(option.default)}`"
    return f"| `{option.name}` | {default} | {option.doc} | {option.kind.allowed} |"


def example(target: str = "tools") -> str:
    """A `clutch.toml` with one pool, every option shown."""
    given = {"target": target, "profile": "process"}
    parts = [EXAMPLE_HEAD + "\n".join(_example_lines(TOP, {}))]
    parts.append("\n".join(["[pools.tools]", *_example_lines(POOL, given)]))
    parts.append("\n".join(["[fronts.http]", *_example_lines(HTTP, {"bind": HTTP.options[0].default})]))
    parts.append("\n".join(["[fronts.admin]", *_example_lines(ADMIN, {"bind": ADMIN.options[0].default})]))
    return "\n\n".join(part.rstrip() for part in parts) + "\n"


def _example_lines(section: Section, given: dict[str, Any]) -> Iterator[str]:
    for option in section.options:
        yield f"# {option.doc}"
        if option.name in given:
            yield f"{option.name} = {as_toml(given[option.name])}"
        elif option.default_text is None:
            yield f"#{option.name} = {as_toml(option.default)}"
        else:
            yield f"# {option.name} (default: {option.default_text})"


def as_toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name} = {as_toml(inner)}" for name, inner in value.items()) + "}"
    return json.dumps(value)
