"""The shapes of pools that this suite runs over."""

from __future__ import annotations

import importlib.util
import sysconfig
from dataclasses import dataclass, field
from typing import Any

IS_FREE_THREADED = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))

# The shape of what does not depend on the profile.
USUAL = "thread" if IS_FREE_THREADED else "process"


@dataclass(frozen=True)
class Shape:
    """How the pools of one kind are made. Small, so that tests can fill them."""

    name: str
    options: dict[str, Any] = field(hash=False)
    slots_of_worker: int = 1

    @property
    def slots(self) -> int:
        return self.options["workers"] * self.slots_of_worker

    @property
    def is_spawned(self) -> bool:
        return self.options.get("start") == "spawn"


SHAPES = [
    Shape("process", {"profile": "process", "workers": 2}),
    Shape("thread", {"profile": "thread", "workers": 1, "threads": 3}, 3),
    Shape("async", {"profile": "async", "workers": 1, "tasks": 3}, 3),
    Shape("greenlet", {"profile": "greenlet", "workers": 1, "tasks": 3}, 3),
    Shape("spawn", {"profile": "process", "workers": 2, "start": "spawn"}),
]


def reason_to_skip(shape: Shape) -> str | None:
    if IS_FREE_THREADED and (shape.is_spawned or shape.name == "process"):
        return "neither a start nor a worker of one slot depends on the GIL: covered on other Pythons"
    if shape.name != "greenlet":
        return None
    if IS_FREE_THREADED:
        return "gevent does not build on free-threaded Python"
    if importlib.util.find_spec("gevent") is None:
        return "gevent is not installed: pip install 'clutch[greenlet]'"
    return None


# test_shapes.py says what is left out, once, rather than each test.
SHAPES_HERE = [shape for shape in SHAPES if reason_to_skip(shape) is None]
