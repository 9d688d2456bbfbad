"""Log records of workers that no handler takes, though the program that made the pool has handlers: said once.

Workers run the script without what is under its guard, `logging.basicConfig(…)` above all.
"""

from __future__ import annotations

import logging
import mmap
import sys

OURS = ("asyncio", "concurrent")
"""Loggers that tell of the loops and threads of Clutch itself."""


def shared() -> mmap.mmap:
    """Made in the zygote: one byte that its workers share, which says that it was told."""
    return mmap.mmap(-1, 1)


def watch(levels: list[int] | None, told: mmap.mmap | None) -> None:
    """`levels`: of the program's root logger, and the lowest of its handlers; None: it has none. To be called when all
    that sets up a worker has run."""
    if levels is not None and told is not None and not logging.root.handlers:
        logging.lastResort = Unheard(levels, told)


class Unheard(logging.Handler):
    """Takes the place of `logging.lastResort` until the first record that the program would have handled; then all is
    as it was."""

    def __init__(self, levels: list[int], told: mmap.mmap) -> None:
        root_level, handler_level = levels
        super().__init__(handler_level)
        self._told = told
        self._before, self._level_before = logging.lastResort, logging.root.level
        if logging.root.level == logging.WARNING > root_level:  # nobody has set it
            logging.root.setLevel(root_level)

    def handle(self, record: logging.LogRecord) -> bool:
        if record.name.partition(".")[0] not in OURS:
            logging.lastResort = self._before
            logging.root.setLevel(self._level_before)
            self._tell(record)
        before = self._before
        return before is not None and record.levelno >= before.level and bool(before.handle(record))

    def _tell(self, record: logging.LogRecord) -> None:
        if self._told[0]:
            return
        self._told[0] = 1
        print(
            f"warning: nobody handles what workers log ({record.levelname} of {record.name!r} was the first): this "
            "program has set up logging, and its workers have not; they run its script without what is under the "
            "guard. Set it up above the guard, or by Pool(initializer=…)",
            file=sys.stderr,
            flush=True,
        )
