"""Samples of a worker of the app: a backlog of tasks that do nothing or sleep, one task at a time, none at all."""

from __future__ import annotations

import contextlib
import math
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence

from benches.celery import INSTANT, servers
from benches.celery.servers import House
from clutch.lab import watching
from clutch.lab.drivers import marks
from clutch.lab.drivers.probe import Sample
from clutch.lab.drivers.program import Program
from clutch.lab.load import Load

Command = Sequence[str]
NAP_SECONDS = 0.5
DRAIN_SECONDS_MAX = 300.0
PAUSE_SECONDS = (0.01, 0.03)
"""Random, so that they meet no poll in step."""
SETTLE_SECONDS = 3.0
SLOTS = "SLOTS"
"""Stands in a command for as many as tasks are to run at a time."""


@contextlib.contextmanager
def drain(command: Command, tasks: int, keeps_results: bool = False) -> Iterator[Sample]:
    """Tasks a second that do nothing, of a backlog; microseconds of CPU for each: the worker's, and the Redis's."""
    with servers.running(command, keeps_results) as house:

        def sample(*_: object) -> dict[str, float]:
            return drained(house, "nothing", (), tasks)

        yield sample


@contextlib.contextmanager
def sleeps(command: Command, tasks: int) -> Iterator[Sample]:
    """The time of a backlog of tasks that sleep to the least that so many slots need; megabytes while all are taken."""

    def sample(load: Load, _: float) -> dict[str, float]:
        slots = load.callers
        ideal = NAP_SECONDS * math.ceil(tasks / slots)
        with servers.running([word.replace(SLOTS, str(slots)) for word in command]) as house:
            weighed: list[float] = []

            def weigh() -> None:
                house.wait(min(slots, tasks - slots), DRAIN_SECONDS_MAX)
                weighed.append(watching.pss_bytes(house.pids()) / 1e6)

            figures = drained(house, "nap", (NAP_SECONDS,), tasks, weigh)
        return {**figures, "to the ideal": figures["seconds"] / ideal, "megabytes": weighed[0]}

    yield sample


def drained(
    house: House, task: str, args: Sequence[float], tasks: int, meanwhile: Callable[[], object] = lambda: None
) -> dict[str, float]:
    with house.held():
        house.put(task, args, tasks)
        before, redis_before = watching.usages(house.pids()), house.redis_cpu_s()
    meanwhile()
    house.wait(tasks, DRAIN_SECONDS_MAX)
    used = watching.used(before, watching.usages(house.pids()))
    ran = marks.take(house.folder)
    seconds = max(ended for _, ended in ran) - min(began for began, _ in ran)
    figures = {"seconds": seconds, "rate": tasks / seconds, "cpu": used.cpu_s / tasks * 1e6}
    return {**figures, "redis": (house.redis_cpu_s() - redis_before) / tasks * 1e6}


@contextlib.contextmanager
def latency(command: Command, tasks: int) -> Iterator[Sample]:
    """Milliseconds from delay() to its result on an idle worker, and what is over those of an instant responder, which
    is asked in turns."""
    with servers.running(command, keeps_results=True) as house:
        responder = Program([sys.executable, "-m", "benches.celery.responder"], house.environment)

        def one(queue: str) -> float:
            time.sleep(random.uniform(*PAUSE_SECONDS))
            began = time.perf_counter()
            house.tasks["nothing"].apply_async(queue=queue).get(timeout=servers.WARM_SECONDS_MAX)
            return (time.perf_counter() - began) * 1e3

        def sample(*_: object) -> dict[str, float]:
            pairs = [(one(servers.QUEUE), one(INSTANT)) for _ in range(tasks)]
            ours, floor = (statistics.median(side) for side in zip(*pairs, strict=True))
            return {"p50": ours, "floor": floor, "share": ours - floor}

        try:
            one(servers.QUEUE), one(INSTANT)
            yield sample
        except Exception as error:
            responder.note_tail(error)
            raise
        finally:
            responder.stop()


@contextlib.contextmanager
def idle(command: Command, seconds: float) -> Iterator[Sample]:
    """Milliseconds of CPU and commands a second, those within scripts too, of a worker that nobody asks anything."""
    with servers.running(command) as house:

        def sample(*_: object) -> dict[str, float]:
            time.sleep(SETTLE_SECONDS)
            before, commands, began = watching.usages(house.pids()), house.commands(), time.perf_counter()
            time.sleep(seconds)
            used = watching.used(before, watching.usages(house.pids()))
            spent = time.perf_counter() - began
            # Without the one that asks.
            sent = sum(house.commands().values()) - sum(commands.values()) - 1
            return {"cpu": used.cpu_s / spent * 1e3, "commands": sent / spent}

        yield sample
