"""How fast one caller enqueues into Redis, one job after the other, beside the floor of one connection.

The floor of each is LPUSH by `redis-benchmark -c 1`, each time as many bytes as the contestant sends for a job, taken
right after the contestant's own sample.
"""

from __future__ import annotations

from dataclasses import dataclass

from benches.harness import Report, Scale, more
from benches.jobs import contestants, launch, measured, redis_server
from benches.jobs.contestant import Contestant
from benches.jobs.redis_server import RedisServer
from benches.jobs.scale import counts
from benches.table import figure

_HEADINGS = ["contestant", "jobs/s [95 %]", "floor/s", "share of floor [95 %]", "bytes a job", "commands a job"]
FLOOR = "redis-benchmark -c 1"
_WARM_UP = 100
_FLOOR_FACTOR = 5
"""So many more of the floor, which is so much faster, and which redis-benchmark times in whole milliseconds."""


@dataclass(frozen=True)
class Enqueued:
    """One sample, and what it sent to the server."""

    rate: float
    floor: float
    bytes: float
    commands: float


def run(scale: Scale) -> Report:
    """Enqueues a second, one by one."""
    jobs = counts(scale).enqueue
    field, missing = contestants.of("redis", scale.peers_only)
    with redis_server.running() as server:
        taken = measured.take_turns(
            measured.samplers(field, lambda one: sample(one, server, "each", jobs)), scale.rounds
        )
    report = reported("enqueue", jobs, field, taken)
    rates = taken.of(lambda one: one.rate)
    measured.compare(report, "enqueue, Redis", "/s", rates, contestants.CLUTCH, more(1))
    if ours := taken.samples.get(contestants.CLUTCH):
        floors = {contestants.CLUTCH: [one.rate for one in ours], FLOOR: [one.floor for one in ours]}
        report.compare("enqueue, Redis", "/s", floors, {FLOOR: more(0.8)})
    report.notes += missing
    return report


def reported(row: str, jobs: int, field: list[Contestant], taken: measured.Taken[Enqueued]) -> Report:
    """What each sent, beside its floor."""
    report = Report(notes=[f"{row}: {redis_server.version()}; {jobs:,} jobs; floor: {FLOOR} -t lpush"])
    cells = {name: _cells(samples) for name, samples in taken.samples.items()}
    report.sheets.append(measured.sheet(f"{row}, Redis, one caller", _HEADINGS, cells))
    report.cells += measured.cells(row, taken.samples)
    report.notes += [*(f"{row}: {one.name} = {one.settings}" for one in field), *taken.failures]
    return report


def sample(contestant: Contestant, server: RedisServer, verb: str, jobs: int) -> Enqueued:
    server.flush()
    with launch.folder() as place:
        before = server.counters()
        seconds = launch.agent(contestant, place, server.url, verb, "mark", jobs, _WARM_UP)
        after = server.counters()
    sent = (after.bytes - before.bytes) / (jobs + _WARM_UP)
    server.flush()
    floor = server.lpush_rate(jobs * _FLOOR_FACTOR, sent)
    return Enqueued(jobs / seconds, floor, sent, (after.commands - before.commands) / (jobs + _WARM_UP))


def _cells(samples: list[Enqueued]) -> list[str]:
    rates, floors = [one.rate for one in samples], [one.floor for one in samples]
    sent = [figure(samples[-1].bytes), f"{samples[-1].commands:.1f}"]
    return [measured.shown(rates), measured.shown(floors), measured.shown(measured.ratios(rates, floors)), *sent]
