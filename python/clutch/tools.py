"""The decorators that user code carries: `tool`, `on_start`, `on_stop`.

They only mark; nothing is registered anywhere, and the function stays what it was.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar, overload

F = TypeVar("F", bound=Callable[..., Any])

TOOL_MARK = "__clutch_tool__"
HOOK_MARK = "__clutch_hook__"
HOOKS = ("start", "stop")
PARTIALS_MAX = 100
"""Maximum depth of nested partials: one that contains itself has no end."""


@dataclass(frozen=True, slots=True)
class ToolOptions:
    """The arguments of `tool`."""

    serial: bool = False
    main_thread: bool = False


@overload
def tool(function: F, /) -> F: ...
@overload
def tool(*, serial: bool = False, main_thread: bool = False) -> Callable[[F], F]: ...
def tool(function: Any = None, /, *, serial: bool = False, main_thread: bool = False) -> Any:
    """Mark a function as a tool, which can be called by name from Python and through every front.

    `serial`: one call at a time in a worker. `main_thread`: runs in the worker's main thread, for code that needs it.
    """
    options = ToolOptions(serial, main_thread)

    def mark(function: F) -> F:
        setattr(function, TOOL_MARK, options)
        return function

    return mark if function is None else mark(function)


def options_of(function: Any) -> ToolOptions | None:
    """Return the options of a tool, or None if the function is not a tool. Looks through partials, and at `__call__` of
    an object."""
    for _ in range(PARTIALS_MAX):
        if not issubclass(type(function), functools.partial):
            break
        function = function.func
    for holder in (function, mark_of(type(function), "__call__")):
        mark = mark_of(holder, TOOL_MARK)
        # Of some objects, each name is an attribute.
        if type(mark) is ToolOptions:
            return mark
    return None


def mark_of(value: Any, name: str) -> Any:
    """Return a decorator's mark, or None. Attributes of an unbound proxy (Flask's `request`) raise."""
    try:
        return getattr(value, name, None)
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
