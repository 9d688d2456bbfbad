"""TCP ping-pong with one, two and four clients: each model of S3 as people write it by hand, and under Clutch.

The bar is under 5 %, so it is judged by CPU time for each message, of all processes of the server; and by the rate. For
the rate the server has one half of the CPUs and its clients have the other: a ping-pong goes at nearly twice the rate
when both happen to share a CPU, and left to the kernel that is decided anew at each start.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass

from benches import processes
from benches.harness import Report, Samples, Scale, faster, more, turns
from benches.serve import contest, contestants, load
from benches.serve.server import Running, Server, answers_tcp, running

CLIENTS = (1, 2, 4)
_FACTOR = 0.95
_WARM_UP_SECONDS = 0.2


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


class ModelSamples:
    """Samples of one model with so many clients: messages a second, and the server's CPU time for each in µs."""

    def __init__(self, model: Model, clients: int, field: list[Server]) -> None:
        self.work = f"TCP, {model.name}, {clients} client(s)"
        self.clients = clients
        self.rates: Samples = {server.name: [] for server in field}
        self.cpu_us: Samples = {server.name: [] for server in field}

    def sample(self, name: str, answering: Running, seconds: float) -> None:
        """Take one of each."""
        ping_pong(answering.port, self.clients, _WARM_UP_SECONDS)
        tree = processes.tree(answering.pid)
        before = processes.cpu_ns(tree)
        messages = sum(ping_pong(answering.port, self.clients, seconds))
        self.rates[name].append(messages / seconds)
        self.cpu_us[name].append((processes.cpu_ns(tree) - before) / 1_000 / messages)

    def judge(self, report: Report) -> None:
        """Against the plain server that took the least time, and against the one that answered most."""
        ours = contestants.CLUTCH
        thrifty, fast = contest.best_peer(self.cpu_us, ours, lowest=True), contest.best_peer(self.rates, ours)
        contest.judge(report, f"{self.work}: CPU a message", "µs", self.cpu_us, ours, {thrifty: faster(_FACTOR)})
        contest.judge(report, f"{self.work}: ping-pongs", "/s", self.rates, ours, {fast: more(_FACTOR)})


def run(scale: Scale) -> Report:
    """For each model and number of clients, the best of its plain servers."""
    report = Report()
    for model in MODELS:
        field = [*([] if scale.peers_only else [model.ours]), *model.plain]
        for cell in _measured(model, field, scale):
            cell.judge(report)
        report.notes += [f"TCP {model.name}: {server.name} = {server}" for server in field]
    return report


def _measured(model: Model, field: list[Server], scale: Scale) -> list[ModelSamples]:
    """One start of a server gives a sample of each cell."""
    cells = [ModelSamples(model, clients, field) for clients in CLIENTS]
    for server in turns(field, scale.fine_rounds):
        with running(server, answers_tcp) as answering, _apart(answering.pid):
            for cell in cells:
                cell.sample(server.name, answering, scale.seconds)
    return cells


@contextlib.contextmanager
def _apart(server_pid: int) -> Iterator[None]:
    """The server on the first half of the CPUs, what this process starts on the second; one CPU has no halves."""
    cpus = sorted(os.sched_getaffinity(0))
    servers, clients = cpus[: len(cpus) // 2], cpus[len(cpus) // 2 :]
    processes.pin(processes.tree(server_pid), servers or clients)
    processes.pin([os.getpid()], clients)
    try:
        yield
    finally:
        processes.pin([os.getpid()], cpus)


def ping_pong(port: int, clients: int, seconds: float) -> list[int]:
    """What each client got answered; each is a thread that waits for its answer before it asks again."""
    protocol = {"tcp": {"message": "hello", "answer": {"exact": "hello world\n"}}}
    return load.by_plan(load.Plan(f"127.0.0.1:{port}", protocol, clients, clients, seconds))["by_connection"]
