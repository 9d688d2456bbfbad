"""Log records of messages that cannot be run: the first of each kind is logged as it is, and how many followed.

Celery logs the whole message, and a client that is wrong sends thousands.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass

INTERVAL_SECONDS = 1.0
"""Time in which one kind is logged once; after one without any, the next is logged as it is again."""
KINDS_MAX = 10
"""Kinds that are told apart; beyond that those with the same words are one kind."""
LINE_MAX = 300
"""Characters of the line that says what the others were like."""


@dataclass
class Kind:
    logger: logging.Logger
    level: int
    line: str
    untold: int = 0


class Flood(logging.Filter):
    """Filters the records of loggers that tell of messages."""

    def __init__(self) -> None:
        super().__init__()
        self._kinds: dict[tuple[str, ...], Kind] = {}
        self._lock = threading.Lock()
        self._is_timed = False

    def watch(self, *loggers: logging.Logger) -> None:
        for logger in loggers:
            logger.addFilter(self)

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno < logging.WARNING or not record.args:
            return True
        with self._lock:
            kind = self._kinds.get(key := self._key(record))
            if kind is not None:
                kind.untold += 1
                return False
            line = record.getMessage().partition("\n")[0][:LINE_MAX]
            self._kinds[key] = Kind(logging.getLogger(record.name), record.levelno, line)
            if not self._is_timed:
                self._is_timed = True
                self._start_timer()
        return True

    def _key(self, record: logging.LogRecord) -> tuple[str, ...]:
        """By its words and the first thing in them, which is mostly the task or the error."""
        words = str(record.msg)
        given = record.args if isinstance(record.args, tuple) else ()
        key = (words, repr(given[0])[:LINE_MAX]) if given else (words,)
        return key if key in self._kinds or len(self._kinds) < KINDS_MAX else (words,)

    def _start_timer(self) -> None:
        timer = threading.Timer(INTERVAL_SECONDS, self._look)
        timer.daemon = True
        timer.start()

    def _look(self) -> None:
        self.tell()
        with self._lock:
            self._is_timed = bool(self._kinds)
            if self._is_timed:
                self._start_timer()

    def tell(self) -> None:
        """Logs how many more there were; forgets the kinds of which there were none."""
        with self._lock:
            told = [(kind, kind.untold) for kind in self._kinds.values() if kind.untold]
            self._kinds = {key: kind for key, kind in self._kinds.items() if kind.untold}
            for kind, _ in told:
                kind.untold = 0
        for kind, untold in told:
            kind.logger.log(kind.level, f"{untold} more like it: {kind.line}")
