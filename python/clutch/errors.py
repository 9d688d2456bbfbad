"""Every error that Clutch raises, as one tree under `ClutchError`. (`WorkerLost` is in broken.py.)

Owns the classes and nothing else: it imports no other part of Clutch. Promises that each can be pickled with its
attributes, is made from a message and keywords named as its attributes, and reads well when printed alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any


class ClutchError(Exception):
    """Base class of all errors that Clutch reports. Exceptions of your own code are raised unchanged."""

    def __init__(self, message: str = "") -> None:
        super().__init__(message)

    @property
    def message(self) -> str:
        return str(self.args[0]) if self.args else ""

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.args, dict(self.__dict__))


def _rebuild(kind: type[ClutchError], args: tuple[Any, ...], attributes: dict[str, Any]) -> ClutchError:
    error = kind(*args)
    error.__dict__.update(attributes)
    return error


class Overloaded(ClutchError):
    """The pool's queue is full. The call was not started: retry later."""

    def __init__(self, message: str = "", *, pool: str | None = None, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.pool = pool
        self.retry_after = retry_after
        """Seconds to wait before a retry, if known."""


class Draining(Overloaded):
    """The pool is draining and takes no more work. Retry later, or use another pool."""


class DeadlineExceeded(ClutchError, TimeoutError):
    """The deadline passed: in the queue (it never started) or while running."""

    def __init__(self, message: str = "", *, where: str | None = None, stacks: str | None = None) -> None:
        super().__init__(message)
        self.where = where
        """`"queue"` or `"running"`."""
        self.stacks = stacks
        """The Python stacks of the worker at that moment, when it was running."""


class StoreError(ClutchError):
    """The job store is unusable: no such place, an incompatible schema, a wrong password."""


class StoreUnavailable(StoreError):
    """The job store is unavailable: locked, full or disconnected. Nothing was enqueued, unless the connection broke
    during the write."""


class JobFailed(ClutchError):
    """The job whose result was asked for was cancelled, or is dead."""

    def __init__(
        self, message: str = "", *, job: str | None = None, state: str | None = None, remote_traceback: str = ""
    ) -> None:
        super().__init__(message)
        self.job = job
        self.state = state
        """`"cancelled"` or `"dead"`."""
        self.remote_traceback = remote_traceback


class Poisoned(ClutchError):
    """The call has killed too many workers (`deaths_max`) and is not retried."""

    def __init__(self, message: str = "", *, deaths: int | None = None) -> None:
        super().__init__(message)
        self.deaths = deaths


class RemoteError(ClutchError):
    """The call failed, and its exception or result cannot be represented in this process."""

    def __init__(
        self, message: str = "", *, kind: str = "raised", type_name: str = "", remote_traceback: str = ""
    ) -> None:
        super().__init__(message)
        self.kind = kind
        """`"raised"`: the tool raised an exception that cannot be rebuilt here. `"encode"`: its result could not be
        encoded in the worker. `"decode"`: its result could not be decoded in this process."""
        self.type_name = type_name
        self.remote_traceback = remote_traceback

    def __str__(self) -> str:
        return f"{self.type_name}: {self.message}" if self.type_name else self.message


class NoSuchPool(ClutchError):
    """No pool of this name is configured."""

    def __init__(self, message: str = "", *, name: str | None = None) -> None:
        super().__init__(message)
        self.name = name


class NoSuchTool(ClutchError):
    """The target has no tool of this name."""

    def __init__(self, message: str = "", *, name: str | None = None) -> None:
        super().__init__(message)
        self.name = name


class BadArguments(ClutchError):
    """The arguments do not fit the tool, or could not be sent or read. The tool was not called."""

    def __init__(self, message: str = "", *, problems: Iterable[Mapping[str, Any]] = ()) -> None:
        super().__init__(message)
        self.problems = tuple(dict(problem) for problem in problems)
        """Mapping for each invalid argument: `loc`, `msg`, `type`, `input`."""


@dataclass(frozen=True, slots=True)
class Problem:
    """Problem of a configuration."""

    place: str
    """Dotted name of the place: `pools.api.profile`."""
    what: str
    """Description of the problem, as half a sentence."""
    given: str | None = None
    allowed: str | None = None
    nearest: str | None = None
    """The right name that looks most like the one given."""
    source: str | None = None
    """The file, variable or flag that it came from."""

    def __str__(self) -> str:
        parts = [f"{self.place}: {self.what}"]
        if self.given is not None:
            parts.append(f"given {self.given}")
        if self.nearest is not None:
            parts.append(f"did you mean {self.nearest}?")
        text = "; ".join(parts)
        if self.allowed is not None:
            text += f" (allowed: {self.allowed})" if self.nearest else f"; allowed: {self.allowed}"
        return text + (f" [{self.source}]" if self.source else "")


class ConfigError(ClutchError):
    """The configuration is invalid. `problems` has all errors, not just the first."""

    def __init__(self, message: str = "", *, problems: Iterable[Problem] = ()) -> None:
        self.problems = tuple(problems)
        super().__init__(message or _summary(self.problems))


def _summary(problems: tuple[Problem, ...]) -> str:
    if len(problems) < 2:
        return "".join(map(str, problems))
    return "\n".join([f"{len(problems)} problems in the configuration", *(f"  {problem}" for problem in problems)])


class PoolClosed(ClutchError, RuntimeError):
    """The pool was shut down, or belongs to the process that this one was forked from."""


class Interrupted(BaseException):
    """Raised inside user code when its deadline passes or its caller cancels.

    Not an `Exception`, so that `except Exception` in user code does not swallow it.
    """


class RemoteTraceback(Exception):
    """Cause of an exception from a worker; its text is the worker's traceback."""

    def __init__(self, text: str = "") -> None:
        super().__init__(text)

    def __str__(self) -> str:
        return f'\n"""\n{self.args[0]}"""' if self.args and self.args[0] else ""
