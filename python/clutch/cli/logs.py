"""Logs of the commands: on stderr or into a file, as lines for people or one JSON object a line."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from logging.handlers import WatchedFileHandler

log = logging.getLogger("clutch")


class JsonLines(logging.Formatter):
    """What was passed as `extra={"fields": {...}}` becomes keys of the object."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "message": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


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
