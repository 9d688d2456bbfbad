"""`clutch.testing.InlinePool`: it answers as a `Pool` does, and runs in the caller's thread."""

from __future__ import annotations

import asyncio
import concurrent.futures
import inspect
import itertools
import os
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import clutch
from clutch import BadArguments, ConfigError, Draining, NoSuchTool, Pool, PoolClosed, RemoteError
from clutch.testing import InlinePool

TARGET = """
import contextvars, os, threading
from clutch import on_start, on_stop, tool

log = []
visitor = contextvars.ContextVar("visitor", default="nobody")

class Shop:
    def __init__(self):
        log.append("made")
        self.sold = []

    @tool
    def sell(self, what, *, count=1):
        self.sold.append(what)
        return [what] * count

    @tool
    async def ask(self, what):
        return f"{what}?"

    @tool
    def count(self, to, fail=False):
        for number in range(to):
            yield number
        if fail:
            raise LookupError("the end")

    @tool
    async def count_async(self, to):
        for number in range(to):
            yield number

    @tool
    def where(self):
        return os.getpid(), threading.get_ident()

    @tool
    def fail(self, error):
        raise error

    @tool
    def visit(self, name):
        before = visitor.get()
        visitor.set(name)
        return before

    @tool
    def lock(self):
        return threading.Lock()

    @on_start
    def started(self):
        log.append("started")

    @on_stop
    def stopped(self):
        log.append("stopped")

def note(*words):
    log.append(words)
"""


class Odd(Exception):
    def __init__(self, first: int, second: int) -> None:
        super().__init__(f"{first} and {second}")


class NotThere:
    def __reduce__(self) -> Any:
        return eval, ("raise_here",)


@pytest.fixture(autouse=True)
def _shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "inline_shop.py").write_text(TARGET)
    monkeypatch.syspath_prepend(tmp_path)
    yield
    sys.modules.pop("inline_shop", None)


@pytest.fixture(params=[Pool, InlinePool], ids=["Pool", "InlinePool"])
def shop(request: pytest.FixtureRequest) -> Iterator[Pool]:
    options = {"workers": 1} if request.param is Pool else {}
    with request.param("inline_shop:Shop", **options) as pool:
        yield pool


@pytest.fixture
def inline() -> Iterator[InlinePool]:
    with InlinePool("inline_shop:Shop") as pool:
        yield pool


# The same of both.


def answer(ask: Callable[[], Any]) -> Any:
    try:
        return ask()
    except BaseException as error:
        return type(error)


CASES: dict[str, tuple[Callable[[Pool], Any], Any]] = {
    "by name": (lambda pool: pool.call("sell", "tea", count=2), ["tea", "tea"]),
    "state is kept": (lambda pool: [pool.call("sell", n) for n in "ab"], [["a"], ["b"]]),
    "async": (lambda pool: pool.call("ask", "tea"), "tea?"),
    "a function": (lambda pool: pool.call(pow, 2, 8), 256),
    "a closure": (lambda pool: pool.call(lambda: 7), 7),
    "a future": (lambda pool: pool.submit("sell", "tea").result(30), ["tea"]),
    "options": (lambda pool: pool.options(deadline=30, priority=1, retry=1).call("ask", "x"), "x?"),
    "a tuple stays one": (lambda pool: pool.call(lambda value: (value, type(value)), (1,)), ((1,), tuple)),
    "a view": (lambda pool: bytes(pool.call(lambda view: view, memoryview(b"abc"))), b"abc"),
    "map": (lambda pool: list(pool.map(abs, range(-5, 5))), [5, 4, 3, 2, 1, 0, 1, 2, 3, 4]),
    "map of two": (lambda pool: list(pool.map(pow, [2, 3], [3, 2])), [8, 9]),
    "map by name": (lambda pool: list(pool.map("ask", "ab")), ["a?", "b?"]),
    "endless map": (lambda pool: list(itertools.islice(pool.map(abs, itertools.count()), 5)), [0, 1, 2, 3, 4]),
    "stream": (lambda pool: list(pool.stream("count", 3)), [0, 1, 2]),
    "async stream": (lambda pool: list(pool.stream("count_async", to=3)), [0, 1, 2]),
    "an error": (lambda pool: pool.call("fail", KeyError("k")), KeyError),
    "an error of a future": (lambda pool: pool.submit("fail", KeyError("k")).result(30), KeyError),
    "SystemExit": (lambda pool: pool.submit("fail", SystemExit(3)).result(30), SystemExit),
    "no such tool": (lambda pool: pool.call("sel", "tea"), NoSuchTool),
    "wrong arguments": (lambda pool: pool.call("sell"), BadArguments),
    "no function": (lambda pool: pool.call(7), BadArguments),  # type: ignore[arg-type]
    "what does not travel": (lambda pool: pool.submit("sell", threading.Lock()), BadArguments),
    "what does not arrive": (lambda pool: pool.call("sell", NotThere()), BadArguments),
    "what does not come back": (lambda pool: pool.call("lock"), RemoteError),
    "call of a generator": (lambda pool: pool.call("count", 3), BadArguments),
    "stream of no generator": (lambda pool: list(pool.stream("sell", "tea")), BadArguments),
    "wrong priority": (lambda pool: pool.options(priority=10), ValueError),
    "wrong retry": (lambda pool: pool.options(retry=-1), ValueError),
    "a deadline as text": (lambda pool: pool.options(deadline="30s").call("ask", "x"), "x?"),
    "a wrong deadline": (lambda pool: pool.options(deadline="soon"), ValueError),
    "a map with options": (lambda pool: list(pool.options(deadline=30, priority=1).map("ask", "xy")), ["x?", "y?"]),
    "wrong buffersize": (lambda pool: pool.map(abs, [1], buffersize=0), ValueError),
}


