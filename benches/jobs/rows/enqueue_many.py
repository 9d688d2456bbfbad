"""How fast one caller enqueues many jobs into Redis: ours at once, beside what each peer does one by one, and in
the fastest way that it has to do it at once.

The floor is the same as of one by one: a share above 1 is what batches or pipelines gain over one command at a time.
"""

from __future__ import annotations

from functools import partial

from benches.harness import Report, Scale, more
from benches.jobs import contestants, measured, redis_server
from benches.jobs.rows.enqueue import reported, sample
from benches.jobs.scale import counts

_LOOP = ", one by one"


def run(scale: Scale) -> Report:
    """Enqueues a second, many at a time."""
    jobs = counts(scale).enqueue_many
    field, missing = contestants.of("redis", scale.peers_only)
    with redis_server.running() as server:
        at_once = {one.name: partial(sample, one, server, "many", jobs) for one in field}
        loops = {
            one.name + _LOOP: partial(sample, one, server, "each", counts(scale).enqueue)
            for one in field
            if one.name != contestants.CLUTCH
        }
        taken = measured.take_turns(at_once | loops, scale.rounds)
    report = reported("enqueue_many", jobs, field, taken)
    rates = taken.of(lambda one: one.rate)
    bars = {name: more(20 if name.endswith(_LOOP) else 1) for name in rates if name != contestants.CLUTCH}
    if contestants.CLUTCH in rates:
        report.compare("enqueue_many, Redis", "/s", {contestants.CLUTCH: rates[contestants.CLUTCH]} | rates, bars)
    report.notes += missing
    return report
