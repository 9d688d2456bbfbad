"""The pools of a soak: one of each profile, small, with limits that are reached all the time."""

from __future__ import annotations

import os
from typing import Any

from clutch import Pool

FREE_THREADED = "CLUTCH_TEST_FT_PYTHON"
MARK = "CLUTCH_SOAK"
"""A variable in the environment of everything that the pools start, by which it is known at the end."""

_COMMON: dict[str, Any] = {
    "queue": {"limit": 60},
    "stopped_limit": 2.0,
    "interrupt_grace": 0.3,
    "grace": 2.0,
    "start_timeout": 20.0,
}
_SHAPES: dict[str, dict[str, Any]] = {
    "process": {
        "profile": "process",
        "workers": {"min": 2, "max": 4},
        "scale": {"idle": 2.0},
        "recycle": {"calls": 150},
    },
    "thread": {"profile": "thread", "workers": 2, "threads": 4, "recycle": {"calls": 600, "age": 20.0}},
    "async": {"profile": "async", "workers": 2, "tasks": 8, "recycle": {"calls": 600, "memory": "200MB"}},
    "greenlet": {"profile": "greenlet", "workers": 2, "tasks": 8, "recycle": {"calls": 600}},
    "spawn": {"profile": "process", "workers": 2, "start": "spawn", "recycle": {"calls": 1000}},
    "free-threaded": {"profile": "thread", "workers": 1, "threads": 4, "recycle": {"calls": 600}},
}


def names() -> list[str]:
    """Of the pools that can be here."""
    return [name for name in _SHAPES if name != "free-threaded" or os.environ.get(FREE_THREADED)]


def make(name: str) -> Pool:
    options = _COMMON | _SHAPES[name] | {"env": {MARK: str(os.getpid())}}
    if name == "free-threaded":
        options["python"] = os.environ[FREE_THREADED]
    return Pool("soak.tools", name=name, **options)


def by_name_only(name: str) -> bool:
    """Code does not travel between versions of Python."""
    return name == "free-threaded"
