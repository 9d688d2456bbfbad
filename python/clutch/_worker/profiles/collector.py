"""Puts off the garbage collections of an event loop that find nothing.

CPython collects when 700 more objects that could be part of a cycle have been made than freed (2,000 in 3.13).
A loop with fifty requests under way makes and frees thousands of them in each wave, and so collects several times, each
time among requests that are all alive: a twelfth of the time of FastAPI's `def` endpoints. What is put off, and until
when, `collections.rs` of clutch-wire decides.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import os
import sys
import sysconfig
from typing import TYPE_CHECKING

from clutch import _core

if TYPE_CHECKING:
    import asyncio

Thresholds = tuple[int, int, int]
"""As `gc.get_threshold` gives them."""
HAS_GENERATIONS = sys.version_info < (3, 14) and not sysconfig.get_config_var("Py_GIL_DISABLED")
"""Other collectors are left alone."""


def watch(loop: asyncio.AbstractEventLoop, usual: Thresholds) -> None:
    """Watch the collections of this process, by the clock of `loop`. `usual`: the thresholds of a new interpreter.

    A process that the app forks collects as usual.
    """
    if HAS_GENERATIONS:
        collector = _core.Collector(loop, usual)
        gc.callbacks.append(collector)
        os.register_at_fork(after_in_child=functools.partial(leave, collector))


def leave(collector: _core.Collector) -> None:
    with contextlib.suppress(ValueError):  # the app has removed it
        gc.callbacks.remove(collector)
    collector.end()
