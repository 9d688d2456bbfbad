"""Clutch runs Python code in pools of workers: any code, any concurrency model, however the work arrives.

    from clutch import Pool

    with Pool("shop.tools", profile="process", workers=8) as pool:
        pool.call("matmul", size=100)

The whole public surface is named here. Linux only.
"""

from __future__ import annotations

import sys
from importlib import import_module
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
    from clutch._pickle.shared import Shared
    from clutch._pool.future import Future, Stream
    from clutch._serve.app_server import AppServer, serve, serving
    from clutch._worker.handlers.job import Cancel, Dead, Retry, Snooze, current_job
    from clutch.broken import WorkerLost
    from clutch.dispatcher import Dispatcher
    from clutch.http_problem import HttpProblem
    from clutch.insights import Insights
    from clutch.jobs import Jobs
    from clutch.pool import Pool

__version__ = "0.1.0"

__all__ = [
    "AppServer",
    "BadArguments",
    "Cancel",
    "ClutchError",
    "ConfigError",
    "Dead",
    "DeadlineExceeded",
    "Dispatcher",
    "Draining",
    "Future",
    "HttpProblem",
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
    "Shared",
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


# Loaded on first use: a worker that imports `clutch.tool` does not pay for the dispatcher's half.
_LAZY = {
    **dict.fromkeys(("AppServer", "serve", "serving"), "clutch._serve.app_server"),
    **dict.fromkeys(("Cancel", "Dead", "Retry", "Snooze", "current_job"), "clutch._worker.handlers.job"),
    **dict.fromkeys(("Future", "Stream"), "clutch._pool.future"),
    "Dispatcher": "clutch.dispatcher",
    "HttpProblem": "clutch.http_problem",
    "Insights": "clutch.insights",
    "Jobs": "clutch.jobs",
    "Pool": "clutch.pool",
    "Shared": "clutch._pickle.shared",
    "WorkerLost": "clutch.broken",
}


def __getattr__(name: str) -> object:
    if name in _LAZY:
        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'clutch' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
