"""Logs of the commands: on stderr or into a file, as lines for people or one JSON object a line.

A dispatcher logs through a queue: stderr may be a pipe that nobody reads, and logging must not block.
"""

from __future__ import annotations

import functools
import logging
import os
import threading
from collections import deque
from logging.handlers import WatchedFileHandler

from clutch._worker.json_lines import JsonLines

log = logging.getLogger("clutch")

RECORDS_MAX = 1000
"""Maximum number of lines that wait to be written. Further ones are dropped and counted."""


def set_up(form: str, level: str, file: str | None = None) -> None:
    """`file`: instead of stderr; one that was moved away or removed is made anew at the next line."""
    handler = logging.StreamHandler() if file is None else WatchedFileHandler(file)
    text = logging.Formatter("%(asctime)s %(levelname)-7s %(message)s", "%H:%M:%S")
    handler.setFormatter(JsonLines() if form == "json" else text)
    log.handlers[:] = [handler]
    log.propagate = False
    log.setLevel(level.upper())


def info(message: str, **fields: object) -> None:
    log.info(message, extra={"fields": fields})


class Queued(logging.Handler):
    """In front of the log's own handlers: one thread hands them each record, in order."""

    def __init__(self) -> None:
        super().__init__()
        self._behind: list[logging.Handler] = []
        self._records: deque[logging.LogRecord] = deque()
        self._lost = 0
        self._is_over = False
        self._changed = threading.Condition()
        self._writer = threading.Thread(target=self._write, name="clutch-log", daemon=True)

    def start(self) -> None:
        """Write the log in a thread from now on."""
        self._behind, log.handlers[:] = log.handlers[:], [self]
        self._writer.start()
        _watch_forks()

    def emit(self, record: logging.LogRecord) -> None:
        with self._changed:
            if len(self._records) >= RECORDS_MAX:
                self._lost += 1
                return
            if self._lost:
                self._records.append(self._loss())
            self._records.append(record)
            self._changed.notify()

    def finish(self, seconds: float) -> bool:
        """Wait until all lines are written. Returns False if they are not yet; later lines wait. May be repeated."""
        with self._changed:
            self._is_over = True
            self._changed.notify()
        self._writer.join(seconds)
        if self._writer.is_alive():
            return False
        self.stand_aside()
        return True

    def stand_aside(self) -> None:
        """Write the log directly again."""
        if self in log.handlers:
            log.handlers[:] = self._behind

    def _write(self) -> None:
        while (record := self._next()) is not None:
            for handler in self._behind:
                if record.levelno >= handler.level:
                    hand(handler, record)

    def _next(self) -> logging.LogRecord | None:
        with self._changed:
            self._changed.wait_for(lambda: self._records or self._lost or self._is_over)
            if self._records:
                return self._records.popleft()
            return self._loss() if self._lost else None

    def _loss(self) -> logging.LogRecord:
        lost, self._lost = self._lost, 0
        message = "log lines lost because nobody was reading the log: %d"
        return log.makeRecord(
            log.name, logging.WARNING, "", 0, message, (lost,), None, extra={"fields": {"lost": lost}}
        )


def hand(handler: logging.Handler, record: logging.LogRecord) -> None:
    try:
        handler.handle(record)
    except Exception:  # its file cannot be opened anew
        handler.handleError(record)


@functools.cache
def _watch_forks() -> None:
    """In a forked copy, which has no such thread: write directly."""
    os.register_at_fork(after_in_child=_write_directly)


def _write_directly() -> None:
    for handler in log.handlers[:]:
        if isinstance(handler, Queued):
            handler.stand_aside()
