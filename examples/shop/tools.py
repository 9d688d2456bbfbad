"""Tools that may be called by name: from Python, from the command line, over HTTP.

A tool is a plain function with type hints; an `async def` and a generator are tools too, and all of them run under
every profile.
"""

import asyncio
import os
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator

from clutch import tool


@tool
def total(prices: list[float], tax: float = 0.2) -> float:
    """The sum of the prices with tax, in cents' precision."""
    return round(sum(prices) * (1 + tax), 2)


@tool
def common_words(text: str, most: int = 3) -> list[tuple[str, int]]:
    """The most frequent words of a text."""
    return Counter(text.lower().split()).most_common(most)


@tool
def count_primes(limit: int) -> int:
    """Pure-Python CPU work: how many primes lie below `limit`."""
    return sum(all(number % divisor for divisor in range(2, int(number**0.5) + 1)) for number in range(2, limit))


@tool
def wait_for_supplier(seconds: float) -> int:
    """Blocking I/O: a supplier that answers after a while. Gives the pid of the worker that waited."""
    time.sleep(seconds)
    return os.getpid()


@tool
async def fetch_stock(item: str) -> dict[str, int]:
    """The same as a coroutine."""
    await asyncio.sleep(0.01)
    return {item: len(item)}


@tool
def countdown(n: int) -> Iterator[int]:
    """A generator is a stream: each value is seen before the next is made."""
    yield from range(n, 0, -1)


@tool
async def receipts(first: int, count: int) -> AsyncIterator[str]:
    """An asynchronous generator is one too."""
    for number in range(first, first + count):
        await asyncio.sleep(0)
        yield f"receipt {number}"


@tool
def gil_is_on() -> bool:
    """Whether this worker's interpreter holds a global lock."""
    return getattr(sys, "_is_gil_enabled", lambda: True)()
