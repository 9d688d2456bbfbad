"""Log records as JSON objects, one a line: the dispatcher's own, and those in workers that no handler takes."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from datetime import UTC, datetime


class JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line = {
            "time": time.replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "message": record.getMessage(),
            **self.fields(record),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)

    def fields(self, record: logging.LogRecord) -> Mapping[str, object]:
        """The fields that were passed as `extra={"fields": {...}}`."""
        return getattr(record, "fields", {})


class NamedJsonLines(JsonLines):
    """The extra attributes of records of other loggers."""

    def fields(self, record: logging.LogRecord) -> Mapping[str, object]:
        return {"logger": record.name}


def write_unhandled() -> None:
    """Makes records that no handler takes, which Python would print as bare text, keep level, logger and traceback."""
    handler = logging.StreamHandler()
    handler.setLevel(logging.WARNING)
    handler.setFormatter(NamedJsonLines())
    logging.lastResort = handler
