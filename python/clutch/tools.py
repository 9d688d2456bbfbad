"""The decorators that user code carries: `tool`, `on_start`, `on_stop`.

They only mark; nothing is registered anywhere, and the function stays what it was. Each worker imports this: what only
some options need is imported where they are read.
"""

from __future__ import annotations

import builtins
import functools
import re
import sys
import types
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, fields, replace
from datetime import datetime, timedelta
from math import ceil
from typing import TYPE_CHECKING, Any, TypeGuard, TypeVar, overload

if TYPE_CHECKING:
    from clutch.http_problem import HttpProblem

F = TypeVar("F", bound=Callable[..., Any])

TOOL_MARK = "__clutch_tool__"
HOOK_MARK = "__clutch_hook__"
HOOKS = ("start", "stop")
PARTIALS_MAX = 100
"""Maximum depth of nested partials: one that contains itself has no end."""


Seconds = float | str | timedelta
"""Seconds, or text such as `"5m"`."""


Exceptions = Sequence[type[Exception] | str]
"""Exceptions, or their names."""

U32_MAX = 0xFFFF_FFFF
PRIORITY_MAX = 9
RETRIES_MAX = 1_000_000
RATE_MAX = 10_000
SECONDS_MAX = 1e10
NAME_CHARACTERS_MAX = 200
NAME = re.compile(rf"(?=.{{1,{NAME_CHARACTERS_MAX}}}\Z)\w+((::|[.-]+)\w+)*", re.ASCII)
NAME_OF_CLASS = re.compile(rf"(?=.{{1,{NAME_CHARACTERS_MAX}}}\Z)[^\W\d]\w*([.][^\W\d]\w*)*")
SHOWN_CHARACTERS_MAX = 200
SURROGATE = re.compile("[\ud800-\udfff]")
"""Half of a character, which no store can keep."""
OF_PEERS = {
    "autoretry_for": "retry_on",
    "countdown": "in_",
    "depends_on": "after",
    "delay": "in_",
    "eta": "at",
    "expires": "deadline",
    "give_up_for": "give_up_on",
    "job_timeout": "attempt_deadline",
    "max_retries": "retry",
    "retries": "retry",
    "soft_time_limit": "attempt_deadline",
    "throws": "give_up_on",
    "time_limit": "attempt_deadline",
    "timeout": "deadline",
}
"""Names of options in other job queues."""
OF_TOOLS = ("retry_on", "give_up_on", "attempt_deadline", "raises")
"""Options that hold for all calls or jobs of a tool, and that only `@tool` takes."""


def is_whole(least: int, most: int) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


def is_name(value: Any) -> bool:
    return isinstance(value, str) and value != "" and SURROGATE.search(value) is None


def are_names(value: Any) -> bool:
    return isinstance(value, Sequence | Set) and not isinstance(value, str | bytes) and all(map(is_name, value))


CHECKS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "queue": (is_name, "a name, which is text that is not empty"),
    "priority": (is_whole(-PRIORITY_MAX, PRIORITY_MAX), "whole numbers from -9 to 9, larger first"),
    "at": (lambda value: isinstance(value, datetime), "a datetime; in_= takes seconds from now"),
    "in_": (lambda value: isinstance(value, float | int | str | timedelta), "seconds from now; at= takes a datetime"),
    "retry": (is_whole(0, RETRIES_MAX), f"whole numbers from 0 to {RETRIES_MAX:,}"),
    "unique": (lambda value: isinstance(value, bool) or is_name(value), "True, or a key, which is text"),
    "key": (is_name, "text that is not empty"),
    "key_limit": (is_whole(1, U32_MAX), f"whole numbers from 1 to {U32_MAX:,}"),
    "deadline": (
        lambda value: isinstance(value, datetime | float | int | str | timedelta),
        "a datetime, or seconds from when the job is due",
    ),
    "tags": (are_names, 'a list of texts, such as ["invoice"]'),
    "after": (lambda value: is_name(value) or are_names(value), "the id of a job, or a list of ids"),
    "after_failure": (lambda value: value in ("cancel", "run"), '"cancel" and "run"'),
    "meta": (lambda value: isinstance(value, Mapping), "a mapping of what JSON has"),
}
"""Checks of options with one type. Times and rates given as text are read by `@tool` and when a job is written."""


