"""What eight FastAPI workers weigh, all processes counted, each having answered."""

from __future__ import annotations

import contextlib
import http.client
import time
from concurrent.futures import ThreadPoolExecutor

from benches import processes
from benches.harness import Report, Scale, within
from benches.serve import contest, contestants, load
from benches.serve.server import Server, answers_http, running

_WORK = "memory of 8 FastAPI workers, PSS"
_WORKERS = 8
_AT_ONCE = 64
_SECONDS_MAX = 20
_PRELOADED = "gunicorn+uvicorn --preload"


def run(scale: Scale) -> Report:
    """Megabytes against gunicorn+uvicorn without and with --preload."""
    app = contestants.FASTAPI
    plain = contestants.gunicorn_uvicorn(app, _WORKERS)
    preloaded = Server(_PRELOADED, contestants.gunicorn_uvicorn(app, _WORKERS, "--preload").command)
    ours = [] if scale.peers_only else [contestants.clutch(app, _WORKERS)]
    field = [*ours, plain, preloaded, contestants.granian(app, _WORKERS)]
    samples = contest.take_turns(field, _megabytes, scale.slow_rounds)
    report = Report()
    bars = {plain.name: within(0.5), _PRELOADED: within(1)}
    contest.judge(report, _WORK, "MB", samples, contestants.CLUTCH, bars)
    commands = [f"{_WORK}: {server.name} = {server}" for server in field]
    report.notes += [*commands, f"{_WORK}: {contestants.versions()}"]
    return report


def _megabytes(server: Server) -> float:
    """After a second of load, and after each worker has been seen to answer."""
    with running(server, answers_http("/async/small")) as answering:
        load.by_wrk(answering, "/async/small", 1)
        _wait_for_all(answering.port)
        load.by_wrk(answering, "/sync/small", 1)
        return processes.pss_bytes(processes.tree(answering.pid)) / 1e6


def _wait_for_all(port: int) -> None:
    """Ask on many new connections at once until all workers have answered."""
    seen: set[int] = set()
    end = time.monotonic() + _SECONDS_MAX
    with ThreadPoolExecutor(_AT_ONCE) as clients:
        while len(seen) < _WORKERS:
            if time.monotonic() > end:
                raise RuntimeError(f"only {len(seen)} of {_WORKERS} workers answered in {_SECONDS_MAX} s")
            seen.update(clients.map(_pid, [port] * _AT_ONCE))


def _pid(port: int) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    with contextlib.closing(connection):
        connection.request("GET", "/pid")
        return int(connection.getresponse().read())
