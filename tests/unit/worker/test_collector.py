"""Collections that find nothing are spared a loop, for a while and as long as nobody else sets their thresholds."""

from __future__ import annotations

import asyncio
import gc
import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from clutch._worker.profiles.collector import FACTOR, SPARED_SECONDS, VAIN_MIN, Sparing, spare

OWN = (900, 7, 3)
USUAL = (701, 9, 8)
RARE = (FACTOR * USUAL[0], 9, 8)


class Loop:
    """Keeps what it is to call later."""

    def __init__(self) -> None:
        self.later: list[tuple[float, Callable[..., object], tuple[Any, ...]]] = []
        self.is_closed = False

    def call_soon_threadsafe(self, callback: Callable[..., object], *args: object) -> None:
        if self.is_closed:
            raise RuntimeError("Event loop is closed")
        callback(*args)

    def call_later(self, seconds: float, callback: Callable[..., object], *args: object) -> None:
        self.later.append((seconds, callback, args))

    def time_is_up(self) -> None:
        ((seconds, callback, args),) = self.later
        self.later.clear()
        assert seconds == SPARED_SECONDS
        callback(*args)


@pytest.fixture
def loop() -> Iterator[Loop]:
    """The thresholds are the usual ones, and nothing is collected but by the test."""
    before, watching = gc.get_threshold(), list(gc.callbacks)
    gc.disable()
    gc.set_threshold(*USUAL)
    yield Loop()
    gc.callbacks[:] = watching
    gc.set_threshold(*before)
    gc.enable()


def watched(loop: Any) -> Callable[[int], tuple[int, int, int]]:
    """Returns what ends a collection that has found so many, and gives the thresholds after it."""
    watch = spare(loop, USUAL)
    assert watch in gc.callbacks

    def ended(found: int, uncollectable: int = 0) -> tuple[int, int, int]:
        info = {"generation": 0, "collected": found, "uncollectable": uncollectable}
        watch("start", {**info, "collected": 0})
        watch("stop", info)
        return gc.get_threshold()

    return ended


def test_collections_are_spared_after_several_that_found_nothing(loop: Loop) -> None:
    ended = watched(loop)
    assert [ended(0) for _ in range(VAIN_MIN)] == [USUAL] * (VAIN_MIN - 1) + [RARE]
    assert ended(0) == RARE
    assert len(loop.later) == 1


def test_when_time_is_up_one_has_to_find_nothing_again(loop: Loop) -> None:
    ended = watched(loop)
    for _ in range(VAIN_MIN):
        ended(0)
    loop.time_is_up()
    assert gc.get_threshold() == USUAL
    assert ended(0) == RARE
    loop.time_is_up()
    assert ended(1) == USUAL
    assert [ended(0) for _ in range(VAIN_MIN)][-2:] == [USUAL, RARE]


@pytest.mark.parametrize("found", [(1, 0), (0, 1)], ids=["garbage", "uncollectable"])
def test_one_that_finds_something_ends_it_at_once(loop: Loop, found: tuple[int, int]) -> None:
    ended = watched(loop)
    for _ in range(VAIN_MIN):
        ended(0)
    assert ended(*found) == USUAL
    loop.time_is_up()
    assert gc.get_threshold() == USUAL


@pytest.mark.parametrize("at", [0, VAIN_MIN], ids=["before", "while some are spared"])
def test_who_sets_other_thresholds_has_them(loop: Loop, at: int) -> None:
    ended = watched(loop)
    for _ in range(at):
        ended(0)
    gc.set_threshold(*OWN)
    assert {ended(0) for _ in range(3 * VAIN_MIN)} == {OWN}
    assert ended(1) == OWN
    for _, callback, args in loop.later:
        callback(*args)
    assert gc.get_threshold() == OWN


def test_without_a_loop_that_keeps_the_time_none_are_spared(loop: Loop) -> None:
    ended = watched(loop)
    loop.is_closed = True
    assert {ended(0) for _ in range(3 * VAIN_MIN)} == {USUAL}


@pytest.mark.parametrize("seed", range(20))
def test_none_is_spared_soon_after_one_that_found_something(seed: int) -> None:
    dice, sparing = random.Random(seed), Sparing()
    found = [dice.choice((0, 0, 0, 0, 0, 0, 0, 0, 0, dice.randrange(1, 9))) for _ in range(1000)]
    for nr, one in enumerate(found):
        last = found[max(0, nr + 1 - VAIN_MIN) : nr + 1]
        assert sparing.ended(one) == (len(last) == VAIN_MIN and not any(last))


def test_a_real_loop_keeps_the_time(loop: Loop) -> None:
    async def main() -> None:
        ended = watched(asyncio.get_running_loop())
        for _ in range(VAIN_MIN):
            ended(0)
        assert gc.get_threshold() == RARE
        while gc.get_threshold() == RARE:
            await asyncio.sleep(SPARED_SECONDS / 10)
        assert gc.get_threshold() == USUAL

    asyncio.run(main())
