"""`Pool.map`: items in batches, sized by what they were measured to cost, with a bounded look-ahead."""

from __future__ import annotations

import itertools
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from clutch import _core

# A batch should run about this long: long against its way to the worker, short against the whole.
BATCH_NS = 4_000_000
BATCH_ITEMS_MAX = 4096
# One step may not grow the batch by more than this: the first items may not be like the rest.
GROWTH_MAX = 16
AHEAD_FOR_EACH_SLOT = 3


class Batches:
    """One map under way: what was submitted, and how large the next batch is."""

    def __init__(
        self,
        submit: Callable[..., Any],
        function: Callable[..., Any],
        spread: bool,
        items: Iterator[Any],
        slots: int,
        timeout: float | None,
        size: int | None,
        ahead: int | None,
    ) -> None:
        self._submit = submit
        self._function = function
        self._spread = spread
        self._items = items
        self._ends_at = None if timeout is None else time.monotonic() + timeout
        self._fixed = size is not None
        self._size = size or 1
        self._ahead = ahead or slots * AHEAD_FOR_EACH_SLOT + 1
        self._futures: deque[tuple[Any, int]] = deque()
        # Waits for room, whatever the pool's overflow says: a map never raises Overloaded.
        self._options = _core.CallOptions(None, 0, 0, True)

    def items(self) -> Iterator[Any]:
        self._submit_ahead()
        return _core.MapItems(self._advance)

    def _submit_ahead(self) -> None:
        while len(self._futures) < self._ahead:
            batch = list(itertools.islice(self._items, self._size))
            if not batch:
                return
            self._futures.append((self._submit(self._options, self._function, self._spread, batch), len(batch)))

    def _advance(self) -> tuple[list[Any], list[tuple[int, BaseException]]] | None:
        """The next batch, in order; a batch that was lost fails each of its items."""
        if not self._futures:
            return None
        future, count = self._futures[0]
        try:
            values, failures, run_ns = future.result(self._left())
        except TimeoutError:
            if not future.done():
                self._cancel()
                raise
            values, failures = lost(future, count)
        except Exception:
            values, failures = lost(future, count)
        else:
            self._learn(count, run_ns)
        self._futures.popleft()
        self._submit_ahead()
        return values, failures

    def _left(self) -> float | None:
        return None if self._ends_at is None else max(0.0, self._ends_at - time.monotonic())

    def _learn(self, count: int, run_ns: int) -> None:
        if not self._fixed:
            wanted = BATCH_NS * count // max(1, run_ns)
            self._size = max(1, min(wanted, self._size * GROWTH_MAX, BATCH_ITEMS_MAX))

    def _cancel(self) -> None:
        for future, _ in self._futures:
            future.cancel()


def lost(future: Any, count: int) -> tuple[list[Any], list[tuple[int, BaseException]]]:
    error = future.exception()
    return [None] * count, [(at, error) for at in range(count)]
