"""Spares an event loop the garbage collections that find nothing.

CPython collects when so many more objects that could be part of a cycle have been made than freed (700; 2,000 from 3.13
on). A loop with fifty requests under way makes and frees thousands of them in each wave, and so collects several times,
each time among requests that are all alive: a twelfth of the time of FastAPI's `def` endpoints.

While collections find nothing, the next one waits for sixteen times as many objects, but for a tenth of a second at
most: then it waits for the usual number, and has to find nothing again. One that finds something ends this at once.
"""

from __future__ import annotations

import contextlib
import gc
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import asyncio

Thresholds = tuple[int, int, int]
"""As `gc.get_threshold` gives them."""
Watch = Callable[[Literal["start", "stop"], dict[str, int]], None]

VAIN_MIN = 8
"""Collections, one after another, that have found nothing before others are spared."""
FACTOR = 16
"""So many times as many objects are waited for meanwhile."""
SPARED_SECONDS = 0.1


class Sparing:
    """The decision alone."""

    def __init__(self) -> None:
        self.vain = 0

    def ended(self, found: int) -> bool:
        """A collection has ended, and found so many objects. Returns whether those after it are to be spared."""
        self.vain = 0 if found else self.vain + 1
        return self.vain >= VAIN_MIN


def spare(loop: asyncio.AbstractEventLoop, usual: Thresholds) -> Watch:
    """Watch the collections of this process, by the clock of `loop`. `usual`: the thresholds of a new interpreter.

    Only these are replaced: an app that sets others has them. A process that the app forks has the usual ones, and is
    not watched. Returns what has been added to `gc.callbacks`.
    """
    sparing = Sparing()
    rare = (usual[0] * FACTOR, *usual[1:])

    def collected(phase: Literal["start", "stop"], info: dict[str, int]) -> None:
        # In any thread that makes objects, at any point of its code.
        if phase == "start":
            return
        if not sparing.ended(info["collected"] + info["uncollectable"]):
            replace(rare, usual)
        elif replace(usual, rare):
            try:
                loop.call_soon_threadsafe(loop.call_later, SPARED_SECONDS, replace, rare, usual)
            except RuntimeError:  # it is closed
                replace(rare, usual)

    def end() -> None:
        replace(rare, usual)
        with contextlib.suppress(ValueError):  # the app has removed it
            gc.callbacks.remove(collected)

    gc.callbacks.append(collected)
    os.register_at_fork(after_in_child=end)
    return collected


def replace(old: Thresholds, new: Thresholds) -> bool:
    """Set thresholds in place of others. False: there are none of these."""
    if gc.get_threshold() != old:
        return False
    gc.set_threshold(*new)
    return True
