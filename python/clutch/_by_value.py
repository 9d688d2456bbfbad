"""What plain pickle refuses and workers can have all the same: code, memoryviews, named locks. Imports cloudpickle."""

from __future__ import annotations

import pickle
import sys
from typing import Any

import cloudpickle


class Pickler(cloudpickle.Pickler):
    """Code by value; a memoryview as one; a lock of multiprocessing by its name, where it has one."""

    def reducer_override(self, obj: Any) -> Any:
        if type(obj) is memoryview:
            return reduce_view(obj)
        if has_name(obj):
            return reduce_lock(obj)
        return super().reducer_override(obj)


def reduce_view(view: memoryview) -> tuple[Any, ...]:
    content = pickle.PickleBuffer(view) if view.c_contiguous else view.tobytes()
    # What `memoryview.cast` cannot make is a view of bytes over there.
    can_cast = view.nbytes and view.ndim and len(view.format) == 1
    return (restore_view, (content, view.format, view.shape)) if can_cast else (memoryview, (content,))


def restore_view(content: Any, item: Any, shape: tuple[int, ...]) -> memoryview:
    flat = memoryview(content).cast("B")
    return flat if item == "B" and len(shape) == 1 else flat.cast(item, shape)


def has_name(value: Any) -> bool:
    """A lock or semaphore that others can open. One of the fork context has no name once it is made."""
    synchronize = sys.modules.get("multiprocessing.synchronize")
    return (
        synchronize is not None
        and isinstance(value, synchronize.SemLock)
        and getattr(value._semlock, "name", None) is not None
    )


def reduce_lock(lock: Any) -> tuple[Any, ...]:
    """As it is sent to a child of the spawn context."""
    opened = lock._semlock
    state = (opened.handle, opened.kind, opened.maxvalue, opened.name)
    return new_lock, (type(lock),), state


def new_lock(kind: type[Any]) -> Any:
    """Its state opens it."""
    return object.__new__(kind)
