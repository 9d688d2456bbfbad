"""Records as JSON objects, one a line: those of the log, and tracebacks that are printed in workers."""

from __future__ import annotations

import json
import logging
import re
from bisect import bisect_right
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from itertools import accumulate
from typing import TextIO

TRACEBACK = re.compile(r"^(?:  \+ Exception Group )?Traceback \(most recent call last\):", re.MULTILINE)
MESSAGE_CHARACTERS_MAX = 1_000
"""Maximum length of the message of a printed traceback, and of each line of a text that is too long."""
TEXT_BYTES_MAX = 256_000
"""Maximum size of a text within a record, as JSON; of a longer one, lines in the middle are left out.

The dispatcher tears lines of 1 MiB and more, whose pieces are no JSON."""
CHARACTER_BYTES_MAX = 12
"""Maximum size of a character as JSON: two escapes."""


class JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": time_of(datetime.fromtimestamp(record.created, UTC)),
            "level": record.levelname.lower(),
            "message": bounded(record.getMessage()),
            **self.fields(record),
        }
        if record.exc_info:
            line["traceback"] = bounded(self.formatException(record.exc_info))
        return json.dumps(line, default=str)

    def fields(self, record: logging.LogRecord) -> Mapping[str, object]:
        """The fields that were passed as `extra={"fields": {...}}`."""
        return getattr(record, "fields", {})


class NamedJsonLines(JsonLines):
    """The extra attributes of records of other loggers."""

    def fields(self, record: logging.LogRecord) -> Mapping[str, object]:
        return {"logger": record.name}


def time_of(time: datetime) -> str:
    return time.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def write_unhandled() -> None:
    """Makes records that no handler takes, which Python would print as bare text, keep level, logger and traceback."""
    handler = logging.StreamHandler()
    handler.setLevel(logging.WARNING)
    handler.setFormatter(NamedJsonLines())
    logging.lastResort = handler


def write_tracebacks(stream: TextIO) -> None:
    """Make each traceback that is written to the stream, in one call, one record; what comes before it is its message.

    Changes the stream itself, since handlers of logs that were made before this process have it.
    """
    write: Callable[[str], int] = stream.write
    is_begun = is_owed = False
    # A line has no end yet; the line break of a record, which `print` writes later, has not come.

    def write_or_record(text: str) -> int:
        nonlocal is_begun, is_owed
        found = TRACEBACK.search(text) if "Traceback (most" in text else None
        if found is not None:
            write("\n" * is_begun + with_record(text, found.start()))
            is_begun, is_owed = False, not text.endswith("\n")
        elif text:
            write(text.removeprefix("\n") if is_owed else text)
            is_begun, is_owed = not text.endswith("\n"), False
        return len(text)

    vars(stream)["write"] = write_or_record


def with_record(text: str, at: int) -> str:
    """Return the lines of a text with the traceback that begins `at` as JSON, joined with the line before it."""
    earlier, _, before = text[:at].removesuffix("\n").rpartition("\n")
    lines = text[at:].rstrip().split("\n")
    last = max(number for number, line in enumerate(lines) if TRACEBACK.match(line))
    if lines[last].startswith(" "):  # of a group: the lines of its exceptions follow
        named = "".join(lines[last + 1 : last + 2]).lstrip(" |+")
    else:
        named = next((line for line in lines[last + 1 :] if line and not line.startswith(" ")), "")
    record = {
        "time": time_of(datetime.now(UTC)),
        "level": "error",
        "message": beginning(f"{before.removesuffix(':')}: {named}" if before else named),
        "traceback": bounded("\n".join(lines)),
    }
    return f"{earlier}\n" * bool(earlier) + json.dumps(record) + "\n"


def bounded(text: str) -> str:
    """Return a text that is not too long for a record: without the ends of long lines, then without its middle."""
    if len(text) * CHARACTER_BYTES_MAX <= TEXT_BYTES_MAX or len(json.dumps(text)) <= TEXT_BYTES_MAX:
        return text
    lines = [beginning(line) for line in text.split("\n")]
    sizes = [len(json.dumps(line)) for line in lines]  # its quotes are as long as its line break
    if sum(sizes) <= TEXT_BYTES_MAX:
        return "\n".join(lines)
    head, tail = (bisect_right(list(accumulate(some)), TEXT_BYTES_MAX // 2) for some in (sizes, reversed(sizes)))
    left_out = len(lines) - head - tail
    return "\n".join([*lines[:head], f"  [{left_out} lines left out]", *lines[head + left_out :]])


def beginning(text: str) -> str:
    left_out = len(text) - MESSAGE_CHARACTERS_MAX
    return text if left_out <= 0 else f"{text[:MESSAGE_CHARACTERS_MAX]} [{left_out} characters left out]"
