"""What a submit costs with 10,000 calls queued, against 10. All workers are held by calls that wait."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import TYPE_CHECKING

from benches import contestants, plain
from benches.harness import Contestant, Report, Scale, interleave, within

if TYPE_CHECKING:
    import clutch

_MANY, _FEW = 10_000, 10
_WORKERS = 2
_HELD_SECONDS = 3600
_BATCH = 50
"""Submitted and then cancelled again, so that the queue stays about as long as it is."""


def run(scale: Scale) -> Report:
    """Nanoseconds of each submit, in the caller's thread."""
    with ExitStack() as stack:
        pools = {queued: stack.enter_context(_blocked(queued)) for queued in (_MANY, _FEW)}
        field = [
            Contestant(f"{queued:,} queued", partial(submit_ns, pool, scale.calls)) for queued, pool in pools.items()
        ]
        interleave(field, 1)
        samples = interleave(field, scale.fine_rounds)
    report = Report(notes=[f"backlog: {_WORKERS} workers, in batches of {_BATCH} that are cancelled again"])
    report.compare(f"submit with {_MANY:,} queued", "ns", samples, {f"{_FEW:,} queued": within(1.2)})
    return report


@contextmanager
def _blocked(queued: int) -> Iterator[clutch.Pool]:
    """A pool whose workers are busy for good, and with so many calls that wait."""
    with contestants.clutch_pool(_WORKERS) as pool:
        held = [pool.submit(time.sleep, _HELD_SECONDS) for _ in range(_WORKERS)]
        while not all(future.running() for future in held):
            time.sleep(0.001)
        waiting = [pool.submit(plain.increment, number) for number in range(queued)]
        yield pool
        assert not any(future.done() for future in waiting), "what was queued has run"
        pool.kill_workers()


def submit_ns(pool: clutch.Pool, calls: int) -> float:
    """Of each submit; as many are cancelled again."""
    spent_ns = 0
    for _ in range(calls // _BATCH):
        began = time.perf_counter_ns()
        batch = [pool.submit(plain.increment, number) for number in range(_BATCH)]
        spent_ns += time.perf_counter_ns() - began
        cancelled = [future.cancel() for future in batch]
        assert all(cancelled), "a call that waits was not cancelled"
    return spent_ns / (calls // _BATCH * _BATCH)
