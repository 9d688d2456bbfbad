"""The rows of CPU time: what one request costs a server, user and system, in all its processes.

Rates on few CPUs say as much of the load generator and of the scheduler as of the server: where autogroups are on
(sched(7)), each session gets the same share, however many of its threads want to run. So each server is measured twice:
in a session of its own, as a service runs, and in the load's.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from benches import processes
from benches.harness import Bar, Report, Scale
from benches.serve import contest, contestants, load
from benches.serve.contest import OverHttp
from benches.serve.rates import chosen_of, settings
from benches.serve.server import Server, answers_http, running

_AUTOGROUP = Path("/proc/sys/kernel/sched_autogroup_enabled")
_WARM_UP_SECONDS = 1


@dataclass(frozen=True)
class CpuTime:
    """One row: Clutch and its peers, and by the peers' names the bars in a session of its own and in the load's."""

    work: str
    path: str
    ours: list[Server]
    peers: tuple[list[Server], ...]
    bars_alone: dict[str, Bar]
    bars_together: dict[str, Bar]

    def run(self, scale: Scale) -> Report:
        """Candidates first, by their rates; then rounds of all who remain, once for each session."""
        measure = OverHttp(self.path, contest.seconds(scale))
        field, tried = chosen_of(self.peers if scale.peers_only else (self.ours, *self.peers), measure)
        report = Report()
        for has_session, where, bars in (
            (True, "a session of its own", self.bars_alone),
            (False, "the load's session", self.bars_together),
        ):
            sample = _Microseconds(self.path, contest.seconds(scale), has_session)
            samples = contest.take_turns(field, sample, scale.fine_rounds)
            contest.judge(report, f"CPU of {self.work}, {where}", "µs", samples, contestants.CLUTCH, bars)
        report.notes += [*settings(self.work, field, threads=1), *(f"{self.work}: {note}" for note in tried)]
        report.notes.append(f"{self.work}: {_autogroups()}")
        return report


@dataclass(frozen=True)
class _Microseconds:
    """A sample: CPU time of the server's processes by requests that were answered."""

    path: str
    seconds: int
    has_session: bool

    def __call__(self, server: Server) -> float:
        with running(server, answers_http(self.path), self.has_session) as answering:
            load.by_wrk(answering, self.path, _WARM_UP_SECONDS)
            tree = processes.tree(answering.pid)
            before = processes.cpu_ns(tree)
            answered = load.by_wrk(answering, self.path, self.seconds).rate * self.seconds
            return (processes.cpu_ns(tree) - before) / 1_000 / answered


def _autogroups() -> str:
    state = _AUTOGROUP.read_text().strip() if _AUTOGROUP.exists() else "not there"
    return f"kernel.sched_autogroup_enabled is {state}"
