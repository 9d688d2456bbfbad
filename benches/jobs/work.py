"""The jobs: what does nothing, and what sleeps. The lab marks when each began and ended."""

from __future__ import annotations

import asyncio
import time


def nothing() -> None: ...


def nap(seconds: float = 0.0) -> None:
    time.sleep(seconds)


async def nap_async(seconds: float = 0.0) -> None:
    await asyncio.sleep(seconds)
