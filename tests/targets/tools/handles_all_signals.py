"""A target that handles all signals from its import on."""

from __future__ import annotations

import signal
from typing import Any

from profile_tools import pid, spin  # noqa: F401 (the tools of this target)


def ignore(*_: Any) -> None:
    """What it does with signals."""


for number in range(signal.SIGRTMIN, signal.SIGRTMAX + 1):
    signal.signal(number, ignore)
