"""Clutch runs Python code in pools of workers: any code, any concurrency model, however the work arrives.

    from clutch import Pool

    with Pool("shop.tools", profile="process", workers=8) as pool:
        pool.call("matmul", size=100)

The whole public surface is named here. Linux only.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if sys.platform != "linux":
    raise ImportError(f"clutch runs on Linux only (pidfd, memfd, subreapers); this is {sys.platform}")

from clutch._worker.call_headers import call_headers
from clutch.errors import (
    BadArguments,
    ClutchError,
    ConfigError,
    DeadlineExceeded,
    Draining,
    Interrupted,
    JobFailed,
    NoSuchPool,
    NoSuchTool,
    Overloaded,
    Poisoned,
    PoolClosed,
    RemoteError,
    StoreError,
    StoreUnavailable,
)
from clutch.tools import on_start, on_stop, tool

if TYPE_CHECKING:
    from clutch._serve.app_server import AppServer, serve, serving
    from clutch._worker.handlers.job import Cancel, Retry, Snooze, current_job
    from clutch.broken import WorkerLost
    from clutch.dispatcher import Dispatcher
    from clutch.insights import Insights
    from clutch.jobs import Jobs
    from clutch.pool import Future, Pool, Stream

__version__ = "0.1.0"

__all__ = [
    "AppServer",
    "BadArguments",
    "Cancel",
    "ClutchError",
    "ConfigError",
    "DeadlineExceeded",
    "Dispatcher",
    "Draining",
    "Future",
    "Insights",
    "Interrupted",
    "JobFailed",
    "Jobs",
    "NoSuchPool",
    "NoSuchTool",
    "Overloaded",
    "Poisoned",
    "Pool",
    "PoolClosed",
    "RemoteError",
    "Retry",
    "Snooze",
    "StoreError",
    "StoreUnavailable",
    "Stream",
    "WorkerLost",
    "call_headers",
    "current_job",
    "on_start",
    "on_stop",
    "serve",
    "serving",
    "tool",
]


def __getattr__(name: str) -> object:
    """Loaded on first use: a worker that imports `clutch.tool` does not pay for the dispatcher's half."""
    if name in {"Pool", "Future", "Stream"}:
        from clutch import pool

        return getattr(pool, name)
    if name in {"AppServer", "serve", "serving"}:
        from clutch._serve import app_server

        return getattr(app_server, name)
    if name == "Dispatcher":
        from clutch.dispatcher import Dispatcher

        return Dispatcher
    if name == "WorkerLost":
        from clutch.broken import WorkerLost

        return WorkerLost
    if name in {"Cancel", "Retry", "Snooze", "current_job"}:
        from clutch._worker.handlers import job

        return getattr(job, name)
    if name == "Jobs":
        from clutch.jobs import Jobs

        return Jobs
    if name == "Insights":
        from clutch.insights import Insights

        return Insights
    raise AttributeError(f"module 'clutch' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
