"""Entries of periodic jobs that a store keeps: from a call to the JSON of the core's `EntryOptions`, and back."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Self

from clutch._jobs.records import time_of
from clutch._jobs.written import Called, written
from clutch.tools import JobOptions, Seconds, seconds, shortened

OF_THE_ENTRY = ("at", "in_", "unique", "key", "key_limit", "key_rate", "meta", "after", "after_failure")
"""Options of a job that the entry itself decides, or that have no meaning for one of its jobs."""
MISFIRES = ("last", "skip")
OVERLAPS = ("skip", "wait", "allow")


@dataclass(frozen=True, slots=True)
class Schedule:
    """An entry of periodic jobs that the store keeps."""

    name: str
    when: str
    """Its schedule for people: `0 3 * * * Europe/Berlin`, or `every 300 s`."""
    tool: str
    arguments: Mapping[str, Any]
    """`{"args": […], "kwargs": {…}}`."""
    queue: str
    misfire: str
    overlap: str
    is_paused: bool
    last_at: datetime | None
    """Last tick; of an entry without one, since when it has been there."""
    next_at: datetime | None
    """Next tick, in its time zone; None while it is paused."""
    missed: int
    """Ticks after the last one that nobody has run in time, at most 1,000: no dispatcher runs."""

    @classmethod
    def of(cls, told: tuple[str, str, bool, int, str, int]) -> Self:
        name, text, is_paused, last_ms, following, missed = told
        try:
            entry = json.loads(text)
            job = entry["job"]
        except (KeyError, TypeError, ValueError):  # of a newer version
            entry, job = {}, {}
        every = entry.get("every_ms")
        return cls(
            name,
            f"every {every / 1000:g} s" if every else f"{entry.get('schedule', '?')} {entry.get('zone', '')}".strip(),
            job.get("tool", "?"),
            job.get("arguments", {}),
            job.get("queue", "?"),
            entry.get("misfire", "?"),
            entry.get("overlap", "?"),
            is_paused,
            time_of(last_ms) if last_ms > 0 else None,
            datetime.fromisoformat(following) if following else None,
            missed,
        )


def entry_of(
    name: str,
    when: str | Seconds,
    called: Called,
    arguments: str,
    options: JobOptions,
    *,
    zone: str | None,
    misfire: str,
    overlap: str,
) -> str:
    """Returns an entry as JSON. Raises ValueError."""
    for option, given, allowed in (("misfire", misfire, MISFIRES), ("overlap", overlap, OVERLAPS)):
        if given not in allowed:
            raise ValueError(f"{option} {given!r}: allowed are {', '.join(allowed)}")
    for option in OF_THE_ENTRY:
        if getattr(options, option) is not None:
            raise ValueError(f"{option}={shortened(getattr(options, option))}: a schedule has none; see its docs")
    deadline = options.deadline
    if isinstance(deadline, datetime):
        raise ValueError("deadline: allowed are seconds from when each job is enqueued, not a datetime")
    retry = 0 if options.retry is None else options.retry
    job = json.loads(written(called.name, arguments, replace(options, deadline=None, retry=retry)))
    is_pattern = isinstance(when, str) and (when.startswith("@") or len(when.split()) > 1)
    if not is_pattern and zone is not None:
        raise ValueError(f"zone {zone!r}: an interval counts from 1970 UTC, in no zone; allowed for a schedule only")
    entry = {
        "name": name,
        "schedule": when if is_pattern else None,
        "every_ms": None if is_pattern else round(seconds(when, "when") * 1000),
        "zone": zone or "UTC",
        "misfire": misfire,
        "overlap": overlap,
        "deadline_ms": None if deadline is None else round(seconds(deadline, "deadline") * 1000),
        "job": job,
    }
    return json.dumps(entry, sort_keys=True)
