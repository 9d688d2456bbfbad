"""Assertions about the jobs in a store: what is wanted, what fits, and the message of a failure."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from clutch import _core
from clutch._jobs.written import called_of
from clutch._worker.handlers.json import Encoder
from clutch.jobs import LIST_MAX, Job, Jobs
from clutch.tools import Seconds, seconds

SHOWN_MAX = 20
TEXT_MAX = 200

Tool = Callable[..., Any] | str
encode = Encoder(takes_bytes=True).encode


@dataclass(frozen=True, slots=True)
class Wanted:
    """Properties of the wanted jobs. None: any."""

    tool: Tool | None
    arguments: Mapping[str, Any] | Sequence[Any] | None
    queue: str | None
    at: datetime | None
    in_: Seconds | None
    within: Seconds
    fields: Mapping[str, Any]
    """Names of a `Job`'s fields with the value that is to be there."""
    tag: str | None

    def __str__(self) -> str:
        parts = [] if self.tool is None else [called_of(self.tool).name]
        named = {"arguments": self.arguments, "queue": self.queue, "at": self.at, "in_": self.in_, "tag": self.tag}
        named |= self.fields
        parts += [f"{name}={value!r}" for name, value in named.items() if value is not None]
        return ", ".join(parts) or "any"

    def fits(self, job: Job) -> bool:
        return (
            (self.tool is None or job.tool == called_of(self.tool).name)
            and (self.queue is None or job.queue == self.queue)
            and (self.tag is None or self.tag in job.tags)
            and all(value is None or getattr(job, name) == value for name, value in self.fields.items())
            and self._is_due(job)
            and self._has_arguments(job)
        )

    def _is_due(self, job: Job) -> bool:
        if self.at is None and self.in_ is None:
            return True
        if job.scheduled_at is None:
            return False
        wanted = self.at.astimezone() if self.at is not None else job.created_at + delta(self.in_ or 0)
        return abs(job.scheduled_at - wanted) <= delta(self.within)

    def _has_arguments(self, job: Job) -> bool:
        """Compared as JSON: of named ones those that are given, of others all."""
        if self.arguments is None:
            return True
        given = json.loads(encode(self.arguments))
        if isinstance(given, list):
            return given == [*job.arguments["args"], *job.arguments["kwargs"].values()]
        named = self._named(job)
        return all(name in named and named[name] == value for name, value in given.items())

    def _named(self, job: Job) -> dict[str, Any]:
        by_position, by_name = job.arguments["args"], job.arguments["kwargs"]
        signature = called_of(self.tool).signature if self.tool is not None else None
        parameters = signature.parameters.values() if signature is not None else ()
        names = [one.name for one in parameters if one.kind is not inspect.Parameter.VAR_POSITIONAL]
        return {**dict(zip(names, by_position, strict=False)), **by_name}


def delta(given: Seconds) -> timedelta:
    return timedelta(seconds=seconds(given, "in_"))


def found(jobs: Jobs, wanted: Wanted, count: int | None) -> list[Job]:
    """Return the jobs that fit, the oldest first. Raise AssertionError where they are not as many as wanted."""
    __tracebackhide__ = True
    there = jobs.list(limit=LIST_MAX)[::-1]
    fitting = [job for job in there if wanted.fits(job)]
    if fitting if count is None else len(fitting) == count:
        return fitting
    expected = "no job" if count is None else f"{len(fitting)} instead of {count} jobs"
    raise AssertionError(f"{expected} in the store: {wanted}\n{listing(there)}")


def listing(jobs: Sequence[Job]) -> str:
    """The jobs that there are, a line each."""
    if not jobs:
        return "the store has no jobs"
    more = [f"  and {len(jobs) - SHOWN_MAX} older ones"] if len(jobs) > SHOWN_MAX else []
    return "\n".join(["the store has:", *map(line, jobs[-SHOWN_MAX:]), *more])


def line(job: Job) -> str:
    """`job 3: send(to="ann"), queue mail, scheduled, due in 3600 s`."""
    arguments = [json.dumps(value) for value in job.arguments["args"]]
    arguments += [f"{name}={json.dumps(value)}" for name, value in job.arguments["kwargs"].items()]
    due = ""
    if job.scheduled_at is not None:
        due = f", due in {job.scheduled_at.timestamp() - _core.jobs_now() / 1000:g} s"
    shown = ", ".join(arguments)
    shown = shown if len(shown) <= TEXT_MAX else f"{shown[:TEXT_MAX]}…"
    return f"  job {job.id}: {job.tool}({shown}), queue {job.queue}, {job.state}{due}"
