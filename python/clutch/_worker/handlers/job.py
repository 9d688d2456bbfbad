"""Jobs in a worker: what a job knows of itself, what it may return, and how its arguments are read.

Owns the JSON that worker and store exchange about a job (see `crates/clutch-jobs/src/runner/work.rs` and `answer.rs`).
Arguments are validated by the tool's type hints, as those of network callers.
"""

from __future__ import annotations

import functools
import inspect
import json
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from dataclasses import astuple, dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar

from clutch import _core
from clutch._worker.failure import describe, text_of, traceback_of, was_interrupted
from clutch._worker.handlers.call import Tool
from clutch.errors import BadArguments, ClutchError
from clutch.tools import Seconds, seconds

BY_NAME = b'{"args":[],"kwargs":'
"""Beginning of the arguments of most jobs, as `clutch.Jobs` writes them; behind the last is one more brace."""
WITH_RESULTS = b'{"results":'
"""Beginning of the arguments of a job that comes after others."""
NOTE_BYTES_MAX = 1 << 20
"""Maximum size of a checkpoint or of progress, as JSON."""


class Directive(Exception):
    """Directive for the continuation of a job instead of its completion. A job may return it or raise it."""

    def __reduce__(self) -> Any:
        return type(self), astuple(self)  # type: ignore[call-overload]


@dataclass(unsafe_hash=True)
class Snooze(Directive):
    """Returned or raised by a job: run it again after this time. It does not count as an attempt.

    `seconds`: a number, text such as `"5m"`, or a timedelta. Raises ValueError.
    """

    seconds: float | str | timedelta

    def __post_init__(self) -> None:
        milliseconds("Snooze", self.seconds)


@dataclass(unsafe_hash=True)
class Cancel(Directive):
    """Returned or raised by a job: it is not needed any more, and is not run again."""

    reason: str = "cancelled by the job"


@dataclass(unsafe_hash=True)
class Retry(Directive):
    """Returned or raised by a job: this attempt has failed; the next one is in this time, if there is one left.

    `in_`: seconds, text such as `"5m"`, or a timedelta. Raises ValueError.
    """

    in_: float | str | timedelta
    reason: str = "retry asked for by the job"

    def __post_init__(self) -> None:
        milliseconds("Retry in_", self.in_)


@dataclass(unsafe_hash=True)
class Dead(Directive):
    """Raised or returned by a job: it has failed for good, and there is no other attempt.

    `clutch jobs dead` lists it with this reason and its traceback, and `clutch jobs retry` runs it again.
    """

    reason: str
    _kind: ClassVar[str] = "dead"
    _why: ClassVar[str] = "clutch.Dead"

    def __str__(self) -> str:
        return self.reason


class CurrentJob:
    """The job that runs, as `clutch.current_job()` returns it."""

    __slots__ = ("_channel", "_details", "_results", "_told")

    def __init__(
        self, channel: _core.JobChannel, details: bytes, results: Sequence[dict[str, Any] | None] = ()
    ) -> None:
        """`details`: JSON, which is read when somebody asks. `results`: as `flow::results` of the core writes them."""
        self._channel = channel
        self._details = details
        self._results = results
        self._told: dict[str, Any] | None = None

    def __repr__(self) -> str:
        return f"CurrentJob(id={self.id!r}, queue={self.queue!r}, attempt={self.attempt})"

    def _get(self, name: str) -> Any:
        told = self._told
        if told is None:
            told = self._told = json.loads(self._details)
        return told.get(name)

    @property
    def id(self) -> str:
        return self._get("id")

    @property
    def queue(self) -> str:
        return self._get("queue")

    @property
    def attempt(self) -> int:
        """This attempt; the first is 1."""
        return self._get("attempt")

    @property
    def attempts_max(self) -> int:
        return self._get("attempts_max")

    @property
    def created_at(self) -> datetime:
        return datetime.fromtimestamp(self._get("created_at") / 1000, UTC)

    @property
    def tags(self) -> tuple[str, ...]:
        return tuple(self._get("tags"))

    @property
    def meta(self) -> Mapping[str, Any]:
        return self._get("meta") or {}

    @property
    def results(self) -> tuple[Any, ...]:
        """Returns what the jobs that this one comes after returned, in the order of `after=`.

        None stands for one that did not complete, where `after_failure="run"`. Raises ClutchError where one completed
        and its result was not kept: enqueue it with `result=`.
        """
        for nr, result in enumerate(self._results):
            if result == {}:
                raise ClutchError(
                    f"job {self.id} comes after a job (number {nr + 1} of {len(self._results)}) whose result was not "
                    'kept: enqueue that one with jobs.options(result="1h"), or say @tool(result="1h")'
                )
        return tuple(result and result["value"] for result in self._results)

    @property
    def last_checkpoint(self) -> Any:
        """Returns the last value that an earlier attempt gave to `checkpoint`, or None."""
        return self._get("checkpoint")

    @property
    def _keeps_result(self) -> bool:
        return self._get("keeps_result")

    def checkpoint(self, value: Any) -> None:
        """Keep a value for the next attempt, where it is `last_checkpoint`. The last one given is kept.

        `value` is anything that JSON has, of at most 1 MB. It is written within about 0.1 s; an attempt that fails
        before that may still lose it. Raises `ValueError` or `TypeError` for other values.
        """
        self._say("checkpoint", value)

    def progress(self, value: Any) -> None:
        """Tell people how far the job is: `clutch jobs show` and `jobs.get` have it as `progress`.

        `value` is anything that JSON has, of at most 1 MB: a fraction, a count, a text. May be called as often as you
        like; about ten values in a second are written.
        """
        self._say("progress", value)

    def _say(self, what: str, value: Any) -> None:
        said = json.dumps({what: value}, allow_nan=False).encode()
        if len(said) > NOTE_BYTES_MAX:
            raise ValueError(f"{what} of {len(said):,} bytes as JSON: allowed are {NOTE_BYTES_MAX:,}")
        self._channel.send(said)


