"""The interface of a kind of target (tools, app, connection handler) for the worker around it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from clutch import _core
from clutch._worker.handlers.call import Tool


@dataclass(frozen=True)
class TargetKind:
    find: Callable[[str, Any, bool], Any]
    """`find(target, found, is_factory)` returns the object to serve. Raises ConfigError if it cannot be served."""

    entry: Callable[[Any, dict[str, Any], str, _core.Worker], Tool]
    """`entry(served, options, profile, worker)` returns the tool that runs the work; an app's `protocol` names the
    native handler."""

    needs_loop: bool = False
    """True if its work runs as coroutines, so that threads are event loops too."""

    has_instances: bool = False
    """True if each worker creates an instance if the target is a class."""

    shape: Callable[[dict[str, Any]], dict[str, Any]] | None = None
    """Changes the slots of a pool without an explicit profile."""
