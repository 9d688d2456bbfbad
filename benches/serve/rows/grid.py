"""Scenario S1: 1–5 workers × 1–5 threads, endpoints sync and async, a few bytes and a megabyte, for all servers."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from dataclasses import asdict, replace

from benches.harness import QUICK, Report, Scale
from benches.serve import contestants, load, scenario
from benches.serve.load import Figures
from benches.serve.scenario import Cell, Contestant, Scenario, Shape
from benches.serve.server import Running, Server, answers_http, running

_FASTAPI_ENDPOINTS = ("/async/small", "/sync/small", "/async/large", "/sync/large")
_SYNC_ENDPOINTS = ("/sync/small", "/sync/large")
_CLUTCH = Contestant(contestants.CLUTCH, True, _FASTAPI_ENDPOINTS)
_PEERS = (
    Contestant(contestants.GUNICORN_UVICORN, False, _FASTAPI_ENDPOINTS),
    Contestant(contestants.GUNICORN_GTHREAD, True, _SYNC_ENDPOINTS),
    Contestant(contestants.UVICORN, False, _FASTAPI_ENDPOINTS),
    Contestant(contestants.GRANIAN, True, _FASTAPI_ENDPOINTS),
)
_UP_TO_FIVE = (1, 2, 3, 4, 5)
S1 = Scenario((_CLUTCH, *_PEERS), _UP_TO_FIVE, _UP_TO_FIVE, _FASTAPI_ENDPOINTS, seconds=2)
_CORNERS = (1, 2)


def run(scale: Scale) -> Report:
    """One sample of each cell: a map of where to look, not a contest."""
    preset = chosen(scale)
    found = []
    for cell in scenario.cells(preset, _serving, _measured):
        found.append(cell)
        print(f"\n  {_told(cell)}", end="", file=sys.stderr, flush=True)
    notes = [_best(found, endpoint) for endpoint in preset.endpoints]
    notes += [
        f"grid: {cell.contestant} {cell.workers}×{cell.threads} {cell.endpoint}: {cell.failure}"
        for cell in found
        if cell.failure
    ]
    sheets = scenario.sheets(preset, found)
    return Report(notes=[*notes, *_settings(preset)], sheets=sheets, cells=[asdict(cell) for cell in found])


def chosen(scale: Scale) -> Scenario:
    """All cells, or the corner of two by two in a quick run."""
    quick = scale.rounds <= QUICK.rounds
    field = _PEERS if scale.peers_only else S1.contestants
    small = {"workers": _CORNERS, "threads": _CORNERS, "seconds": 1} if quick else {}
    return replace(S1, contestants=field, **small)


def server_of(shape: Shape) -> Server:
    """How each contestant spells workers and threads."""
    workers, threads = shape.workers, shape.threads
    spelt = {
        contestants.CLUTCH: lambda: contestants.clutch(contestants.FASTAPI, workers, "--threads", str(threads)),
        contestants.GUNICORN_UVICORN: lambda: contestants.gunicorn_uvicorn(contestants.FASTAPI, workers),
        contestants.GUNICORN_GTHREAD: lambda: contestants.gunicorn_gthread(contestants.NOOP_WSGI, workers, threads),
        contestants.UVICORN: lambda: contestants.uvicorn(contestants.FASTAPI, workers),
        contestants.GRANIAN: lambda: contestants.granian(
            contestants.FASTAPI, workers, "--runtime-threads", str(threads)
        ),
    }
    return spelt[shape.contestant.name]()


@contextlib.contextmanager
def _serving(shape: Shape) -> Iterator[Running]:
    with running(server_of(shape), answers_http(shape.contestant.endpoints[0])) as answering:
        load.by_wrk(answering, shape.contestant.endpoints[0], 1)
        yield answering


def _measured(answering: Running, endpoint: str, seconds: int) -> Figures:
    return load.by_wrk(answering, endpoint, seconds)


def _told(cell: Cell) -> str:
    shown = f"{cell.figures.rate:,.0f}/s" if cell.figures else "failed"
    return f"{cell.contestant} {cell.workers}×{cell.threads or '–'} {cell.endpoint}: {shown}"


def _best(found: list[Cell], endpoint: str) -> str:
    shown = ", ".join(_told(cell).replace(f" {endpoint}:", "") for cell in scenario.best(found, endpoint))
    return f"grid: best for {endpoint}: {shown}"


def _settings(preset: Scenario) -> list[str]:
    shape = f"grid: wrk -t1 -c{load.CONNECTIONS} -d{preset.seconds}s, one sample of each cell; {contestants.versions()}"
    example = [server_of(Shape(who, 2, 2)) for who in preset.contestants]
    without = "grid: gthread serves a bare WSGI app of the same sizes, the others the FastAPI app"
    return [shape, without, *(f"grid: {server.name} = {server}" for server in example)]
