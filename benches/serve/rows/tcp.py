"""TCP ping-pong with one, two and four clients: each model of S3 as people write it by hand, and under Clutch."""

from __future__ import annotations

from dataclasses import dataclass

from benches.harness import Report, Samples, Scale, more, turns
from benches.serve import contest, contestants, load
from benches.serve.server import Server, answers_tcp, running

CLIENTS = (1, 2, 4)
_WARM_UP_SECONDS = 0.3


@dataclass(frozen=True)
class Model:
    """The plain servers of one model, and the same model under Clutch."""

    name: str
    plain: tuple[Server, ...]
    ours: Server


MODELS = (
    Model("thread", (contestants.plain_tcp("thread"),), contestants.clutch_tcp("thread", 1, 4)),
    Model(
        "asyncio",
        (contestants.plain_tcp("asyncio"), contestants.plain_tcp("uvloop")),
        contestants.clutch_tcp("async", 1, 1),
    ),
    Model("process", (contestants.plain_tcp("process"),), contestants.clutch_tcp("process", 4, 1)),
)


def run(scale: Scale) -> Report:
    """For each model: all clients' ping-pongs in a second, against the faster of its plain servers."""
    report = Report()
    for model in MODELS:
        field = [*([] if scale.peers_only else [model.ours]), *model.plain]
        samples = _samples(field, scale)
        for clients in CLIENTS:
            _judge(report, f"TCP ping-pong, {model.name}, {clients} client(s)", samples[clients])
        report.notes += [f"TCP {model.name}: {server.name} = {server}" for server in field]
    return report


def _judge(report: Report, work: str, samples: Samples) -> None:
    best = contest.best_peer(samples, contestants.CLUTCH)
    contest.judge(report, work, "/s", samples, contestants.CLUTCH, {best: more(0.95)})


def _samples(field: list[Server], scale: Scale) -> dict[int, Samples]:
    """By number of clients: one start of a server gives a sample of each."""
    samples: dict[int, Samples] = {clients: {server.name: [] for server in field} for clients in CLIENTS}
    for server in turns(field, scale.rounds):
        with running(server, answers_tcp) as answering:
            for clients in CLIENTS:
                samples[clients][server.name].append(_rate(answering.port, clients, contest.seconds(scale) / 2))
    return samples


def _rate(port: int, clients: int, seconds: float) -> float:
    ping_pong(port, clients, _WARM_UP_SECONDS)
    return sum(ping_pong(port, clients, seconds)) / seconds


def ping_pong(port: int, clients: int, seconds: float) -> list[int]:
    """What each client got answered; each is a thread that waits for its answer before it asks again."""
    protocol = {"tcp": {"message": "hello", "answer": "hello world\n"}}
    return load.by_plan(load.Plan(f"127.0.0.1:{port}", protocol, clients, clients, seconds))["by_connection"]
