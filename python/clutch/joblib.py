"""A backend of joblib: what scikit-learn and others run by `n_jobs` runs in a pool of Clutch.

    import joblib
    import clutch.joblib

    clutch.joblib.register()
    with joblib.parallel_config(backend="clutch", n_jobs=4):
        GridSearchCV(model, grid).fit(X, y)

A pool is kept for the next call with as many workers, until the program ends, `close()` is called, or another number
of workers is wanted. An array of at least `max_nbytes` (joblib's option, 1 MB) is read-only in a worker, as joblib's
memory maps are; one that comes in several tasks of a `Parallel` call is written into memory that all workers map.
"""

from __future__ import annotations

import io
import mmap
import os
import pickle
import sys
import threading
import weakref
from collections.abc import Callable
from typing import Any

import joblib
from joblib.disk import memstr_to_bytes
from joblib.parallel import AutoBatchingMixin, FallbackToBackend, ParallelBackendBase, SequentialBackend

import clutch
from clutch._pickle.by_value import Pickler
from clutch._pickle.shared import Shared

__all__ = ["ClutchBackend", "close", "register"]


def register(name: str = "clutch", *, make_default: bool = False) -> None:
    """Make the backend known to joblib under this name, here and in workers: what is nested may name it too."""
    NAMES.add(name)
    joblib.register_parallel_backend(name, ClutchBackend, make_default=make_default)


NAMES: set[str] = set()
"""Under which the backend is registered."""
OF_LOKY = ("context", "idle_worker_timeout", "temp_folder", "timeout", "verbose")
"""What joblib passes to each backend, or its users to its own, and a pool has no use for."""


class Pools:
    """Pools that calls of joblib share, by what they were made of. One that nobody uses ends when another is wanted."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pools: list[tuple[Any, clutch.Pool, set[object]]] = []
        """What each was made of, and its users."""

    def get(self, user: object, n_jobs: int, options: dict[str, Any]) -> clutch.Pool:
        made_of = n_jobs, options, os.getpid()
        with self._lock:
            for known, pool, users in self._pools:
                if is_equal(known, made_of) and not pool._shut:
                    users.add(user)
                    return pool
            self._end(lambda users: not users)
            with_early: dict[str, Any] = {"initializer": import_early, **options}
            pool = clutch.Pool(name="joblib", workers=n_jobs, **with_early)
            self._pools.append((made_of, pool, {user}))
            return pool

    def leave(self, user: object) -> None:
        with self._lock:
            for _, _, users in self._pools:
                users.discard(user)

    def close(self) -> None:
        with self._lock:
            self._end(lambda users: True)

    def _end(self, is_over: Callable[[set[object]], bool]) -> None:
        over = [one for one in self._pools if is_over(one[2])]
        self._pools = [one for one in self._pools if one not in over]
        for (_, _, pid), pool, _ in over:
            if pid == os.getpid():
                pool.shutdown()


POOLS = Pools()


def close() -> None:
    """End the pool that joblib's calls have used."""
    POOLS.close()


