"""What plain pickle refuses and workers can have all the same: code, memoryviews, named locks. Imports cloudpickle."""

from __future__ import annotations

import io
import pickle
import sys
from typing import Any

import cloudpickle


class Pickler(cloudpickle.Pickler):
    """Code by value; a memoryview as one; a lock of multiprocessing by its name, where it has one."""

    classes_by_name = False
    """Workers load this program's `__main__`: an instance of its classes is to be one there."""

    def reducer_override(self, obj: Any) -> Any:
        if self.classes_by_name and is_class_of_main(obj):
            return NotImplemented
        if type(obj) is memoryview:
            return reduce_view(obj)
        if type(obj) is io.TextIOWrapper and obj not in (sys.stdout, sys.stderr):
            return obj.__reduce_ex__(self.proto)  # refuses; cloudpickle would send its text as a StringIO
        if has_name(obj):
            return reduce_lock(obj)
        return super().reducer_override(obj)


def is_class_of_main(value: Any) -> bool:
    """A class that plain pickle would find there."""
    if not isinstance(value, type) or value.__module__ != "__main__":
        return False
    found: Any = sys.modules.get("__main__")
    for name in value.__qualname__.split("."):
        found = getattr(found, name, None)
    return found is value


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
