"""From a call of a tool to a job as JSON: its arguments, checked by the tool's hints, and its options."""

from __future__ import annotations

import functools
import hashlib
import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from clutch._worker.handlers.json import EncodeError, Encoder, JsonFace
from clutch.errors import BadArguments
from clutch.tools import (
    NO_JOB_OPTIONS,
    JobOptions,
    backoff_of,
    option_meant,
    options_of,
    rate_of,
    seconds,
    shortened,
)

# pydantic puts imports off until it looks at a function. A fork while another thread does that for the first time would
# leave locks of these modules held in the copy for ever.
JsonFace("now", lambda: None)

RATE_ONLY = 100
"""Least concurrency of a key with a `key_rate`, unless `key_limit` is given."""
RETRIES = 20
"""Default of `retry`. With the default backoff, the last attempt is about six days after the first."""


@dataclass(frozen=True, slots=True)
class Called:
    """A tool under the name that jobs use."""

    name: str
    function: Callable[..., Any] | None = None
    face: JsonFace | None = None
    """Checks the arguments, if the function is known."""
    signature: inspect.Signature | None = None
    defaults: JobOptions = NO_JOB_OPTIONS
    names: tuple[str, ...] = ()
    """Names of the parameters, if each may be given by position and by name; the last ones may be left out."""
    required: int = 1

    def options_in(self, keywords: Mapping[str, Any]) -> set[str]:
        """Returns the keywords that are options of the job rather than arguments of the tool."""
        parameters = self.signature.parameters if self.signature is not None else {}
        return {name for name in keywords if name in OPTION_NAMES and name not in parameters}

    def arguments(self, args: tuple[Any, ...], kwargs: dict[str, Any], by_name: bool) -> str:
        """Returns the arguments as JSON, checked: by name, so that they survive a reordering of parameters; by position
        for stores without names."""
        if self.signature is None or self.face is None:
            return _encode({"args": args, "kwargs": kwargs})
        if by_name and not kwargs and self.required <= len(args) <= len(self.names):
            # The common case: what `bind` would make of it.
            return self._by_name(dict(zip(self.names, args, strict=False)))
        try:
            bound = self.signature.bind(*args, **kwargs)
        except TypeError as error:
            unknown = [name for name in kwargs if name not in self.signature.parameters]
            raise self.face.bad(f"{error}{meant_by(unknown)}") from None
        kinds = {one.kind for one in self.signature.parameters.values()}
        if not by_name:
            self.face.decode(_encode(bound.arguments).encode())
        if not by_name or inspect.Parameter.VAR_POSITIONAL in kinds or inspect.Parameter.POSITIONAL_ONLY in kinds:
            return _encode({"args": bound.args, "kwargs": bound.kwargs})
        named = bound.arguments
        for one in self.signature.parameters.values():
            if one.kind is one.VAR_KEYWORD:
                named |= named.pop(one.name, {})
        return self._by_name(named)

    def _by_name(self, named: dict[str, Any]) -> str:
        assert self.face is not None
        text = _encode_bytes(named)
        self.face.decode(text)
        return f'{{"args":[],"kwargs":{text.decode()}}}'


def meant_by(unknown: Sequence[str]) -> str:
    """Returns a hint for keywords that are neither parameters nor options."""
    if any(name in ("args", "kwargs") for name in unknown):
        return "; give the arguments themselves, as in enqueue(f, 1, name=2)"
    return next(filter(None, map(option_meant, unknown)), f"; {unknown[0]!r} was given" if unknown else "")


OPTION_NAMES = frozenset(JobOptions.__dataclass_fields__)
ENCODER = Encoder(takes_bytes=True)


def _encode_bytes(value: Any) -> bytes:
    try:
        return ENCODER.encode(value)
    except EncodeError as error:
        raise BadArguments(f"the arguments cannot be JSON: {error}") from None


def _encode(value: Any) -> str:
    return _encode_bytes(value).decode()


NOT_CALLED = "a tool is given itself, as in enqueue(send, 1), and not called, as in enqueue(send(1))"


def called_of(tool: Any) -> Called:
    if isinstance(tool, str):
        if len(tool.split()) > 1:
            raise ValueError(f"no tool has the name {shortened(tool)}; {NOT_CALLED}")
        return Called(tool)
    try:
        return _called_of_function(tool)
    except TypeError:  # not hashable
        return _called_of_function.__wrapped__(tool)


ENQUEUED_TOOLS: dict[str, dict[str, Callable[..., Any]]] = {}
"""Functions that this process has enqueued, by the URL of the store and by name; `clutch.testing` runs them."""


def note_tool(url: str, called: Called) -> None:
    """Raises ValueError if another function of that name was enqueued there: workers would run one for the other."""
    name, function = called.name, called.function
    if function is None:
        return
    tools = ENQUEUED_TOOLS.setdefault(url, {})
    known = tools.get(name)
    if known is function:
        return
    modules = {module_of(function), module_of(known or function)} - {"__main__"}
    if len(modules) > 1:
        raise ValueError(
            f"two tools named {name!r} are enqueued here, of {' and '.join(sorted(modules))}, and jobs know them by "
            f'name alone: give one of them another name, such as @tool(name="{module_of(function)}.{name}")'
        )
    tools[name] = function  # also when its module was loaded anew


def module_of(function: Callable[..., Any]) -> str:
    return function.__module__


