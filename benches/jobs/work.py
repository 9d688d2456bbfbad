"""The jobs: plain functions, which each peer wraps as it wants them.

Each run appends one byte to a file opened O_APPEND: the bytes are the runs. The first process that runs one leaves the
time in a file beside it. Both are in the folder that CLUTCH_BENCH_FOLDER names.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import struct
import time

FOLDER_VARIABLE = "CLUTCH_BENCH_FOLDER"
MARKS, FIRST, PIPE = "marks", "first", "pipe"
STAMP = struct.Struct("q")
NAP_SECONDS = 600


def mark() -> None:
    """The no-op job: count the run."""
    os.write(_marks(), b".")


async def mark_async() -> None:
    """The same, for queues that run coroutines."""
    os.write(_marks(), b".")


async def mark_in_context(_context: object) -> None:
    """The same, for queues that pass a context."""
    os.write(_marks(), b".")


def stamp() -> None:
    """Send the time at which the first line ran, CLOCK_MONOTONIC in nanoseconds."""
    now_ns = time.monotonic_ns()
    os.write(_pipe(), STAMP.pack(now_ns))


async def stamp_async() -> None:
    """The same, for queues that run coroutines."""
    stamp()


async def stamp_in_context(_context: object) -> None:
    """The same, for queues that pass a context."""
    stamp()


def nap() -> None:
    """Count the run, then block the slot until the consumer is stopped."""
    mark()
    time.sleep(NAP_SECONDS)


async def nap_async() -> None:
    """The same, for slots that are tasks of a loop."""
    mark()
    await asyncio.sleep(NAP_SECONDS)


@functools.cache
def _marks() -> int:
    folder = os.environ[FOLDER_VARIABLE]
    with contextlib.suppress(FileExistsError):
        first = os.open(os.path.join(folder, FIRST), os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        os.write(first, str(time.time_ns()).encode())
        os.close(first)
    return os.open(os.path.join(folder, MARKS), os.O_WRONLY | os.O_APPEND)


@functools.cache
def _pipe() -> int:
    return os.open(os.path.join(os.environ[FOLDER_VARIABLE], PIPE), os.O_WRONLY)
