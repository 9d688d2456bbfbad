"""Jobs of one function: put into a queue, and run by its consumer."""

from __future__ import annotations

import contextlib
import importlib
import os
import tempfile
import time
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol

from clutch.lab import watching
from clutch.lab.drivers.program import Program, Wrong
from clutch.lab.generator import Latencies
from clutch.lab.load import Load, latencies_of

CHECK_SECONDS_MAX = 60.0
DRAIN_SECONDS_MAX = 600.0
LOOK_SECONDS = (0.005, 0.05)
JOBS_MAX = 100_000
CHUNK = 1_000
QUEUE = "lab"

Ran = tuple[float, float]
"""When a job began and ended, by the clock of the wall."""


class Queue(Protocol):
    """What keeps jobs, and what runs them. It is open once it is there."""

    def command(self) -> list[str]:
        """What starts its consumer; SIGTERM stops it."""
        ...

    def environment(self) -> dict[str, str]:
        """Variables of the consumer."""
        ...

    def enqueue_many(self, count: int) -> None: ...

    def hold(self, consumer: Sequence[int]) -> None:
        """Until it is let go, no job begins."""
        ...

    def let_go(self, consumer: Sequence[int]) -> None: ...

    def has_ended(self, count: int) -> bool:
        """Whether all that were enqueued have."""
        ...

    def take(self) -> list[Ran]:
        """Of all that have ended, which it then forgets. Raises Wrong for one that has failed."""
        ...

    def pids(self) -> list[int]:
        """Processes that keep the jobs, if they are its own."""
        ...

    def end(self) -> None: ...


class ClutchQueue:
    """A store that `clutch work` takes from."""

    def __init__(self, order: dict[str, Any], folder: Path) -> None:
        import clutch

        self.order = order
        self.url = order["store"] or f"sqlite:///{folder}/jobs.db"
        self.queue = QUEUE if order["store"] is None else f"{QUEUE}-{os.getpid()}"
        self.jobs = clutch.Jobs(self.url)
        self.ids: list[str] = []

    def command(self) -> list[str]:
        return [*self.order["command"], "--queues", self.queue]

    def environment(self) -> dict[str, str]:
        return {"CLUTCH_STORE": self.url}

    def enqueue_many(self, count: int) -> None:
        store = self.jobs.options(queue=self.queue, retry=0)
        calls = [self.order["kwargs"]] * count
        for begin in range(0, count, CHUNK):
            self.ids += store.enqueue_many(self.order["name"], calls[begin : begin + CHUNK])

    def hold(self, consumer: Sequence[int]) -> None:
        self.jobs.pause(self.queue)

    def let_go(self, consumer: Sequence[int]) -> None:
        self.jobs.resume(self.queue)

    def has_ended(self, count: int) -> bool:
        queue = self.jobs.stats().get(self.queue)
        return queue is not None and not queue.available + queue.running + queue.scheduled

    def take(self) -> list[Ran]:
        times = []
        for one in self.ids:
            job = self.jobs.get(one)
            if job is None or job.state != "completed" or job.attempted_at is None or job.finished_at is None:
                reason = job.errors[-1].traceback or job.errors[-1].message if job and job.errors else "it is gone"
                if "no such tool" in reason or "has no tool" in reason:
                    raise Wrong(
                        f"{self.order['name']} is no tool: jobs run functions that are marked with @clutch.tool"
                    )
                raise Wrong(f"job {one} is {job.state if job else 'lost'}: {reason}")
            times.append((stamp(job.attempted_at), stamp(job.finished_at)))
            self.jobs.delete(one)
        self.ids.clear()
        return times

    def pids(self) -> list[int]:
        return []

    def end(self) -> None:
        with contextlib.suppress(Exception):
            for one in self.ids:
                self.jobs.delete(one)


def start(order: dict[str, Any]) -> JobsDriver:
    return JobsDriver(order)


