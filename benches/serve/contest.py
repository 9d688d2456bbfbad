"""How servers are compared: candidates tried, then samples in turn, each of a server that is alone on the machine.

Each sample starts the server, warms it up, measures and stops it. The order turns round with each round, so that
nobody always comes first.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from benches.harness import Bar, Report, Samples, Scale, median_interval, turns
from benches.serve import load
from benches.serve.server import Running, Server, answers_http, running
from benches.table import figure

SECONDS_FACTOR = 5
_WARM_UP_SECONDS = 1
_PROBE_SECONDS = 1
_PROBE_ROUNDS = 2

Measure = Callable[[Server], float]


def seconds(scale: Scale) -> int:
    """Of one sample; wrk counts in whole seconds."""
    return max(1, round(scale.seconds * SECONDS_FACTOR))


@dataclass(frozen=True)
class OverHttp:
    """Measures a server with wrk at one path."""

    path: str
    seconds: int
    body_bytes: int | None = None
    threads: int = 1

    def __call__(self, server: Server) -> float:
        with running(server, answers_http(self.path, self.body_bytes)) as answering:
            return self.rate(answering)

    def rate(self, answering: Running) -> float:
        load.by_wrk(answering, self.path, _WARM_UP_SECONDS, self.threads)
        return load.by_wrk(answering, self.path, self.seconds, self.threads).rate

    def briefly(self) -> OverHttp:
        return replace(self, seconds=_PROBE_SECONDS)

    def with_best_threads(self, server: Server) -> OverHttp:
        """As many threads of wrk as get the most out of this server."""
        tried = [replace(self.briefly(), threads=count) for count in load.WRK_THREADS]
        rates = {measure.threads: 0.0 for measure in tried}
        for measure in turns(tried, _PROBE_ROUNDS):
            rates[measure.threads] += measure(server)
        return replace(self, threads=max(rates, key=rates.__getitem__))


def best_of(candidates: list[Server], measure: Measure) -> tuple[Server, str]:
    """The candidate with the highest rate, and a note that says what was tried."""
    if len(candidates) == 1:
        return candidates[0], ""
    samples: dict[Server, list[float]] = {server: [] for server in candidates}
    for server in turns(candidates, _PROBE_ROUNDS):
        samples[server].append(measure(server))
    rates = {server: statistics.mean(values) for server, values in samples.items()}
    best = max(rates, key=rates.__getitem__)
    tried = ", ".join(f"{server.variant} {figure(rate)}/s" for server, rate in rates.items())
    return best, f"{best.name}: tried {tried}; took {best.variant}"


def take_turns(servers: Iterable[Server], measure: Measure, rounds: int) -> Samples:
    """`rounds` samples of each server by name."""
    field = list(servers)
    samples: Samples = {server.name: [] for server in field}
    for server in turns(field, rounds):
        samples[server.name].append(measure(server))
    return samples


def best_peer(samples: Samples, ours: str, lowest: bool = False) -> str:
    """Who of the others has the best median."""
    medians = {name: statistics.median(values) for name, values in samples.items() if name != ours}
    return (min if lowest else max)(medians, key=medians.__getitem__)


def judge(report: Report, work: str, unit: str, samples: Samples, ours: str, bars: dict[str, Bar]) -> None:
    """Lines against the peers that have a bar; with peers alone their figures are all there is to say."""
    if ours in samples:
        ordered = {ours: samples[ours]} | samples
        report.compare(work, unit, ordered, bars)
    report.notes.extend(_measured(work, unit, name, values) for name, values in samples.items())


def _measured(work: str, unit: str, name: str, values: list[float]) -> str:
    low, high = median_interval(values)
    median = figure(statistics.median(values))
    return f"{work}: {name} {median} {unit} [{figure(low)}, {figure(high)}], {len(values)} sample(s)"
