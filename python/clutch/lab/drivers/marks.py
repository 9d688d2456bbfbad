"""The job of a comparison: the user's function, and the times at which each run of it began and ended.

Every queue runs the same, Clutch too, so that each pays for the marks alike. A run appends its two times to one file
that is opened O_APPEND: what is written at once is whole, whatever other processes write. Which function it is, and
where the file is, is in the environment of the consumer.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import os
import struct
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from clutch.lab.names import named

FUNCTION, FOLDER = "CLUTCH_LAB_FUNCTION", "CLUTCH_LAB_FOLDER"
FILE = "marks"
MARK = struct.Struct("dd")


def job(**kwargs: Any) -> None:
    """One run, in a thread or process of its own."""
    began = time.time()
    function = the_function()
    if inspect.iscoroutinefunction(function):
        if is_patched():
            raise RuntimeError("it is an `async def`, and asyncio does not run where gevent has patched the selectors")
        asyncio.run(function(**kwargs))
    else:
        function(**kwargs)
    mark(began)


async def job_async(**kwargs: Any) -> None:
    """One run of an `async def`, in the loop of a queue that has one."""
    began = time.time()
    await the_function()(**kwargs)
    mark(began)


def native() -> Callable[..., Any]:
    """The job as a queue wants it that runs both `def` and `async def`."""
    return job_async if inspect.iscoroutinefunction(the_function()) else job


def is_patched() -> bool:
    gevent: Any = sys.modules.get("gevent.monkey")
    return gevent is not None and bool(gevent.is_module_patched("select"))


def environment(module: str, name: str, folder: Path) -> dict[str, str]:
    return {FUNCTION: f"{module}:{name}", FOLDER: str(folder)}


@functools.cache
def the_function() -> Callable[..., Any]:
    module, _, name = os.environ[FUNCTION].partition(":")
    return named(module, name)


@functools.cache
def the_file() -> int:
    return os.open(Path(os.environ[FOLDER]) / FILE, os.O_WRONLY | os.O_APPEND | os.O_CREAT)


def mark(began: float) -> None:
    os.write(the_file(), MARK.pack(began, time.time()))


def count(folder: Path) -> int:
    """How many runs have ended."""
    file = folder / FILE
    return file.stat().st_size // MARK.size if file.exists() else 0


def take(folder: Path) -> list[tuple[float, float]]:
    """When each began and ended; the file is empty after that."""
    file = folder / FILE
    found = list(MARK.iter_unpack(file.read_bytes()))
    os.truncate(file, 0)
    return [(began, ended) for began, ended in found]
