"""How near a drain by 2 workers comes to what the server's own benchmark says that its commands cost. Clutch only.

The server counts the commands that a drain took, those within scripts too. `redis-benchmark` then runs each of them
over as many connections as there are workers, pipelined as many at a time as one round may settle or claim.
"""

from __future__ import annotations

from dataclasses import dataclass

from benches.harness import Report, Scale, Skipped, within
from benches.jobs import contestants, launch, measured, redis_server
from benches.jobs.redis_server import RedisServer
from benches.jobs.scale import counts
from benches.table import figure

_WORKERS = 2
_FLOOR = "redis-benchmark"
_SHARE_MIN = 0.05
"""Commands that fewer jobs need are not of the work, such as those of the upkeep."""
_ENTRY = "x" * 200
_ARGUMENTS = {
    "rpop": ("list", "1"),
    "hset": ("hash", "__rand_int__", _ENTRY),
    "hdel": ("hash", "__rand_int__"),
    "hget": ("hash", "__rand_int__"),
    "hmget": ("hash", "__rand_int__"),
    "hincrby": ("counts", "1:queue", "1"),
    "zadd": ("sorted", "__rand_int__", "__rand_int__"),
    "zrange": ("sorted", "0", "0", "WITHSCORES"),
    "zscore": ("sorted", "__rand_int__"),
    "exists": ("list",),
    "srem": ("set", "member"),
    "del": ("none",),
    "lindex": ("list", "-1"),
}
"""Of each command that a plain job meets: the same as for a job of the drain."""
_SCRIPT = "evalsha"


@dataclass(frozen=True)
class Drain:
    """One drain, the time of its commands by the server's own benchmark, and how many of each there were for a job."""

    us: float
    floor_us: float
    commands: dict[str, float]


def run(scale: Scale) -> Report:
    """Microseconds a job."""
    if scale.peers_only:
        raise Skipped("Clutch only")
    ours = contestants.named(contestants.CLUTCH)
    if why := ours.missing():
        raise Skipped(why)
    jobs = counts(scale).commands
    with redis_server.running() as server:
        drains = [_sample(server, jobs) for _ in range(scale.slow_rounds)]
    report = Report(notes=[f"commands: {redis_server.version()}; {jobs:,} jobs, {_WORKERS} workers"])
    samples = {contestants.CLUTCH: [one.us for one in drains], _FLOOR: [one.floor_us for one in drains]}
    report.compare(f"drain, Redis, {_WORKERS} workers", "µs", samples, {_FLOOR: within(4)})
    each = {name: [figure(count)] for name, count in sorted(drains[-1].commands.items())}
    report.sheets.append(measured.sheet("commands of a drain", ["command", "for each job"], each))
    report.notes += measured.settings("commands", [ours], "redis://…", _WORKERS)
    return report


def _sample(server: RedisServer, jobs: int) -> Drain:
    contestant = contestants.named(contestants.CLUTCH)
    server.flush()
    with launch.folder() as place:
        launch.agent(contestant, place, server.url, "many", "mark", jobs)
        server.cli("config", "resetstat")
        drained = launch.drain(contestant, place, server.url, jobs, _WORKERS)
        calls = server.calls()
    if drained.verdict != "exact":
        raise RuntimeError(f"drain: {drained.verdict}")
    commands = {name: count / jobs for name, count in calls.items() if count / jobs >= _SHARE_MIN}
    if unknown := commands.keys() - _ARGUMENTS.keys() - {_SCRIPT}:
        raise RuntimeError(f"no arguments are known for {', '.join(sorted(unknown))}")
    return Drain(1e6 / drained.rate, _floor_us(server, commands, jobs), commands)


def _floor_us(server: RedisServer, commands: dict[str, float], jobs: int) -> float:
    """Of one job; its script itself costs a trip, which is taken as that of a PING."""
    server.flush()
    taken = 0.0
    for name, count in commands.items():
        words = ("ping",) if name == _SCRIPT else (name, *_ARGUMENTS[name])
        if name == "rpop":
            server.rate(("lpush", "list", _ENTRY), jobs, _WORKERS, _WORKERS)
        pipelined = 1 if name == _SCRIPT else _WORKERS
        taken += count * 1e6 / server.rate(words, jobs, _WORKERS, pipelined)
    return taken
