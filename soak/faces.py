"""The callers of one pool, one thread for each way to call: futures, blocking calls, asyncio.

Each goes on until it is told to stop and then waits for what it has submitted.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from random import Random
from typing import Any

from clutch import Pool, WorkerLost
from soak import tools
from soak.ledger import Ledger
from soak.work import CALLS, STREAMS, Kind, Verdict, Work

PAUSE_SECONDS = 0.012
"""Mean of the pauses between submissions of one thread."""
CANCEL_SHARE = 0.04
CALLBACK_SHARE = 0.6
CLOSE_SHARE = 0.3
BURST = 150
"""More than a queue holds."""
KEPT_MAX = 500
TASKS = 6
MAP_ITEMS_MAX = 60
_MAPPED = Kind(1, tools.pair)


class Caller:
    """What the threads of one pool share."""

    def __init__(self, pool: Pool, ledger: Ledger, seed: str, by_name_only: bool) -> None:
        self.pool = pool
        self.ledger = ledger
        self.seed = seed
        self.by_name_only = by_name_only
        self.stopped = threading.Event()
        self.rests = threading.Event()
        """While it is set, nothing is submitted or kept."""
        self.bursts = threading.Semaphore(0)
        """Released by whoever wants the queue filled."""
        faces = {"futures": by_futures, "blocking": by_blocking, "asyncio": by_asyncio}
        self.threads = [
            threading.Thread(target=face, args=(self, Random(f"{seed}/{pool.name}/{name}")), name=f"{pool.name}-{name}")
            for name, face in faces.items()
        ]

    def start(self) -> None:
        for thread in self.threads:
            thread.daemon = True  # one that hangs is reported, and must not keep the soak from its end
            thread.start()

    def draw(self, rng: Random, face: str, kinds: list[Kind] = CALLS) -> Work:
        return self.ledger.draw(rng, kinds, self.pool.name, face)

    def submitted(self, work: Work) -> Any:
        """Its future; none when it was refused at once, which is its answer."""
        try:
            work.future = self.pool.options(**work.options).submit(self.named(work.kind.tool, work), *work.arguments)
        except Exception as error:
            self.ledger.error(work, error)
        return work.future

    def named(self, tool: Callable[..., Any], work: Work) -> Any:
        """Every other one by name."""
        return tool.__name__ if self.by_name_only or work.number % 2 else tool

    def finish(self, work: Work, get: Callable[[], object]) -> None:
        """Takes the answer where it is, or comes."""
        try:
            value = get()
        except BaseException as error:
            self.ledger.error(work, error)
        else:
            self.ledger.value(work, value)

    def cancel(self, work: Work) -> None:
        work.is_cancelled = True
        if work.future.cancel() and not work.future.cancelled():
            self.ledger.protest("cancel() said that it is cancelled; it is not", work)


# ---- futures


def by_futures(caller: Caller, rng: Random) -> None:
    """Submits and goes on; some answers come by callback, the others are fetched when they are there."""
    kept: list[Work] = []
    while not caller.stopped.wait(rng.expovariate(1 / PAUSE_SECONDS)):
        if caller.rests.is_set():
            kept = _fetch(caller, kept, True)
            continue
        for _ in range(BURST if caller.bursts.acquire(blocking=False) else 1):
            _submit(caller, rng, kept)
        kept = _fetch(caller, kept, len(kept) > KEPT_MAX)
        if kept and rng.random() < CANCEL_SHARE:
            caller.cancel(rng.choice(kept))
    _fetch(caller, kept, True)


def _submit(caller: Caller, rng: Random, kept: list[Work]) -> None:
    work = caller.draw(rng, "futures")
    future = caller.submitted(work)
    if future is None:
        return
    if rng.random() < CALLBACK_SHARE:
        future.add_done_callback(lambda done: caller.finish(work, done.result))
        if rng.random() < CANCEL_SHARE:
            caller.cancel(work)
    else:
        kept.append(work)


def _fetch(caller: Caller, kept: list[Work], all_of_them: bool) -> list[Work]:
    """Ends those that are done, or waits for all; returns the others."""
    left = []
    for work in kept:
        if all_of_them or work.future.done():
            caller.finish(work, work.future.result)
        else:
            left.append(work)
    return left


# ---- blocking calls


def by_blocking(caller: Caller, rng: Random) -> None:
    """One after another: calls, streams, maps."""
    ways = [(12, _call), (3, _stream), (1, _map)]
    while not caller.stopped.wait(rng.expovariate(1 / PAUSE_SECONDS)):
        if not caller.rests.is_set():
            rng.choices([way for _, way in ways], [weight for weight, _ in ways])[0](caller, rng)


def _call(caller: Caller, rng: Random) -> None:
    work = caller.draw(rng, "call")
    calls = caller.pool.options(**work.options)
    caller.finish(work, lambda: calls.call(caller.named(work.kind.tool, work), *work.arguments))


def _stream(caller: Caller, rng: Random) -> None:
    """Read to its end, or closed before and then read on."""
    work = caller.draw(rng, "stream", STREAMS)
    reader = _Reader(caller.ledger, work, rng)
    try:
        with caller.pool.options(**work.options).stream(caller.named(work.kind.tool, work), *work.arguments) as stream:
            for value in stream:
                if not reader.takes(value):
                    stream.close()
        reader.ended()
    except BaseException as error:
        caller.ledger.error(work, error)


class _Reader:
    """Looks at the values of one stream, whoever reads it."""

    def __init__(self, ledger: Ledger, work: Work, rng: Random) -> None:
        self._ledger = ledger
        self._work = work
        self._taken = 0
        self._is_right = True
        self._closes_after = rng.randint(1, 10) if rng.random() < CLOSE_SHARE else None

    def takes(self, value: object) -> bool:
        """Whether more is wanted."""
        if self._is_right and value != (self._work.number, self._taken):
            self._is_right = False
            self._ledger.protest(f"value {self._taken} of the stream is {value!r}", self._work)
        self._taken += 1
        return self._closes_after is None or self._taken < self._closes_after

    def ended(self) -> None:
        """It ended as a generator does."""
        wanted = self._work.extra[0]
        if self._closes_after is not None and self._taken >= self._closes_after:
            return self._ledger.end(self._work, Verdict("closed"))
        is_whole = self._taken == wanted and not self._work.kind.raises
        problem = None if is_whole else f"the stream ended after {self._taken} values"
        return self._ledger.end(self._work, Verdict("value", problem))


def _map(caller: Caller, rng: Random) -> None:
    """Each item has its place; those of a lost worker fail, and the others come all the same."""
    work = caller.draw(rng, "map", [_MAPPED])
    work.options.clear()
    items = rng.randint(0, MAP_ITEMS_MAX)
    results = caller.pool.map(caller.named(work.kind.tool, work), [work.number] * items, range(items))
    lost = 0
    try:
        for at in range(items):
            try:
                if (value := next(results)) != (work.number, at):
                    caller.ledger.protest(f"item {at} of the map is {value!r}", work)
            except WorkerLost:
                lost += 1
        problem = None if next(results, None) is None else "the map has more results than items"
        caller.ledger.end(work, Verdict("worker lost" if lost else "value", problem))
    except StopIteration:
        caller.ledger.end(work, Verdict("value", f"the map of {items} items ended too early"))
    except BaseException as error:
        caller.ledger.error(work, error)


# ---- asyncio


def by_asyncio(caller: Caller, rng: Random) -> None:
    asyncio.run(_tasks(caller, rng))


async def _tasks(caller: Caller, rng: Random) -> None:
    await asyncio.gather(*(_one_task(caller, Random(rng.random())) for _ in range(TASKS)))


async def _one_task(caller: Caller, rng: Random) -> None:
    ways = [(10, _await), (2, _await_and_cancel), (2, _async_stream)]
    while not caller.stopped.is_set():
        await asyncio.sleep(rng.expovariate(1 / (TASKS * PAUSE_SECONDS)))
        if not caller.rests.is_set():
            await rng.choices([way for _, way in ways], [weight for weight, _ in ways])[0](caller, rng)


async def _await(caller: Caller, rng: Random) -> None:
    work = caller.draw(rng, "await")
    await _answer(caller, work)


async def _answer(caller: Caller, work: Work) -> None:
    future = caller.submitted(work)
    if future is None:
        return
    try:
        caller.ledger.value(work, await future)
    except BaseException as error:
        caller.ledger.error(work, error)


async def _await_and_cancel(caller: Caller, rng: Random) -> None:
    """The task that awaits it is cancelled at some time."""
    work = caller.draw(rng, "await, cancelled")
    task = asyncio.ensure_future(_answer(caller, work))
    await asyncio.sleep(rng.uniform(0, 0.02))
    if not task.done():
        work.is_cancelled = True
        task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    if not work.answers:  # cancelled before its first step
        caller.ledger.error(work, asyncio.CancelledError())


async def _async_stream(caller: Caller, rng: Random) -> None:
    work = caller.draw(rng, "async stream", STREAMS)
    reader = _Reader(caller.ledger, work, rng)
    calls = caller.pool.options(**work.options)
    try:
        async with calls.stream(caller.named(work.kind.tool, work), *work.arguments) as stream:
            async for value in stream:
                if not reader.takes(value):
                    await stream.aclose()
        reader.ended()
    except BaseException as error:
        caller.ledger.error(work, error)
