"""Programs that are right, for mypy and pyright: what each call's type is. Never run."""

from __future__ import annotations

import concurrent.futures
from collections.abc import AsyncIterator, Iterator
from typing import Any, assert_type

import clutch
from clutch import Pool, tool
from clutch.testing import InlinePool


def words(count: int, word: str = "a") -> list[str]:
    return [word] * count


async def later(count: int) -> bytes:
    return bytes(count)


def steps(count: int) -> Iterator[float]:
    yield count / 2


async def steps_later(count: int) -> AsyncIterator[float]:
    yield count / 2


@tool
def marked(count: int) -> str:
    return str(count)


class Model:
    def predict(self, features: list[float]) -> float:
        return sum(features)


with Pool(2, deadline="30s", recycle={"memory": "1GB", "calls": 100}, queue={"overflow": "block"}) as pool:
    assert_type(pool.call(words, 1), list[str])
    assert_type(pool.call(words, 1, word="b"), list[str])
    assert_type(pool.call(later, 1), bytes)
    assert_type(pool.call(marked, 1), str)
    assert_type(pool.call(Model().predict, [1.0]), float)
    assert_type(pool.call(len, "four"), int)
    assert_type(pool.call("shop.tools.price", 1, currency="EUR"), Any)
    assert_type(pool.submit(words, 1), clutch.Future[list[str]])
    assert_type(pool.submit(later, 1).result(timeout=1), bytes)
    assert_type(pool.submit("price"), clutch.Future[Any])
    assert_type(pool.map(words, [1, 2]), Iterator[list[str]])
    assert_type(pool.map(words, [1], ["b"]), Iterator[list[str]])
    assert_type(pool.map(later, range(3), chunksize=2), Iterator[bytes])
    assert_type(pool.map(words, [1], ordered=False, progress=True), Iterator[list[str]])
    assert_type(pool.map("price", [1], progress=print), Iterator[Any])
    assert_type(pool.stream(steps, 3), clutch.Stream[float])
    assert_type(pool.stream(steps_later, 3), clutch.Stream[float])
    assert_type(next(pool.stream(steps, 3)), float)
    assert_type(pool.options(deadline="5s", retry=2).submit(words, 1), clutch.Future[list[str]])
    assert_type(pool.options(priority=3).map(words, [1]), Iterator[list[str]])

    assert_type(pool.insights(), clutch.Insights)
    assert_type(pool.insights().slowest[0].what, str)
    assert_type(pool.insights().run, float)

    standard: concurrent.futures.Executor = pool
    first: concurrent.futures.Future[list[str]] = pool.submit(words, 1)
    for future in concurrent.futures.as_completed([pool.submit(later, 1)]):
        assert_type(future.result(), bytes)


async def main() -> None:
    async with Pool("shop.tools", workers={"min": 1, "max": 4}, profile="async") as pool:
        assert_type(await pool.submit(words, 1), list[str])
        assert_type(await pool.submit(later, 1), bytes)
        async for value in pool.stream(steps, 3):
            assert_type(value, float)


def test() -> None:
    with InlinePool() as pool:
        assert_type(pool.call(words, 1), list[str])


def kept_going(pool: Pool) -> None:
    mapped = pool.map(words, [1], return_exceptions=True)
    assert_type(mapped, Iterator[list[str] | BaseException])
    assert_type(pool.map(later, range(3), chunksize=2, return_exceptions=True), Iterator[bytes | BaseException])
    assert_type(pool.map(words, [1], ["b"], ordered=False, return_exceptions=True), Iterator[list[str] | BaseException])
    assert_type(pool.map(words, [1], return_exceptions=False), Iterator[list[str]])
    assert_type(pool.options(priority=3).map(words, [1], return_exceptions=True), Iterator[list[str] | BaseException])
    assert_type(pool.map("price", [1], return_exceptions=True), Iterator[Any])
    for result in mapped:
        if isinstance(result, BaseException):
            print(result.__notes__)
        else:
            assert_type(result, list[str])
