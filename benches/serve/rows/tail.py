"""p99 at 60 % of what the best peer can do, for two apps.

The load is open-loop: requests come at that rate whether earlier ones are answered or not, and the latency of each
counts from the moment at which it was due.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field

from benches.harness import Report, Samples, Scale, within
from benches.serve import contest, contestants, load, rates
from benches.serve.contest import OverHttp
from benches.serve.server import Server, answers_http, running
from benches.table import figure

_SHARE = 0.6
_APPS = (("no-op ASGI", contestants.NOOP_ASGI, "/"), ("FastAPI async", contestants.FASTAPI, "/async/small"))


@dataclass
class _Tail:
    """Takes samples: p99 in milliseconds; keeps how many requests had no answer in the end."""

    path: str
    per_second: float
    seconds: float
    unanswered: dict[str, int] = field(default_factory=dict)

    def __call__(self, server: Server) -> float:
        with running(server, answers_http(self.path)) as answering:
            self._report(answering.port, 1.0)
            report = self._report(answering.port, self.seconds)
        self.unanswered[server.name] = self.unanswered.get(server.name, 0) + report["errors"].get("timeout", 0)
        return report["p99_us"] / 1_000

    def _report(self, port: int, seconds: float) -> dict:
        protocol = {"http": {"requests": [{"path": self.path}]}}
        return load.by_plan(
            load.Plan(f"127.0.0.1:{port}", protocol, load.CONNECTIONS, 1, seconds, per_second=self.per_second)
        )


def run(scale: Scale) -> Report:
    """For each app: peaks of the peers, then everybody at 60 % of the best one's."""
    report = Report()
    for work, app, path in _APPS:
        _measure(report, scale, f"p99 at {_SHARE:.0%} of the peak, {work}", app, path)
    return report


def _measure(report: Report, scale: Scale, work: str, app: str, path: str) -> None:
    closed_loop = OverHttp(path, contest.seconds(scale)).with_best_threads(_peers(app)[0][0])
    peers, tried = rates.chosen_of(_peers(app), closed_loop)
    peaks = contest.take_turns(peers, closed_loop, scale.slow_rounds)
    best = contest.best_peer(peaks, contestants.CLUTCH)
    tail = _Tail(path, _SHARE * statistics.median(peaks[best]), contest.seconds(scale))
    ours = [] if scale.peers_only else [contestants.clutch(app, rates.WORKERS)]
    samples = contest.take_turns([*ours, *peers], tail, scale.rounds)
    lowest = contest.best_peer(samples, contestants.CLUTCH, lowest=True)
    contest.judge(report, work, "ms", samples, contestants.CLUTCH, {lowest: within(1)})
    report.notes += [
        *_notes(work, peaks, best, tail),
        *rates.settings(work, [*ours, *peers], closed_loop.threads),
        *(f"{work}: {note}" for note in tried),
    ]


def _peers(app: str) -> tuple[list[Server], ...]:
    workers = rates.WORKERS
    gunicorn, uvicorn = contestants.gunicorn_uvicorn(app, workers), contestants.uvicorn(app, workers)
    return (contestants.granian_asgi_candidates(app, workers), [gunicorn], [uvicorn])


def _notes(work: str, peaks: Samples, best: str, tail: _Tail) -> list[str]:
    shown = ", ".join(f"{name} {figure(statistics.median(values))}/s" for name, values in peaks.items())
    load_note = f"{work}: peaks {shown}; open loop at {figure(tail.per_second)}/s, {_SHARE:.0%} of {best}'s"
    late = {name: count for name, count in tail.unanswered.items() if count}
    return [load_note, *([f"{work}: never answered {late}; they count with the time they waited"] if late else [])]
