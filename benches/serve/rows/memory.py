"""What eight FastAPI workers weigh, all processes counted, each having answered."""

from __future__ import annotations

from benches import processes
from benches.harness import Report, Scale, within
from benches.serve import contest, contestants, load
from benches.serve.server import Server, answers_http, running

_WORK = "memory of 8 FastAPI workers, PSS"
_WORKERS = 8
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
        load.workers(answering, _WORKERS)
        load.by_wrk(answering, "/sync/small", 1)
        return processes.pss_bytes(processes.tree(answering.pid)) / 1e6
