"""The ways to call a function in a pool, for `Pool` and for what `Pool.options` returns.

A call carries its function's parameters and its result, as typeshed has it for `concurrent.futures.Executor`. Further,
the call of an `async def` returns what that returns; a tool that is called by name may return anything.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, Callable, Coroutine, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, Protocol, TypedDict, TypeVar, overload

from clutch._pool.map import Batches, Limits, Reading, check_sizes, check_timeout, rows
from clutch._pool.progress import hook_of

if TYPE_CHECKING:
    from typing import Unpack

    from clutch import _core
    from clutch._pool.future import Future, Stream

P = ParamSpec("P")
T = TypeVar("T")
A = TypeVar("A")
B = TypeVar("B")


class MapOptions(TypedDict, total=False):
    timeout: float | None
    chunksize: int | None
    buffersize: int | None
    ordered: bool
    progress: bool | Callable[[int], object]


class TakesCalls(Protocol):
    """A pool, as far as calls need one."""

    @property
    def _maps(self) -> Any: ...
    @property
    def _submit_batch(self) -> Callable[..., Any]: ...
    def _call_with(self, options: _core.CallOptions, function: Any, args: Any, kwargs: Any, /) -> Any: ...
    def _submit_with(self, options: _core.CallOptions, function: Any, args: Any, kwargs: Any, /) -> Any: ...
    def _stream_with(self, options: _core.CallOptions, function: Any, args: Any, kwargs: Any, /) -> Any: ...
    def _check_open(self) -> None: ...
    def _slots(self) -> int: ...


class Calls:
    """A pool, with options for the calls made through it."""

    _pool: TakesCalls
    _options: _core.CallOptions
    _item_limits: Limits

    @classmethod
    def through(cls, pool: TakesCalls, options: _core.CallOptions, item_limits: Limits) -> Calls:
        calls = Calls()
        calls._pool, calls._options, calls._item_limits = pool, options, item_limits
        return calls

    @overload
    def call(self, function: Callable[P, Coroutine[Any, Any, T]], /, *args: P.args, **kwargs: P.kwargs) -> T: ...
    @overload
    def call(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T: ...
    @overload
    def call(self, function: str, /, *args: Any, **kwargs: Any) -> Any: ...
    def call(self, function: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Run a tool, by name, or a function in a worker and return its result. Raise what it raises."""
        return self._pool._call_with(self._options, function, args, kwargs)

    @overload
    def submit(
        self, function: Callable[P, Coroutine[Any, Any, T]], /, *args: P.args, **kwargs: P.kwargs
    ) -> Future[T]: ...
    @overload
    def submit(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]: ...
    @overload
    def submit(self, function: str, /, *args: Any, **kwargs: Any) -> Future[Any]: ...
    def submit(self, function: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Submit a tool, by name, or a function and return a `Future` at once. It can be awaited."""
        return self._pool._submit_with(self._options, function, args, kwargs)

    @overload
    def stream(
        self, function: Callable[P, Iterable[T] | AsyncIterable[T]], /, *args: P.args, **kwargs: P.kwargs
    ) -> Stream[T]: ...
    @overload
    def stream(self, function: str, /, *args: Any, **kwargs: Any) -> Stream[Any]: ...
    def stream(self, function: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Return a `Stream` over the values of a generator, as they are produced. It is at most 16 values ahead."""
        return self._pool._stream_with(self._options, function, args, kwargs)

    @overload
    def map(
        self,
        fn: Callable[[A], Coroutine[Any, Any, T]],
        items: Iterable[A],
        /,
        *,
        return_exceptions: Literal[False] = False,
        **options: Unpack[MapOptions],
    ) -> Iterator[T]: ...
    @overload
    def map(
        self,
        fn: Callable[[A], T],
        items: Iterable[A],
        /,
        *,
        return_exceptions: Literal[False] = False,
        **options: Unpack[MapOptions],
    ) -> Iterator[T]: ...
    @overload
    def map(
        self,
        fn: Callable[[A, B], T],
        items: Iterable[A],
        others: Iterable[B],
        /,
        *,
        return_exceptions: Literal[False] = False,
        **options: Unpack[MapOptions],
    ) -> Iterator[T]: ...
    @overload
    def map(
        self,
        fn: Callable[..., T],
        items: Iterable[Any],
        others: Iterable[Any],
        more: Iterable[Any],
        /,
        *iterables: Iterable[Any],
        return_exceptions: Literal[False] = False,
        **options: Unpack[MapOptions],
    ) -> Iterator[T]: ...
    @overload
    def map(
        self,
        fn: str,
        /,
        *iterables: Iterable[Any],
        return_exceptions: bool = False,
        **options: Unpack[MapOptions],
    ) -> Iterator[Any]: ...
    @overload
    def map(
        self,
        fn: Callable[[A], Coroutine[Any, Any, T]],
        items: Iterable[A],
        /,
        *,
        return_exceptions: bool,
        **options: Unpack[MapOptions],
    ) -> Iterator[T | BaseException]: ...
    @overload
    def map(
        self,
        fn: Callable[[A], T],
        items: Iterable[A],
        /,
        *,
        return_exceptions: bool,
        **options: Unpack[MapOptions],
    ) -> Iterator[T | BaseException]: ...
    @overload
    def map(
        self,
        fn: Callable[[A, B], T],
        items: Iterable[A],
        others: Iterable[B],
        /,
        *,
        return_exceptions: bool,
        **options: Unpack[MapOptions],
    ) -> Iterator[T | BaseException]: ...
    @overload
    def map(
        self,
        fn: Callable[..., T],
        items: Iterable[Any],
        others: Iterable[Any],
        more: Iterable[Any],
        /,
        *iterables: Iterable[Any],
        return_exceptions: bool,
        **options: Unpack[MapOptions],
    ) -> Iterator[T | BaseException]: ...
    def map(
        self,
        fn: Any,
        *iterables: Iterable[Any],
        timeout: float | None = None,
        chunksize: int | None = None,
        buffersize: int | None = None,
        ordered: bool = True,
        progress: bool | Callable[[int], object] = False,
        return_exceptions: bool = False,
    ) -> Iterator[Any]:
        """Call `fn` for each item and return an iterator over the results, in order.

        Items are sent in batches sized by their measured cost, or of `chunksize`.

        If an item fails, its error is raised when it is reached, with a note that names it; iteration may go on. With
        `return_exceptions=True` its exception is its result, as of `asyncio.gather`. `buffersize` is how many results
        may be unread (items, or chunks of `chunksize`); by default some batches for each slot are submitted ahead, and
        the rest when the pool is shut down or nobody can read. `timeout` is in seconds from now, for the whole map; a
        `deadline` of the options is each item's.

        With `ordered=False` results come as they are done. `progress=True` shows a bar on stderr; a function, such as
        `tqdm(total=…).update`, is called with the number of items that have just been read.
        """
        check_sizes(chunksize, buffersize)
        check_timeout(timeout)
        pool = self._pool
        pool._check_open()
        spread = len(iterables) != 1
        items = rows(iterables) if spread else iter(iterables[0])
        reading = Reading(timeout, chunksize, buffersize, ordered, hook_of(progress, iterables), return_exceptions)
        slots = max(1, pool._slots())
        batches = Batches(pool._submit_batch, fn, spread, items, slots, self._item_limits, reading)
        pool._maps.add(batches)
        return batches.items()
