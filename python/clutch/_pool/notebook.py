"""What notebooks show: pools and their insights as tables, and tracebacks of workers with the lines of cells."""

from __future__ import annotations

import linecache
import re
import sys
from collections.abc import Iterable, Sequence
from typing import Any

FRAME = re.compile(r'^  File "(?P<file>[^"]+)", line (?P<line>\d+)(?P<rest>.*)\n(?!    )', re.MULTILINE)
"""A frame of a traceback without its line of source."""


def table(title: str, head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """An HTML table."""
    import html  # whose list of entities only notebooks need

    heads = "".join(f"<th>{html.escape(name)}</th>" for name in head)
    cells = ("".join(f"<td>{html.escape(str(value))}</td>" for value in row) for row in rows)
    body = "".join(f"<tr>{row}</tr>" for row in cells)
    return f"<table><caption>{html.escape(title)}</caption><tr>{heads}</tr>{body}</table>"


def pool_as_html(stats: dict[str, Any]) -> str:
    """A pool by its `stats()`: a row for each worker."""
    counts = ", ".join(f"{stats[name]} {name}" for name in ("queued", "done", "failed"))
    title = f"pool {stats['name']}: {stats['state']}, {stats['ready']} of {stats['target']} workers ready, {counts}"
    names = ("nr", "pid", "state", "calls", "sent")
    return table(title, names, ([worker[name] for name in names] for worker in stats["workers"]))


def with_source(traceback: str) -> str:
    """The traceback of a worker, with the lines of source that this program has and the worker did not: those of cells
    of a notebook, and of what was typed at a prompt."""
    return FRAME.sub(add_source, traceback)


def add_source(frame: re.Match[str]) -> str:
    file, number = frame["file"], int(frame["line"])
    line = linecache.getline(file, number).strip() if file in linecache.cache else ""
    if not line:
        return frame[0]
    return f"  {name_of(file)}, line {number}{frame['rest']}\n    {line}\n"


def name_of(file: str) -> str:
    """`Cell In[4]` for the file that IPython compiles a cell as; else `File "…"`."""
    shell = sys.modules.get("IPython")
    try:
        kind, name = shell.get_ipython().compile.format_code_name(file)  # type: ignore[union-attr]
    except Exception:  # no IPython, another version of it, or no cell
        return f'File "{file}"'
    return f"{kind} {name}"
