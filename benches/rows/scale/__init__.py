"""Rows of what is large, each against the same that is small: `make bench ARGS=scale` runs them all.

Every wait is bounded: what comes to no end is a row that failed, with the reason.
"""

from __future__ import annotations

import contextlib
import faulthandler
import sys
from collections.abc import Iterator


@contextlib.contextmanager
def bounded(what: str, seconds: float) -> Iterator[None]:
    """Ends this process, with its stacks, when it takes longer; its workers end with it."""
    print(f"\n  {what}: at most {seconds:g} s", file=sys.stderr, flush=True)
    faulthandler.dump_traceback_later(seconds, exit=True)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()
