"""Programs that are wrong, for mypy and pyright: errors are in the lines that say so, and in no other. Never run."""

from __future__ import annotations

from collections.abc import Iterator

import clutch
from clutch import Pool


def words(count: int, word: str = "a") -> list[str]:
    return [word] * count


def steps(count: int) -> Iterator[float]:
    yield count / 2


with Pool(2) as pool:
    pool.call(words, "one")  # wrong
    pool.call(words)  # wrong
    pool.submit(words, 1, words="b")  # wrong
    pool.submit(3)  # wrong
    pool.map(words, ["one"])  # wrong
    pool.map(words, [1], timeout="soon")  # wrong
    pool.map(words, ["one"], return_exceptions=True)  # wrong
    next(pool.map(words, [1], return_exceptions=True)).append("b")  # wrong
    pool.stream(words, "one")  # wrong
    pool.stream(steps, "one")  # wrong
    pool.options(deadlin=1)  # wrong
    pool.options(deadline=1).call(words, "one")  # wrong
    pool.insights().run = 0.5  # wrong
    print(pool.insights().speed)  # wrong
    number: int = pool.call(words, 1)  # wrong
    other: clutch.Future[int] = pool.submit(words, 1)  # wrong


async def main() -> None:
    (await Pool().submit(words, 1)).bit_length()  # wrong
    async for step in Pool().stream(steps, 1):
        step.upper()  # wrong


Pool(profile="proces")  # wrong
Pool(deadlin="3s")  # wrong
Pool(recycle={"cals": 3})  # wrong
Pool(workers={"min": 1})  # wrong
