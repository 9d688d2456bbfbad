"""The published experiments as benchmarks of one's own machine: `clutch bench PRESET`."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, Literal

from clutch.lab.report import Report

Scale = Literal["small", "full"]
Tell = Callable[[str], object]

PRESETS = {
    "profiles": "processes beside threads: echo, products, mix, start, memory, load, recycling, two pools, a model",
    "grid": "workers × threads of a FastAPI app, beside other servers",
    "enqueue": "putting jobs into Redis: strategies × callers",
    "tcp": "hello world over TCP by thread, coroutine and process, and where each runs",
    "drain": "1,000 jobs that sleep, from Redis, at every concurrency",
}
"""By name: what is measured. Each is a module of this folder."""


def run(name: str, scale: Scale, tell: Tell) -> Report:
    """Measure a preset. Raises ClutchError where it cannot run at all."""
    module: Any = importlib.import_module(f"{__name__}.{name}")
    return module.run(scale, tell)
