"""What starts work and drives it, by kind, in the process of one trial."""

from __future__ import annotations

import importlib
from typing import Any, Protocol

from clutch.lab.load import Load

KINDS = {
    "calls": "clutch.lab.drivers.calls",
    "http": "clutch.lab.drivers.served",
    "tcp": "clutch.lab.drivers.served",
    "websocket": "clutch.lab.drivers.served",
    "jobs": "clutch.lab.drivers.jobs",
    "enqueue": "clutch.lab.drivers.enqueue",
    "probe": "clutch.lab.drivers.probe",
}


class Driver(Protocol):
    """Work that has been started and checked. `end` is called once, whatever happened."""

    def hello(self) -> dict[str, Any]:
        """`start_s`: from nothing to ready; `check_s`: of one unit; `least_s`: of a window that tells
        anything; `is_async`; more that is known of it."""
        ...

    def pids(self) -> list[int]:
        """Processes that do the work."""
        ...

    def memory_of(self) -> list[int]:
        """Processes whose memory is that of the work: of calls, the program that makes them, too."""
        ...

    def measure(self, load: Load, seconds: float) -> dict[str, Any]:
        """The fields of Figures that it knows."""
        ...

    def end(self) -> None: ...


class Kind(Protocol):
    """A module of this package."""

    def start(self, order: dict[str, Any]) -> Driver:
        """Start what is ordered. Raises what the start or the first unit raises."""
        ...


def driver_named(kind: str) -> Kind:
    module: Any = importlib.import_module(KINDS[kind])
    return module
