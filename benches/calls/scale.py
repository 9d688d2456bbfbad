"""Samples of what is large, beside the same that is small."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Iterator

from benches.calls import plain
from benches.calls.probes import TEXT, clutch_pool, held
from clutch.lab import watching
from clutch.lab.drivers.probe import Sample

ARRAY_BYTES = (64 << 10) + 512
"""Just above what travels inside of a message."""
AHEAD_SECONDS = NAP_SECONDS = 1.0
"""Longer than it takes to submit them all."""
GRACE_SECONDS = 2.0
CALLS = 200


@contextlib.contextmanager
def many_workers(workers: int) -> Iterator[Sample]:
    """Seconds until all are ready, and until all have ended."""
    import clutch

    def sample(_: object, seconds: float) -> dict[str, float]:
        began = time.perf_counter()
        with clutch.Pool("benches.calls.echo_tools", workers=workers, grace=GRACE_SECONDS) as pool:
            pool.wait_ready(workers)
            ready = time.perf_counter() - began
            assert pool.call("echo", TEXT) == TEXT
            stopping = time.perf_counter()
        return {"ready": ready, "stop": time.perf_counter() - stopping}

    yield sample


@contextlib.contextmanager
def among(workers: int) -> Iterator[Sample]:
    """Microseconds of a blocking call, and megabytes of a worker."""
    with clutch_pool(workers) as pool:

        def sample(_: object, seconds: float) -> dict[str, float]:
            began = time.perf_counter()
            for _ in range(10 * CALLS):
                pool.call(plain.echo, TEXT)
            spent = time.perf_counter() - began
            pids = [worker["pid"] for worker in pool.stats()["workers"]]
            return {"call": spent / (10 * CALLS) * 1e6, "worker": watching.pss_bytes(pids) / len(pids) / 1e6}

        yield sample


@contextlib.contextmanager
def under_way(calls: int, tasks: int) -> Iterator[Sample]:
    """CPU time of all processes for each of so many calls that wait at once in one worker."""
    with clutch_pool(1, profile="async", tasks=tasks) as pool:

        def sample(_: object, seconds: float) -> dict[str, float]:
            everyone = watching.below(os.getpid())
            before = sum(map(watching.cpu_s, everyone))
            futures = [pool.submit(asyncio.sleep, NAP_SECONDS, NAP_SECONDS) for _ in range(calls)]
            assert all(future.result(60) == NAP_SECONDS for future in futures)
            return {"each": (sum(map(watching.cpu_s, everyone)) - before) / calls * 1e6}

        yield sample


@contextlib.contextmanager
def arrays(kept: int) -> Iterator[Sample]:
    """Microseconds of a call whose result is an array that is dropped at once, while so many others are kept."""
    import numpy

    with clutch_pool(1) as pool:
        found = [pool.call(numpy.ones, ARRAY_BYTES, numpy.uint8) for _ in range(kept)]

        def sample(_: object, seconds: float) -> dict[str, float]:
            began = time.perf_counter()
            for _ in range(CALLS):
                pool.call(numpy.ones, ARRAY_BYTES, numpy.uint8)
            return {"call": (time.perf_counter() - began) / CALLS * 1e6}

        yield sample
        assert all(array.nbytes == ARRAY_BYTES for array in found)


@contextlib.contextmanager
def deadlines(at_once: int) -> Iterator[Sample]:
    """Milliseconds from a deadline to the last answer of so many calls that wait behind one that has the worker."""
    with held(1) as pool:

        def sample(_: object, seconds: float) -> dict[str, float]:
            at = time.monotonic() + AHEAD_SECONDS
            waiting = [
                pool.options(deadline=at - time.monotonic()).submit(plain.increment, nr) for nr in range(at_once)
            ]
            assert time.monotonic() < at, "too slow a machine: deadlines passed before the last was submitted"
            for future in waiting:
                while not future.done():
                    time.sleep(0.0002)
            return {"late": (time.monotonic() - at) * 1e3}

        yield sample
