"""What a kind of what a pool serves is to the worker around it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from clutch import _core
from clutch._worker.handlers.call import Tool


@dataclass(frozen=True)
class Kind:
    find: Callable[[str, Any, bool], Any]
    """`find(target, found, is_factory)`: what is served. Raises ConfigError for what cannot be."""

    entry: Callable[[Any, dict[str, Any], str, _core.Worker], Tool]
    """`entry(served, options, profile, worker)`: what runs its work. Its own `kind` names the native handler."""

    needs_loop: bool = False
    """Threads are event loops too: its work goes on between its steps."""

    has_instances: bool = False
    """Of a class, each worker serves an instance."""

    shape: Callable[[dict[str, Any]], dict[str, Any]] | None = None
    """Changes the slots of a pool for which no profile was chosen."""