CURRENT: ContextVar[CurrentJob | None] = ContextVar("clutch.current_job", default=None)
"""Set by the worker around a job."""


def current_job() -> CurrentJob | None:
    """Return the job that runs, or None outside of a job.

        @tool
        def resize(folder: str) -> None:
            job = clutch.current_job()
            for number, file in enumerate(files_of(folder, after=job.last_checkpoint)):
                ...
                job.checkpoint(file)
                job.progress({"done": number})

    A thread that a job starts does not know it, but for `asyncio.to_thread`.
    """
    return CURRENT.get()


def prepare(
    tool: Tool, channel: _core.JobChannel, details: bytes, body: bytes
) -> tuple[CurrentJob, tuple[Any, ...], dict[str, Any]]:
    """The job and the arguments of its function. Raises `BadArguments` where those do not fit."""
    if not body.startswith(WITH_RESULTS):
        return CurrentJob(channel, details), *arguments_of(tool, body)
    given = json.loads(body)
    job = CurrentJob(channel, details, given.pop("results"))
    return job, *arguments_of(tool, json.dumps(given).encode())


def arguments_of(tool: Tool, body: bytes) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if body.startswith(BY_NAME):
        return (), tool.decode_json(body[len(BY_NAME) : -1])
    given = json.loads(body)
    positional, by_name = given.get("args", []), given.get("kwargs", {})
    names, takes_more = positional_names(tool)
    if len(positional) > len(names) and not takes_more:
        raise BadArguments(
            f"tool '{tool.name}' takes {len(names)} arguments by position, and {len(positional)} were given"
        )
    named = dict(zip(names, positional, strict=False))
    if twice := named.keys() & by_name.keys():
        raise BadArguments(f"tool '{tool.name}': given twice: {', '.join(sorted(twice))}")
    checked = tool.decode_json(json.dumps(named | by_name).encode())
    surplus = positional[len(names) :]
    # Behind those that `*args` takes, none can be given by name.
    before = tuple(checked.pop(name) for name in names) if surplus else ()
    return (*before, *surplus), checked


@functools.cache
def positional_names(tool: Tool) -> tuple[list[str], bool]:
    """The parameters that can be given by position, and whether there may be more arguments than that."""
    parameters = inspect.signature(tool.function).parameters.values()
    names = [one.name for one in parameters if one.kind is one.POSITIONAL_OR_KEYWORD]
    return names, any(one.kind is one.VAR_POSITIONAL for one in parameters)


def encode(tool: Tool, job: CurrentJob, value: Any) -> tuple[bool, bytes]:
    """Returns the result of a job as JSON, and whether it is a directive. An unwanted result is not written."""
    directive = directive_in(value)
    if directive is not None:
        return True, directive
    return False, tool.encode_json(value) if job._keeps_result else b"null"


def directive_of(tool: Tool | None, error: BaseException) -> bytes | None:
    """Returns the directive that a job has raised, or that its exception stands for by the options of the tool."""
    if not isinstance(error, Exception) or was_interrupted(error):
        return None
    if isinstance(error, Directive):
        return directive_in(error)
    why = None if tool is None else tool.options.why_given_up(error)
    if why is None:
        return None
    kind, name, message, traceback, *_ = describe(error)
    return dead(kind, f"{name}: {message}", traceback, why) if kind == "raised" else None


def dead(kind: str, message: str, traceback: str, why: str) -> bytes:
    return json.dumps({"dead": {"kind": kind, "message": message, "traceback": traceback, "why": why}}).encode()


def directive_in(value: Any) -> bytes | None:
    """Returns the directive as JSON, if a job has returned or raised one."""
    match value:
        case Snooze(seconds):
            directive: dict[str, Any] = {"snooze": {"ms": milliseconds("Snooze", seconds)}}
        case Cancel(reason):
            directive = {"cancel": {"reason": text_of(reason)}}
        case Retry(in_, reason):
            directive = {"retry": {"ms": milliseconds("Retry in_", in_), "reason": text_of(reason)}}
        case Dead(reason):
            return dead(value._kind, text_of(reason), traceback_of(value) if value.__traceback__ else "", value._why)
        case _:
            return None
    return json.dumps(directive).encode()


def milliseconds(what: str, time: Seconds) -> int:
    return round(seconds(time, what) * 1000)
