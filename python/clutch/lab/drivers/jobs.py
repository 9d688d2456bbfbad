"""Jobs of one tool: put into a store, and run by a consumer."""

from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile
import time
from datetime import datetime
from typing import Any

from clutch.lab import watching
from clutch.lab.drivers.served import stop
from clutch.lab.generator import Latencies
from clutch.lab.load import Load, latencies_of

START_SECONDS_MAX = 90.0
CHECK_SECONDS_MAX = 60.0
DRAIN_SECONDS_MAX = 600.0
LOOK_SECONDS = (0.005, 0.05)
SHOWN_BYTES = 4_000
JOBS_MAX = 100_000
CHUNK = 1_000
QUEUE = "lab"


class Wrong(Exception):
    """The consumer does not start, or the job does not complete."""


def start(order: dict[str, Any]) -> JobsDriver:
    return JobsDriver(order)


class JobsDriver:
    """A store, and `clutch work` over it."""

    def __init__(self, order: dict[str, Any]) -> None:
        import clutch

        self.order, self.slots = order, order["slots"]
        self.folder = tempfile.TemporaryDirectory(prefix="clutch-lab-")
        self.url = order["store"] or f"sqlite:///{self.folder.name}/jobs.db"
        self.queue = QUEUE if order["store"] is None else f"{QUEUE}-{os.getpid()}"
        self.jobs = clutch.Jobs(self.url)
        self.tool = order["name"]
        self.output = tempfile.TemporaryFile()  # noqa: SIM115 - as long as this lives
        self.each_s = 0.0
        self.ids: list[str] = []
        self.process: subprocess.Popen[bytes] | None = None
        began = time.perf_counter()
        try:
            self.process = subprocess.Popen(
                [*order["command"], "--queues", self.queue],
                stdin=subprocess.DEVNULL,
                stdout=self.output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env={**os.environ, "CLUTCH_STORE": self.url},
            )
            ran = self.run(1, CHECK_SECONDS_MAX)
            self.start_s = self.check_s = time.perf_counter() - began
            self.each_s = max(1e-4, ran[0][1] - ran[0][0])
        except BaseException as error:
            self.end()
            if said := self.tail():
                error.add_note(said)
            raise

    def hello(self) -> dict[str, Any]:
        return {"start_s": self.start_s, "check_s": self.each_s, "is_async": False}

    def pids(self) -> list[int]:
        return watching.below(self.process.pid) if self.process is not None else []

    def measure(self, load: Load, seconds: float) -> dict[str, Any]:
        """As many jobs as are expected to last so long, put there while the queue is paused, and then let go."""
        if load.rate is not None:
            raise ValueError("jobs are measured as a backlog that is drained, not at a rate")
        count = min(JOBS_MAX, max(2 * self.slots, round(seconds * self.slots / self.each_s)))
        self.jobs.pause(self.queue)
        self.enqueue(count)
        before, caller = watching.usage(self.pids()), watching.cpu_s(os.getpid())
        released = time.time()
        self.jobs.resume(self.queue)
        ran = self.drained(DRAIN_SECONDS_MAX)
        used = watching.usage(self.pids()) - before
        first, last = min(began for began, _ in ran), max(ended for _, ended in ran)
        wall = max(last - first, 1e-3)
        self.each_s = min(10 * self.each_s, max(1e-5, wall * self.slots / len(ran)))
        latencies = Latencies()
        latencies.record_many([max(0.0, ended - released) for _, ended in ran])
        return {
            "units": len(ran),
            "wall_s": wall,
            "errors": {},
            "cpu_s": used.cpu_s,
            "load_cpu_s": watching.cpu_s(os.getpid()) - caller,
            "switches": used.switches,
            "forced": used.forced,
            "queued_s": sum(max(0.0, began - released) for began, _ in ran) / len(ran),
            "run_s": sum(ended - began for began, ended in ran) / len(ran),
            **latencies_of(latencies.report()),
        }

    def run(self, count: int, seconds: float) -> list[tuple[float, float]]:
        self.enqueue(count)
        return self.drained(seconds)

    def enqueue(self, count: int) -> None:
        store = self.jobs.options(queue=self.queue, retry=0)
        calls = [self.order["kwargs"]] * count
        for begin in range(0, count, CHUNK):
            self.ids += store.enqueue_many(self.tool, calls[begin : begin + CHUNK])

    def drained(self, seconds: float) -> list[tuple[float, float]]:
        """When each job began and ended, once all have. Raises Wrong for one that has failed."""
        until, pause = time.monotonic() + seconds, LOOK_SECONDS[0]
        while (queue := self.jobs.stats().get(self.queue)) is None or queue.available + queue.running + queue.scheduled:
            if self.process is None or self.process.poll() is not None:
                raise Wrong(f"clutch work ended with {self.process and self.process.returncode}")
            if time.monotonic() > until:
                raise Wrong(f"the jobs have not ended within {seconds:.0f} s")
            time.sleep(pause)
            pause = min(LOOK_SECONDS[1], 1.5 * pause)
        times = []
        for one in self.ids:
            job = self.jobs.get(one)
            if job is None or job.state != "completed" or job.attempted_at is None or job.finished_at is None:
                reason = job.errors[-1].traceback or job.errors[-1].message if job and job.errors else "it is gone"
                raise Wrong(f"job {one} is {job.state if job else 'lost'}: {reason}")
            times.append((stamp(job.attempted_at), stamp(job.finished_at)))
            self.jobs.delete(one)
        self.ids.clear()
        return times

    def tail(self) -> str:
        """The end of what the consumer has printed."""
        self.output.seek(0, os.SEEK_END)
        self.output.seek(max(0, self.output.tell() - SHOWN_BYTES))
        return self.output.read().decode(errors="replace").strip()

    def end(self) -> None:
        if self.process is not None:
            stop(self.process)
        with contextlib.suppress(Exception):
            for one in self.ids:
                self.jobs.delete(one)
        self.folder.cleanup()


def stamp(at: datetime) -> float:
    return at.timestamp()
