"""Threads for blocking code on an event loop: FastAPI's `def` endpoints, `asyncio.to_thread`, anyio's.

Owns how many there may be; both libraries make them as needed. Called on a loop before the app's lifespan, so that an
app that sets a number itself has it. Who does not use anyio does not load it.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

THREADS = 40
"""anyio's default, on which apps rely: one request may need several threads, some waiting for others, and what they
use, such as connections of a pool, is meant for so many."""


def threads_for(tasks: int, is_given: bool) -> int:
    """How many threads so many concurrent requests have: more only where somebody has asked for so many requests."""
    return max(THREADS, tasks) if is_given else THREADS


def allow_threads(count: int) -> None:
    """Allows this loop so many threads."""
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(count, thread_name_prefix="clutch-blocking"))
    to_thread = sys.modules.get("anyio.to_thread")
    if to_thread is not None:
        limiter = to_thread.current_default_thread_limiter()
        limiter.total_tokens = count
        _enter_at_once(limiter)


def _enter_at_once(limiter: Any) -> None:
    """Takes the turn of the event loop out of a thread that is free: anyio gives way a second time on entering.

    FastAPI enters twice for a `def` endpoint, which then cost about 20 microseconds more of the loop. `run_sync` has
    given way, and looked for a cancel, just before. All else of the limiter, and who holds it, stays as it is.
    """
    from anyio import WouldBlock

    kind = type(limiter)

    class AtOnce(kind):
        __slots__ = ()

        async def __aenter__(self) -> None:
            try:
                self.acquire_nowait()
            except WouldBlock:
                await self.acquire()

    with contextlib.suppress(TypeError):  # it is of a form of its own, and stays so
        limiter.__class__ = AtOnce
