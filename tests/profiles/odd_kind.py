"""A tool of a kind that no handler knows."""

from __future__ import annotations

import clutch
from clutch._worker.handlers.call import Tool


@clutch.tool
def odd() -> None:
    raise AssertionError("it is never run")


Tool.protocol = "odd"
