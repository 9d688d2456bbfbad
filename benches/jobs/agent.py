"""A process that enqueues: `python -m benches.jobs.agent VERB JOB COUNT WARM_UP`; prints what it measured as JSON.

`each` and `many`: the seconds that COUNT enqueues took. `latency`: for each of COUNT jobs on an idle system the
nanoseconds from just before its enqueue to the first line that ran, or null when it did not run in time.
"""

from __future__ import annotations

import json
import os
import random
import select
import sys
import time
from collections.abc import Callable
from pathlib import Path

from benches.jobs import contestants, processes, work

_PAUSE_SECONDS = (0.01, 0.03)
_LATENCY_SECONDS_MAX = 5


def main() -> None:
    verb, job, count, warm_up = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    contestant = contestants.named(os.environ[processes.CONTESTANT])
    contestant.connect(os.environ[processes.URL])
    if verb == "latency":
        print(json.dumps(hand_overs(lambda: contestant.enqueue(job, 1), count, warm_up)))
        return
    put = contestant.enqueue if verb == "each" else contestant.enqueue_many
    if warm_up:
        put(job, warm_up)
    began = time.perf_counter()
    put(job, count)
    print(json.dumps(time.perf_counter() - began))


def hand_overs(put: Callable[[], object], count: int, warm_up: int) -> list[int | None]:
    """Nanoseconds of each; the pauses between them are random, so that they meet no poll in step."""
    pauses = random.Random(1)
    # Open for writing too, so that it has no end while nobody writes.
    pipe = os.open(Path(os.environ[work.FOLDER_VARIABLE]) / work.PIPE, os.O_RDWR)
    taken: list[int | None] = []
    for _ in range(warm_up + count):
        time.sleep(pauses.uniform(*_PAUSE_SECONDS))
        began_ns = time.monotonic_ns()
        put()
        ran_ns = _stamp(pipe)
        taken.append(None if ran_ns is None else ran_ns - began_ns)
    return taken[warm_up:]


def _stamp(pipe: int) -> int | None:
    readable, _, _ = select.select([pipe], [], [], _LATENCY_SECONDS_MAX)
    return work.STAMP.unpack(os.read(pipe, work.STAMP.size))[0] if readable else None


if __name__ == "__main__":
    main()
