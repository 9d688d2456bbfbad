"""Scenario S2: enqueue from 1, 6, 12, 24 and 48 callers, all callers together. No consumer runs.

redis-py with one client that all threads share, Clutch's `Jobs` shared in the same way, and `redis-benchmark -c N`,
unpipelined: what the server takes from so many connections.
"""

from __future__ import annotations

from functools import partial

from benches.harness import Contestant, Report, Scale, Sheet, Skipped, interleave
from benches.jobs import contestants, launch, measured, redis_server
from benches.jobs.contestants import CLUTCH
from benches.jobs.packages import RedisPy
from benches.jobs.redis_server import RedisServer
from benches.jobs.scale import counts

_CALLERS = (1, 6, 12, 24, 48)
_PAYLOAD_BYTES = 200
_WIRE_BYTES = _PAYLOAD_BYTES + redis_server.LPUSH_BYTES


def run(scale: Scale) -> Report:
    """Enqueues a second of all callers."""
    count = counts(scale).sweep
    if why := RedisPy().missing():
        raise Skipped(f"redis-py: {why}")
    absent = "not asked for" if scale.peers_only else contestants.named(CLUTCH).missing()
    with redis_server.running() as server:
        lines = [_line(server, callers, count, scale.slow_rounds, absent is None) for callers in _CALLERS]
    report = Report(notes=[f"sweep: {redis_server.version()}; {count:,} LPUSH of {_PAYLOAD_BYTES} bytes; no consumer"])
    headings = [
        "callers",
        "redis-py/s",
        "redis-benchmark -c N/s",
        *([] if absent else ["clutch/s"]),
        "redis-py ÷ floor",
    ]
    report.sheets.append(Sheet("S2, enqueue by callers, all together", headings, lines))
    report.notes += [f"sweep: redis-py ({RedisPy().versions()}): one client that all threads share"]
    report.notes += [f"left out: {CLUTCH}: {absent}"] if absent else []
    return report


def _line(server: RedisServer, callers: int, count: int, rounds: int, with_clutch: bool) -> list[str]:
    field = [
        Contestant("redis-py", partial(_redis_py, server, callers, count)),
        Contestant("floor", partial(_floor, server, callers, count)),
        *([Contestant(CLUTCH, partial(_clutch, server, callers, count))] if with_clutch else []),
    ]
    samples = interleave(field, rounds)
    shares = measured.ratios(samples["redis-py"], samples["floor"])
    return [str(callers), *(measured.shown(values) for values in samples.values()), measured.shown(shares)]


def _redis_py(server: RedisServer, callers: int, count: int) -> float:
    server.flush()
    arguments = ("sweep", str(server.port), str(callers), str(count), str(_PAYLOAD_BYTES))
    return launch.floor(RedisPy().folder, *arguments)


def _floor(server: RedisServer, callers: int, count: int) -> float:
    server.flush()
    return server.lpush_rate(count, _WIRE_BYTES, callers)


def _clutch(server: RedisServer, callers: int, count: int) -> float:
    server.flush()
    with launch.folder() as place:
        return launch.agent(contestants.named(CLUTCH), place, server.url, "callers", "mark", count, callers)
