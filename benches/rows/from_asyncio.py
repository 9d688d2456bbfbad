"""From asyncio with 256 in flight: `await pool.submit(…)` against run_in_executor on ProcessPoolExecutor."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import ExitStack

from benches import contestants, plain
from benches.harness import Contestant, Report, Scale, interleave, more

_IN_FLIGHT = 256
_WORKERS = 2
_TEXT = "hello, clutch"
_RUN_IN_EXECUTOR = f"run_in_executor on {contestants.EXECUTOR}"


def run(scale: Scale) -> Report:
    """Calls a second, both on the standard library's event loop."""
    with ExitStack() as stack:
        executor = stack.enter_context(contestants.executor(_WORKERS))
        pool = stack.enter_context(contestants.clutch_pool(_WORKERS))

        def in_executor() -> Awaitable[str]:
            return asyncio.get_running_loop().run_in_executor(executor, plain.echo, _TEXT)

        field = [
            Contestant("clutch", lambda: _rate(lambda: pool.submit(plain.echo, _TEXT), scale.seconds)),
            Contestant(_RUN_IN_EXECUTOR, lambda: _rate(in_executor, scale.seconds)),
        ]
        interleave(field, 1)
        samples = interleave(field, scale.rounds)
    report = Report(notes=[f"asyncio: {_WORKERS} workers, asyncio's own loop; {contestants.standard_library()}"])
    report.compare(f"from asyncio, {_IN_FLIGHT} in flight", "/s", samples, {_RUN_IN_EXECUTOR: more(8)})
    return report


def _rate(start: Callable[[], Awaitable[str]], seconds: float) -> float:
    return asyncio.run(_calls_per_second(start, seconds))


async def _calls_per_second(start: Callable[[], Awaitable[str]], seconds: float) -> float:
    """`_IN_FLIGHT` asyncio tasks, each awaiting one call after another until the time is over."""
    began = time.perf_counter()
    end = began + seconds
    counts = await asyncio.gather(*(_calls_until(end, start) for _ in range(_IN_FLIGHT)))
    return sum(counts) / (time.perf_counter() - began)


async def _calls_until(end: float, start: Callable[[], Awaitable[str]]) -> int:
    count = 0
    while time.perf_counter() < end:
        assert await start() == _TEXT
        count += 1
    return count
