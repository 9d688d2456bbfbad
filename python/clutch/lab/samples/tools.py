"""Functions: an echo, a product of matrices, a mix of both, a wait, and a model that a package ships."""

from __future__ import annotations

import functools
import itertools
import time
from typing import Any

from clutch import tool

MESSAGE = {"message": "hello"}
ECHOES = 7
"""Of ten calls of the mix; the others are products."""
COUNT = itertools.count()


@tool
def echo(message: Any = MESSAGE) -> Any:
    return message


@tool
def product(size: int = 1000) -> float:
    """Of two square matrices of this size."""
    one, other = matrices(size)
    return float((one @ other)[0, 0])


@functools.cache
def matrices(size: int) -> tuple[Any, Any]:
    import numpy

    draw = numpy.random.default_rng(1)
    return draw.random((size, size)), draw.random((size, size))


@tool
def mixed(size: int = 1000) -> Any:
    """Seven of ten are echoes, the others products."""
    return echo() if next(COUNT) % 10 < ECHOES else product(size)


@tool
def wait(seconds: float = 0.5) -> None:
    time.sleep(seconds)


@tool
def infer(size: int = 4096) -> str:
    """The kind of some bytes, by the model that the package magika ships."""
    return str(model().identify_bytes(b"def f(x):\n    return x\n" * (size // 22)).output.label)


@functools.cache
def model() -> Any:
    import magika  # pyright: ignore[reportMissingImports] - only where the user has installed it

    return magika.Magika()
