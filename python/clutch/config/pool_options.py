"""The options of a pool as type checkers and editors know them.

What each means, and what its values may be, is in options.py; here are their types. A test compares the two.
"""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from typing import Literal, TypedDict

Duration = float | str
"""Seconds, or a text with a unit: `1.5`, `"90s"`, `"5m"`."""
Size = int | str
"""Bytes, or a text with a unit: `1_000_000`, `"512MB"`."""


class Workers(TypedDict):
    """A range: the pool follows its load."""

    min: int
    max: int


class QueueOptions(TypedDict, total=False):
    limit: int
    overflow: Literal["reject", "block"]


class RecycleOptions(TypedDict, total=False):
    calls: int
    age: Duration
    memory: Size
    together: int
    jitter: float


class ScaleOptions(TypedDict, total=False):
    delay: Duration
    idle: Duration


class PoolOptions(TypedDict, total=False):
    """The options of a pool (docs/config.md) that `Pool` takes by keyword, but for `target` and `workers`."""

    profile: Literal["process", "thread", "async", "greenlet"] | None
    threads: int | None
    tasks: int | None
    python: str | PathLike[str] | None
    env: Mapping[str, str] | None
    start: Literal["fork", "spawn"] | None
    start_timeout: Duration | None
    loop: Literal["auto", "asyncio", "uvloop"] | None
    preload: bool | Literal["auto"] | list[str] | None
    gil_policy: Literal["fail", "warn", "processes"] | None
    deadline: Duration | None
    queue: QueueOptions | None
    deaths_max: int | None
    recycle: RecycleOptions | None
    restarts_max: int | None
    scale: ScaleOptions | None
    memory_max: Size | None
    grace: Duration | None
    interrupt_grace: Duration | None
    term_grace: Duration | None
    stopped_limit: Duration | None
    payload_max: Size | None
    output_kept: Size | None
    required: bool | None
