"""Collections that find nothing are put off, for a while and as long as nobody else sets their thresholds."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from clutch import _core

OWN = (900, 7, 3)
USUAL = (701, 9, 8)
PUT_OFF = (701, 10, 8)
VAIN_MIN = 8


class Loop:
    """Keeps what it is to call later."""

    def __init__(self) -> None:
        self.later: list[Callable[..., object]] = []
        self.is_closed = False

    def call_soon_threadsafe(self, callback: Callable[..., object], *args: object) -> None:
        if self.is_closed:
            raise RuntimeError("Event loop is closed")
        callback(*args)

    def call_later(self, seconds: float, callback: Callable[..., object]) -> None:
        assert seconds == 0.1
        self.later.append(callback)

    def time_is_up(self) -> None:
        (callback,) = self.later
        self.later.clear()
        callback()


class Watched:
    def __init__(self, loop: Any) -> None:
        self.collector = _core.Collector(loop, USUAL)

    def ended(self, found: int = 0, uncollectable: int = 0, generation: int = 1) -> tuple[int, ...]:
        """A collection ends and has found so many. Returns the thresholds after it."""
        info = {"generation": generation, "collected": found, "uncollectable": uncollectable}
        self.collector("start", {**info, "collected": 0})
        self.collector("stop", info)
        return gc.get_threshold()

    def in_vain(self) -> None:
        for _ in range(VAIN_MIN):
            self.ended()


@pytest.fixture
def loop() -> Iterator[Loop]:
    """The thresholds are the usual ones, and nothing is collected but by the test."""
    before = gc.get_threshold()
    gc.disable()
    gc.set_threshold(*USUAL)
    yield Loop()
    gc.set_threshold(*before)
    gc.enable()


@pytest.fixture
def watched(loop: Loop) -> Iterator[Watched]:
    watched = Watched(loop)
    yield watched
    watched.collector.end()


def test_they_are_put_off_after_several_that_found_nothing(watched: Watched, loop: Loop) -> None:
    assert [watched.ended() for _ in range(VAIN_MIN)] == [USUAL] * (VAIN_MIN - 1) + [PUT_OFF]
    assert watched.ended() == PUT_OFF
    assert len(loop.later) == 1


def test_an_older_generation_has_been_looked_at(watched: Watched) -> None:
    assert {watched.ended(generation=0) for _ in range(3 * VAIN_MIN)} == {USUAL}
    assert watched.ended(generation=1) == PUT_OFF
    assert watched.ended(1, generation=2) == USUAL
    assert {watched.ended(generation=1) for _ in range(3 * VAIN_MIN)} == {USUAL}
    assert watched.ended(generation=2) == PUT_OFF


def test_when_time_is_up_one_has_to_find_nothing_again(watched: Watched, loop: Loop) -> None:
    watched.in_vain()
    loop.time_is_up()
    assert gc.get_threshold() == USUAL
    assert watched.ended() == PUT_OFF
    loop.time_is_up()
    assert watched.ended(1) == USUAL
    assert [watched.ended() for _ in range(VAIN_MIN)][-2:] == [USUAL, PUT_OFF]


@pytest.mark.parametrize("found", [(1, 0), (0, 1)], ids=["garbage", "uncollectable"])
def test_one_that_finds_something_ends_it_at_once(watched: Watched, loop: Loop, found: tuple[int, int]) -> None:
    watched.in_vain()
    assert watched.ended(*found) == USUAL
    loop.time_is_up()
    assert gc.get_threshold() == USUAL


@pytest.mark.parametrize("at", [0, VAIN_MIN], ids=["before", "meanwhile"])
@pytest.mark.parametrize("own", [OWN, (0, 9, 8), (-1, -2, -3), (2**31 - 1, 0, 0)])
def test_who_sets_other_thresholds_has_them(watched: Watched, loop: Loop, at: int, own: tuple[int, int, int]) -> None:
    for _ in range(at):
        watched.ended()
    gc.set_threshold(*own)
    set_so = gc.get_threshold()
    assert {watched.ended() for _ in range(3 * VAIN_MIN)} == {set_so}
    assert watched.ended(1) == set_so
    for callback in loop.later:
        callback()
    assert gc.get_threshold() == set_so


@pytest.mark.parametrize("found", [0, 1])
def test_thresholds_that_were_read_meanwhile_and_are_set_again_do_not_stay(
    watched: Watched, loop: Loop, found: int
) -> None:
    watched.in_vain()
    saved = gc.get_threshold()
    gc.set_threshold(0)
    loop.time_is_up()
    gc.set_threshold(*saved)
    watched.ended(found)
    for callback in loop.later:
        callback()
    assert gc.get_threshold() == USUAL


def test_without_a_loop_that_keeps_the_time_none_are_put_off(watched: Watched, loop: Loop) -> None:
    loop.is_closed = True
    assert {watched.ended() for _ in range(3 * VAIN_MIN)} == {USUAL}


def test_a_real_loop_keeps_the_time(loop: Loop) -> None:
    async def main() -> None:
        Watched(asyncio.get_running_loop()).in_vain()
        assert gc.get_threshold() == PUT_OFF
        while gc.get_threshold() != USUAL:
            await asyncio.sleep(0.01)

    asyncio.run(main())
