"""Enqueues into Redis by 1 to 48 callers, with each way to share connections, beside the bare client and the server's
own benchmark. No consumer runs; the store is empty before and after."""

from __future__ import annotations

import csv
import importlib.util
import os
import subprocess
from urllib.parse import urlsplit

from clutch.lab.contender import Contender
from clutch.lab.load import Load
from clutch.lab.machine import facts
from clutch.lab.peers.jobs import redis_server
from clutch.lab.presets import Scale, Tell
from clutch.lab.presets.playing import Played, as_data, play
from clutch.lab.report import Axis, Line, Lines, Report, Sheet
from clutch.lab.shown import figure

CALLERS = tuple(map(Load, (1, 6, 12, 24, 48)))
SECONDS = {"small": 0.5, "full": 5.0}
ROUNDS = {"small": 3, "full": 9}
STRATEGIES = {
    "pipelined": "one connection, what waits in one trip (default)",
    "single": "one connection, one after the other",
    "pool": "a connection by random choice",
    "checkout": "a connection that is taken and given back",
}
FLOOR_REQUESTS = 20_000
PAYLOAD_BYTES = 200
PUBLISHED = (
    "published, enqueues/s of each caller (one connection, named pool, checkout pool; pool size: schedulers): 1: 8.3k, "
    "9.05k, 8.73k; 6: 1.05k, 3.95k, 4.40k; 12: 0.84k, 2.78k, 2.83k; 24: 0.34k, 1.48k, 1.06k; 48: 203, 896, 912"
)


def run(scale: Scale, tell: Tell) -> Report:
    """Raises ClutchError where there is no Redis server."""
    report = Report("putting jobs into Redis", facts())
    connections = len(os.sched_getaffinity(0))
    with redis_server.running() as url:
        played, report.notes = play(contenders(url, connections), CALLERS, ROUNDS[scale], SECONDS[scale], tell)
        floors = [floor(url, load.callers) for load in CALLERS]
    heads = [f"{load.callers} caller{'s' * (load.callers > 1)}" for load in CALLERS]
    shares = [[name, *(figure(one.rate / load.callers) for load, one in by.items())] for name, by in played.items()]
    report.sheets.append(Sheet("", ["enqueues/s of each caller", *heads], shares))
    report.sheets.append(in_all(played, heads, floors))
    cpu = [[name, *(f"{one.cpu_each_s * 1e6:,.0f}" for one in by.values())] for name, by in played.items()]
    report.sheets.append(Sheet("", ["CPU µs each, of the calling program", *heads], cpu))
    lines = [Line(name, [(load.callers, one.rate) for load, one in by.items()]) for name, by in played.items()]
    report.charts.append(Lines("enqueues/s in all", Axis("callers", "log"), Axis("enqueues/s"), lines))
    report.notes += [f"{name}: {what}" for name, what in STRATEGIES.items()]
    if "redis-py" not in played:
        report.notes.append("redis-py is left out: pip install 'redis[hiredis]'")
    report.notes += [f"pool and checkout: {connections} connections, as many as there are CPUs", PUBLISHED]
    report.data = as_data(played)
    return report


def contenders(url: str, connections: int) -> list[Contender]:
    found = []
    for strategy in STRATEGIES:
        size = {"strategy": strategy, "connections": connections if strategy in ("pool", "checkout") else 1}
        order = {"kind": "enqueue", "url": url, "client": "clutch", **size}
        found.append(Contender(f"Clutch {strategy}", order, CALLERS[0]))
    if importlib.util.find_spec("redis") is not None:
        found.append(Contender("redis-py", {"kind": "enqueue", "url": url, "client": "redis-py"}, CALLERS[0]))
    return found


def in_all(played: Played, heads: list[str], floors: list[float | None]) -> Sheet:
    rows = [[name, *(figure(one.rate) for one in by.values())] for name, by in played.items()]
    if any(floors):
        rows.append(["redis-benchmark LPUSH", *("" if rate is None else figure(rate) for rate in floors)])
    return Sheet("", ["enqueues/s in all", *heads], rows)


def floor(url: str, connections: int) -> float | None:
    """What the server takes from so many connections, unpipelined, by its own benchmark; None: it is not here."""
    shape = ("-t", "lpush", "-d", str(PAYLOAD_BYTES), "-c", str(connections), "-n", str(FLOOR_REQUESTS), "--csv")
    command = ["redis-benchmark", "-p", str(urlsplit(url).port), *shape]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    except (OSError, subprocess.SubprocessError):
        return None
    return next((float(row["rps"]) for row in csv.DictReader(done.stdout.splitlines())), None)
