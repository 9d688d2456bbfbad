"""`breakpoint()` in a zygote or a worker: a debugger at the terminal, or an error that says how to get it.

Without either, pdb would read an empty standard input and end the request by a `BdbQuit` of its own. One that the user
has chosen (`PYTHONBREAKPOINT`) is left alone. The debugger itself is in debugger.py: only development loads it.
"""

from __future__ import annotations

import os
import sys
import types
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from clutch import _core

HOW = (
    "breakpoint() needs one worker that runs on a terminal in development: `clutch serve --reload -w 1`, or "
    "`clutch run --reload`"
)
NOT_DEVELOPED = "this server runs without --reload"
IMPORTED = (
    "breakpoint() works in what a worker runs (requests, calls, start hooks); here the code is being imported, which "
    "one process does for all workers"
)

_options: dict[str, Any] = {"refused": NOT_DEVELOPED}
_link: _core.WorkerLink | None = None


def install(options: dict[str, Any] | None) -> None:
    """Install the hook, before any user code is imported. `options`: the terminal, or why there is none."""
    global _options
    _options = options or _options
    sys.breakpointhook = hook
    if options is not None:
        import pdb

        # What `breakpoint()` is short for, as many still write it.
        pdb.set_trace = set_trace


def serve(link: _core.WorkerLink) -> None:
    """Called by the main thread of a new worker."""
    global _link
    _link = link
    if "terminal" in _options:
        from clutch._worker import debugger

        debugger.take_signals()


def hook(*arguments: Any, **more: Any) -> Any:
    if os.environ.get("PYTHONBREAKPOINT"):
        return sys.__breakpointhook__(*arguments, **more)
    return start(sys._getframe(1), **more)


def set_trace(*, header: str | None = None, **more: Any) -> None:
    """Replaces `pdb.set_trace`."""
    start(sys._getframe(1), header=header, **more)


def start(frame: types.FrameType, **more: Any) -> None:
    """Start the debugger. Raises RuntimeError if there can be none here."""
    if "refused" in _options:
        raise RuntimeError(f"{HOW}; {_options['refused']}")
    if _link is None:
        raise RuntimeError(IMPORTED)
    from clutch._worker import debugger

    debugger.Debugger(_link, _options["terminal"], _options["group"]).begin(frame, **more)