@functools.lru_cache(maxsize=1000)
def _called_of_function(function: Callable[..., Any]) -> Called:
    name = getattr(function, "__qualname__", None)
    path = getattr(function, "module_path", None)
    if isinstance(path, str) and hasattr(function, "enqueue"):
        raise ValueError(
            f"{path} is a task of Django: {path.rpartition('.')[2]}.enqueue(…) enqueues it, and a schedule takes its "
            f'path: jobs.schedule("nightly", "0 3 * * *", "{path}")'
        )
    if not callable(function) or name is None or "<" in name:
        if inspect.iscoroutine(function):
            function.close()
        raise ValueError(
            f"{function!r} cannot be a job: workers find functions by name, in the module that they run; give a "
            f"function of a module, or its name{'' if callable(function) else f'; {NOT_CALLED}'}"
        )
    options = options_of(function)
    if options is None:
        raise ValueError(f"{name} is not a tool: decorate it with @clutch.tool so that workers can find it by name")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise ValueError(
            f"{name} is a generator function, whose values nobody would read, so it cannot be a job: return one value, "
            "and tell how far it is with current_job().progress(…)"
        )
    signature = inspect.signature(function)
    parameters = signature.parameters.values()
    is_simple = all(one.kind is one.POSITIONAL_OR_KEYWORD for one in parameters)
    names = tuple(one.name for one in parameters) if is_simple else ()
    required = sum(one.default is one.empty for one in parameters) if is_simple else 1
    # As workers name it: of a method, the class is the target.
    name = options.name or function.__name__
    return Called(name, function, JsonFace(name, function), signature, options.job, names, required)


def step_of(step: Any) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """Returns the tool and the arguments of a step of a workflow: a tool, or a `functools.partial` of one."""
    if isinstance(step, functools.partial):
        return step.func, step.args, dict(step.keywords)
    return step, (), {}


def arguments_of(given: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    match given:
        case tuple():
            return given, {}
        case Mapping():
            return (), dict(given)
    return (given,), {}


def written(tool: str, arguments: str, options: JobOptions, after_previous: int = 0) -> str:
    """Returns a job as JSON for the core: `NewJob` in crates/clutch-jobs/src/job.rs. It also comes after the last
    `after_previous` jobs that are enqueued together with it."""
    if after_previous:
        return f'{head_of(tool, arguments, options)}{arguments},"after_previous":{after_previous}}}'
    try:
        return f"{head_of_any(tool, options)}{arguments}}}"
    except (DependsOnTheJob, TypeError):  # or options that cannot be hashed
        return f"{head_of(tool, arguments, options)}{arguments}}}"


class DependsOnTheJob(Exception):
    """Two jobs with the same options differ: by the time, or by their arguments."""


@functools.lru_cache(maxsize=1000)
def head_of_any(tool: str, options: JobOptions) -> str:
    """Returns the part that is the same for all jobs of a tool with these options. Raises DependsOnTheJob."""
    if (
        options.unique is True
        or options.at is not None
        or options.after is not None
        or isinstance(options.deadline, datetime)
    ):
        raise DependsOnTheJob
    return head_of(tool, "", options)


def head_of(tool: str, arguments: str, options: JobOptions) -> str:
    """Returns the JSON of the job up to its arguments."""
    if options.at is not None and options.in_ is not None:
        raise ValueError("at and in_ are both given: use one of the two")
    deadline = options.deadline
    unique = options.unique
    if unique is True:
        ordered = json.dumps(json.loads(arguments), sort_keys=True)
        unique = hashlib.sha256(f"{tool}\0{ordered}".encode()).hexdigest()
    rate = None if options.key_rate is None else rate_of(options.key_rate, "key_rate")
    key_limit = options.key_limit
    if options.key is None and (key_limit or rate):
        raise ValueError("key_limit and key_rate limit the jobs of one key, and this one has none: give key=, too")
    if rate and key_limit is None:
        key_limit = max(rate[0], RATE_ONLY)
    fields: dict[str, Any] = {
        "queue": options.queue or "default",
        "tool": tool,
        "priority": options.priority or 0,
        "attempts_max": 1 + (RETRIES if options.retry is None else options.retry),
        "backoff": backoff_of(options.backoff),
        "scheduled_at": None if options.at is None else milliseconds(options.at),
        # Durations are counted by the clock of the store.
        "delay_ms": None if options.in_ is None else round(seconds(options.in_, "in_") * 1000),
        "deadline_at": milliseconds(deadline) if isinstance(deadline, datetime) else None,
        "deadline_ms": (
            None if deadline is None or isinstance(deadline, datetime) else round(seconds(deadline, "deadline") * 1000)
        ),
        "unique": unique or None,
        "key": options.key,
        "key_limit": key_limit,
        "key_rate": None if rate is None else {"count": rate[0], "per_ms": rate[1]},
        "tags": list(options.tags or ()),
        "meta": options.meta,
        "after": [options.after] if isinstance(options.after, str) else list(options.after or ()),
        "after_failure": options.after_failure,
        "result_ms": 0 if options.result is None else round(seconds(options.result, "result") * 1000),
    }
    given = {name: value for name, value in fields.items() if value is not None and value != []}
    try:
        text = json.dumps(given, allow_nan=False)
    except (TypeError, ValueError) as error:  # all others are of known types
        raise ValueError(f"meta {shortened(options.meta)}: {error}; allowed is a mapping of what JSON has") from None
    return f'{text[:-1]},"arguments":'


def milliseconds(time: datetime) -> int:
    """Returns a time as milliseconds since 1970; without a time zone, in this machine's."""
    return round(time.timestamp() * 1000)
