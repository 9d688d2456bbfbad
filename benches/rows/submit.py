"""`submit` with 256 in flight on two workers: how many calls a second."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from benches import contestants, plain
from benches.harness import Contestant, Report, Scale, interleave, more

_IN_FLIGHT = 256
_WORKERS = 2
_APPLY = "multiprocessing.Pool.apply_async"


def run(scale: Scale) -> Report:
    """Rates against ProcessPoolExecutor and multiprocessing.Pool."""
    with ExitStack() as stack:
        executor = stack.enter_context(contestants.executor(_WORKERS))
        classic = stack.enter_context(contestants.multiprocessing_pool(_WORKERS))
        pool = stack.enter_context(contestants.clutch_pool(_WORKERS))
        starts: dict[str, Callable[[int], Any]] = {
            "clutch": lambda number: pool.submit(plain.increment, number).result,
            contestants.EXECUTOR: lambda number: executor.submit(plain.increment, number).result,
            _APPLY: lambda number: classic.apply_async(plain.increment, (number,)).get,
        }
        field = [Contestant(name, _sampler(start, scale.seconds)) for name, start in starts.items()]
        interleave(field, 1)
        samples = interleave(field, scale.rounds)
    report = Report(notes=[f"submit: {_WORKERS} workers; peers of {contestants.standard_library()}"])
    report.compare(f"submit, {_IN_FLIGHT} in flight", "/s", samples, {contestants.EXECUTOR: more(8), _APPLY: more(4)})
    return report


def _sampler(start: Callable[[int], Any], seconds: float) -> Callable[[], float]:
    return lambda: _calls_per_second(start, seconds)


def _calls_per_second(start: Callable[[int], Any], seconds: float) -> float:
    """Keep `_IN_FLIGHT` calls out; with that many, wait for the oldest before the next."""
    outstanding: deque[Callable[[], int]] = deque()
    began = time.perf_counter()
    sent = 0
    while time.perf_counter() - began < seconds:
        if len(outstanding) == _IN_FLIGHT:
            outstanding.popleft()()
        outstanding.append(start(sent))
        sent += 1
    while outstanding:
        last = outstanding.popleft()()
    assert last == sent, f"the last call answered {last}, not {sent}"
    return sent / (time.perf_counter() - began)
