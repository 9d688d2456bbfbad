"""`hello world` for every chunk, from 1 to 4 clients that each wait for their answer: by thread, by coroutine and by
process, under Clutch and as people write it by hand; memory, and the CPUs that it all runs on over time."""

from __future__ import annotations

import itertools
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from clutch.lab import watching
from clutch.lab.contender import Contender, contender_of
from clutch.lab.load import Figures, Load
from clutch.lab.machine import facts
from clutch.lab.presets import Scale, Tell
from clutch.lab.presets.playing import as_data, play
from clutch.lab.report import Axis, Line, Lines, Report, Sheet
from clutch.lab.setting import Setting
from clutch.lab.shown import figure
from clutch.lab.trial import Trial
from clutch.lab.work import Handler

CLIENTS = tuple(map(Load, (1, 2, 3, 4)))
SECONDS = {"small": 1.0, "full": 5.0}
ROUNDS = {"small": 3, "full": 9}
INTERVAL_SECONDS = 0.05
BUSY_SHARE = 0.2
"""Share of the samples in which a thread must have run to be shown."""
THREADS_MAX = 12
PLACES = 40
MODULE = "clutch.lab.samples.tcp"
PUBLISHED = (
    "published: by thread 60,000 → 40,000 → 20,000 → 15,000/s for each client as clients are added, 14 → 300 MB; "
    "asyncio slower, flat at 21 MB; 4 processes 60,000, falling slowly to 20,000"
)
"""In the experiment that this repeats: more memory for 4 threads than a thread takes."""

Seen = dict[tuple[int, int], tuple[float, int]]


def contenders() -> list[Contender]:
    ours = {
        "Clutch thread 1×4": (f"{MODULE}:handler", Setting("thread", 1, threads=4)),
        "Clutch async 1": (f"{MODULE}:async_handler", Setting("async", 1, tasks=64)),
        "Clutch process 4": (f"{MODULE}:handler", Setting("process", 4)),
    }
    found = []
    for name, (target, setting) in ours.items():
        found.append(Contender(name, contender_of(Handler(target), setting).order, Load(1)))
    for model in ("thread", "asyncio", "process"):
        command = [sys.executable, "-m", MODULE, model, "{port}"]
        order = {"kind": "tcp", "command": command, "message": list(b"ping\n"), "until": None, "is_clutch": False}
        found.append(Contender(f"plain {model}", order, Load(1)))
    return found


def run(scale: Scale, tell: Tell) -> Report:
    report = Report("TCP by thread, by coroutine and by process", facts())
    placed: list[tuple[str, str]] = []

    def look(name: str, trial: Trial) -> None:
        placed.extend((name, line) for line in placement(trial, SECONDS[scale]))

    played, report.notes = play(contenders(), CLIENTS, ROUNDS[scale], SECONDS[scale], tell, look)
    clients = [f"{load.callers} client{'s' * (load.callers > 1)}" for load in CLIENTS]
    lines = [[name, *map(rates, by.items()), memory(by)] for name, by in played.items()]
    report.sheets.append(Sheet("", ["answers/s for each client, in all", *clients, "MB, 1 → 4"], lines))
    cpu = [[name, *(f"{one.cpu_each_s * 1e6:,.1f}" for one in by.values())] for name, by in played.items()]
    report.sheets.append(Sheet("CPU µs for each answer, of all the server's processes", ["", *clients], cpu))
    note = f"a sign: {INTERVAL_SECONDS * 1e3:.0f} ms of a thread under 4 clients; its CPU, or · where it did not run"
    report.sheets.append(Sheet("which CPU each thread runs on", ["", ""], placed, [note]))
    chart = [
        Line(name, [(load.callers, one.rate / load.callers) for load, one in by.items()]) for name, by in played.items()
    ]
    report.charts.append(Lines("answers/s for each client", Axis("clients"), Axis("answers/s"), chart))
    report.notes.append(PUBLISHED)
    report.data = as_data(played)
    return report


def rates(measured: tuple[Load, Figures]) -> str:
    load, one = measured
    return f"{figure(one.rate / load.callers)}, {figure(one.rate)}"


def memory(by_clients: dict[Load, Figures]) -> str:
    first, last = by_clients[CLIENTS[0]], by_clients[CLIENTS[-1]]
    return f"{first.pss_bytes / 1e6:.0f} → {last.pss_bytes / 1e6:.0f}"


def placement(trial: Trial, seconds: float) -> list[str]:
    """Of each thread that ran in a good part of the time: where, sample for sample."""
    with sampled(trial) as samples:
        trial.measure(CLIENTS[-1], max(seconds, INTERVAL_SECONDS * PLACES))
    rows: dict[tuple[int, int], list[str]] = {}
    for nr, (before, after) in enumerate(itertools.pairwise(samples)):
        for thread, (cpu_s, cpu) in after.items():
            row = rows.setdefault(thread, ["·"] * nr)
            row.append(f"{cpu:x}"[-1] if cpu_s > before.get(thread, (cpu_s, cpu))[0] else "·")
        for row in rows.values():
            row.extend("·" * (nr + 1 - len(row)))
    busy = [row for row in rows.values() if sum(sign != "·" for sign in row) >= BUSY_SHARE * len(row)]
    return ["".join(row[:PLACES]) for row in busy[:THREADS_MAX]]


@contextmanager
def sampled(trial: Trial) -> Iterator[list[Seen]]:
    """Samples of all threads of the server, until the block ends."""
    samples: list[Seen] = []
    is_over = threading.Event()

    def look() -> None:
        while not is_over.wait(INTERVAL_SECONDS):
            samples.append(seen(trial.pids()))

    watcher = threading.Thread(target=look)
    watcher.start()
    try:
        yield samples
    finally:
        is_over.set()
        watcher.join()


def seen(pids: list[int]) -> Seen:
    """By thread: its CPU time, and the CPU that it ran on last."""
    found: Seen = {}
    for pid in pids:
        for task in watching.tasks(pid):
            spent, cpu = watching.task_cpu_s(pid, task), watching.last_cpu(pid, task)
            if spent is not None and cpu is not None:
                found[pid, task] = (spent, cpu)
    return found
