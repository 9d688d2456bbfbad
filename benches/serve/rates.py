"""The rows of rates over HTTP are this one function with other values: who, where, and how much faster."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from benches.harness import Bar, Report, Scale
from benches.serve import contest, contestants, load
from benches.serve.contest import OverHttp
from benches.serve.server import Server

WORKERS = 2
BEST = "the best peer"


@dataclass(frozen=True)
class Rates:
    """One row: Clutch and its peers, each as the candidates to choose from, and the bars by the peers' names."""

    work: str
    path: str
    ours: list[Server]
    peers: tuple[list[Server], ...]
    bars: dict[str, Bar]
    body_bytes: int | None = None

    def run(self, scale: Scale) -> Report:
        """Candidates first, then rounds of all who remain."""
        first = self.peers[0][0]
        measure = OverHttp(self.path, contest.seconds(scale), self.body_bytes).with_best_threads(first)
        field, tried = chosen_of(self.peers if scale.peers_only else (self.ours, *self.peers), measure)
        samples = contest.take_turns(field, measure, scale.rounds)
        report = Report()
        contest.judge(report, self.work, "/s", samples, contestants.CLUTCH, self._bars(samples))
        report.notes += [*settings(self.work, field, measure.threads), *(f"{self.work}: {note}" for note in tried)]
        return report

    def _bars(self, samples: dict[str, list[float]]) -> dict[str, Bar]:
        best = contest.best_peer(samples, contestants.CLUTCH)
        return {best if name == BEST else name: bar for name, bar in self.bars.items()}


def chosen_of(all_candidates: Sequence[list[Server]], measure: OverHttp) -> tuple[list[Server], list[str]]:
    """Of each contestant its best candidate, and notes of what was tried."""
    found = [contest.best_of(candidates, measure.briefly()) for candidates in all_candidates]
    return [server for server, _ in found], [note for _, note in found if note]


def settings(work: str, field: list[Server], threads: int) -> list[str]:
    """How the load was made and each server started, and the versions."""
    shape = f"wrk -t{threads} -c{load.CONNECTIONS}, on loopback, one server at a time"
    commands = [f"{work}: {server.name} = {server}" for server in field]
    return [f"{work}: {shape}", *commands, f"{work}: {contestants.versions()}"]
