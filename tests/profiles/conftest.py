"""Pools of every profile: each test of this folder runs over all of them.

`pool` is shared by the tests of a file, so they leave it as it was; `make_pool` makes one for a test that does not.
"""

from __future__ import annotations

import importlib.util
import sysconfig
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import pytest

from clutch import Pool


@dataclass(frozen=True)
class Shape:
    """How the pools of one kind are made. Small, so that tests can fill them."""

    name: str
    options: dict[str, Any] = field(hash=False)
    slots_of_worker: int = 1

    @property
    def slots(self) -> int:
        return self.options["workers"] * self.slots_of_worker


SHAPES = [
    Shape("process", {"profile": "process", "workers": 2}),
    Shape("thread", {"profile": "thread", "workers": 1, "threads": 3}, 3),
    Shape("async", {"profile": "async", "workers": 1, "tasks": 3}, 3),
    Shape("greenlet", {"profile": "greenlet", "workers": 1, "tasks": 3}, 3),
    Shape("spawn", {"profile": "process", "workers": 2, "start": "spawn"}),
]


def reason_to_skip(shape: Shape) -> str | None:
    if shape.name != "greenlet":
        return None
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        return "gevent does not build on free-threaded Python"
    if importlib.util.find_spec("gevent") is None:
        return "gevent is not installed: pip install 'clutch[greenlet]'"
    return None


@pytest.fixture(scope="module", params=SHAPES, ids=lambda shape: shape.name)
def shape(request: pytest.FixtureRequest) -> Shape:
    reason = reason_to_skip(request.param)
    if reason:
        pytest.skip(reason)
    return request.param


@pytest.fixture(scope="module")
def pool(shape: Shape) -> Iterator[Pool]:
    pool = Pool("target", name=shape.name, **shape.options)
    pool.wait_ready(timeout=60)
    yield pool
    end(pool)


@pytest.fixture
def make_pool(shape: Shape) -> Iterator[Callable[..., Pool]]:
    """A pool of this profile with other options; it is ended with the test, and whatever runs in it with it."""
    with ExitStack() as stack:

        def make(target: str | None = "target", **options: Any) -> Pool:
            made = Pool(target, **{"name": "made", **shape.options, **options})
            stack.callback(end, made)
            return made

        yield make


def end(pool: Pool) -> None:
    pool.terminate_workers()
    pool.shutdown()
