"""From enqueue to the first line of the job, on an idle system: p50 and p99 of jobs that come one at a time.

The floor is what Redis and two Python processes take for the same: one waits in BRPOP, the other does LPUSH.
"""

from __future__ import annotations

import contextlib
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from benches.harness import Report, Scale, within
from benches.jobs import contestants, launch, measured, redis_server, sqlite, work
from benches.jobs.contestant import SLOTS, Contestant
from benches.jobs.packages import RedisPy
from benches.jobs.redis_server import RedisServer
from benches.jobs.scale import counts
from benches.processes import die_with_parent

_WARM_UP = 5
_FLOOR = "BRPOP, two processes"
_HEADINGS = ["contestant", "p50 ms [95 %]", "p99 ms [95 %]", "not within 5 s"]


@dataclass(frozen=True)
class Latencies:
    """Of one sample, in milliseconds."""

    p50: float
    p99: float
    late: int


def run(scale: Scale) -> Report:
    """Milliseconds; the floor is one more contestant, in turn with the others."""
    count = counts(scale).latency
    redis_field, missing = contestants.of("redis", scale.peers_only)
    sqlite_field, also_missing = contestants.of("sqlite", scale.peers_only)
    field = [*redis_field, *sqlite_field]
    with redis_server.running() as server:
        floor = {} if RedisPy().missing() else {_FLOOR: partial(_floor, server, count)}
        peers = measured.samplers(field, lambda one: _sample(one, server, count))
        taken = measured.take_turns(floor | peers, scale.slow_rounds)
    report = Report(notes=[f"latency: {redis_server.version()}; {count} jobs with pauses of 10 to 30 ms between them"])
    for name, value in (("p50", lambda one: one.p50), ("p99", lambda one: one.p99)):
        values = taken.of(value)
        bars = {peer: within(2 if peer == _FLOOR else 1) for peer in values if peer != contestants.CLUTCH}
        if contestants.CLUTCH in values:
            report.compare(f"latency, {name}", "ms", {contestants.CLUTCH: values[contestants.CLUTCH]} | values, bars)
    cells = {name: _cells(found) for name, found in taken.samples.items()}
    report.sheets.append(measured.sheet("latency, enqueue to first line, idle", _HEADINGS, cells))
    report.cells += measured.cells("latency", taken.samples)
    report.notes += [*measured.settings("latency", field, "URL"), *missing, *also_missing, *taken.failures]
    return report


def _sample(contestant: Contestant, server: RedisServer, count: int) -> Latencies:
    server.flush()
    with _piped() as place:
        url = server.url if contestant.store == "redis" else sqlite.url_of(place)
        with launch.consumer(contestant, place, url, SLOTS):
            return _summed_up(launch.agent(contestant, place, url, "latency", "stamp", count, _WARM_UP))


def _floor(server: RedisServer, count: int) -> Latencies:
    server.flush()
    with _piped() as place:
        command = [sys.executable, "-m", "benches.jobs.floors", "take", str(server.port), str(place)]
        variables = os.environ | {"PYTHONPATH": os.pathsep.join([str(RedisPy().folder), str(launch.ROOT)])}
        taker = subprocess.Popen(command, cwd=launch.ROOT, env=variables, preexec_fn=die_with_parent)
        try:
            arguments = ("hand_over", str(server.port), str(place), str(count), str(_WARM_UP))
            return _summed_up(launch.floor(RedisPy().folder, *arguments))
        finally:
            taker.kill()
            taker.wait()


@contextlib.contextmanager
def _piped() -> Iterator[Path]:
    """A folder with the pipe that jobs send their times through."""
    with launch.folder() as place:
        os.mkfifo(place / work.PIPE)
        yield place


def _summed_up(taken_ns: list[int | None]) -> Latencies:
    in_time = sorted(ns / 1e6 for ns in taken_ns if ns is not None)
    if len(in_time) < 2:
        raise launch.PeerFailed("no job ran within 5 s of its enqueue")
    p99 = statistics.quantiles(in_time, n=100, method="inclusive")[98]
    return Latencies(statistics.median(in_time), p99, len(taken_ns) - len(in_time))


def _cells(samples: list[Latencies]) -> list[str]:
    late = sum(one.late for one in samples)
    return [measured.shown([one.p50 for one in samples]), measured.shown([one.p99 for one in samples]), str(late)]
