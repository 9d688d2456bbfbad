"""Print each traceback in one write, so that its lines stay together in a log, whoever writes beside it."""

from __future__ import annotations

import sys
import threading
import traceback
from typing import Any


def print_at_once() -> None:
    """Replace the hooks of this process for exceptions that nobody catches, unless the user's code has its own."""
    traceback.TracebackException.print = print_whole  # type: ignore[method-assign]
    if sys.excepthook is sys.__excepthook__:
        sys.excepthook = uncaught
    if sys.unraisablehook is sys.__unraisablehook__:
        sys.unraisablehook = unraisable
    if threading.excepthook is threading.__excepthook__:
        threading.excepthook = uncaught_in_thread


def print_whole(self: traceback.TracebackException, *, file: Any = None, **options: Any) -> None:
    """As `TracebackException.print`, which writes line by line."""
    print("".join(self.format(**options)), file=sys.stderr if file is None else file, end="")


# Where a hook fails, near the limit of recursion or for want of memory, Python's own tells the error: it needs less.


def uncaught(kind: type[BaseException], error: BaseException, frames: Any) -> None:
    try:
        put("", (kind, error, frames))
    except Exception:
        sys.__excepthook__(kind, error, frames)


def uncaught_in_thread(args: threading.ExceptHookArgs) -> None:
    if args.exc_type is not SystemExit:
        try:
            name = threading.get_ident() if args.thread is None else args.thread.name
            put(f"Exception in thread {name}:\n", (args.exc_type, args.exc_value, args.exc_traceback))
        except Exception:
            threading.__excepthook__(args)


def unraisable(args: sys.UnraisableHookArgs) -> None:
    try:
        about = "" if args.object is None else f": {args.object!r}"
    except BaseException as error:
        about = f": <object repr() failed: {type(error).__name__}>"
    head = f"{args.err_msg or 'Exception ignored in'}{about}\n" if args.err_msg or about else ""
    try:
        put(head, (args.exc_type, args.exc_value, args.exc_traceback))
    except Exception:
        sys.__unraisablehook__(args)


def put(head: str, error: tuple[Any, Any, Any]) -> None:
    if sys.stderr is not None:
        sys.stderr.write(head + "".join(traceback.format_exception(*error)))
        sys.stderr.flush()
