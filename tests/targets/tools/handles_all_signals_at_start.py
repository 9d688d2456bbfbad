"""A target that handles all signals when a worker starts."""

from __future__ import annotations

import signal
from typing import Any

from profile_tools import pid, spin  # noqa: F401 (the tools of this target)

from clutch import on_start


def ignore(*_: Any) -> None:
    """What it does with signals."""


@on_start
def take_all() -> None:
    for number in range(signal.SIGRTMIN, signal.SIGRTMAX + 1):
        signal.signal(number, ignore)
