"""What the soak's pools run: each tool is called with a number and answers with it. None of them writes anything."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import ctypes
import itertools
import os
import signal
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

from clutch import tool

LONG_SECONDS = 3600.0


class Unlucky(Exception):
    """What the tools raise on purpose; its argument is the number of the call."""


# Quick ones.


@tool
def echo(number: int) -> int:
    return number


@tool
def compute(number: int, steps: int) -> int:
    total = 0
    for step in range(steps):
        total ^= step
    return number


@tool
def nap(number: int, seconds: float) -> int:
    time.sleep(seconds)
    return number


@tool
async def nap_async(number: int, seconds: float) -> int:
    await asyncio.sleep(seconds)
    return number


@tool
def same(number: int, payload: Any) -> tuple[int, Any]:
    return number, payload


@tool
def pair(number: int, at: int) -> tuple[int, int]:
    """One item of a map."""
    return number, at


@tool
def fail(number: int) -> None:
    raise Unlucky(number)


@tool
async def fail_async(number: int) -> None:
    await asyncio.sleep(0)
    raise Unlucky(number)


# Streams.


@tool
def count(number: int, values: int) -> Iterator[tuple[int, int]]:
    for at in range(values):
        yield number, at


@tool
async def count_async(number: int, values: int) -> AsyncIterator[tuple[int, int]]:
    for at in range(values):
        await asyncio.sleep(0)
        yield number, at


@tool
def count_then_fail(number: int, values: int) -> Iterator[tuple[int, int]]:
    yield from count(number, values)
    raise Unlucky(number)


# Those that do not end by themselves; they are called with a deadline, or cancelled.


@tool
def loop(number: int) -> int:
    while number >= 0:
        pass
    return number


@tool
async def loop_async(number: int) -> int:
    while number >= 0:
        pass
    return number


@tool
def nap_long(number: int) -> int:
    return nap(number, LONG_SECONDS)


@tool
async def nap_long_async(number: int) -> int:
    return await nap_async(number, LONG_SECONDS)


# Those that do harm.


@tool
def hold_the_gil(number: int, steps: int) -> int:
    """C code that no exception reaches; on a free-threaded build it holds its thread only."""
    collections.deque(itertools.repeat(0, steps), maxlen=0)
    return number


@tool
def stay(number: int, seconds: float) -> int:
    """Takes no notice of being told to stop."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        with contextlib.suppress(BaseException):
            while time.monotonic() < end:
                pass
    return number


@tool
def leave_a_child(number: int) -> int:
    """It has to go with its worker."""
    subprocess.Popen(["sleep", str(LONG_SECONDS)], stdin=subprocess.DEVNULL)
    return number


@tool
def die(number: int, how: str) -> int:
    if how == "exit":
        os._exit(number % 2)
    if how == "segfault":
        ctypes.string_at(0)
    os.kill(os.getpid(), signal.SIGKILL)
    return number
