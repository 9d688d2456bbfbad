"""How near a drain by two workers comes to what its commands cost by the server's own benchmark.

The Redis counts the commands that a drain took, those within scripts too. `redis-benchmark` then runs each of them over
as many connections as there are workers, pipelined as many at a time as one round may settle or claim.
"""

from __future__ import annotations

import contextlib
import csv
import subprocess
from collections.abc import Iterator
from typing import Any

from benches.jobs.probes import Closing, asked
from clutch.lab.drivers.jobs import JobsDriver
from clutch.lab.drivers.probe import Sample

SHARE_MIN = 0.05
"""Commands that fewer jobs need are not of the work, such as those of the upkeep."""
ENTRY = "x" * 200
ARGUMENTS = {
    "rpop": ("list", "1"),
    "hset": ("hash", "__rand_int__", ENTRY),
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
SCRIPT = "evalsha"


@contextlib.contextmanager
def drain(order: dict[str, Any], jobs: int, workers: int) -> Iterator[Sample]:
    """Microseconds of a job, of its commands, and the one to the other."""

    def sample(_: object, seconds: float) -> dict[str, float]:
        with contextlib.closing(Closing(JobsDriver(order))) as opened:
            queue: Any = opened.driver.queue
            port = queue.redis.port
            queue.hold(())
            queue.enqueue_many(jobs)
            before = calls(port)
            queue.let_go(())
            opened.driver.drain(jobs, 10 * seconds)
            ran = queue.take()
            taken = {name: (count - before.get(name, 0)) / jobs for name, count in calls(port).items()}
            each = (max(ended for _, ended in ran) - min(began for began, _ in ran)) / jobs * 1e6
            cost = floor_us(port, {name: count for name, count in taken.items() if count >= SHARE_MIN}, jobs, workers)
            return {"each": each, "floor": cost, "to the floor": each / cost}

    yield sample


def calls(port: int) -> dict[str, int]:
    """How often each command was called so far, from scripts too."""
    told = asked(port, "INFO commandstats").splitlines()
    stats = (line.removeprefix("cmdstat_").split(":calls=") for line in told if ":calls=" in line)
    return {name: int(count.split(",")[0]) for name, count in stats}


def floor_us(port: int, commands: dict[str, float], jobs: int, workers: int) -> float:
    """Of one job; its script itself costs a trip, which is taken as that of a PING."""
    cost = 0.0
    for name, count in commands.items():
        if name in ("info", "pubsub", "client|setinfo"):
            continue
        if name not in (SCRIPT, *ARGUMENTS):
            raise RuntimeError(f"no arguments are known for {name}")
        words = ("ping",) if name == SCRIPT else (name, *ARGUMENTS[name])
        if name == "rpop":
            rate(port, ("lpush", "list", ENTRY), jobs, workers, workers)
        cost += count * 1e6 / rate(port, words, jobs, workers, 1 if name == SCRIPT else workers)
    return cost


def rate(port: int, words: tuple[str, ...], requests: int, connections: int, pipelined: int) -> float:
    """A second; `__rand_int__` is a number below `requests`."""
    shape = ("-c", str(connections), "-n", str(requests), "-P", str(pipelined), "-r", str(requests), "--csv")
    done = subprocess.run(
        ["redis-benchmark", "-p", str(port), *shape, *words], capture_output=True, text=True, check=True, timeout=120
    )
    return next(float(row["rps"]) for row in csv.DictReader(done.stdout.splitlines()))
