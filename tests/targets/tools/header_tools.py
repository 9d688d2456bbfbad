"""Tools of every form that tell which headers came with their call; the target of test_call_headers.py."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator

import clutch
from clutch import tool


def heard() -> dict[str, str]:
    return dict(clutch.call_headers())


@tool
def plain() -> dict[str, str]:
    return heard()


@tool(serial=True)
def serial() -> dict[str, str]:
    return heard()


@tool(main_thread=True)
def in_main_thread() -> dict[str, str]:
    return heard()


@tool
async def coroutine() -> dict[str, str]:
    await asyncio.sleep(0)
    return heard()


@tool
async def of_a_thread() -> dict[str, str]:
    return await asyncio.to_thread(heard)


@tool
def stream() -> Iterator[dict[str, str]]:
    yield heard()
    yield heard()


@tool
async def async_stream() -> AsyncIterator[dict[str, str]]:
    yield heard()
    await asyncio.sleep(0)
    yield heard()
