"""What fails while workers are replaced under load: a reload, a recycle of each worker, a SIGKILL of each in turn.

Not a contest of speed: wrk counts what was refused, broken off or answered with an error. A worker that is killed takes
what it had begun with it; nothing else may fail.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass

from benches.harness import Report, Scale, Sheet
from benches.serve import contestants, load, rates
from benches.serve.load import Outcome
from benches.serve.server import Running, Server, answers_http, running, varied

_WORK = "replaced under load"
_PATH = "/async/small"
_CALLS = 2_000
_SECONDS_MAX = 30
_CALM_SECONDS = 1


@dataclass(frozen=True)
class Change:
    """What is done to a server, and how much of its work that may cost."""

    name: str
    make: Callable[[Running], None]
    failures_max: int


@dataclass(frozen=True)
class Passage:
    """One server through one change."""

    server: str
    change: str
    seconds: float
    allowed: int
    outcome: Outcome


def reload(server: Running) -> None:
    """HUP, as all of these servers understand it, until none of the old workers answers."""
    before = load.workers(server, rates.WORKERS)
    os.kill(server.pid, signal.SIGHUP)
    _until(server, lambda seen: not seen & before)


def recycle(server: Running) -> None:
    """Until so many workers have come anew as there are: each ends after some thousand requests."""
    seen: set[int] = set()

    def is_done(now: set[int]) -> bool:
        seen.update(now)
        return len(seen) >= 2 * rates.WORKERS

    _until(server, is_done)


def kill_each(server: Running) -> None:
    """SIGKILL of one worker after the other, each when all are there."""
    for pid in load.workers(server, rates.WORKERS):
        os.kill(pid, signal.SIGKILL)
        _until(server, lambda seen, pid=pid: pid not in seen and len(seen) == rates.WORKERS)
        time.sleep(_CALM_SECONDS)


def _until(server: Running, is_so: Callable[[set[int]], bool]) -> None:
    end = time.monotonic() + _SECONDS_MAX
    while not is_so(load.pids(server)):
        if time.monotonic() > end:
            raise RuntimeError(f"the workers were not replaced within {_SECONDS_MAX} s")


RELOAD = Change("reload", reload, 0)
RECYCLE = Change(f"recycle after {_CALLS} requests", recycle, 0)
# As many as are connected may be in the worker at that moment.
KILL = Change("SIGKILL of each in turn", kill_each, load.CONNECTIONS * rates.WORKERS)


def run(scale: Scale) -> Report:
    """One pass of each; peers without a way to recycle by requests have no such line."""
    cells = [_through(server, change) for server, change in _plan(scale.peers_only)]
    headings = ["", "change", "s", "answered", "not 2xx", "refused", "broken off", "timed out", "allowed", "held"]
    title = f"What fails while workers are replaced: FastAPI async, {rates.WORKERS} workers, {load.CONNECTIONS} clients"
    lines = [_line(cell) for cell in cells]
    notes = rates.settings(_WORK, list(dict.fromkeys(server for server, _ in _plan(scale.peers_only))), 1)
    return Report(notes=notes, sheets=[Sheet(title, headings, lines)], cells=[asdict(cell) for cell in cells])


def _plan(peers_only: bool) -> Iterator[tuple[Server, Change]]:
    app, workers = contestants.FASTAPI, rates.WORKERS
    ours, gunicorn = contestants.clutch(app, workers), contestants.gunicorn_uvicorn(app, workers)
    granian = contestants.granian(app, workers, "--respawn-failed-workers")
    for server in ([] if peers_only else [ours]) + [gunicorn, granian]:
        yield server, RELOAD
        if server is not granian:
            yield varied(server, "--max-requests", str(_CALLS)), RECYCLE
        yield server, KILL


def _through(server: Server, change: Change) -> Passage:
    with running(server, answers_http(_PATH)) as answering:
        began = time.monotonic()
        with load.under_wrk(answering, _PATH) as outcome:
            time.sleep(_CALM_SECONDS)
            change.make(answering)
            time.sleep(_CALM_SECONDS)
        return Passage(server.name, change.name, time.monotonic() - began, change.failures_max, outcome())


def _line(cell: Passage) -> list[str]:
    found = cell.outcome
    counts = (found.answered, found.not_2xx, found.refused, found.broken_off, found.timed_out, cell.allowed)
    held = "yes" if found.refused == 0 and found.failed <= cell.allowed else "NO"
    return [cell.server, cell.change, f"{cell.seconds:.1f}", *(f"{count:,}" for count in counts), held]
