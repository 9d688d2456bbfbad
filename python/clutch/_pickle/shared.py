"""Values that a program writes into shared memory once, for all of its workers to map.

A worker gets where the memory is, not its content: a process and a descriptor there. It maps it privately, so a worker
that writes to an array in it gets pages of its own.
"""

from __future__ import annotations

import mmap
import os
import pickle
import threading
import weakref
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from clutch._pickle import dumps, pickled

T = TypeVar("T")

LARGE_BYTES = 64 << 10
"""Smaller values go with the message itself."""
ALIGNMENT = 64
"""Of each buffer, in bytes: as of numpy's largest vector types."""


@dataclass(frozen=True)
class Place:
    """Where a value lies."""

    pid: int
    descriptor: int
    file: tuple[int, int]
    """Device and inode: another file may have the descriptor one day."""
    spans: tuple[tuple[int, int], ...]
    """Offset and length, in bytes, of the pickle and of its buffers."""

    def read(self) -> Any:
        """Unpickle the value, in a process that can read the memory of the one that wrote it."""
        return unpickled(self.map(), self.spans)

    @property
    def path(self) -> str:
        return f"/proc/{self.pid}/fd/{self.descriptor}"

    def is_there(self) -> bool:
        """Returns whether the program still has it."""
        try:
            return identity(os.stat(self.path)) == self.file
        except OSError:
            return False

    def map(self) -> mmap.mmap:
        """Raise LookupError if the program has let go of it."""
        try:
            # One memory has one owner for life: by its path it is opened without a message between the two.
            descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            raise LookupError(LET_GO) from None
        try:
            if identity(os.fstat(descriptor)) != self.file:
                raise LookupError(LET_GO)
            return mmap.mmap(descriptor, 0, access=mmap.ACCESS_COPY)
        finally:
            os.close(descriptor)


LET_GO = "the program has let go of this shared value: keep what Pool.share returned as long as work uses it"


def identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def unpickled(memory: mmap.mmap, spans: tuple[tuple[int, int], ...]) -> Any:
    view = memoryview(memory)
    body, *buffers = (view[start : start + length] for start, length in spans)
    return pickle.loads(body, buffers=buffers)


class Written:
    """A value in memory that this process owns, until it is collected."""

    def __init__(self, body: bytes, buffers: list[memoryview]) -> None:
        spans, end = [], 0
        for part in (body, *buffers):
            start = -(-end // ALIGNMENT) * ALIGNMENT
            end = start + len(part)
            spans.append((start, len(part)))
        descriptor = os.memfd_create("clutch-shared", os.MFD_CLOEXEC)
        self._close = weakref.finalize(self, os.close, descriptor)
        # Raises where there is not so much memory; writing to pages that cannot be had would end the process.
        os.posix_fallocate(descriptor, 0, end)
        with mmap.mmap(descriptor, end) as memory:
            for (start, length), part in zip(spans, (body, *buffers), strict=True):
                memory[start : start + length] = part
        self.place = Place(os.getpid(), descriptor, identity(os.fstat(descriptor)), tuple(spans))


def written(value: Any, has_main: bool) -> bytes | Written:
    """Pickle a value: into memory for all workers if it is large. `has_main`: they find this program's `__main__`.

    Raises what pickle raises."""
    if not is_readable():
        return dumps(value, has_main)
    body, buffers = pickled(value, has_main, Buffers)
    return Written(body, buffers.views) if buffers.views or len(body) > LARGE_BYTES else body


class Buffers:
    """The large buffers of a pickle, which stay out of it."""

    def __init__(self) -> None:
        self.views: list[memoryview] = []

    def __call__(self, buffer: pickle.PickleBuffer) -> bool:
        view = buffer.raw()
        if view.nbytes <= LARGE_BYTES:
            return True
        self.views.append(view)
        return False


def is_readable() -> bool:
    """Returns whether this user's other processes may open what this one has, as is usual: one that has changed its
    user, or has forbidden it, belongs to root there."""
    return os.stat("/proc/self/fd").st_uid == os.geteuid()


class Shared(Generic[T]):
    """A value that all workers of this program have in one memory; made by `Pool.share`.

    Travels to workers as an argument or in a function. It may be dropped when no work uses it any more: the memory
    lasts as long as the handle, and as long as a worker has mapped it.
    """

    def __init__(self, value: T, has_main: bool = True) -> None:
        self._value = value
        self._given: bytes | Written = written(value, has_main)

    @property
    def value(self) -> T:
        """The value. Each worker reads it once; its large arrays stay where they are, and what a worker changes in
        them, it changes for itself."""
        return self._value

    def __repr__(self) -> str:
        return f"<clutch.Shared {type(self._value).__qualname__}>"

    def __reduce__(self) -> tuple[Any, ...]:
        given = self._given
        return (received, (given.place,)) if isinstance(given, Written) else (of_pickle, (given,))


class Received(Shared[T]):
    """A shared value in another process than its owner's."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._memory = place.map()
        self._reading = threading.Lock()

    @property
    def value(self) -> T:
        if not hasattr(self, "_value"):
            with self._reading:
                if not hasattr(self, "_value"):
                    self._value = unpickled(self._memory, self._place.spans)
        return self._value

    def __repr__(self) -> str:
        return f"<clutch.Shared of process {self._place.pid}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return received, (self._place,)


OWN: weakref.WeakValueDictionary[Place, Shared[Any]] = weakref.WeakValueDictionary()
"""What this process shares: it comes back as itself."""
kept: dict[Place, Received[Any]] = {}
"""What others share with this process: until it gets another one, and finds that they have let go of it."""


def share(value: T, has_main: bool) -> Shared[T]:
    shared = Shared(value, has_main)
    if isinstance(shared._given, Written):
        OWN[shared._given.place] = shared
    return shared


def received(place: Place) -> Shared[Any]:
    own = OWN.get(place) if place.pid == os.getpid() else None
    if own is not None:
        return own
    found = kept.get(place)
    if found is None:
        for other in [one for one in list(kept) if not one.is_there()]:
            kept.pop(other, None)
        found = kept.setdefault(place, Received(place))
    return found


def of_pickle(body: bytes) -> Shared[Any]:
    return Shared(pickle.loads(body))
