"""A process that enqueues: `python -m benches.jobs.agent VERB JOB COUNT WARM_UP`; prints what it measured as JSON.

`each` and `many`: the seconds that COUNT enqueues took. `latency`: for each of COUNT jobs on an idle system the
nanoseconds from just before its enqueue to the first line that ran, or null when it did not run in time. `callers`: the
rate of WARM_UP threads, or tasks of asyncio, that share COUNT enqueues.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import select
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from benches.jobs import contestants, launch, work
from benches.jobs.contestant import AsyncContestant

_PAUSE_SECONDS = (0.01, 0.03)
_START_SECONDS_MAX = 30
_LATENCY_SECONDS_MAX = 5


def main() -> None:
    verb, job, count, warm_up = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    contestant = contestants.named(os.environ[launch.CONTESTANT])
    contestant.connect(os.environ[launch.URL])
    if verb == "latency":
        print(json.dumps(hand_overs(lambda: contestant.enqueue(job, 1), count, warm_up)))
        return
    if verb == "callers":
        if isinstance(contestant, AsyncContestant):
            rate = contestant.run(rate_of_tasks(contestant, job, warm_up, count))
        else:
            rate = rate_of_threads(lambda share: contestant.enqueue(job, share), warm_up, count)
        print(json.dumps(rate))
        return
    put = contestant.enqueue if verb == "each" else contestant.enqueue_many
    if warm_up:
        put(job, warm_up)
    began = time.perf_counter()
    put(job, count)
    print(json.dumps(time.perf_counter() - began))


def rate_of_threads(put: Callable[[int], object], threads: int, count: int) -> float:
    """A second, of all threads together; each makes one call before the clock runs, which may open its connection."""
    start, share = threading.Barrier(threads + 1), count // threads

    def caller() -> None:
        put(1)
        start.wait()
        put(share)

    callers = [threading.Thread(target=caller) for _ in range(threads)]
    for one in callers:
        one.start()
    start.wait()
    began = time.perf_counter()
    for one in callers:
        one.join()
    return share * threads / (time.perf_counter() - began)


async def rate_of_tasks(contestant: AsyncContestant, job: str, tasks: int, count: int) -> float:
    """The same of tasks of one loop."""
    share = count // tasks
    await contestant.put(job)
    began = time.perf_counter()
    await asyncio.gather(*(contestant.one_by_one(job, share) for _ in range(tasks)))
    return share * tasks / (time.perf_counter() - began)


def hand_overs(put: Callable[[], object], count: int, warm_up: int) -> list[int | None]:
    """Nanoseconds of each; the pauses between them are random, so that they meet no poll in step."""
    pauses = random.Random(1)
    # Open for writing too, so that it has no end while nobody writes.
    pipe = os.open(Path(os.environ[work.FOLDER_VARIABLE]) / work.PIPE, os.O_RDWR)
    taken: list[int | None] = []
    for nr in range(warm_up + count):
        time.sleep(pauses.uniform(*_PAUSE_SECONDS))
        began_ns = time.monotonic_ns()
        put()
        ran_ns = _stamp(pipe, began_ns, _LATENCY_SECONDS_MAX if nr else _START_SECONDS_MAX)
        taken.append(None if ran_ns is None else ran_ns - began_ns)
    return taken[warm_up:]


def _stamp(pipe: int, began_ns: int, seconds_max: float) -> int | None:
    """The next that is not of an earlier job, which was given up."""
    while select.select([pipe], [], [], seconds_max)[0]:
        ran_ns = work.STAMP.unpack(os.read(pipe, work.STAMP.size))[0]
        if ran_ns >= began_ns:
            return ran_ns
    return None


if __name__ == "__main__":
    main()
