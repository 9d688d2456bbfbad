"""Failures 71 and 58: a worker that dies takes along what it was running, and no value of any size makes one die."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import dying_tools
import pytest

from clutch import Pool, WorkerLost
from support.shapes import Shape

pytestmark = pytest.mark.timeout(180)


def one_at_a_time(make_pool: Callable[..., Pool], shape: Shape) -> Pool:
    """Where calls run one after the other: what another slot runs at the same time would rightly be lost with them."""
    sizes = {"workers": 1} | ({"threads": 1} if shape.name == "thread" else {})
    tasks = {"tasks": 1} if shape.name in ("async", "greenlet") else {}
    return make_pool("dying_tools", **sizes, **tasks)


def outcomes(items: Iterator[Any]) -> list[Any]:
    """Values, and the exceptions in their places."""
    found: list[Any] = []
    while True:
        try:
            found.append(next(items))
        except StopIteration:
            return found
        except Exception as error:
            found.append(error)


@pytest.mark.per_profile
@pytest.mark.parametrize("function", [dying_tools.die_on, dying_tools.die_on_async], ids=["def", "async def"])
def test_failure_71_short_calls(make_pool: Callable[..., Pool], shape: Shape, function: Callable[..., Any]) -> None:
    pool = one_at_a_time(make_pool, shape)
    pool.submit(function, 0, -1).result(60)  # it is known to be short
    futures = [pool.submit(function, value, 50) for value in range(200)]
    lost = [at for at, future in enumerate(futures) if isinstance(future.exception(60), WorkerLost)]
    assert lost == [50]
    assert [future.result(60) for at, future in enumerate(futures) if at != 50] == [at for at in range(200) if at != 50]


@pytest.mark.per_profile
@pytest.mark.parametrize("function", [dying_tools.die_on_item, dying_tools.die_on_item_async], ids=["def", "async def"])
@pytest.mark.parametrize("chunksize", [None, 40, 1000])
def test_failure_71_a_batch_of_a_map(
    make_pool: Callable[..., Pool], shape: Shape, function: Callable[..., Any], chunksize: int | None
) -> None:
    pool = one_at_a_time(make_pool, shape)
    found = outcomes(pool.map(function, range(200), chunksize=chunksize))
    assert isinstance(found[50], WorkerLost) and found[50].exit_code == 7
    assert [value for at, value in enumerate(found) if at != 50] == [at for at in range(200) if at != 50]


@pytest.mark.per_profile
def test_failure_71_large_results(make_pool: Callable[..., Pool], shape: Shape) -> None:
    pool = one_at_a_time(make_pool, shape)
    futures = [pool.submit(dying_tools.large_or_die, value) for value in range(40)]
    lost = [at for at, future in enumerate(futures) if isinstance(future.exception(60), WorkerLost)]
    assert lost == [20]
    assert all(future.result(60)[0] == at for at, future in enumerate(futures) if at != 20)
    found = outcomes(pool.map(dying_tools.large_or_die, range(40), chunksize=40))
    assert [at for at, value in enumerate(found) if isinstance(value, WorkerLost)] == [20]


def sizes() -> list[int]:
    """Of what goes into a frame, and of a frame."""
    limits = [dying_tools.INLINE_BYTES_MAX, dying_tools.FRAME_BYTES_MAX]
    return [limit + more for limit in limits for more in (-4096, 4096)]


# Of a size, once: frames and regions are read and written by the same code whatever the profile.


@pytest.mark.parametrize("kind", dying_tools.KINDS)
def test_failure_58_values_around_the_limits(make_pool: Callable[..., Pool], kind: str) -> None:
    pool = make_pool("dying_tools", workers=1)
    for size in sizes():
        value = dying_tools.make(kind, size)
        assert pool.submit(dying_tools.is_made, value, kind, size).result(60), f"argument of {size}"
        assert pool.submit(dying_tools.make, kind, size).result(60) == value, f"result of {size}"
        assert list(pool.stream(dying_tools.stream, kind, size)) == [value, 1], f"stream of {size}"
        assert list(pool.map(dying_tools.make, [kind], [size])) == [value], f"item of {size}"
    assert pool.stats()["restarts"] == 0


def test_failure_58_names_around_the_limits(make_pool: Callable[..., Pool]) -> None:
    pool = make_pool("dying_tools", workers=1)
    for size in sizes():
        error = pool.submit("x" * size).exception(60)
        assert type(error).__name__ in ("NoSuchTool", "BadArguments"), error
    assert pool.submit(dying_tools.die_on, 1, 2).result(60) == 1
    assert pool.stats()["restarts"] == 0


def test_failure_58_exceptions_around_the_limits(make_pool: Callable[..., Pool]) -> None:
    pool = make_pool("dying_tools", workers=1)
    for size in sizes():
        error = pool.submit(fail_with, size).exception(60)
        assert error is not None and not isinstance(error, WorkerLost), size
    assert pool.stats()["restarts"] == 0


def fail_with(size: int) -> None:
    raise ValueError("x" * size, sys.maxsize)