@dataclass(frozen=True, slots=True)
class JobOptions:
    """Options of a job. None means the default."""

    queue: str | None = None
    """Name of the queue. Default `"default"`."""
    priority: int | None = None
    """Priority from −9 to 9; larger runs first. Default 0."""
    at: datetime | None = None
    """Time at which the job is due; without a time zone, in this machine's. Default: now."""
    in_: Seconds | None = None
    """Delay until the job is due, from now; use either this or `at`."""
    retry: int | None = None
    """Maximum number of retries. Default 20."""
    backoff: str | Seconds | None = None
    """Delay before each retry: `"polynomial"` (default), 15 s + attempt⁴ s as in Sidekiq; `"exponential"`, 1 s, 2 s,
    4 s … up to 1 h; or a constant time."""
    unique: str | bool | None = None
    """Deduplication key: while a job with this key has not ended, another is not enqueued. True: the tool and its
    arguments are the key."""
    key: str | None = None
    """Concurrency key: jobs with the same key run one at a time, or as `key_limit` and `key_rate` allow."""
    key_limit: int | None = None
    """Maximum jobs with this key that run concurrently. Default 1; with `key_rate`, its count, but at least 100."""
    key_rate: str | None = None
    """Maximum jobs with this key that start in a period: `"10/s"`, `"100/m"`, `"5/30s"`. Default: no limit."""
    deadline: datetime | Seconds | None = None
    """Time, or seconds after the job is due, at which it is no longer started, and interrupted if it runs."""
    tags: Sequence[str] | None = None
    meta: Mapping[str, Any] | None = None
    """JSON values that travel with the job: `current_job().meta`."""
    result: Seconds | None = None
    """Retention of the result. Default: not kept."""
    after: str | Sequence[str] | None = None
    """Id of a job, or ids of at most 10,000, that have to complete before this one can begin. What they
    returned is in `current_job().results`, if it is kept."""
    after_failure: str | None = None
    """What becomes of the job when one of `after` is dead, cancelled or deleted: `"cancel"` (default), it is cancelled;
    `"run"`, it runs once all have ended."""

    def __post_init__(self) -> None:
        for name, (is_allowed, allowed) in CHECKS.items():
            value = getattr(self, name)
            if value is not None and not is_allowed(value):
                raise ValueError(f"{name} {shortened(value)}: allowed are {allowed}")

    def over(self, defaults: JobOptions) -> JobOptions:
        """Returns these options, completed from `defaults`."""
        if self is NO_JOB_OPTIONS:
            return defaults
        given = {one.name: value for one in fields(self) if (value := getattr(self, one.name)) is not None}
        return replace(defaults, **given) if given else defaults


def seconds(given: Seconds, option: str) -> float:
    """Returns `"5m"` as a number. Raises ValueError that names the option."""
    from clutch.config.values import CALL_TIME

    try:
        number: float = CALL_TIME.parse(given)
    except ValueError:
        number = -1.0
    if not 0 <= number <= SECONDS_MAX:  # neither negative nor NaN
        raise ValueError(f'{option} {given!r}: allowed are seconds from 0 up, text such as "5m", or a timedelta')
    return number


def rate_of(given: str, option: str) -> tuple[int, int]:
    """Returns `"100/m"` or `"5/30s"` as a count and milliseconds."""
    from clutch.config.values import CALL_TIME

    try:
        count, per = given.split("/")
        time: float = CALL_TIME.parse(per if per[:1].isdigit() else f"1{per}")
        number, per_ms = int(count), round(time * 1000)
        if not (1 <= number <= RATE_MAX and 1 <= per_ms <= U32_MAX):
            raise ValueError
        return number, per_ms
    except (AttributeError, TypeError, ValueError):
        allowed = f'a number from 1 to {RATE_MAX:,} and a time of 1 ms to 49 days, as in "10/s", "100/m", "5/30s"'
        raise ValueError(f"{option} {given!r}: allowed are {allowed}") from None


def backoff_of(given: str | Seconds | None) -> dict[str, Any]:
    from clutch.config.values import BACKOFF

    try:
        core: dict[str, Any] = BACKOFF.core(BACKOFF.parse("polynomial" if given is None else given))
    except ValueError:
        raise ValueError(f"backoff {given!r}: allowed are {BACKOFF.allowed}, or a timedelta") from None
    return core