@pytest.mark.parametrize("case", CASES)
def test_it_answers_as_a_pool_does(shop: Pool, case: str) -> None:
    ask, expected = CASES[case]
    assert answer(lambda: ask(shop)) == expected


def test_errors_of_single_items(shop: Pool) -> None:
    results = shop.map(pow, [2, 0, 3], [1, -1, 1])
    assert next(results) == 2
    with pytest.raises(ZeroDivisionError):
        next(results)
    assert list(results) == [3]


@pytest.mark.parametrize("chunksize", [None, 2, 10])
def test_a_map_goes_on_after_an_item_that_cannot_be_sent(shop: Pool, chunksize: int | None) -> None:
    results = shop.map(repr, [1, threading.Lock(), 3], chunksize=chunksize)
    assert next(results) == "1"
    with pytest.raises(BadArguments, match=r"[lL]ock"):
        next(results)
    assert list(results) == ["3"]


def test_a_stream_that_fails(shop: Pool) -> None:
    stream = shop.stream("count", 2, fail=True)
    assert [next(stream), next(stream)] == [0, 1]
    with pytest.raises(LookupError):
        next(stream)
    assert list(stream) == []


def test_values_are_copies(shop: Pool) -> None:
    given: list[int] = []
    back = shop.call(lambda value: value, given)
    assert back == given and back is not given
    shop.call(given.append, 1)
    assert given == []


def test_each_call_has_a_context_of_its_own(shop: Pool) -> None:
    import inline_shop

    token = inline_shop.visitor.set("the caller")
    assert [shop.call("visit", "a"), shop.call("visit", "b")] == ["nobody", "nobody"]
    assert inline_shop.visitor.get() == "the caller"
    inline_shop.visitor.reset(token)


def test_after_the_end(shop: Pool) -> None:
    unread = shop.map(abs, range(-50, 0))
    shop.shutdown()
    assert list(unread) == list(range(50, 0, -1))
    for attempt in (
        lambda: shop.call("ask", 1),
        lambda: shop.submit(abs, 1),
        lambda: shop.stream("count", 1),
        lambda: shop.map(abs, [1]),
        shop.wait_ready,
    ):
        with pytest.raises(PoolClosed, match="pool"):
            attempt()
    shop.shutdown()


def test_every_method_of_a_pool_is_there_and_takes_the_same(inline: InlinePool) -> None:
    made_of_others = {"map", "stream", "options", "kill_workers", "share"}
    for name in [name for name, value in vars(Pool).items() if inspect.isfunction(value) and not name.startswith("_")]:
        assert name in vars(InlinePool) or name in made_of_others, f"{name} would need a core"
        ours, theirs = (inspect.signature(getattr(kind, name)) for kind in (InlinePool, Pool))
        assert list(ours.parameters) == list(theirs.parameters), name
    with Pool(workers=1) as pool:
        pool.wait_ready()
        assert inline.stats().keys() >= pool.stats().keys()
        assert inline.stats()["workers"][0].keys() >= pool.stats()["workers"][0].keys()
    assert isinstance(inline, Pool)


# asyncio


async def together(pool: Pool) -> list[Any]:
    asked = await asyncio.gather(*(pool.submit("ask", n) for n in range(3)), pool.submit("sell", "tea"))
    streamed = [value async for value in pool.stream("count", 2)]
    streamed += [value async for value in pool.stream("count_async", 2)]
    stream = pool.stream("count_async", 100)
    assert await anext(stream) == 0
    await stream.aclose()
    blocking = pool.call("ask", "blocking")
    with pytest.raises(KeyError):
        await pool.submit("fail", KeyError("k"))
    return [*asked, streamed, blocking]


