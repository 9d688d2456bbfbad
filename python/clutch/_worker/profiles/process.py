"""`process`: one slot, the worker's main thread."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from clutch import _core
from clutch._worker.profiles.base import Served, Slot, hold_in_slots


class ProcessProfile:
    is_held_up = was_lost = None

    def __init__(self, served: Served | None) -> None:
        self.served = served

    def run(self, worker: _core.Worker, ready: Callable[[], None]) -> None:
        slot = Slot(worker.slots)
        hold_in_slots(worker, self.served, is_shared=False)
        ready()
        _core.serve(worker, slot)
        slot.close()


def make(shape: dict[str, Any]) -> ProcessProfile:
    return ProcessProfile(shape["served"])
