"""Pools of every profile.

A test that asks for `shape` (or `pool`, `make_pool`) runs once, in the usual shape: a pool of processes, of threads on
a free-threaded Python, or what `usual_shape` of its file names. One that is marked `per_profile` is part of the
contract that each profile keeps, and runs over all of them.

`pool` is shared by the tests of a file, so they leave it as it was; `make_pool` makes one for a test that does not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from clutch import Pool
from support.shapes import SHAPES_HERE, USUAL, Shape

# How workers are started concerns their lives, and nothing of what they run.
STARTS = Path(__file__).parent / "workers"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    is_chosen = any("shape" in mark.args[0] for mark in metafunc.definition.iter_markers("parametrize"))
    if "shape" in metafunc.fixturenames and not is_chosen:
        shapes = shapes_of(metafunc.definition)
        metafunc.parametrize("shape", shapes, ids=lambda shape: shape.name, indirect=True, scope="module")


def shapes_of(test: pytest.Item) -> list[Shape]:
    usual = test.get_closest_marker("usual_shape")
    if test.get_closest_marker("per_profile") is None:
        name = usual.args[0] if usual else USUAL
        return [shape for shape in SHAPES_HERE if shape.name == name]
    return [shape for shape in SHAPES_HERE if not shape.is_spawned or STARTS in test.path.parents]


@pytest.fixture(scope="module")
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