class JobsDriver:
    """A queue, and its consumer."""

    def __init__(self, order: dict[str, Any]) -> None:
        self.slots = order["slots"]
        self.folder = tempfile.TemporaryDirectory(prefix="clutch-lab-")
        self.each_s = 0.0
        self.program: Program | None = None
        self.queue: Queue | None = None
        began = time.perf_counter()
        try:
            self.queue = queue_of(order, Path(self.folder.name))
            self.program = Program(self.queue.command(), self.queue.environment())
            self.queue.enqueue_many(1)
            self.drain(1, CHECK_SECONDS_MAX)
            ran = self.queue.take()
            self.start_s = self.check_s = time.perf_counter() - began
            self.each_s = max(1e-4, ran[0][1] - ran[0][0])
        except BaseException as error:
            self.end()
            if self.program is not None:
                self.program.note_tail(error)
            raise

    def hello(self) -> dict[str, Any]:
        return {"start_s": self.start_s, "check_s": self.each_s, "is_async": False}

    def consumer(self) -> list[int]:
        return self.program.pids() if self.program is not None else []

    def pids(self) -> list[int]:
        return [*self.consumer(), *(self.queue.pids() if self.queue is not None else [])]

    def memory_of(self) -> list[int]:
        return self.pids()

    def measure(self, load: Load, seconds: float) -> dict[str, Any]:
        """As many jobs as are expected to last so long, put there while the queue is held, and then let go."""
        if load.rate is not None:
            raise ValueError("jobs are measured as a backlog that is drained, not at a rate")
        assert self.queue is not None
        count = load.units or min(JOBS_MAX, max(2 * self.slots, round(seconds * self.slots / self.each_s)))
        held = self.consumer()
        self.queue.hold(held)
        try:
            self.queue.enqueue_many(count)
            before, caller = watching.usages(self.pids()), watching.cpu_s(os.getpid())
            released = time.time()
        finally:
            self.queue.let_go(held)
        self.drain(count, DRAIN_SECONDS_MAX)
        used = watching.used(before, watching.usages(self.pids()))
        called = watching.cpu_s(os.getpid()) - caller
        ran = self.queue.take()
        first, last = min(began for began, _ in ran), max(ended for _, ended in ran)
        wall = max(last - first, 1e-3)
        self.each_s = min(10 * self.each_s, max(1e-5, wall * self.slots / len(ran)))
        latencies = Latencies()
        latencies.record_many([max(0.0, ended - released) for _, ended in ran])
        return {
            "units": len(ran),
            "wall_s": wall,
            "errors": {},
            **used.as_figures(),
            "load_cpu_s": called,
            "queued_s": sum(max(0.0, began - released) for began, _ in ran) / len(ran),
            "run_s": sum(ended - began for began, ended in ran) / len(ran),
            **latencies_of(latencies.report(), len(ran)),
        }

    def drain(self, count: int, seconds: float) -> None:
        """Wait until all jobs have ended. Raises Wrong."""
        assert self.queue is not None and self.program is not None
        until, pause = time.monotonic() + seconds, LOOK_SECONDS[0]
        while not self.queue.has_ended(count):
            if (code := self.program.ended()) is not None:
                raise Wrong(f"the consumer ended with {code}")
            if time.monotonic() > until:
                raise Wrong(f"the jobs have not ended within {seconds:.0f} s")
            time.sleep(pause)
            pause = min(LOOK_SECONDS[1], 1.5 * pause)

    def end(self) -> None:
        if self.program is not None:
            self.program.stop()
        if self.queue is not None:
            self.queue.end()
        self.folder.cleanup()


def queue_of(order: dict[str, Any], folder: Path) -> Queue:
    """Of Clutch, or of the module that the order names."""
    if "queue" not in order:
        return ClutchQueue(order, folder)
    module: Any = importlib.import_module(order["queue"])
    return module.opened(order, folder)


def stamp(at: datetime) -> float:
    return at.timestamp()
