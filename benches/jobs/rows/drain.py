"""How fast one consumer with 10 slots empties a queue of no-op jobs in Redis.

All jobs are enqueued before it starts; the rate is theirs over the time from the first line to the last. The bytes that
the jobs append to a file are their runs: what was lost or ran twice is shown.
"""

from __future__ import annotations

from benches.harness import Report, Scale, more
from benches.jobs import contestants, launch, measured, redis_server
from benches.jobs.contestant import SLOTS, Contestant
from benches.jobs.launch import Drained
from benches.jobs.redis_server import RedisServer
from benches.jobs.scale import counts

_WORK = f"drain, Redis, {SLOTS} slots"


def run(scale: Scale) -> Report:
    """Jobs a second."""
    jobs = counts(scale).drain
    field, missing = contestants.of("redis", scale.peers_only)
    with redis_server.running() as server:
        taken = measured.take_turns(measured.samplers(field, lambda one: _sample(one, server, jobs)), scale.slow_rounds)
    report = Report(notes=[f"drain: {redis_server.version()}; {jobs:,} jobs, of which slow ones get a part, as shown"])
    measured.compare(report, _WORK, "/s", taken.of(lambda sample: sample.rate), contestants.CLUTCH, more(5))
    report.sheets.append(drain_sheet(_WORK, taken.samples))
    report.cells += measured.cells("drain", taken.samples)
    report.notes += [*measured.settings("drain", field, "redis://…"), *missing, *taken.failures]
    return report


def _sample(contestant: Contestant, server: RedisServer, jobs: int) -> Drained:
    count = contestant.jobs(jobs)
    server.flush()
    with launch.folder() as place:
        launch.agent(contestant, place, server.url, "each", "mark", count)
        return launch.drain(contestant, place, server.url, count, SLOTS)


def drain_sheet(title: str, samples: dict[str, list[Drained]]) -> measured.Sheet:
    """The rates, how many jobs each had, and whether each ran once."""
    cells = {name: _cells(drains) for name, drains in samples.items()}
    return measured.sheet(title, ["contestant", "jobs/s [95 %]", "jobs", "runs"], cells)


def _cells(drains: list[Drained]) -> list[str]:
    rates = measured.shown([one.rate for one in drains])
    return [rates, f"{drains[0].jobs:,}", ", ".join(sorted({one.verdict for one in drains}))]
