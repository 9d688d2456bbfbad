"""Calls of one function, through a pool of Clutch or of another library."""

from __future__ import annotations

import concurrent.futures
import importlib
import inspect
import itertools
import os
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from clutch.lab import watching
from clutch.lab.drivers.program import Wrong
from clutch.lab.generator import Latencies
from clutch.lab.load import Load, latencies_of
from clutch.lab.names import named

CHECK_SECONDS_MAX = 60.0
INTERVALS = 50
CHECKS = 5
"""Calls of which one must go well before there is any load."""
LONG_SECONDS = 0.5
CALLS_MIN = 2.5
"""Durations of a call that a window has at least."""
LOOK_SECONDS = 0.02
SETTLE_SECONDS, SETTLE_CALLS, SETTLE_SECONDS_MAX = 2.0, 5, 30.0
"""What is under way at the end is waited for: so long, and so many times what it should take; at most."""
CALLER_BUSY = 0.85
"""Share of a CPU beyond which the program that calls is the limit."""
LATE_SECONDS_MAX = 0.001
"""Calls that are made this much later than they were due make the load, and not the work, what was measured."""
FAR_BEHIND = 0.5
"""Calls that have not ended to those that have."""
OVERTIME = 1.5
"""Part of its time after which a load that is behind gives up."""
REFUSED_PAUSE_SECONDS = 0.001
FRAMEWORKS = {"fastapi", "starlette", "flask", "django", "quart", "litestar", "falcon", "sanic", "aiohttp"}

Ended = tuple[float, float]
"""When a call has ended, and its latency."""


