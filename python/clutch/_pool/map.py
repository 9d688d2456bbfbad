"""`Pool.map`: items in batches, sized by what they were measured to cost, with a bounded look-ahead."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import math
import operator
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, CancelledError, Future, wait
from typing import Any

from clutch import _core
from clutch._pool.item_notes import Shown, kept, note_item, note_items, shown
from clutch._pool.progress import Bar, TextBar
from clutch.errors import BadArguments, ClutchError

# A batch should run about this long: long against its way to the worker, short against the whole.
BATCH_NS = 4_000_000
BATCH_ITEMS_MAX = 4096
# A batch should not weigh more: the cost of a batch is negligible at this size, and larger ones were measured slower.
BATCH_BYTES_MAX = 1 << 20
# With `recycle.calls`, a batch is at most this fraction of the calls of a worker.
BATCH_SHARE_OF_CALLS = 8
# Items pulled at a time; then some are measured, as large ones may follow small ones.
SLICE_ITEMS = 128
# One step may not grow the batch by more than this: the first items may not be like the rest.
GROWTH_MAX = 16
AHEAD_FOR_EACH_SLOT = 3
# Beyond that there is only one batch for each slot and one more.
AHEAD_BYTES_FOR_EACH_SLOT = 32 << 20
# What is submitted at once, unmeasured: few parts, to be cheap, and enough for all slots to end together.
PARTS_FOR_EACH_SLOT = 32
NONE_LEFT: Iterator[Any] = iter(())
UNBROKEN = {type(iter(of)) for of in (range(0), range(1 << 99), [], (), "", b"", {}, {}.values(), {}.items())}
"""Iterators that run no Python code: reading them is not interrupted."""


def check_sizes(chunksize: int | None, buffersize: int | None) -> None:
    """Raises as ProcessPoolExecutor does."""
    if chunksize is not None:
        check_chunksize(chunksize)
    if buffersize is not None and not isinstance(buffersize, int):
        raise TypeError("buffersize must be an integer or None")
    if buffersize is not None and buffersize < 1:
        raise ValueError("buffersize must be None or > 0")


def check_chunksize(chunksize: int) -> None:
    try:
        size = operator.index(chunksize)
    except TypeError:
        raise TypeError(f"chunksize must be an integer or None, not {chunksize!r}") from None
    if size < 1:
        raise ValueError("chunksize must be >= 1.")
    if size > sys.maxsize:
        raise ValueError(f"chunksize must be <= {sys.maxsize}, not {chunksize!r}")


def check_timeout(timeout: float | None) -> None:
    if timeout is not None and math.isnan(timeout):
        raise ValueError("timeout nan: allowed are seconds, or None for no limit")


@dataclasses.dataclass(frozen=True, slots=True)
class Limits:
    """Options of the pool or the call that apply to each item of a map."""

    deadline: float | None = None
    """Seconds."""
    calls: int | None = None
    """Limit of calls of a worker (`recycle.calls`)."""
    payload_bytes: int | None = None
    """Limit of the arguments of one call."""
    priority: int = 0
    retry: int = 0

    def batch_items(self) -> int:
        """Maximum number of items in a batch whose size is chosen here."""
        share = BATCH_ITEMS_MAX if self.calls is None else self.calls // BATCH_SHARE_OF_CALLS
        return max(1, min(BATCH_ITEMS_MAX, share))

    def batch_bytes(self) -> int:
        """Target size of a batch in bytes; leaves room for items somewhat larger than the previous ones."""
        return BATCH_BYTES_MAX if self.payload_bytes is None else min(BATCH_BYTES_MAX, self.payload_bytes // 2)

    def time_of(self, items: int, before: float) -> float | None:
        """Deadline in seconds for this many items, if each slot first runs `before` others of the same map."""
        return None if self.deadline is None else self.deadline * (items + before)


@dataclasses.dataclass(frozen=True, slots=True)
class Reading:
    """Parameters by which the caller of a map reads the results."""

    timeout: float | None = None
    """Seconds from the call, for the whole map."""
    chunksize: int | None = None
    buffersize: int | None = None
    ordered: bool = True
    progress: Callable[[int], object] | None = None
    """Called with the number of items whose results have just been read."""
    return_exceptions: bool = False
    """True if a failed item has its exception as its result."""


def rows(iterables: Iterable[Iterable[Any]]) -> Iterator[tuple[Any, ...]]:
    """Returns the rows of several iterables, as `zip`."""
    iterators = [iter(iterable) for iterable in iterables]
    return zip(*iterators, strict=False) if all(type(one) in UNBROKEN for one in iterators) else Rows(iterators)


class Rows:
    """Iterator as `zip`, which keeps pulled values if the reading is interrupted, and starts the next row with them."""

    def __init__(self, iterators: list[Iterator[Any]]) -> None:
        self._iterators = iterators
        self._row: list[Any] = []

    def __iter__(self) -> Rows:
        return self

    def __next__(self) -> tuple[Any, ...]:
        self._row.extend(map(next, self._iterators[len(self._row) :]))
        if not self._row or len(self._row) < len(self._iterators):
            raise StopIteration
        row, self._row = tuple(self._row), []
        return row


class Weights:
    """Weights of batches so far, and the number of items that follows for the next one.

    Some bytes come with each item, and some once with each batch: those of the function, and what its items share. More
    items to a batch make the latter cheaper. How much is which shows where two batches differ in size.
    """

    def __init__(self, bytes_max: int) -> None:
        self.items_max = BATCH_ITEMS_MAX
        self._bytes_max = bytes_max
        self._mean = 0.0
        self._last = (0, 0)
        self._other: tuple[int, int] | None = None

    def learn(self, items: int, size: int) -> None:
        """Record that a batch of this many items has `size` bytes."""
        if self._last[0] not in (0, items):
            self._other = self._last
        self._last = (items, size)
        # A heavy batch is remembered for some time: the next items may be like those again.
        self._mean = max(size / items, self._mean / 2)
        self.items_max = max(1, self._items_of(self._mean), min(2 * items, self._items_of(self._each(items, size))))

    def _each(self, items: int, size: int) -> float:
        """Bytes that each further item adds; 0 until batches of different sizes show otherwise."""
        if self._other is None:
            return 0.0
        each = (size - self._other[1]) / (items - self._other[0])
        # Fewer items that weigh more: they are not like those before.
        return self._mean if each < 0 else min(self._mean, each)

    def _items_of(self, each: float) -> int:
        return min(BATCH_ITEMS_MAX, int(self._bytes_max / max(1.0, each)))


@dataclasses.dataclass(slots=True, eq=False)
class Batch:
    """Items of a map, from when they are pulled out of the iterable until their results have been given out."""

    start: int
    """The number of its first item in the map, from 0."""
    size: int
    items: list[Any] = dataclasses.field(default_factory=list)
    """Kept while they may have to be sent, or sent again one by one if a worker cannot read them; and for the notes of
    failed ones."""
    future: Any = None
    """Set by the code that submits it, so that it is not submitted twice."""
    payload_bytes: int = 0
    """Set before that."""
    is_readable: bool = False
    """Set then: any worker can read its items, so that none is sent again."""
    bytes_before: int = 0
    """Sum over all that the map had submitted by then."""
    rest: Batch | None = None
    """The batch that was split off from it and follows it."""
    unreadable: Exception | None = None
    """For an item that is sent again: why the worker could not read its batch."""

    @property
    def end(self) -> int:
        return self.start + self.size

    def fill(self, items: Iterator[Any], bytes_max: float) -> None:
        """Pull the missing items, fewer if some are large. Keeps the pulled ones if it is interrupted."""
        while (count := len(self.items)) < self.size:
            wanted = min(self.size - count, SLICE_ITEMS)
            self.items.extend(itertools.islice(items, wanted))
            came = len(self.items) - count
            if came < wanted:
                return
            if came * max(size_of(self.items[count + came // 2]), size_of(self.items[-1])) > bytes_max:
                self.size = len(self.items)

    def split(self, size: int) -> None:
        """Keep the first items; the rest becomes a batch behind it."""
        items = self.items[:size]
        rest = Batch(self.start + size, self.size - size, self.items[size:], rest=self.rest)
        # No call is among these, and a signal's handler runs at one: it finds all of them done, or none.
        self.size, self.items, self.rest = size, items, rest

    def one_by_one(self, unreadable: Exception) -> Iterator[Batch]:
        for at, item in enumerate(self.items, self.start):
            yield Batch(at, 1, [item], unreadable=unreadable)


class Batches:
    """A map under way: what was submitted, and the size of the next batch.

    What a signal's handler, `gevent.Timeout` or whatever else is no `Exception` breaks off goes on at the next reading,
    and no item is left out: a batch is here, in order, from before its first item is pulled until its results have been
    given out.

    Items that cannot go as one batch, since one of them cannot be sent or all weigh too much, go in halves; those of a
    batch that a worker could not read, so that nothing of it ran, go again, one by one. So each has its own answer.

    As in the standard library, a map of which nobody has read a result is done to its end all the same when its results
    are dropped or the pool is shut down; one that was read in part and dropped is cancelled.
    """

    _is_made = False

    def __init__(
        self,
        submit: Callable[..., Any],
        function: Callable[..., Any],
        spread: bool,
        items: Iterator[Any],
        slots: int,
        limits: Limits,
        reading: Reading,
    ) -> None:
        chunksize, buffersize = reading.chunksize, reading.buffersize
        self._submit = submit
        self._function = _core.MapFunction(function)
        self._spread = spread
        self._items = items
        self._slots = slots
        self._fixed = chunksize is not None
        self._size = chunksize or 1
        self._is_bounded = buffersize is not None
        # `buffersize` counts what is one piece of work to the caller: an item, or a chunk where chunks have a size.
        self._items_max = None if self._fixed else buffersize
        self._ahead = buffersize if self._fixed and buffersize else slots * AHEAD_FOR_EACH_SLOT + 1
        self._batches: deque[Batch] = deque()
        self._error: Exception | None = None
        self._runs_unread = False
        # The pool's shutdown submits the rest while another thread reads.
        self._lock = threading.RLock()
        self._limits = limits
        self._weights = Weights(limits.batch_bytes())
        self._bytes_submitted = 0
        self._ends_at = None if reading.timeout is None else time.monotonic() + reading.timeout
        self._ordered = reading.ordered
        self._progress = reading.progress
        self._return_exceptions = reading.return_exceptions
        self._pulled = 0
        """Number of items in complete batches so far."""
        self._given = 0
        """Number of items whose results are being read."""
        self._is_made = True

    def items(self) -> Iterator[Any]:
        self._submit_ahead()
        self._raise_kept_error()
        self._runs_unread = True
        return _core.MapItems(self._next_batch, self.close)

    def submit_rest(self) -> None:
        """Submit the rest of a map that nobody has read from, unless the caller has bounded it."""
        with self._lock, self._keeping_errors():
            if self._is_bounded or not self._runs_unread:
                return
            rest: list[Any] = []
            try:
                with self._keeping_errors():
                    rest.extend(self._items)
            finally:
                self._items = itertools.chain(rest, self._items)
            wanted = -(-len(rest) // (self._slots * PARTS_FOR_EACH_SLOT))
            size = self._size if self._fixed else max(self._size, min(wanted, self._limits.batch_items()))
            while self._submit_next(self._limited(size)):
                """All of them."""

    def close(self) -> None:
        """Cancel the items that have not started, as nobody reads on."""
        self._end_progress()
        with self._lock:
            self._items = NONE_LEFT
            while self._batches:
                future = self._batches.popleft().future
                if future is not None:
                    future.cancel()

    def _tell_progress(self) -> None:
        given, self._given = self._given, 0
        if given and self._progress is not None:
            self._progress(given)

    def _end_progress(self) -> None:
        if isinstance(self._progress, Bar | TextBar):
            self._progress.close()

    def leave_to_the_parent(self) -> None:
        """In a forked child: nobody else is at it, whoever held the lock. The iterable may share a file with the
        parent's: instead of what it has left comes one item, and the pool's copy refuses that with PoolClosed."""
        self._lock = threading.RLock()
        if self._items is not NONE_LEFT:
            self._items = iter((None,))
        self._runs_unread = False

    def __del__(self) -> None:
        if not self._is_made:
            return  # what broke off the call has been told
        self.submit_rest()
        if not self._runs_unread:
            self.close()

    def _submit_ahead(self, read: int = 0) -> None:
        """`read`: 1 while the first batch is being given out."""
        with self._lock, self._keeping_errors():
            while self._submit_next(self._next_size(read)):
                """Submit as far ahead as allowed."""

    def _submit_next(self, size: int) -> bool:
        """Submit the batch that was interrupted or split, else one of `size` items. Returns False if there is none."""
        batch = self._unsent()
        if batch is None:
            if size == 0:
                return False
            batch = Batch(self._pulled, size)
            self._batches.append(batch)
        with self._keeping_errors():
            batch.fill(self._items, math.inf if self._fixed else BATCH_BYTES_MAX)
        if len(batch.items) < batch.size:
            batch.size, self._items = len(batch.items), NONE_LEFT
        if not batch.items:
            self._batches.pop()
            return False
        self._pulled = max(self._pulled, batch.end)
        self._submit_batch(batch)
        return True

    def _unsent(self) -> Batch | None:
        if not self._batches:
            return None
        last = self._batches[-1]
        if last.future is not None and last.rest is not None:
            self._batches.append(last.rest)
            last.rest = None
        return self._batches[-1] if self._batches[-1].future is None else None

    @contextlib.contextmanager
    def _keeping_errors(self) -> Iterator[None]:
        """Keep an error of the iterable, an item or a closed pool until the results before it have been read."""
        try:
            yield
        except Exception as error:
            self._error = error
            self._items = NONE_LEFT

    def _raise_kept_error(self) -> None:
        error, self._error = self._error, None
        if error is not None:
            raise error

    def _next_size(self, read: int) -> int:
        """Number of items in the next batch; 0 if enough is under way."""
        if self._items_max is None:
            return self._limited(self._size) if self._looks_ahead(len(self._batches) - read) else 0
        # Some for each slot, and none that is only as large as the room that happens to be left.
        size = min(self._limited(self._size), max(1, self._items_max // (self._slots + 1)))
        under_way = self._items_under_way()
        return size if size <= self._items_max - under_way + read else 0

    def _limited(self, size: int) -> int:
        return size if self._fixed else min(size, self._weights.items_max)

    def _looks_ahead(self, under_way: int) -> bool:
        """Returns whether another batch may be submitted."""
        if under_way <= self._slots:
            return under_way < self._ahead
        if self._ordered:
            bytes_under_way = self._bytes_submitted - self._batches[0].bytes_before
        else:
            bytes_under_way = sum(batch.payload_bytes for batch in self._batches)
        return under_way < self._ahead and bytes_under_way < self._slots * AHEAD_BYTES_FOR_EACH_SLOT

    def _items_under_way(self) -> int:
        if not self._ordered:
            return sum(batch.size for batch in self._batches)
        return self._batches[-1].end - self._batches[0].start if self._batches else 0

    def _submit_batch(self, batch: Batch) -> None:
        before = batch.start - self._batches[0].start if self._ordered else self._items_under_way() - batch.size
        # Waits for room, whatever the pool's overflow says: a map never raises Overloaded.
        limits = self._limits
        time = limits.time_of(batch.size, before / self._slots)
        options = _core.CallOptions(time, limits.priority, limits.retry, True, limits.deadline)
        batch.bytes_before = self._bytes_submitted
        try:
            refused = self._submit(options, self._function, self._spread, batch)
        except Exception as error:
            if batch.future is None and batch.unreadable is None:
                self._batches.pop()
            if batch.future is not None or batch.unreadable is None or not isinstance(error, ClutchError):
                raise
            refused = batch.unreadable  # it cannot be sent again: its pool is closed
        if refused is None:
            self._was_submitted(batch)
        elif batch.size > 1:
            batch.split(batch.size // 2)
        else:
            batch.future, batch.items = ended_with(refused), [Shown(shown(batch.items[0]))]
        del refused  # it holds this frame

    def _was_submitted(self, batch: Batch) -> None:
        self._bytes_submitted += batch.payload_bytes
        if not self._fixed:
            self._weights.learn(batch.size, batch.payload_bytes)
        # Of items with a deadline those behind one that is past it are sent again.
        if batch.size == 1 or (batch.is_readable and self._limits.deadline is None):
            batch.items = kept(batch.items, batch.payload_bytes)

    def _next_batch(self) -> tuple[list[Any], list[tuple[int, BaseException]]] | None:
        try:
            return self._advance()
        except BaseException:  # at a prompt and in a notebook its traceback keeps all this alive
            self._end_progress()
            raise

    def _advance(self) -> tuple[list[Any], list[tuple[int, BaseException]]] | None:
        """The next batch, in order or whichever is done; a batch that was lost fails each of its items. `MapItems` has
        it called by one thread at a time."""
        self._runs_unread = False
        self._tell_progress()
        self._submit_ahead()
        while self._batches:
            if self._batches[0].future is None:
                self._submit_again()
            if not self._ordered:
                self._bring_forward()
            batch = self._batches[0]
            made = self._result(batch)
            if made is None:
                continue
            if self._return_exceptions:
                made = in_their_places(*made)
            self._submit_ahead(read=1)
            # From here to the reader there is no call of Python, and a signal's handler runs at one.
            if batch.rest is None:
                del self._batches[0]
            else:
                self._batches[0] = batch.rest
            self._given = batch.size
            try:
                return made
            finally:  # an error of it holds this frame
                batch.future, batch.items = None, []
                del made, batch
        self._end_progress()
        self._raise_kept_error()
        return None

    def _bring_forward(self) -> None:
        """Wait for any batch, and make it the first. If none is done in time, the first stays."""
        sent = {batch.future: batch for batch in self._batches if batch.future is not None and batch.rest is None}
        done, _ = wait(sent, self._left(), FIRST_COMPLETED)
        if not done or self._batches[0].future in done:
            return
        first = next(batch for future, batch in sent.items() if future in done)
        with self._lock:
            others = [batch for batch in self._batches if batch is not first]
            # In one step: what breaks it off, comes before or after it.
            self._batches = deque(itertools.chain([first], others))

    def _result(self, batch: Batch) -> tuple[list[Any], list[tuple[int, BaseException]]] | None:
        """The results of the first batch, or None if other batches have taken its place."""
        try:
            values, failures, run_ns = batch.future.result(self._left())
        except Exception as error:
            if not is_its(batch.future, error):
                # Not in time; or what a signal's handler raised: then the batch is still there for the next reader.
                if isinstance(error, TimeoutError):
                    self.close()
                raise
            if isinstance(error, BadArguments) and batch.size > 1 and not batch.is_readable:
                self._send_again(batch, error)
                return None
            note_items(error, batch.start, batch.items)
            return lost(error, batch.size)
        if len(values) < batch.size:
            batch.split(len(values))  # one was past its deadline: those behind it have not begun
        else:
            self._learn(batch.size, run_ns)
        for at, error in failures:
            note_item(error, batch.start + at, batch.items[at])
        return values, failures

    def _send_again(self, batch: Batch, unreadable: Exception) -> None:
        """Replace the first batch by its single items."""
        with self._lock:
            others = itertools.islice(self._batches, 1, None)
            # In one step: what breaks it off, comes before or after it.
            self._batches = deque(itertools.chain(batch.one_by_one(unreadable), others))

    def _submit_again(self) -> None:
        with self._lock:
            for batch in itertools.takewhile(lambda batch: batch.future is None, list(self._batches)):
                self._submit_batch(batch)

    def _left(self) -> float | None:
        return None if self._ends_at is None else max(0.0, self._ends_at - time.monotonic())

    def _learn(self, count: int, run_ns: int) -> None:
        if not self._fixed:
            wanted = BATCH_NS * count // max(1, run_ns)
            self._size = max(1, min(wanted, self._size * GROWTH_MAX, self._limits.batch_items()))


def is_its(future: Any, error: BaseException) -> bool:
    """Returns whether this error ended the future, not the wait for it."""
    if not future.done():
        return False
    return isinstance(error, CancelledError) if future.cancelled() else future.exception() is error


def size_of(item: Any) -> int:
    """Rough size in memory, without referenced objects except the arguments of a call."""
    try:
        return sum(map(sys.getsizeof, item)) if type(item) is tuple else sys.getsizeof(item)
    except Exception:
        return 0  # it does not tell


def ended_with(error: Exception) -> Future[Any]:
    future: Future[Any] = Future()
    future.set_exception(error)
    return future


def in_their_places(
    values: list[Any], failures: list[tuple[int, BaseException]]
) -> tuple[list[Any], list[tuple[int, BaseException]]]:
    for at, error in failures:
        values[at] = error
    return values, []


def lost(error: BaseException, count: int) -> tuple[list[Any], list[tuple[int, BaseException]]]:
    """The results of a batch that failed as a whole."""
    return [None] * count, [(at, error) for at in range(count)]
