"""A function that takes samples, for what is no unit that can be asked for again and again.

It is a context manager: what it measures is ready when it yields a function that takes one sample, under a load and for
about so many seconds, and returns figures by name.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from typing import Any

from clutch.lab import watching
from clutch.lab.drivers.calls import found
from clutch.lab.load import Load

Sample = Callable[[Load, float], dict[str, float]]


def start(order: dict[str, Any]) -> ProbeDriver:
    return ProbeDriver(order)


class ProbeDriver:
    def __init__(self, order: dict[str, Any]) -> None:
        began = time.perf_counter()
        self.opened = contextlib.ExitStack()
        self.sample: Sample = self.opened.enter_context(found(order["module"], order["name"])(**order["kwargs"]))
        self.start_s = time.perf_counter() - began

    def hello(self) -> dict[str, Any]:
        return {"start_s": self.start_s, "check_s": 0.0}

    def pids(self) -> list[int]:
        return watching.below(os.getpid())

    def memory_of(self) -> list[int]:
        """Nothing is weighed meanwhile: that would be in the sample."""
        return []

    def measure(self, load: Load, seconds: float) -> dict[str, Any]:
        began = time.perf_counter()
        more = self.sample(load, seconds)
        known = {"units": 1, "wall_s": time.perf_counter() - began, "errors": {}, "latency_s": {}, "more": more}
        return {**known, "cpu_s": 0.0, "load_cpu_s": 0.0, "switches": 0, "forced": 0}

    def end(self) -> None:
        self.opened.close()
