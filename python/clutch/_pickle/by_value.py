"""Pickles values that plain pickle refuses: code, memoryviews, named locks. Imports cloudpickle."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import io
import pickle
import sys
import threading
import types
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import MAGIC_NUMBER
from typing import Any

import cloudpickle


class Pickler(cloudpickle.Pickler):
    """Code by value, a cached function without what it remembers; a memoryview as one; a lock of multiprocessing by its
    name, where it has one."""

    classes_by_name = False
    """True if workers load this program's `__main__`, so that instances of its classes have the same class there."""
    has_code = False
    """True if the pickle so far contains code, which other Python versions cannot read."""

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, type) and obj.__module__ == "__main__" and self.is_by_name(obj):
            return NotImplemented
        if isinstance(obj, functools._lru_cache_wrapper) and not self.is_by_name(obj):
            return restore_cached, (obj.__wrapped__, obj.cache_parameters()), attributes_of(obj)
        if isinstance(obj, types.CodeType):
            self.has_code = True
            parts: Any = self.dispatch_table[types.CodeType](obj)[1]
            # From 3.1.3 on cloudpickle leaves the file out, and with it the lines of tracebacks.
            parts = tuple(obj.co_filename if part == "<dynamic-code>" else part for part in parts)
            return restore_code, (MAGIC_NUMBER, sys.version.split()[0], parts)
        if type(obj) in REDUCERS:
            return REDUCERS[type(obj)](obj)
        if type(obj) is io.TextIOWrapper and obj not in (sys.stdout, sys.stderr):
            return obj.__reduce_ex__(self.proto)  # refuses; cloudpickle would send its text as a StringIO
        if has_name(obj):
            return reduce_lock(obj)
        return self._reduce_code(obj)

    def _reduce_code(self, obj: Any) -> Any:
        reduced: Any = super().reducer_override(obj)
        if reduced is NotImplemented or reduced[0].__module__ != cloudpickle.cloudpickle.__name__:
            return reduced
        self.has_code = True
        if isinstance(obj, types.FunctionType):
            return *reduced[:5], restore_function
        has_state = isinstance(obj, type) and len(reduced) > 2
        return reduce_class(obj, *reduced[:3]) if has_state else reduced

    def is_by_name(self, value: Any) -> bool:
        """Returns whether workers can import this class or function by its name."""
        module = getattr(value, "__module__", None)
        found: Any = sys.modules.get(module or "") if module != "__main__" or self.classes_by_name else None
        for name in getattr(value, "__qualname__", "").split("."):
            found = getattr(found, name, None)
        return found is value


own: weakref.WeakSet[type] = weakref.WeakSet()
"""Classes that were created in this process and sent by value."""
received: weakref.WeakSet[type] = weakref.WeakSet()
made_with: weakref.WeakKeyDictionary[type, set[str]] = weakref.WeakKeyDictionary()
"""Names that a class had before its first state came."""
restoring = threading.RLock()


def reduce_class(kind: type, make: Callable[..., type], arguments: tuple[Any, ...], state: tuple[Any, ...]) -> Any:
    """Makes the class with its slots: added later, they would be names without a place."""
    if kind not in received:
        own.add(kind)
    members = [name for name, value in vars(kind).items() if is_slot(kind, name, value)]
    content = {name: value for name, value in state[0].items() if name not in members}
    if make is cloudpickle.cloudpickle._make_skeleton_class and members:
        members += [name for name in ("__dict__", "__weakref__") if name in vars(kind)]
        *first, given, tracker, extra = arguments
        arguments = *first, {**given, "__slots__": tuple(members)}, tracker, extra
    return make, arguments, (content, *state[1:]), None, None, restore_class


def is_slot(kind: type, name: str, value: Any) -> bool:
    """Not where it is only another name of one."""
    return type(value) is types.MemberDescriptorType and (value.__objclass__, value.__name__) == (kind, name)


changes_of_classes = 0
"""Raised whenever a class of this process gets another state: what was read before may refer to it."""


