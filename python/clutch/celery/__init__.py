"""An existing Celery app on Clutch: `clutch work proj:app` in place of `celery worker`. Needs `celery`, whose own code
runs each task in the worker: results, retries, chains, chords and signals are Celery's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from clutch.celery.pool import TaskPool

__all__ = ["TaskPool"]

NODE = "CLUTCH_CELERY_NODE"
"""The environment variable of workers with the name of their node, as its peers know it."""

RAN_IN_VAIN = "Celery runs it no more"
"""Why a task is dead that has failed in a worker, whose log has told it as Celery does."""

REFUSED = "Celery refuses it"
"""Why a task is dead whose message cannot be run; the log of its worker has told of the first of them."""


def __getattr__(name: str) -> Any:
    """Imports Celery for what needs it."""
    if name == "TaskPool":
        from clutch.celery.pool import TaskPool

        return TaskPool
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