class ClutchBackend(AutoBatchingMixin, ParallelBackendBase):  # pyright: ignore[reportIncompatibleMethodOverride]
    """Runs the batches of `joblib.Parallel` in a `clutch.Pool`.

    Keyword arguments beyond joblib's are options of the pool: `parallel_config(backend="clutch", profile="thread",
    deadline="5m")`.
    """

    supports_retrieve_callback = True
    supports_inner_max_num_threads = True
    uses_threads = False
    supports_sharedmem = False

    _pool: clutch.Pool | None = None
    _share_from: int | None = None

    # joblib has no annotations: its empty methods are taken for ones that return None.
    def effective_n_jobs(self, n_jobs: int | None) -> int:  # pyright: ignore[reportIncompatibleMethodOverride]
        """The number of workers for `n_jobs`, of which -1 means as many as there are CPUs."""
        if n_jobs == 0:
            raise ValueError("n_jobs == 0 in Parallel has no meaning")
        if n_jobs is None or is_in_worker():
            return 1
        return max(joblib.cpu_count() + 1 + n_jobs, 1) if n_jobs < 0 else n_jobs

    def configure(  # pyright: ignore[reportIncompatibleMethodOverride]
        self,
        n_jobs: int = 1,
        parallel: Any = None,
        prefer: Any = None,
        require: Any = None,
        max_nbytes: int | str | None = "1M",
        mmap_mode: str | None = "r",
        **options: Any,
    ) -> int:
        """Get the pool ready. Raises FallbackToBackend for one job."""
        n_jobs = self.effective_n_jobs(n_jobs)
        if n_jobs == 1:
            raise FallbackToBackend(SequentialBackend(nesting_level=self.nesting_level))
        self.parallel = parallel
        self._share_from = memstr_to_bytes(max_nbytes) if isinstance(max_nbytes, str) else max_nbytes
        if mmap_mode in (None, "c", "r+", "w+"):  # which may be written to: each task has its own
            self._share_from = None
        given = {name: value for name, value in {**self.backend_kwargs, **options}.items() if name not in OF_LOKY}
        if self.inner_max_num_threads is not None:
            names = self.MAX_NUM_THREADS_VARS
            given["env"] = {**dict.fromkeys(names, str(self.inner_max_num_threads)), **given.get("env", {})}
        self._pool = POOLS.get(self, n_jobs, given)
        self._seen: dict[int, weakref.ref[Any]] = {}
        self._shared: dict[int, tuple[Any, Shared[Any]]] = {}
        self._under_way: set[Any] = set()
        return n_jobs

    def submit(self, func: Callable[[], Any], callback: Callable[[Any], object] | None = None) -> Any:
        """Schedule a batch. Returns a `clutch.Future`."""
        assert self._pool is not None, "joblib configures a backend before it submits"
        batch = self._pickled(func) if "numpy" in sys.modules else func
        future = self._pool.submit(run, tuple(NAMES), batch)
        self._under_way.add(future)
        future.add_done_callback(self._under_way.discard)
        if callback is not None:
            future.add_done_callback(callback)
        return future

    def _pickled(self, func: Callable[[], Any]) -> bytes:
        with io.BytesIO() as file:
            pickler = Sharing(file, self._place)
            pickler.classes_by_name = self._pool._has_main  # type: ignore[union-attr]
            pickler.dump(func)
            return file.getvalue()

    def _place(self, value: Any) -> Any:
        """How an array is pickled; NotImplemented for all else. One that is in a file is opened again; a large one that
        comes a second time is written into memory for all workers."""
        numpy = sys.modules["numpy"]
        if type(value) is numpy.memmap and (place := place_in_file(numpy, value)) is not None:
            return open_again, place
        if type(value) is not numpy.ndarray or self._share_from is None or value.nbytes < self._share_from:
            return NotImplemented
        found = self._shared.get(id(value))
        if found is None:
            before = self._seen.get(id(value))
            if value.dtype.hasobject or before is None or before() is not value:
                self._seen[id(value)] = weakref.ref(value)
                return read_only, value.__reduce_ex__(5)
            # Kept beside its memory, so that no other array gets its id meanwhile.
            found = self._shared[id(value)] = value, self._pool.share(value)  # type: ignore[union-attr]
        return shared_and_read_only, (found[1],)

    def retrieve_result_callback(self, out: Any) -> Any:
        return out.result()

    def retrieve_result(self, out: Any, timeout: float | None = None) -> Any:
        return out.result(timeout)

    def terminate(self) -> None:
        """The end of a `Parallel` call: the pool stays for the next one."""
        POOLS.leave(self)
        self._pool = None
        self._shared, self._seen = {}, {}
        self.reset_batch_stats()

    def abort_everything(self, ensure_ready: bool = True) -> None:
        """Stop what runs: a batch has raised, and nobody wants the others."""
        for future in list(self._under_way):
            future.cancel()


class Sharing(Pickler):
    """A pickler that asks first how a value is to be pickled."""

    def __init__(self, file: io.BytesIO, place: Callable[[Any], Any]) -> None:
        super().__init__(file, protocol=5)
        self._place = place

    def reducer_override(self, obj: Any) -> Any:
        placed = self._place(obj)
        return super().reducer_override(obj) if placed is NotImplemented else placed


def import_early() -> None:
    """In a worker, before any batch: the import of this module, which a batch that is cancelled would break off."""


def run(names: tuple[str, ...], batch: bytes | Callable[[], Any]) -> Any:
    """In a worker: run a batch, which may be pickled. `names`: those of the backend in the program."""
    for name in names:
        if name not in NAMES:
            register(name)
    return (pickle.loads(batch) if isinstance(batch, bytes) else batch)()


def is_equal(one: object, other: object) -> bool:
    try:
        return one == other
    except ValueError:  # of arrays among the arguments of an initializer
        return False


def shared_and_read_only(shared: Shared[Any]) -> Any:
    array = shared.value.view()
    array.flags.writeable = False
    return array


def read_only(make: Callable[..., Any], arguments: tuple[Any, ...], *state: Any) -> Any:
    """An array by what it reduces to."""
    array = make(*arguments)
    if state and state[0] is not None:
        array.__setstate__(state[0])
    array.flags.writeable = False
    return array


def place_in_file(numpy: Any, value: Any) -> tuple[Any, ...] | None:
    """The arguments of `open_again` for a memory map, or None for one that is no plain part of its file."""
    root = value
    while type(root.base) is numpy.memmap:
        root = root.base
    order = "C" if value.flags.c_contiguous else "F" if value.flags.f_contiguous else None
    if root.filename is None or order is None or not isinstance(root.base, mmap.mmap):
        return None
    offset = root.offset + value.ctypes.data - root.ctypes.data
    mode = "r+" if root.mode == "w+" else root.mode
    return str(root.filename), value.dtype, mode, offset, value.shape, order


def open_again(filename: str, dtype: Any, mode: str, offset: int, shape: tuple[int, ...], order: str) -> Any:
    import numpy

    return numpy.memmap(filename, dtype, mode, offset, shape, order)  # type: ignore[call-overload]


def is_in_worker() -> bool:
    """Returns whether this is a worker of Clutch: it runs what is nested in it by itself."""
    image = sys.modules.get("clutch._worker.image")
    return image is not None and image.is_here
