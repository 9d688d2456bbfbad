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

    def measure(self, load: Load, seconds: float) -> dict[str, Any]:
        began, before = time.perf_counter(), watching.usage(self.pids())
        more = self.sample(load, seconds)
        wall, used = time.perf_counter() - began, watching.usage(self.pids()) - before
        return {
            "units": 1,
            "wall_s": wall,
            "errors": {},
            "cpu_s": used.cpu_s,
            "load_cpu_s": 0.0,
            "latency_s": {},
            "switches": used.switches,
            "forced": used.forced,
            "more": more,
        }

    def end(self) -> None:
        self.opened.close()
