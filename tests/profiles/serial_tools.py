"""Tools with conditions, of every form: serial, or bound to the main thread."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Iterator

import clutch


def is_main() -> bool:
    return threading.get_native_id() == os.getpid()


@clutch.tool(serial=True)
def serial(number: int) -> int:
    return number


@clutch.tool(serial=True)
async def serial_async(number: int) -> int:
    await asyncio.sleep(0)
    return number


@clutch.tool(main_thread=True)
def main(number: int) -> int:
    assert is_main()
    return number


@clutch.tool(main_thread=True)
async def main_async(number: int) -> int:
    await asyncio.sleep(0)
    return number


@clutch.tool(serial=True)
async def serial_fails_on(number: int, odd_one: int) -> int:
    await asyncio.sleep(0)
    if number == odd_one:
        raise ArithmeticError(number)
    return number


@clutch.tool(main_thread=True)
async def loop_of_main(number: int) -> int:
    """Which loop runs it."""
    return id(asyncio.get_running_loop())


@clutch.tool(main_thread=True)
def main_stream(count: int) -> Iterator[int]:
    assert is_main()
    yield from range(count)


@clutch.tool(main_thread=True)
async def main_stream_async(count: int) -> AsyncIterator[int]:
    for number in range(count):
        await asyncio.sleep(0)
        yield number
