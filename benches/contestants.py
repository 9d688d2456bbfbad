"""Who runs in the rows: a warm Clutch pool, and warm pools of the standard library.

Make the standard library's pools first: they fork, and should fork a process that does not hold Clutch yet.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import multiprocessing
import multiprocessing.pool
import platform
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import clutch

EXECUTOR = "ProcessPoolExecutor"
_TARGET = "benches.echo_tools"
_WARM_UP_SECONDS = 0.05


@contextlib.contextmanager
def clutch_pool(workers: int, **options: Any) -> Iterator[clutch.Pool]:
    """A Clutch pool with all its workers ready."""
    import clutch  # here, so that the peers' workers were forked before it was loaded

    with clutch.Pool(_TARGET, workers=workers, **options) as pool:
        pool.wait_ready(workers)
        yield pool


@contextlib.contextmanager
def executor(workers: int) -> Iterator[concurrent.futures.ProcessPoolExecutor]:
    """A ProcessPoolExecutor with all its workers started."""
    with concurrent.futures.ProcessPoolExecutor(workers) as pool:
        concurrent.futures.wait([pool.submit(time.sleep, _WARM_UP_SECONDS) for _ in range(workers)])
        yield pool


@contextlib.contextmanager
def multiprocessing_pool(workers: int) -> Iterator[multiprocessing.pool.Pool]:
    """A multiprocessing.Pool with all its workers started."""
    with multiprocessing.Pool(workers) as pool:
        pool.map(time.sleep, [_WARM_UP_SECONDS] * workers, chunksize=1)
        yield pool


def standard_library() -> str:
    """Version and settings of the standard library's pools, for the notes."""
    return f"CPython {platform.python_version()}, start method {multiprocessing.get_start_method()}"
