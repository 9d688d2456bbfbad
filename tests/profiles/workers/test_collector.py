"""Garbage collections of a worker with an event loop, which is spared those that find nothing."""

from __future__ import annotations

import asyncio
import gc
import multiprocessing
from collections.abc import Callable

import pytest

from clutch import Pool

pytestmark = pytest.mark.usual_shape("async")

FACTOR = 16
USUAL = gc.get_threshold()
"""Here. A worker that imports this may have others."""
OWN = (1234, 5, 6)
WAVES = 100_000


async def thresholds() -> tuple[int, ...]:
    return gc.get_threshold()


async def wave(size: int) -> tuple[int, ...]:
    """So many objects, all alive, in which collections find nothing. Returns the thresholds then."""
    kept = []
    for _ in range(size):
        kept.append([])  # noqa: PERF401 (a comprehension lets no collection begin on some interpreters)
    return gc.get_threshold()


async def spared(usual: tuple[int, ...]) -> tuple[int, ...]:
    for _ in range(WAVES):
        if (now := await wave(20_000))[0] > usual[0]:
            return now
    raise AssertionError("never")


async def usual_again(usual: tuple[int, ...]) -> None:
    while gc.get_threshold() != usual:
        await asyncio.sleep(0.01)


async def litter(usual: tuple[int, ...]) -> None:
    """Makes garbage until it has been found, without letting the loop see to its timers."""
    while gc.get_threshold() != usual:
        circle: list[object] = []
        circle.append(circle)


async def of_child(usual: tuple[int, ...]) -> tuple[int, ...]:
    """The thresholds of a process that is forked while collections are spared."""
    await spared(usual)
    context = multiprocessing.get_context("fork")
    receives, sends = context.Pipe(duplex=False)
    child = context.Process(target=lambda: sends.send((gc.get_threshold(), len(gc.callbacks))))
    child.start()
    found = receives.recv()
    child.join()
    return found


async def set_own() -> None:
    gc.set_threshold(*OWN)


def test_collections_that_find_nothing_are_spared_for_a_while(pool: Pool) -> None:
    assert pool.submit(spared, USUAL).result(60) == (FACTOR * USUAL[0], *USUAL[1:])
    pool.submit(usual_again, USUAL).result(60)


def test_garbage_that_is_found_ends_it(pool: Pool) -> None:
    pool.submit(spared, USUAL).result(60)
    pool.submit(litter, USUAL).result(60)


def test_a_forked_process_has_the_usual_thresholds(pool: Pool) -> None:
    assert pool.submit(of_child, USUAL).result(60) == (USUAL, 0)


def test_an_app_keeps_thresholds_of_its_own(make_pool: Callable[..., Pool]) -> None:
    pool = make_pool()
    pool.submit(set_own).result(30)
    assert pool.submit(wave, 400_000).result(60) == OWN
    assert pool.submit(thresholds).result(30) == OWN
