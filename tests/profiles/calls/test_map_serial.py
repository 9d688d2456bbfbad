"""`Pool.map` over tools that are serial or bound to the main thread: as over any other, coroutines included."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import serial_tools

from clutch import Pool
from support.shapes import Shape

pytestmark = pytest.mark.per_profile

TOOLS = ["serial", "serial_async", "main", "main_async"]


@pytest.mark.parametrize("by", [str, lambda name: getattr(serial_tools, name)], ids=["name", "function"])
@pytest.mark.parametrize("name", TOOLS)
def test_in_order(make_pool: Callable[..., Pool], name: str, by: Callable[[str], Any]) -> None:
    pool = make_pool("serial_tools")
    assert list(pool.map(by(name), range(50), chunksize=10)) == list(range(50))
    assert pool.call(by(name), 1) == 1


def test_an_item_that_fails_fails_alone(make_pool: Callable[..., Pool]) -> None:
    results = make_pool("serial_tools").map("serial_fails_on", range(10), itertools.repeat(5), chunksize=10)
    assert [next(results) for _ in range(5)] == [0, 1, 2, 3, 4]
    with pytest.raises(ArithmeticError):
        next(results)
    assert list(results) == [6, 7, 8, 9]


def test_the_main_thread_has_one_loop(make_pool: Callable[..., Pool], shape: Shape) -> None:
    pool = make_pool("serial_tools", workers=1)
    assert len(set(pool.map("loop_of_main", range(40), chunksize=1))) == 1


@pytest.mark.parametrize("name", ["main_stream", "main_stream_async"])
def test_a_stream_of_the_main_thread(make_pool: Callable[..., Pool], name: str) -> None:
    assert list(make_pool("serial_tools").stream(name, 20)) == list(range(20))
