"""Pickling code by value: cloudpickle, imported only when something needs it."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any


def dumps_by_value(value: Any, buffer_callback: Callable[[Any], Any] | None) -> bytes:
    """Pickles with lambdas, closures and functions of `__main__` by value. Raises what pickle raises."""
    import cloudpickle

    with io.BytesIO() as file:
        cloudpickle.Pickler(file, protocol=5, buffer_callback=buffer_callback).dump(value)
        return file.getvalue()