def check_texts(options: JobOptions) -> None:
    """Reads texts that are otherwise read when a job is written. Raises ValueError."""
    if options.backoff is not None:
        backoff_of(options.backoff)
    if options.key_rate is not None:
        rate_of(options.key_rate, "key_rate")
    for name in ("deadline", "result"):
        value = getattr(options, name)
        if value is not None and not isinstance(value, datetime):
            seconds(value, name)


def refuse_unknown(where: str, given: Iterable[str]) -> None:
    """Raises TypeError with the nearest option of jobs, or of tools."""
    for name in given:
        if name not in JobOptions.__dataclass_fields__:
            known = ", ".join(JobOptions.__dataclass_fields__)
            meant = option_meant(name) or f"; options are {known}, and of @tool also {', '.join(OF_TOOLS)}"
            raise TypeError(f"{where} has no option {name!r}{meant}")


def option_meant(name: str) -> str:
    """`; did you mean retry?`, or nothing where no option is like it."""
    from clutch.config.layers import nearest

    near = nearest(name, (*JobOptions.__dataclass_fields__, *OF_TOOLS, *OF_PEERS))
    if near is None:
        return ""
    option = OF_PEERS.get(near, near)
    return f"; did you mean {f'@tool({option}=…)' if option in OF_TOOLS else option}?"


