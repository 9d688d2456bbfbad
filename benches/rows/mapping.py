"""`map` of a trivial function over 200,000 items: default arguments against the peer's best and its default."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack

from benches import contestants, plain
from benches.harness import Contestant, Report, Scale, interleave, more

_ITEMS = 200_000
_ITEMS_ONE_BY_ONE = 4_000
_WORKERS = 2
_CHUNK_SIZES = (100, 500, 1_000, 2_000, 5_000, 10_000, 25_000)


def run(scale: Scale) -> Report:
    """Items a second against ProcessPoolExecutor.map, at its best chunk size and at its default."""
    with ExitStack() as stack:
        executor = stack.enter_context(contestants.executor(_WORKERS))
        pool = stack.enter_context(contestants.clutch_pool(_WORKERS))
        chunk_size = _best_chunk_size(executor)
        best, default = f"{contestants.EXECUTOR}.map, chunksize {chunk_size}", f"{contestants.EXECUTOR}.map, default"
        field = [
            Contestant("clutch", lambda: _items_per_second(pool.map, _ITEMS)),
            Contestant(best, lambda: _items_per_second(_chunked(executor, chunk_size), _ITEMS)),
            Contestant(default, lambda: _items_per_second(executor.map, _ITEMS_ONE_BY_ONE)),
        ]
        interleave(field, 1)
        samples = interleave(field, scale.rounds)
    report = Report(notes=[_note()])
    report.compare(f"map, {_ITEMS:,} items", "/s", samples, {best: more(1.0), default: more(20)})
    return report


def _note() -> str:
    sizes = ", ".join(map(str, _CHUNK_SIZES))
    return (
        f"map: {_WORKERS} workers; best of the chunk sizes {sizes}; at the default (chunksize 1) the rate is that of "
        f"{_ITEMS_ONE_BY_ONE:,} items; {contestants.standard_library()}"
    )


def _best_chunk_size(executor: ProcessPoolExecutor) -> int:
    """The size with the best of two rates."""
    return max(_CHUNK_SIZES, key=lambda size: max(_items_per_second(_chunked(executor, size), _ITEMS) for _ in "ab"))


def _chunked(executor: ProcessPoolExecutor, size: int) -> Callable[..., Iterable[int]]:
    return lambda function, items: executor.map(function, items, chunksize=size)


def _items_per_second(mapper: Callable[..., Iterable[int]], items: int) -> float:
    began = time.perf_counter()
    total = sum(mapper(plain.increment, range(items)))
    spent = time.perf_counter() - began
    assert total == items * (items + 1) // 2, f"map lost something: {total}"
    return items / spent
