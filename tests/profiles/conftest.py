"""Pools of every profile: each test of this folder runs over all of them.

`pool` is shared by the tests of a file, so they leave it as it was; `make_pool` makes one for a test that does not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from clutch import Pool
from support.shapes import SHAPES_HERE, Shape


@pytest.fixture(scope="module", params=SHAPES_HERE, ids=lambda shape: shape.name)
def shape(request: pytest.FixtureRequest) -> Shape:
    return request.param


@pytest.fixture(scope="module")
def pool(shape: Shape) -> Iterator[Pool]:
    pool = Pool("profile_tools", name=shape.name, **shape.options)
    pool.wait_ready(timeout=60)
    yield pool
    end(pool)


@pytest.fixture
def make_pool(shape: Shape) -> Iterator[Callable[..., Pool]]:
    """A pool of this profile with other options; it is ended with the test, and whatever runs in it with it."""
    with ExitStack() as stack:

        def make(target: str | None = "profile_tools", **options: Any) -> Pool:
            made = Pool(target, **{"name": "made", **shape.options, **options})
            stack.callback(end, made)
            return made

        yield make


def end(pool: Pool) -> None:
    pool.terminate_workers()
    pool.shutdown()
