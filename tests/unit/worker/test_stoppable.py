"""How a coroutine is stopped that has an event loop of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest

from clutch import _core
from clutch._worker.profiles.base import Stoppable


class Slots:
    """A worker's, of one thread."""

    is_in_work = False

    def is_inside(self) -> bool:
        return self.is_in_work


class QuickLoop(asyncio.SelectorEventLoop):
    """Hears what other threads say while they say it."""

    def call_soon_threadsafe(self, callback: Callable[..., object], *_: object, **__: Any) -> asyncio.Handle:
        callback()
        return self.call_soon(lambda: None)


def test_a_cancel_counts_that_the_loop_hears_at_once() -> None:
    slots, loop = Slots(), QuickLoop()
    held_up: list[bool] = []

    async def compute_then_wait() -> None:
        stoppable.stop()
        slots.is_in_work = True
        held_up.append(stoppable.stop())
        loop.call_soon(lambda: held_up.append(stoppable.stop()))
        await asyncio.sleep(300)

    stoppable = Stoppable(compute_then_wait(), loop, cast(_core.Slots, slots))
    with pytest.raises(asyncio.CancelledError):
        stoppable.run()
    assert held_up == [True, False], "an exception while it computes, a cancel while it waits"
    loop.close()
