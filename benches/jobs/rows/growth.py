"""What one job costs, claim and settlement, with 1,000, 100,000 and 1,000,000 jobs that wait. Clutch only.

One slot, so that jobs come one after the other; the cost is the time between two runs in the midst of the queue.
"""

from __future__ import annotations

import time
from functools import partial

from benches import harness
from benches.harness import Report, Scale, Skipped, interleave, within
from benches.jobs import contestants, launch, measured, redis_server, sqlite
from benches.jobs.contestant import Contestant
from benches.jobs.launch import Consumer
from benches.jobs.redis_server import RedisServer
from benches.jobs.scale import counts

_FIRST, _LAST = 200, 800
"""Runs between which the clock runs: past the start of the consumer, and fewer than wait at the least."""


def run(scale: Scale) -> Report:
    """Microseconds a job, by store and by how many wait; the fewest are the peer of the others."""
    if scale.peers_only:
        raise Skipped("Clutch only")
    ours = [contestants.named(name) for name in (contestants.CLUTCH, f"{contestants.CLUTCH} sqlite")]
    if why := ours[0].missing():
        raise Skipped(why)
    report = Report(notes=[f"growth: {redis_server.version()}; one slot; between runs {_FIRST} and {_LAST}"])
    waiting = counts(scale).waiting
    with redis_server.running() as server:
        for contestant in ours:
            field = [_waiting(contestant, server, count) for count in reversed(waiting)]
            samples = interleave(field, scale.slow_rounds)
            report.compare(f"growth, {contestant.name}, {waiting[-1]:,} wait", "µs", samples, _bars(waiting))
            cells = {name: [measured.shown(values)] for name, values in samples.items()}
            report.sheets.append(measured.sheet(f"growth, {contestant.name}", ["waiting", "µs a job [95 %]"], cells))
    return report


def _bars(waiting: tuple[int, ...]) -> dict[str, harness.Bar]:
    return {_name(count): within(1.5) for count in waiting[:-1]}


def _name(count: int) -> str:
    return f"{count:,} wait"


def _waiting(contestant: Contestant, server: RedisServer, count: int) -> harness.Contestant:
    return harness.Contestant(_name(count), partial(job_us, contestant, server, count))


def job_us(contestant: Contestant, server: RedisServer, waiting: int) -> float:
    """Of one job; the queue is filled, and as good as full at the end."""
    server.flush()
    with launch.folder() as place:
        url = server.url if contestant.store == "redis" else sqlite.url_of(place)
        launch.agent(contestant, place, url, "many", "mark", waiting)
        with launch.consumer(contestant, place, url, 1) as running:
            first_runs, began = _reached(running, _FIRST)
            last_runs, ended = _reached(running, _LAST)
    return (ended - began) / (last_runs - first_runs) * 1e6


def _reached(running: Consumer, runs: int) -> tuple[int, float]:
    """How many had run when it was seen, and when that was."""
    if not running.wait_runs(runs):
        raise RuntimeError(f"only {running.runs()} jobs have run: {running.tail()}")
    return running.runs(), time.perf_counter()