def restore_class(kind: type, state: tuple[Any, ...]) -> None:
    """Restores a class, except where it was made: a copy that comes back does not change it."""
    global changes_of_classes
    if kind in own:
        return
    with restoring:
        changes_of_classes += 1
        received.add(kind)
        content = vars(kind).copy()  # which calls in other threads may change
        its_own = made_with.setdefault(kind, set(content))
        # What calls have set here goes with them; what its metaclass has made stays, such as the members of an enum.
        for name in set(content) - its_own - set(state[0]):
            if not name.startswith("__"):
                with contextlib.suppress(AttributeError):
                    delattr(kind, name)
        cloudpickle.cloudpickle._class_setstate(kind, state)


kept: dict[str, Any] = {}
"""Globals of a program without a file that the initializer has set or changed in this worker."""


def initialize(initializer: Callable[..., object], arguments: tuple[Any, ...]) -> None:
    """Calls it, and keeps what it makes of its globals: each function by value comes with a copy of the caller's."""
    found = globals_of(initializer)
    is_copy = found.get("__name__") == "__main__" and found is not vars(sys.modules["__main__"])
    before = {name: (value, digest_of(value)) for name, value in found.items()} if is_copy else {}
    initializer(*arguments)
    for name, value in list(found.items()) if is_copy else ():  # a thread of its own may go on to set some
        first, digest = before.get(name, (before, None))
        if value is not first or digest_of(value) != digest:
            kept[name] = value


def globals_of(called: Any) -> dict[str, Any]:
    """Returns the globals of a function, also of one wrapped by functools or called through an object."""
    if isinstance(called, functools.partial):
        return globals_of(called.func)
    if isinstance(called, functools._lru_cache_wrapper):
        return globals_of(called.__wrapped__)
    return getattr(called, "__globals__", None) or getattr(type(called).__call__, "__globals__", {})


@dataclass
class Sink:
    """The stream that a pickler writes to."""

    write: Callable[[bytes], object]


def digest_of(value: Any) -> bytes | None:
    """Returns the digest of the value's pickle, or None if it has none, as functions and modules."""
    digest = hashlib.blake2b()
    try:
        pickle.Pickler(Sink(digest.update), 5).dump(value)
    except Exception:
        return None
    return digest.digest()


def restore_function(function: types.FunctionType, state: tuple[Any, ...]) -> None:
    cloudpickle.cloudpickle._function_setstate(function, state)
    if function.__globals__.get("__name__") == "__main__":  # functools.wraps changes what it says of its module
        function.__globals__.update(kept)


def restore_cached(function: Any, parameters: dict[str, Any]) -> Any:
    return functools.lru_cache(**parameters)(function)


def attributes_of(function: Any) -> dict[str, Any] | None:
    """Attributes that the user has set on a cached function."""
    made = {"__wrapped__", "cache_parameters"}
    return {name: value for name, value in vars(function).items() if name not in made} or None


def restore_code(magic: bytes, version: str, parts: tuple[Any, ...]) -> types.CodeType:
    """Refuse code of another Python version: it would crash the process."""
    if magic != MAGIC_NUMBER:
        raise TypeError(
            f"it contains code of Python {version}, and this is {sys.version.split()[0]}: code cannot be sent between"
            " Python versions; put it into a module that both import"
        )
    return types.CodeType(*parts)


def reduce_view(view: memoryview) -> tuple[Any, ...]:
    content = pickle.PickleBuffer(view) if view.c_contiguous else view.tobytes()
    # What `memoryview.cast` cannot make is a view of bytes over there.
    can_cast = view.nbytes and view.ndim and len(view.format) == 1
    return (restore_view, (content, view.format, view.shape)) if can_cast else (memoryview, (content,))


def reduce_property(cached: functools.cached_property[Any]) -> tuple[Any, ...]:
    """Reduces a cached property, which has a lock in Python 3.11."""
    return functools.cached_property, (cached.func,), {"attrname": cached.attrname}


REDUCERS: dict[type, Callable[[Any], Any]] = {memoryview: reduce_view, functools.cached_property: reduce_property}


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
    """Reduces a lock to the state that a child of the spawn context gets."""
    opened = lock._semlock
    state = (opened.handle, opened.kind, opened.maxvalue, opened.name)
    return new_lock, (type(lock),), state


def new_lock(kind: type[Any]) -> Any:
    """Makes a lock, which its state then opens."""
    return object.__new__(kind)