def shortened(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= SHOWN_CHARACTERS_MAX else f"{text[:SHOWN_CHARACTERS_MAX]}…"


NO_JOB_OPTIONS = JobOptions()


@dataclass(frozen=True, slots=True)
class ToolOptions:
    """The arguments of `tool`."""

    name: str | None = None
    """None: the function's own."""
    serial: bool = False
    main_thread: bool = False
    job: JobOptions = NO_JOB_OPTIONS
    retry_on: Exceptions | None = None
    give_up_on: Exceptions = ()
    attempt_deadline: Seconds | None = None
    raises: Sequence[Any] = ()

    def __post_init__(self) -> None:
        if self.name is not None and not (isinstance(self.name, str) and NAME.fullmatch(self.name)):
            raise ValueError(
                f"name {shortened(self.name)}: allowed are up to {NAME_CHARACTERS_MAX} letters, digits, '_', '-', "
                "'.' and '::', not at the ends"
            )
        for name in ("serial", "main_thread"):
            if not isinstance(value := getattr(self, name), bool):
                raise ValueError(f"{name} {shortened(value)}: allowed are True and False")
        check_exceptions("retry_on", () if self.retry_on is None else self.retry_on)
        check_exceptions("give_up_on", self.give_up_on)
        check_precedence(self.retry_on or (), self.give_up_on)
        if self.attempt_deadline is not None and not seconds(self.attempt_deadline, "attempt_deadline"):
            raise ValueError("attempt_deadline 0: no attempt could begin; None is no limit")
        if self.raises:
            from clutch.http_problem import check_declared

            check_declared(self.raises)

    @property
    def attempt_ms(self) -> int | None:
        return (
            None if self.attempt_deadline is None else ceil(seconds(self.attempt_deadline, "attempt_deadline") * 1000)
        )

    def why_given_up(self, error: BaseException) -> str | None:
        """Returns why a job that raised this is not tried again; None: it is.

        Warns of names that mean nothing, which `retry_problems` could not tell before their modules were imported.
        """
        for problem, _ in retry_problems(self):
            warnings.warn(problem, RuntimeWarning, stacklevel=2)
        if found := next((given for given in self.give_up_on if is_one(error, given)), None):
            return f"its tool gives up on {shown_name(found)} (give_up_on)"
        if self.retry_on is None or any(is_one(error, given) for given in self.retry_on):
            return None
        return f"its tool is not retried on {type(error).__name__} (retry_on)"

    def gives_up(self, error: BaseException) -> bool:
        """Returns whether a job that raised this is not tried again."""
        return self.why_given_up(error) is not None


def check_exceptions(option: str, given: Any) -> None:
    """Raises ValueError unless it is a tuple or list of exceptions, or of their names."""
    if not isinstance(given, tuple | list):
        raise ValueError(
            f"{option} {shortened(given)}: allowed is a tuple of exceptions or their names, such as "
            f'{option}=(ValueError, "requests.ConnectionError")'
        )
    for one in given:
        if isinstance(one, type):
            if not issubclass(one, Exception):
                raise ValueError(f"{option} {one.__name__}: allowed are Exception and its subclasses")
        elif not isinstance(one, str) or not NAME_OF_CLASS.fullmatch(one):
            raise ValueError(
                f"{option} {shortened(one)}: allowed are exceptions, and names such as 'requests.HTTPError'"
            )
        elif "." not in one and not is_exception(getattr(builtins, one, None)):
            raise ValueError(f"{option} {one!r}: no exception of Python itself; give its module, too: 'package.{one}'")


def check_precedence(retry_on: Exceptions, give_up_on: Exceptions) -> None:
    """Raises ValueError for a class that has no effect: `give_up_on` has the last word."""
    given_up = tuple(one for one in map(class_of, give_up_on) if one is not None)
    for one in map(class_of, retry_on):
        if one is not None and issubclass(one, given_up):
            raise ValueError(
                f"retry_on {one.__name__}: give_up_on has it or a class above it, and comes first; leave it out of one"
            )


def is_one(error: BaseException, given: type[Exception] | str) -> bool:
    wanted = class_of(given)
    return wanted is not None and isinstance(error, wanted)


def class_of(given: type[Exception] | str) -> type[Exception] | None:
    """Returns the class of this name; None as long as its module is not imported, when nobody can have raised it."""
    if isinstance(given, type):
        return given
    parts = given.split(".")
    for at in range(len(parts) - 1, -1, -1):
        module = sys.modules.get(".".join(parts[:at]) or "builtins")
        if module is not None:
            found = functools.reduce(lambda holder, name: getattr(holder, name, None), parts[at:], module)
            return found if is_exception(found) else None
    return None


def retry_problems(options: ToolOptions) -> Iterator[tuple[str, bool]]:
    """Yields what is wrong with names in `retry_on` and `give_up_on`, and whether it is certain.

    Nothing is imported for it: of a module that is there and not imported yet, nothing can be told.
    """
    for option, given in (("retry_on", options.retry_on or ()), ("give_up_on", options.give_up_on)):
        for one in given:
            if isinstance(one, str) and class_of(one) is None and (problem := problem_of(one)):
                text, is_certain = problem
                yield f"{option} {one!r}: {text}", is_certain


def problem_of(name: str) -> tuple[str, bool] | None:
    """Returns why there is no exception of this name, and whether that is certain: its module is imported."""
    parts = name.split(".")
    if parts[0] == "__main__":  # another one in each process
        return None
    at = next((at for at in range(len(parts) - 1, 0, -1) if ".".join(parts[:at]) in sys.modules), 0)
    if at == 0:
        missing = f"there is no module {parts[0]!r}: is it installed, and spelt so?"
        return None if is_there(parts[0]) else (missing, False)
    holder: Any = sys.modules[module := ".".join(parts[:at])]
    for part in parts[at:]:
        if not hasattr(holder, part):
            if holder is sys.modules[module] and at < len(parts) - 1 and is_there(f"{module}.{part}"):
                return None  # a module that is not imported yet
            from clutch.config.layers import nearest

            near = nearest(part, [known for known, value in vars(holder).items() if is_exception(value)])
            hint = "" if near is None else f"; did you mean {name.removesuffix(part)}{near}?" * name.endswith(part)
            return f"{module!r} is imported, and has no {part!r}{hint}", True
        holder = getattr(holder, part)
    return f"{shortened(holder)} is no exception; allowed are Exception and its subclasses", True


def is_there(module: str) -> bool:
    """Returns whether a module can be found. Those above it are imported already."""
    from importlib.util import find_spec

    try:
        return find_spec(module) is not None
    except (ImportError, ValueError):
        return False


def shown_name(given: type[Exception] | str) -> str:
    return given if isinstance(given, str) else given.__name__


def is_exception(value: Any) -> TypeGuard[type[Exception]]:
    return isinstance(value, type) and issubclass(value, Exception)


@overload
def tool(function: F, /) -> F: ...
@overload
def tool(
    *,
    name: str | None = None,
    serial: bool = False,
    main_thread: bool = False,
    queue: str | None = None,
    priority: int | None = None,
    retry: int | None = None,
    backoff: str | Seconds | None = None,
    unique: bool | None = None,
    key_limit: int | None = None,
    key_rate: str | None = None,
    deadline: Seconds | None = None,
    tags: Sequence[str] | None = None,
    result: Seconds | None = None,
    retry_on: Exceptions | None = None,
    give_up_on: Exceptions = (),
    attempt_deadline: Seconds | None = None,
    raises: Sequence[HttpProblem | type[HttpProblem]] = (),
) -> Callable[[F], F]: ...
def tool(
    function: Any = None,
    /,
    *,
    name: str | None = None,
    serial: bool = False,
    main_thread: bool = False,
    retry_on: Exceptions | None = None,
    give_up_on: Exceptions = (),
    attempt_deadline: Seconds | None = None,
    raises: Sequence[HttpProblem | type[HttpProblem]] = (),
    **job: Any,
) -> Any:
    """Mark a function as a tool, which can be called by name from Python and through every front.

    `name`: by which it is called, such as `"mail.send"`, instead of the function's own. `serial`: one call at a time in
    a worker. `main_thread`: runs in the worker's main thread, for code that needs it. `raises`: the classes of
    `HttpProblem`, or examples such as `HttpProblem(404, "urn:shop:no-user")`, that `/openapi.json` lists for it.

    Of its jobs, however they were enqueued: `give_up_on`: exceptions, subclasses included, after which a job is dead
    without another attempt. `retry_on`: the only ones after which there is another. `give_up_on` comes first. Both take
    classes and names, such as `"requests.HTTPError"`, so that nothing is imported for them. A name that an imported
    module does not have is an error when the tool is loaded; of one without a module there is a warning.
    `attempt_deadline`: maximum time of each attempt, from when its code begins; it is then interrupted, and retried.

    The others are defaults for its jobs; `JobOptions` says what each means.
    """
    refuse_unknown("@tool", job)
    options = ToolOptions(name, serial, main_thread, JobOptions(**job), retry_on, give_up_on, attempt_deadline, raises)
    check_texts(options.job)

    def mark(function: F) -> F:
        if not callable(function):
            named = f": write @tool(name={function!r})" if isinstance(function, str) else ""
            raise TypeError(f"@tool marks a function, and was given {shortened(function)}{named}")
        try:
            setattr(function, TOOL_MARK, options)
        except (AttributeError, TypeError):
            raise TypeError(f"@tool cannot mark {shortened(function)}: write a function that calls it") from None
        return function

    return mark if function is None else mark(function)


def options_of(function: Any) -> ToolOptions | None:
    """Return the options of a tool, or None if the function is not a tool. Looks through partials, and at `__call__` of
    an object."""
    for _ in range(PARTIALS_MAX):
        if not issubclass(type(function), functools.partial):
            break
        function = function.func
    for holder in (function, call_of(type(function))):
        mark = mark_of(holder, TOOL_MARK)
        # Of some objects, each name is an attribute.
        if type(mark) is ToolOptions:
            return mark
    return None


def call_of(kind: type) -> Any:
    """Return what a class has as `__call__`, without asking it or its metaclass."""
    for base in type.__dict__["__mro__"].__get__(kind):
        content = type.__dict__["__dict__"].__get__(base)
        if "__call__" in content:
            return content["__call__"]
    return None


def mark_of(value: Any, name: str) -> Any:
    """Return a decorator's mark, or None. Every object of a module is asked, so none is to notice: a lazy object would
    be evaluated by an attribute, and an unbound proxy (Flask's `request`) raise."""
    marked = value.__func__ if type(value) is types.MethodType else value
    try:
        return object.__getattribute__(marked, "__dict__").get(name)
    except Exception:
        return None


def on_start(function: F) -> F:
    """Run this function in each worker before its first work. It takes no arguments and is in the target's module."""
    setattr(function, HOOK_MARK, "start")
    return function


def on_stop(function: F) -> F:
    """Run this function in each worker that ends normally. It takes no arguments and is in the target's module."""
    setattr(function, HOOK_MARK, "stop")
    return function