def test_it_is_awaited_as_a_pool_is(shop: Pool) -> None:
    assert asyncio.run(together(shop)) == ["0?", "1?", "2?", ["tea"], [0, 1, 0, 1], "blocking?"]


def test_async_with() -> None:
    async def use() -> None:
        async with InlinePool("inline_shop:Shop") as pool:
            assert await pool.submit("ask", 1) == "1?"
        with pytest.raises(PoolClosed):
            pool.submit("ask", 1)

    asyncio.run(use())


def test_an_async_tool_may_await_the_callers_own_loop(inline: InlinePool) -> None:
    async def use() -> str:
        event = asyncio.Event()

        async def wait() -> str:
            await event.wait()
            return "set"

        with InlinePool(copies=False) as pool:
            future = pool.submit(wait)
            assert not future.done()
            event.set()
            return await future

    assert asyncio.run(use()) == "set"


# Its own.


def test_it_runs_in_the_callers_thread(inline: InlinePool) -> None:
    assert inline.call("where") == (os.getpid(), threading.get_ident())
    assert inline.submit("where").result(0) == (os.getpid(), threading.get_ident())
    assert inline.submit("ask", "x").done()


def test_exceptions_are_as_they_were_raised(inline: InlinePool) -> None:
    """Not pickled, which this one would not survive, and with the traceback of here."""

    def throw() -> None:
        raise Odd(1, 2)

    with pytest.raises(Odd, match="1 and 2") as caught:
        inline.call(throw)
    assert caught.traceback[-1].name == "throw"
    assert caught.value.__cause__ is None


def test_without_copies_values_are_the_very_ones() -> None:
    with InlinePool(copies=False) as pool:
        lock = threading.Lock()
        assert pool.call(lambda value: value, lock) is lock
        assert list(pool.map(lambda value: value, [lock])) == [lock]


def test_hooks_and_initializer_run_where_the_pool_is_made_and_ended() -> None:
    import inline_shop

    with InlinePool("inline_shop:Shop", initializer=inline_shop.note, initargs=("a", 1)) as pool:
        assert inline_shop.log == [("a", 1), "made", "started"]
    assert inline_shop.log[3:] == ["stopped"]
    pool.shutdown()
    assert inline_shop.log[3:] == ["stopped"]


def test_what_fails_at_the_start_fails_in_the_constructor() -> None:
    with pytest.raises(ConfigError, match="no_such_module"):
        InlinePool("no_such_module")
    with pytest.raises(ConfigError, match=r"Shp.*'Shop'"):
        InlinePool("inline_shop:Shp")
    with pytest.raises(ConfigError, match="wrkers"):
        InlinePool(wrkers=3)
    with pytest.raises(ZeroDivisionError):
        InlinePool(initializer=divmod, initargs=(1, 0))


def test_the_drop_in_arguments() -> None:
    with InlinePool(4) as pool:
        assert pool.submit(abs, -1).result() == 1
    with InlinePool(max_workers=2, initializer=print, initargs=(), max_tasks_per_child=3) as pool:
        futures = [pool.submit(abs, -number) for number in range(3)]
        assert {future.result() for future in concurrent.futures.as_completed(futures)} == {0, 1, 2}
        assert concurrent.futures.wait(futures).not_done == set()
        assert isinstance(futures[0], clutch.Future)


def test_stats_count_what_ran(inline: InlinePool) -> None:
    inline.wait_ready(3)
    inline.call("ask", 1)
    with pytest.raises(KeyError):
        inline.call("fail", KeyError())
    stats = inline.stats()
    assert (stats["done"], stats["failed"], stats["state"]) == (1, 1, "ready")
    assert "sell" in stats["image"]["tools"]


def test_draining(inline: InlinePool) -> None:
    inline.drain()
    with pytest.raises(Draining, match="pool"):
        inline.submit("ask", 1)
    inline.resume()
    assert inline.call("ask", 1) == "1?"


def test_closing_a_stream_runs_the_generators_finally(inline: InlinePool) -> None:
    closed: list[str] = []

    def values() -> Iterator[int]:
        try:
            yield from range(10)
        finally:
            closed.append("sync")

    async def values_async() -> AsyncIterator[int]:
        try:
            for number in range(10):
                yield number
        finally:
            closed.append("async")

    with InlinePool(copies=False) as pool:
        for function in (values, values_async):
            with pool.stream(function) as stream:
                assert next(stream) == 0
            assert list(stream) == []
    assert closed == ["sync", "async"]


def end_early(error: Exception) -> None:
    raise error


def test_what_an_iterator_would_end_with_is_an_error_of_a_map() -> None:
    with InlinePool() as pool, pytest.raises(RuntimeError, match="generator raised StopIteration"):
        list(pool.map(end_early, [StopIteration()]))
