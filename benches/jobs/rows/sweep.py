"""Scenario S2: enqueue from 1, 6, 12, 24 and 48 callers, all callers together. No consumer runs.

redis-py with one client that all threads share, Clutch's `Jobs` shared in the same way, with each strategy and by tasks
of asyncio, and `redis-benchmark -c N`, unpipelined: what the server takes from so many connections.
"""

from __future__ import annotations

from functools import partial

from benches.harness import Contestant, Report, Scale, Sheet, Skipped, interleave, more
from benches.jobs import contestants, launch, measured, redis_server
from benches.jobs.contestants import CLUTCH
from benches.jobs.packages import RedisPy
from benches.jobs.redis_server import RedisServer
from benches.jobs.scale import counts

_CALLERS = (1, 6, 12, 24, 48)
_BAR_FROM = 6
_FLOOR = "redis-benchmark -c"
_STRATEGIES = ("clutch single", "clutch pool", "clutch checkout")
_ASYNCIO = "clutch asyncio"
_PAYLOAD_BYTES = 200
_WIRE_BYTES = _PAYLOAD_BYTES + redis_server.LPUSH_BYTES


def run(scale: Scale) -> Report:
    """Enqueues a second of all callers."""
    count = counts(scale).sweep
    if why := RedisPy().missing():
        raise Skipped(f"redis-py: {why}")
    absent = "not asked for" if scale.peers_only else contestants.named(CLUTCH).missing()
    report = Report(notes=[f"sweep: {redis_server.version()}; {count:,} LPUSH of {_PAYLOAD_BYTES} bytes; no consumer"])
    ours = [] if absent else [CLUTCH, _ASYNCIO, *_STRATEGIES]
    lines = []
    with redis_server.running() as server:
        for callers in _CALLERS:
            samples = interleave(_field(server, callers, count, ours), scale.slow_rounds)
            if ours:
                bars = {_FLOOR: more(0.8)} if callers >= _BAR_FROM else {}
                report.compare(f"enqueue, {callers} threads", "/s", {CLUTCH: samples[CLUTCH]} | samples, bars)
                pair = {name: samples[name] for name in (_ASYNCIO, _FLOOR)}
                report.compare(f"enqueue, {callers} tasks", "/s", pair, bars)
            lines.append([str(callers), *(measured.shown(values) for values in samples.values())])
    headings = ["callers", "redis-py/s", f"{_FLOOR} N/s", *(f"{name}/s" for name in ours)]
    report.sheets.append(Sheet("S2, enqueue by callers, all together", headings, lines))
    report.notes += [f"sweep: redis-py ({RedisPy().versions()}): one client that all threads share"]
    report.notes += [f"left out: {CLUTCH}: {absent}"] if absent else []
    return report


def _field(server: RedisServer, callers: int, count: int, ours: list[str]) -> list[Contestant]:
    return [
        Contestant("redis-py", partial(_redis_py, server, callers, count)),
        Contestant(_FLOOR, partial(_floor, server, callers, count)),
        *(Contestant(name, partial(_clutch, server, callers, count, name)) for name in ours),
    ]


def _redis_py(server: RedisServer, callers: int, count: int) -> float:
    server.flush()
    arguments = ("sweep", str(server.port), str(callers), str(count), str(_PAYLOAD_BYTES))
    return launch.floor(RedisPy().folder, *arguments)


def _floor(server: RedisServer, callers: int, count: int) -> float:
    server.flush()
    return server.lpush_rate(count, _WIRE_BYTES, callers)


def _clutch(server: RedisServer, callers: int, count: int, name: str) -> float:
    server.flush()
    with launch.folder() as place:
        return launch.agent(contestants.named(name), place, server.url, "callers", "mark", count, callers)
