"""Workers × threads of an HTTP server: `async def` and `def` endpoints of a FastAPI app, a few bytes and a megabyte;
under Clutch and beside other servers."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from dataclasses import replace

from clutch.errors import ClutchError
from clutch.lab.contender import Contender, contender_of
from clutch.lab.load import Figures, Load
from clutch.lab.machine import facts
from clutch.lab.presets import Scale, Tell
from clutch.lab.presets.beside import beside
from clutch.lab.presets.playing import play
from clutch.lab.report import HeatMap, Report, Sheet
from clutch.lab.setting import Setting
from clutch.lab.shown import figure
from clutch.lab.work import App, Request

TARGET = "clutch.lab.samples.fastapi_app:app"
ENDPOINTS = ("/async/small", "/sync/small", "/async/large", "/sync/large")
WORKERS = {"small": (1, 2, 3), "full": (1, 2, 3, 4, 5)}
THREADS = {"small": (1, 2), "full": (1, 2, 3, 4, 5)}
SECONDS = {"small": 0.5, "full": 3.0}
ROUNDS = {"small": 2, "full": 6}
CONNECTIONS = 64
PEERS = ("gunicorn uvicorn", "uvicorn httptools", "granian st")
TASKS = 256
PUBLISHED = (
    "published, 2 cores: 1 worker 1,189/s (gunicorn), 1,136 (uvicorn); 2 workers 1,625 and 1,546; more workers or "
    "threads gained nothing"
)

Cell = tuple[int, int]
"""Workers and threads; 0 threads: the server has no such setting."""


def run(scale: Scale, tell: Tell) -> Report:
    """Raises ClutchError where FastAPI is not installed."""
    if importlib.util.find_spec("fastapi") is None:
        raise ClutchError("this preset serves a FastAPI app: pip install fastapi")
    report = Report("workers × threads of a FastAPI app", facts())
    for endpoint in ENDPOINTS:
        field = list(contenders(endpoint, scale, report.notes, tell))
        tell(f"{endpoint}: {len(field)} settings")
        cells: dict[str, dict[Cell, Figures]] = {}
        for workers in WORKERS[scale]:
            group = [one for one in field if one[1][0] == workers]
            played, failed = play(
                [one for _, _, one in group], [Load(CONNECTIONS)], ROUNDS[scale], SECONDS[scale], tell
            )
            report.notes += failed
            for who, cell, one in group:
                if one.name in played:
                    cells.setdefault(who, {})[cell] = played[one.name][Load(CONNECTIONS)]
        for who, measured in cells.items():
            report.sheets.append(sheet(who, endpoint, measured, scale))
            if len({threads for _, threads in measured}) > 1:
                report.charts.append(heat_map(who, endpoint, measured, scale))
        report.sheets.append(best(endpoint, cells))
        report.data[endpoint] = {
            who: {f"{workers}×{threads}": one.__dict__ for (workers, threads), one in measured.items()}
            for who, measured in cells.items()
        }
    report.notes.append(PUBLISHED)
    return report


def contenders(endpoint: str, scale: Scale, notes: list[str], tell: Tell) -> Iterator[tuple[str, Cell, Contender]]:
    """Those with as many workers live at the same time, so that what disturbs the machine disturbs them alike."""
    work, load = App(TARGET, (Request(endpoint),)), Load(CONNECTIONS)
    for workers in WORKERS[scale]:
        for threads in THREADS[scale]:
            yield (
                "Clutch",
                (workers, threads),
                contender_of(work, Setting("async", workers, threads=threads, tasks=TASKS)),
            )
        for one in beside(PEERS, work, "asgi", workers, load, notes, tell):
            yield one.name, (workers, 0), replace(one, name=f"{one.name} {workers}")


def sheet(who: str, endpoint: str, cells: dict[Cell, Figures], scale: Scale) -> Sheet:
    threads = sorted({cell[1] for cell in cells})
    lines = [
        [f"{workers} worker{'s' * (workers > 1)}", *(shown(cells.get((workers, count))) for count in threads)]
        for workers in WORKERS[scale]
    ]
    heads = [f"{count} thread{'s' * (count > 1)}" if count else "its own threads" for count in threads]
    return Sheet(f"{who}, {endpoint}: requests/s (p50 ms, p99 ms; CPU µs each)", ["", *heads], lines)


def shown(one: Figures | None) -> str:
    if one is None or not one.units:
        return "–"
    latency = ", ".join(figure(one.latency_s[percentile] * 1e3) for percentile in ("50", "99"))
    return f"{figure(one.rate)} ({latency}; {one.cpu_each_s * 1e6:,.0f})"


def heat_map(who: str, endpoint: str, cells: dict[Cell, Figures], scale: Scale) -> HeatMap:
    threads = sorted({cell[1] for cell in cells})
    values = [
        [one.rate if (one := cells.get((workers, count))) else None for count in threads] for workers in WORKERS[scale]
    ]
    columns, rows = list(map(str, threads)), list(map(str, WORKERS[scale]))
    return HeatMap(f"{who}, {endpoint}", "threads", columns, "workers", rows, values, "requests/s")


def best(endpoint: str, cells: dict[str, dict[Cell, Figures]]) -> Sheet:
    """Of each server the cell with the most requests, and the one with the least CPU time for each."""
    lines = []
    for who, measured in cells.items():
        most = max(measured, key=lambda cell: measured[cell].rate)
        least = min(measured, key=lambda cell: measured[cell].cpu_each_s or float("inf"))
        lines.append(
            [who, size(most), figure(measured[most].rate), size(least), f"{measured[least].cpu_each_s * 1e6:,.0f}"]
        )
    return Sheet(f"{endpoint}: the best of each", ["", "most requests/s", "", "least CPU µs each", ""], lines)


def size(cell: Cell) -> str:
    return f"{cell[0]}×{cell[1]}" if cell[1] else f"{cell[0]}"