class Executor(Protocol):
    """What runs calls."""

    def submit(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> concurrent.futures.Future[Any]: ...

    def pids(self) -> list[int]:
        """Its workers."""
        ...

    def spent(self) -> tuple[float, float] | None:
        """Seconds that all calls so far have waited for a slot, and have run; None: it does not know."""
        ...

    def cpu_s(self) -> float | None:
        """CPU time of all workers so far, ended ones included; None: it does not know."""
        ...

    def end(self) -> None: ...


class ClutchExecutor:
    """A pool of Clutch."""

    def __init__(self, module: str, options: dict[str, Any]) -> None:
        import clutch

        self.pool = clutch.Pool(target=module, name="lab", **options)
        self.pool.wait_ready(options.get("workers", 1))

    def submit(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> concurrent.futures.Future[Any]:
        return self.pool.submit(function, *args, **kwargs)

    def pids(self) -> list[int]:
        return [worker["pid"] for worker in self.pool.stats()["workers"] if worker["pid"]]

    def spent(self) -> tuple[float, float] | None:
        return self.pool.stats()["queued_s"], self.pool.insights().run_seconds

    def cpu_s(self) -> float | None:
        return self.pool.stats()["cpu_s"]

    def queued(self) -> int:
        """Calls that wait for a slot."""
        return self.pool.stats()["queued"]

    def recycle(self) -> None:
        """Replace the first worker."""
        self.pool.recycle(self.pool.stats()["workers"][0]["nr"])

    def end(self) -> None:
        self.pool.kill_workers()


@dataclass(frozen=True)
class Sample:
    """What has been used up to a time. `cpu_s`: of workers, those that have ended included where that is known."""

    at: float
    workers: watching.Usages
    cpu_s: float | None
    caller_cpu_s: float
    spent: tuple[float, float] | None
    children_cpu_s: float = 0.0
    """Of programs that workers have started, and that have ended."""


def start(order: dict[str, Any]) -> CallsDriver:
    return CallsDriver(order)


class CallsDriver:
    def __init__(self, order: dict[str, Any]) -> None:
        began = time.perf_counter()
        self.function = found(order["module"], order["name"])
        self.args, self.kwargs, self.slots = order["args"], order["kwargs"], order["slots"]
        self.executor = executor_of(order)
        self.start_s = time.perf_counter() - began
        try:
            self.check_s = self.first_check(order.get("check_s", CHECK_SECONDS_MAX))
            if self.check_s > LONG_SECONDS:  # the first call may have imported something
                self.check_s = min(self.check_s, self.check(order.get("check_s", CHECK_SECONDS_MAX)))
        except BaseException:
            self.executor.end()
            raise

    def first_check(self, seconds: float) -> float:
        """As `check`, of work that may fail now and then. Raises what the first of some calls raises that all fail."""
        first: Exception | None = None
        for _ in range(CHECKS):
            try:
                return self.check(seconds)
            except TimeoutError:
                raise
            except Exception as error:
                first = first or error
        assert first is not None
        if isinstance(first, TypeError) and "missing" in str(first) and "argument" in str(first):
            first.add_note("arguments are given behind the target, as NAME=VALUE")
        raise first

    def check(self, seconds: float) -> float:
        """One call; how long it takes."""
        began = time.perf_counter()
        future = self.executor.submit(self.function, *self.args, **self.kwargs)
        try:
            future.result(seconds)
        except TimeoutError:
            if future.done():
                raise
            raise TimeoutError(f"one call has not ended within {seconds:g} s") from None
        return time.perf_counter() - began

    def hello(self) -> dict[str, Any]:
        is_async = inspect.iscoroutinefunction(inspect.unwrap(self.function))
        times = {"start_s": self.start_s, "check_s": self.check_s, "least_s": CALLS_MIN * self.check_s}
        return {**times, "is_async": is_async}

    def pids(self) -> list[int]:
        return self.executor.pids()

    def memory_of(self) -> list[int]:
        return watching.below(os.getpid())

    def end(self) -> None:
        self.executor.end()

    def measure(self, load: Load, seconds: float) -> dict[str, Any]:
        if load.rate is not None:
            return AtRate(self, load, seconds).figures()
        return Closed(self, load, max(seconds, CALLS_MIN * self.check_s)).figures()


class Run:
    """One measurement. Of what has ended between `first` and `last`, the units are counted."""

    def __init__(self, driver: CallsDriver, load: Load, seconds: float) -> None:
        self.driver, self.load, self.seconds = driver, load, seconds
        self.free = threading.Semaphore(load.callers)
        self.ends: list[Ended] = []
        self.errors: Counter[str] = Counter()
        self.unended = 0
        self.under_way: set[concurrent.futures.Future[Any]] = set()
        self.watch = Watch(driver.executor, load, seconds)
        thread_before, self.began = time.thread_time(), time.perf_counter()
        with self.watch:
            self.first, self.last = self.drive()
        self.busy = (time.thread_time() - thread_before) / (self.last.at - self.began)
        self.wait_ended()
        self.settle()

    def wait_ended(self) -> None:
        """For what is under way. What has not ended by then counts as failed, and is not waited for any more."""
        until = time.perf_counter() + min(SETTLE_SECONDS_MAX, SETTLE_SECONDS + self.patience())
        for nr in range(self.load.callers):
            if not self.free.acquire(timeout=max(0.0, until - time.perf_counter())):
                self.unended = self.load.callers - nr
                break
        for future in list(self.under_way):  # what still waits is not to be in the way of the next measurement
            future.cancel()

    def patience(self) -> float:
        """A few times what all that waits for a slot should take."""
        return SETTLE_CALLS * self.driver.check_s * (1 + self.load.callers / self.driver.slots)

    def drive(self) -> tuple[Sample, Sample]:
        raise NotImplementedError

    def settle(self) -> None:
        """What was under way has ended."""

    def counted(self) -> tuple[list[Ended], float]:
        """The ends that count, in order, and the time that they took."""
        raise NotImplementedError

    def began_counting(self) -> float:
        """From when on units count."""
        raise NotImplementedError

    def sample(self) -> Sample:
        executor = self.driver.executor
        used, caller = watching.usages(executor.pids()), watching.cpu_s(os.getpid())
        children = sum(map(watching.children_cpu_s, used))
        return Sample(time.perf_counter(), used, executor.cpu_s(), caller, executor.spent(), children)

    def call(self, since: float) -> None:
        driver = self.driver
        try:
            future = driver.executor.submit(driver.function, *driver.args, **driver.kwargs)
        except Exception as error:
            self.errors[type(error).__name__] += 1
            self.free.release()
            time.sleep(REFUSED_PAUSE_SECONDS)
        else:
            self.under_way.add(future)
            future.add_done_callback(lambda future: self.ended(future, since))

    def ended(self, future: concurrent.futures.Future[Any], since: float) -> None:
        now = time.perf_counter()
        self.under_way.discard(future)
        if future.cancelled():
            return  # it is one of those that have not ended
        if (error := future.exception()) is not None:
            self.errors[type(error).__name__] += 1
        else:
            self.ends.append((now, now - since))
        self.free.release()

    def spoiled(self) -> str | None:
        whole = (self.last.caller_cpu_s - self.first.caller_cpu_s) / max(self.last.at - self.first.at, 1e-9)
        if (busy := max(self.busy, whole)) > CALLER_BUSY:
            return f"the program that calls used {busy:.0%} of a CPU: it is the limit, and not the workers"
        return None

    def figures(self) -> dict[str, Any]:
        kept, wall = self.counted()
        latencies = Latencies()
        latencies.record_many([latency for _, latency in kept])
        # CPU time was read at other times than those at which the first and the last unit ended.
        stretch = wall / max(self.last.at - self.first.at, 1e-9)
        used = watching.used(self.first.workers, self.last.workers)
        known = (self.first.cpu_s, self.last.cpu_s)
        cpu_s = used.cpu_s if known[0] is None or known[1] is None else known[1] - known[0]
        cpu_s += max(0.0, self.last.children_cpu_s - self.first.children_cpu_s)
        known_whole = {} if None in known else {"ended": 0}
        figures: dict[str, Any] = {
            **known_whole,
            "units": len(kept),
            "wall_s": wall,
            "errors": dict(self.errors) | ({"not ended": self.unended} if self.unended else {}),
            **used.as_figures(stretch),
            "cpu_s": cpu_s * stretch,
            "load_cpu_s": (self.last.caller_cpu_s - self.first.caller_cpu_s) * stretch,
            "series": list(series(kept, self.began_counting(), wall)),
            "deepest": self.watch.deepest,
            "recycled_s": self.watch.recycled_s,
            "spoiled": self.spoiled(),
            **latencies_of(latencies.report(), len(kept)),
        }
        if self.first.spent is not None and self.last.spent is not None and kept:
            pairs = zip(self.last.spent, self.first.spent, strict=True)
            queued, run = (max(0.0, after - before) * stretch / len(kept) for after, before in pairs)
            figures |= {"queued_s": queued, "run_s": run}
        return figures


class Watch:
    """What is looked at, and done to it, while work is under load: by a thread of its own, for a pool of Clutch."""

    def __init__(self, executor: Executor, load: Load, seconds: float) -> None:
        self.executor = executor if isinstance(executor, ClutchExecutor) else None
        self.looks, self.recycles = load.rate is not None, load.recycles
        self.seconds = seconds
        self.deepest: int | None = None
        self.recycled_s: float | None = None
        self.is_over = threading.Event()
        self.threads: list[threading.Thread] = []

    def __enter__(self) -> None:
        jobs = [self.look] * self.looks + [self.recycle] * self.recycles if self.executor is not None else []
        self.threads = [threading.Thread(target=job) for job in jobs]
        for thread in self.threads:
            thread.start()

    def __exit__(self, *_: object) -> None:
        self.is_over.set()
        for thread in self.threads:
            thread.join()

    def look(self) -> None:
        assert self.executor is not None
        while not self.is_over.wait(LOOK_SECONDS):
            self.deepest = max(self.deepest or 0, self.executor.queued())

    def recycle(self) -> None:
        assert self.executor is not None
        self.is_over.wait(self.seconds / 3)
        began = time.perf_counter()
        self.executor.recycle()
        self.recycled_s = time.perf_counter() - began


class Closed(Run):
    """As many calls under way as there are callers. What counts begins once as many have ended as run at a time, so
    that all slots are busy, and ends with the last that ends in time: calls that all take the same time end in bursts,
    of which a window that is cut anywhere would have one more or one less."""

    def drive(self) -> tuple[Sample, Sample]:
        ramp = min(self.driver.slots, self.load.callers)
        self.call_until(self.began + self.seconds, lambda: len(self.ends) + self.errors.total() >= ramp)
        first = self.sample()
        self.ramped = len(self.ends)
        self.call_until(first.at + self.seconds, lambda: False)
        last = self.sample()
        self.until = last.at
        return first, last

    def call_until(self, until: float, is_enough: Callable[[], bool]) -> None:
        while (now := time.perf_counter()) < until and not is_enough():
            if self.free.acquire(timeout=until - now):
                self.call(time.perf_counter())

    def counted(self) -> tuple[list[Ended], float]:
        kept = [end for end in self.ends[self.ramped :] if end[0] <= self.until]
        began = self.began_counting()
        return kept, (kept[-1][0] - began if kept else self.until - began)

    def began_counting(self) -> float:
        """With the last call of the ramp; where none has ended in it, slots have been busy since the beginning."""
        return self.ends[self.ramped - 1][0] if self.ramped else self.began


class AtRate(Run):
    """A call whenever one is due, whatever became of those before. All that was due counts, from when it was due."""

    def drive(self) -> tuple[Sample, Sample]:
        self.lates: list[float] = []
        self.gave_up_at: float | None = None
        first = self.sample()
        self.began = first.at
        blocked_until = 0.0
        for due in dues(self.load, self.seconds):
            now = time.perf_counter() - self.began
            if due > now:
                time.sleep(due - now)
            elif now > OVERTIME * self.seconds:
                self.gave_up_at = due  # no more is offered: it is far behind
                break
            if not self.free.acquire(blocking=False):
                if not self.free.acquire(timeout=max(0.0, OVERTIME * self.seconds - now)):
                    self.gave_up_at = due
                    break
                blocked_until = time.perf_counter() - self.began
            if blocked_until <= due:
                self.lates.append(time.perf_counter() - self.began - due)
            self.call(self.began + due)
        time.sleep(max(0.0, self.began + self.seconds - time.perf_counter()))
        return first, self.sample()

    def patience(self) -> float:
        """Far behind its rate there is no end to wait for."""
        return SETTLE_CALLS * self.driver.check_s + OVERTIME * self.seconds

    def settle(self) -> None:
        self.last = self.sample()

    def began_counting(self) -> float:
        return self.began

    def counted(self) -> tuple[list[Ended], float]:
        kept = sorted(self.ends)
        return kept, max(self.seconds, kept[-1][0] - self.began if kept else 0.0)

    def spoiled(self) -> str | None:
        if self.gave_up_at is not None:
            share = self.gave_up_at / self.seconds
            return f"only {share:.0%} of the calls that were due could be made, with {self.load.callers:,} under way"
        if self.unended and self.unended > FAR_BEHIND * len(self.ends):
            return f"{self.unended:,} of the calls that were made had not ended: it is far behind the rate"
        latencies = sorted(latency for _, latency in self.ends)
        lates = sorted(self.lates)
        if lates and (late := lates[int(len(lates) * 0.99)]) > max(LATE_SECONDS_MAX, middle(latencies) / 2):
            return f"the rate could not be offered: calls were made {late * 1e3:.1f} ms after they were due (p99)"
        return super().spoiled()


def middle(ordered: list[float]) -> float:
    return ordered[len(ordered) // 2] if ordered else 0.0


def dues(load: Load, seconds: float) -> Iterator[float]:
    """When calls are due, from the beginning."""
    assert load.rate is not None
    if not load.is_poisson:
        yield from itertools.takewhile(lambda due: due < seconds, (nr / load.rate for nr in itertools.count()))
        return
    draw, due = random.Random(load.seed), 0.0
    while (due := due + draw.expovariate(load.rate)) < seconds:
        yield due


def series(ends: list[Ended], began: float, wall: float) -> Iterator[tuple[float, int, float]]:
    """By intervals: their end, units, the longest latency."""
    if wall <= 0 or not ends:
        return
    counts, longest = [0] * INTERVALS, [0.0] * INTERVALS
    for at, latency in ends:
        nr = max(0, min(INTERVALS - 1, int((at - began) / wall * INTERVALS)))
        counts[nr] += 1
        longest[nr] = max(longest[nr], latency)
    for nr in range(INTERVALS):
        yield (nr + 1) * wall / INTERVALS, counts[nr], longest[nr]


def executor_of(order: dict[str, Any]) -> Executor:
    if order["executor"] == "clutch":
        return ClutchExecutor(order["module"], order["options"])
    peer: Any = importlib.import_module(order["executor"])
    return peer.start(order)


def found(module: str, name: str) -> Any:
    """The function. Raises ImportError, or Wrong for what is none, such as an app or a generator."""
    function = named(module, name)
    if not callable(function):
        raise Wrong(f"{module}:{name} is a value of type {type(function).__name__}, which cannot be called")
    if (framework := type(function).__module__.partition(".")[0]) in FRAMEWORKS:
        raise Wrong(f"{module}:{name} is an app of {framework}; say which path to ask for, such as --path /")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise Wrong(f"{module}:{name} is a generator: measure a function that consumes it")
    return function
