"""WebSocket messages that come back as they went, a hundred connections, each with one message under way."""

from __future__ import annotations

from dataclasses import dataclass

from benches.harness import Report, Scale, more
from benches.serve import contest, contestants, load, rates
from benches.serve.server import Server, answers_http, running

_WORK = "echo WebSocket messages"
_APP = contestants.ECHO_WEBSOCKET
_MESSAGE = "hello, clutch"


@dataclass(frozen=True)
class _Messages:
    """Takes samples: messages a second."""

    seconds: float

    def __call__(self, server: Server) -> float:
        with running(server, answers_http("/")) as answering:
            self._rate(answering.port, 1.0)
            return self._rate(answering.port, self.seconds)

    def _rate(self, port: int, seconds: float) -> float:
        protocol = {"web_socket": {"path": "/", "message": _MESSAGE}}
        plan = load.Plan(f"127.0.0.1:{port}", protocol, load.CONNECTIONS, 1, seconds)
        return load.by_plan(plan)["answers"] / seconds


def run(scale: Scale) -> Report:
    """Against uvicorn with the protocol library that does best here."""
    candidates = contestants.uvicorn_websocket_candidates(_APP, rates.WORKERS)
    peer, tried = contest.best_of(candidates, _Messages(1.0))
    granian = contestants.granian(_APP, rates.WORKERS, websockets=True)
    ours = [] if scale.peers_only else [contestants.clutch(_APP, rates.WORKERS)]
    field = [*ours, peer, granian]
    samples = contest.take_turns(field, _Messages(contest.seconds(scale)), scale.rounds)
    report = Report()
    contest.judge(report, _WORK, "/s", samples, contestants.CLUTCH, {contestants.UVICORN: more(1.2)})
    commands = [f"{_WORK}: {server.name} = {server}" for server in field]
    report.notes += [*commands, f"{_WORK}: {tried}", f"{_WORK}: {contestants.versions()}"]
    return report
