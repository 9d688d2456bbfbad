"""Samples of calls that are made in ways of their own; the clock is in the program that calls.

The standard library's pools are made before Clutch is loaded: they fork, and should fork a process without it.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benches.calls import plain
from clutch.lab import watching
from clutch.lab.drivers.probe import Sample

if TYPE_CHECKING:
    import clutch

ROOT = Path(__file__).resolve().parents[2]
TEXT = "hello, clutch"
PAYLOAD_BYTES = 1_000_000
WARM_UP_SECONDS = 0.05
ITEMS, ITEMS_ONE_BY_ONE = 200_000, 4_000
CHUNK_SIZES = (100, 500, 1_000, 2_000, 5_000, 10_000, 25_000)
IN_FLIGHT = 256
BATCH = 50
"""Submitted and then cancelled again, so that a queue stays about as long as it is."""
HELD_SECONDS = 3600
KILLS = 6
CROWD_SECONDS_MAX = 180
PRIMES, PRIMES_BELOW = 40_000, 4_203
PING_PONG = "cargo bench --package clutch-pool --bench pingpong --no-run"


@contextlib.contextmanager
def clutch_pool(workers: int, **options: Any) -> Iterator[clutch.Pool]:
    """With all its workers ready."""
    import clutch

    with clutch.Pool("benches.calls.echo_tools", workers=workers, **options) as pool:
        pool.wait_ready(workers)
        yield pool


@contextlib.contextmanager
def executor(workers: int) -> Iterator[concurrent.futures.ProcessPoolExecutor]:
    """With all its workers started."""
    with concurrent.futures.ProcessPoolExecutor(workers) as pool:
        concurrent.futures.wait([pool.submit(time.sleep, WARM_UP_SECONDS) for _ in range(workers)])
        yield pool


@contextlib.contextmanager
def blocking(who: str, payload: str = "text", deadline_s: float | None = None) -> Iterator[Sample]:
    """One call after another: the middle of their times, their mean, and CPU time of all processes for each."""
    function: Any
    function, value = (plain.echo, TEXT) if payload == "text" else (plain.same, payload_of(payload))
    with executor(1) if who == "executor" else clutch_pool(1) as pool:
        if isinstance(pool, concurrent.futures.Executor):
            yield lambda _, seconds: timed(lambda: pool.submit(function, value).result(), value, seconds)
        else:
            call = pool.call if deadline_s is None else pool.options(deadline=deadline_s).call
            yield lambda _, seconds: timed(lambda: call(function, value), value, seconds)


def payload_of(kind: str) -> Any:
    if kind == "bytes":
        return b"\xa5" * PAYLOAD_BYTES
    import numpy

    return numpy.arange(PAYLOAD_BYTES // 8, dtype=numpy.float64)


def timed(call: Callable[[], Any], sent: Any, seconds: float) -> dict[str, float]:
    clock, spent = time.perf_counter_ns, list[int]()
    answer: Any = None
    everyone = watching.below(os.getpid())
    before, until = sum(map(watching.cpu_s, everyone)), clock() + seconds * 1e9
    while (began := clock()) < until:
        answer = call()
        spent.append(clock() - began)
    used = sum(map(watching.cpu_s, everyone)) - before
    same = answer == sent if isinstance(sent, str | bytes) else (answer == sent).all()
    assert same, "what came back is not what was sent"
    return {"p50": statistics.median(spent) / 1e3, "mean": statistics.mean(spent) / 1e3, "cpu": used / len(spent) * 1e6}


@contextlib.contextmanager
def ping_pong(calls: int) -> Iterator[Sample]:
    """64 bytes between two processes in Rust, on the CPUs of this thread."""
    built = [one for one in (ROOT / "target/release/deps").glob("pingpong-*") if not one.suffix]
    if not built:
        raise RuntimeError(f"it is not built: {PING_PONG}")
    program = max(built, key=lambda one: one.stat().st_mtime)

    def sample(_: object, seconds: float) -> dict[str, float]:
        printed = subprocess.run([program, "--calls", str(calls)], check=True, stdout=subprocess.PIPE).stdout
        return {"p50": json.loads(printed)["p50_ns"] / 1e3, "cpu": 0.0}

    yield sample


@contextlib.contextmanager
def mapping(who: str) -> Iterator[Sample]:
    """Items a second of `map`: of the executor with its best chunk size, or its default."""
    with clutch_pool(2) if who == "clutch" else executor(2) as pool:
        items, chunk = (ITEMS_ONE_BY_ONE, 1) if who == "default" else (ITEMS, None)
        if who == "best":
            chunk = max(CHUNK_SIZES, key=lambda size: max(mapped(pool, ITEMS, size) for _ in "ab"))
        yield lambda _, seconds: {"rate": mapped(pool, items, chunk), "chunk size": float(chunk or 0)}


def mapped(pool: Any, items: int, chunk: int | None) -> float:
    began = time.perf_counter()
    more = {} if chunk is None else {"chunksize": chunk}
    found: Iterable[int] = pool.map(plain.increment, range(items), **more)
    assert sum(found) == items * (items + 1) // 2, "map lost something"
    return items / (time.perf_counter() - began)


@contextlib.contextmanager
def from_asyncio(who: str) -> Iterator[Sample]:
    """Tasks that each await one call after another."""
    with clutch_pool(2) if who == "clutch" else executor(2) as pool:

        def put() -> Awaitable[str]:
            if isinstance(pool, concurrent.futures.Executor):
                return asyncio.get_running_loop().run_in_executor(pool, plain.echo, TEXT)
            return pool.submit(plain.echo, TEXT)

        yield lambda _, seconds: {"rate": asyncio.run(awaited(put, seconds))}


async def awaited(put: Callable[[], Awaitable[str]], seconds: float) -> float:
    began = time.perf_counter()

    async def one_after_another() -> int:
        count = 0
        while time.perf_counter() < began + seconds:
            assert await put() == TEXT
            count += 1
        return count

    counts = await asyncio.gather(*(one_after_another() for _ in range(IN_FLIGHT)))
    return sum(counts) / (time.perf_counter() - began)


@contextlib.contextmanager
def queued(queued: int, workers: int = 1) -> Iterator[Sample]:
    """Nanoseconds of a submit while so many calls wait, and what each of these weighs in this process."""
    with held(workers) as pool:
        before = resident_bytes()
        waiting = [pool.submit(plain.increment, number) for number in range(queued)]
        each = (resident_bytes() - before) / queued

        def sample(_: object, seconds: float) -> dict[str, float]:
            spent = batches = 0
            until = time.perf_counter() + seconds
            while time.perf_counter() < until:
                began = time.perf_counter_ns()
                batch = [pool.submit(plain.increment, number) for number in range(BATCH)]
                spent += time.perf_counter_ns() - began
                cancelled = [future.cancel() for future in batch]
                assert all(cancelled), "a call that waits was not cancelled"
                batches += 1
            return {"submit": spent / batches / BATCH, "bytes": each}

        yield sample
        assert not any(future.done() for future in waiting), "what was queued has run"


@contextlib.contextmanager
def held(workers: int) -> Iterator[clutch.Pool]:
    """A pool whose workers are busy for good."""
    with clutch_pool(workers) as pool:
        for future in [pool.submit(time.sleep, HELD_SECONDS) for _ in range(workers)]:
            while not future.running():
                time.sleep(0.001)
        yield pool
        pool.kill_workers()


def resident_bytes() -> int:
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) << 10 for line in file if line.startswith("VmRSS:"))


@contextlib.contextmanager
def primes(threads: int, python: str) -> Iterator[Sample]:
    """Calls a second of one worker, by name: code does not travel between versions of Python."""
    with clutch_pool(1, profile="thread", threads=threads, python=python) as pool:

        def sample(_: object, seconds: float) -> dict[str, float]:
            began = time.perf_counter()
            futures = [pool.submit("count_primes", limit=PRIMES) for _ in range(8)]
            assert all(future.result() == PRIMES_BELOW for future in futures)
            return {"rate": len(futures) / (time.perf_counter() - began)}

        yield sample


@contextlib.contextmanager
def replaced(is_busy: bool) -> Iterator[Sample]:
    """Milliseconds from the SIGKILL of a worker with numpy until another is ready: the middle, and the longest."""
    import clutch
    from clutch.testing import watch

    with watch() as events, clutch.Pool("benches.calls.numpy_target", profile="process", workers=1) as pool:
        events.wait("worker_ready")

        def one() -> float:
            (worker,) = pool.stats()["workers"]
            held = [pool.submit(time.sleep, HELD_SECONDS)] if is_busy else []
            while not all(future.running() for future in held):
                time.sleep(0.001)
            began = time.perf_counter()
            os.kill(worker["pid"], signal.SIGKILL)
            events.wait("worker_ready")
            took = time.perf_counter() - began
            assert all(future.exception() is not None for future in held), "a call outlived its worker"
            return took * 1e3

        def sample(_: object, seconds: float) -> dict[str, float]:
            took = [one() for _ in range(KILLS)]
            return {"median": statistics.median(took), "longest": max(took)}

        yield sample


@contextlib.contextmanager
def crowd(who: str, count: int) -> Iterator[Sample]:
    """Seconds and megabytes of many workers with numpy, in a program of their own; see `benches.calls.crowd`."""
    command = [sys.executable, "-m", "benches.calls.crowd", who, str(count)]
    variables = os.environ | {"OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}

    def sample(_: object, seconds: float) -> dict[str, float]:
        done = subprocess.run(
            command, check=True, stdout=subprocess.PIPE, env=variables, cwd=ROOT, timeout=CROWD_SECONDS_MAX
        )
        return json.loads(done.stdout.splitlines()[-1])

    yield sample
