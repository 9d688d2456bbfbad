"""Scenario S3: a TCP server by thread, by coroutine and by process, with one to four clients.

For each model and number of clients: ping-pongs a second of each client and in all, memory, and the CPU that each busy
thread of the server was on over time.
"""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass

from benches import processes
from benches.harness import Report, Scale, Sheet
from benches.serve import contest, placement
from benches.serve.rows.tcp import MODELS, ping_pong
from benches.serve.server import Server, answers_tcp, running
from benches.table import figure

_CLIENTS = (1, 2, 3, 4)
_WARM_UP_SECONDS = 0.3
_SAMPLES_SHOWN = 30
_HEADINGS = ["model, server", "clients", "each/s", "in all/s", "PSS MB", "CPU over time"]


@dataclass(frozen=True)
class ServerFigures:
    """One server with so many clients; for each busy thread, (pid/tid, its CPU in each sample)."""

    model: str
    server: str
    clients: int
    rates: list[float]
    pss_mb: float
    cpus: list[tuple[str, str]]


def run(scale: Scale) -> Report:
    """One sample of each cell."""
    found = []
    for model in MODELS:
        field = [*model.plain, *([] if scale.peers_only else [model.ours])]
        for server in field:
            found += _cells(model.name, server, contest.seconds(scale))
    notes = [f"S3: {server.name} = {server}" for model in MODELS for server in model.plain]
    return Report(notes=[*notes, _key()], sheets=[sheet(found)], cells=[asdict(cell) for cell in found])


def _cells(model: str, server: Server, seconds: float) -> list[ServerFigures]:
    with running(server, answers_tcp) as answering:
        return [_cell(model, server.name, answering.pid, answering.port, clients, seconds) for clients in _CLIENTS]


def _cell(model: str, name: str, pid: int, port: int, clients: int, seconds: float) -> ServerFigures:
    ping_pong(port, clients, _WARM_UP_SECONDS)
    with placement.watched(pid) as watched:
        answers = ping_pong(port, clients, seconds)
    pss_mb = processes.pss_bytes(processes.tree(pid)) / 1e6
    cpus = [(f"{pid}/{tid}", placement.shown(seen)) for (pid, tid), seen in watched.busy().items()]
    return ServerFigures(model, name, clients, [count / seconds for count in answers], pss_mb, cpus)


def sheet(found: list[ServerFigures]) -> Sheet:
    """A line for each cell; further busy threads on lines of their own."""
    title = "S3, TCP ping-pong by thread, coroutine and process"
    return Sheet(title, _HEADINGS, [line for cell in found for line in _lines(cell)])


def _lines(cell: ServerFigures) -> list[list[str]]:
    each = " ".join(figure(rate) for rate in cell.rates)
    figures = [str(cell.clients), each, figure(sum(cell.rates)), figure(cell.pss_mb)]
    (first, *others) = [f"{thread} {seen[:_SAMPLES_SHOWN]}" for thread, seen in cell.cpus] or ["–"]
    empty = [""] * (len(_HEADINGS) - 1)
    return [[f"{cell.model}, {cell.server}", *figures, first], *([*empty, other] for other in others)]


def _key() -> str:
    cpus = ", ".join(map(str, sorted(os.sched_getaffinity(0))))
    return f"S3: pid/tid, then its CPU ({cpus}) each 50 ms, a dot where it did not run; one sample of each cell"
