"""Forks by user code of the process that it runs in: a worker, or a zygote while it loads.

The copy goes on in the middle of a call and owns nothing of the worker: the native side has let go of the link. It ends
where the call ends that has forked it (or the import, the initializer, the hook), and as a script would: with the exit
code of its SystemExit, with 0, or with 1 and a traceback.

An event loop was copied, too, and its selector is the worker's own: what runs on it goes on up to where it would wait.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable
from typing import Any

from clutch._worker import failure

AWAITS = "this process was forked in a coroutine, and its event loop is the worker's: it cannot wait here"

is_copy = False
"""True if this process is a copy, forked by user code, of a worker or zygote."""
current: Callable[[], object] = lambda: None  # noqa: E731 (a default, replaced by profiles)
"""Identifies what runs a call where a thread runs several: the greenlet. A copy ends with its own call only."""

_forker: object = None
_loop: Any = None
_task: Any = None


def begin() -> None:
    """Called at the start of a worker, which does not count as a copy of its zygote."""
    global is_copy
    is_copy = False


def leave_if_copy(error: BaseException | None = None) -> None:
    """Called when user code has ended, normally or by `error`. A copy exits here."""
    if is_copy:
        leave(error)


def leave(error: BaseException | None = None) -> None:
    """End this copy if the code that has ended is the code that forked it, or if that code is over."""
    if current() is _forker or getattr(_forker, "dead", False):
        code = exit_code(error)
        flush()
        os._exit(code)


def exit_code(error: BaseException | None) -> int:
    """The exit code of a script that ends by this error; prints what the interpreter would print."""
    if error is None:
        return 0
    if not isinstance(error, SystemExit):
        print(failure.traceback_of(error), file=sys.stderr, end="")
        return 1
    if error.code is None or isinstance(error.code, int):
        return (error.code or 0) & 0xFF
    print(error.code, file=sys.stderr)
    return 1


def flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):  # the target's own, which may be anything
            stream.flush()


def _before() -> None:
    global _forker, _loop, _task
    _forker = current()
    events, tasks = sys.modules.get("asyncio.events"), sys.modules.get("asyncio.tasks")
    _loop = None if events is None else events._get_running_loop()
    _task = None if _loop is None or tasks is None else tasks.current_task(_loop)


def _in_child() -> None:
    global is_copy
    is_copy = True
    if _loop is not None:
        # What else was to run in this turn of the loop runs in the worker. (uvloop shows nobody what that is.)
        getattr(_loop, "_ready", []).clear()
        _loop.call_soon(_leave_loop)


def _leave_loop() -> None:
    """Called when control returns to an event loop that was copied."""
    if _task is not None and _task.done():
        leave(None if _task.cancelled() else _task.exception())
    else:
        leave(RuntimeError(AWAITS))


os.register_at_fork(before=_before, after_in_child=_in_child)
