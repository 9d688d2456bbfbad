"""One megabyte there and back, one call at a time: as bytes and as a numpy array."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack

import numpy

from benches import contestants, plain
from benches.harness import Contestant, Report, Scale, faster, interleave

_BYTES = 1_000_000


def run(scale: Scale) -> Report:
    """Durations of a round trip against ProcessPoolExecutor, both with one worker."""
    payloads = {"bytes": b"\xa5" * _BYTES, "numpy array": numpy.arange(_BYTES // 8, dtype=numpy.float64)}
    report = Report(
        notes=[f"payload: 1 worker, {_BYTES:,} bytes, numpy {numpy.__version__}; {contestants.standard_library()}"]
    )
    with ExitStack() as stack:
        executor = stack.enter_context(contestants.executor(1))
        pool = stack.enter_context(contestants.clutch_pool(1))
        for label, payload in payloads.items():
            calls = {
                "clutch": lambda payload=payload: pool.call(plain.same, payload),
                contestants.EXECUTOR: lambda payload=payload: executor.submit(plain.same, payload).result(),
            }
            field = [Contestant(name, _sampler(call, payload, scale.seconds)) for name, call in calls.items()]
            interleave(field, 1)
            samples = interleave(field, scale.rounds)
            report.compare(f"1 MB {label}, there and back", "µs", samples, {contestants.EXECUTOR: faster(4)})
    return report


def _sampler(call: Callable[[], object], payload: object, seconds: float) -> Callable[[], float]:
    return lambda: _mean_us(call, payload, seconds)


def _mean_us(call: Callable[[], object], payload: object, seconds: float) -> float:
    """Mean duration of calls made one after another; the last answer is compared with what was sent."""
    began = time.perf_counter()
    count = 0
    while time.perf_counter() - began < seconds:
        answer = call()
        count += 1
    spent = time.perf_counter() - began
    assert numpy.array_equal(answer, payload), "the payload came back changed"
    return spent / count * 1_000_000
