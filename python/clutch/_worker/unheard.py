"""Log records of workers that no handler takes, though the program that made the pool has handlers: said once.

Workers run the script without what is under its guard, `logging.basicConfig(…)` above all.
"""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING

from clutch import _core

if TYPE_CHECKING:
    import mmap

OURS = ("asyncio", "concurrent")
"""Loggers whose records are about the loops and threads of Clutch itself."""


def watch(level: int, told: mmap.mmap) -> None:
    """`level`: the lowest that the program handles. To be called when all that sets up a worker has run."""
    if not logging.root.handlers:
        logging.lastResort = Unheard(level, told, logging.root.level)
        # Most that is logged is of this level, which the root logger takes in the program and would drop here.
        if level <= logging.INFO < logging.root.level:
            logging.root.setLevel(logging.INFO)


class Unheard(logging.Handler):
    """Takes the place of `logging.lastResort` until the first record that the program would have handled. The root
    logger has its level again then."""

    def __init__(self, level: int, told: mmap.mmap, level_before: int) -> None:
        super().__init__(level)
        self._told = told
        self._level_before = level_before
        self._before = logging.lastResort

    def handle(self, record: logging.LogRecord) -> bool:
        if record.name.partition(".")[0] not in OURS:
            logging.lastResort = self._before
            logging.root.setLevel(self._level_before)
            self._tell(record)
        before = self._before
        return before is not None and record.levelno >= before.level and bool(before.handle(record))

    def _tell(self, record: logging.LogRecord) -> None:
        if _core.test_and_set(self._told):
            return
        print(
            f"warning: log records of workers have no handler (first: {record.levelname} of {record.name!r}): this "
            "program configures logging under its `__main__` guard, which workers do not run. Configure it above the "
            "guard, or by Pool(initializer=…)",
            file=sys.stderr,
            flush=True,
        )
