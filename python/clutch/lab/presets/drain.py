"""Jobs that sleep, drained from Redis at every concurrency: under each profile of Clutch and by Celery's pools; beside
the ideal, which is jobs × duration / concurrency, and with the memory that each takes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from clutch.lab.contender import Contender, contender_of
from clutch.lab.load import Figures, Load
from clutch.lab.machine import facts
from clutch.lab.peers.jobs import redis_server
from clutch.lab.presets import Scale, Tell
from clutch.lab.presets.beside import beside
from clutch.lab.report import Axis, Line, Lines, Report, Sheet
from clutch.lab.setting import Setting
from clutch.lab.trial import TrialFailed
from clutch.lab.work import JobRun

MODULE = "clutch.lab.samples.tools"
PEERS = ("celery prefork", "celery gevent", "celery threads")
PROCESSES_MAX = {"small": 20, "full": 500}
"""More processes than these are not tried on a machine for a look."""
PUBLISHED = (
    "published, 1,000 × 0.5 s at 5, 10, 20, 50, 100, 250, 500: gevent 103.14, 51.35, 25.82, 10.76, 6.36, 3.72, 3.79 s; "
    "prefork 100.62, 50.41, 25.24, 10.20, 5.31, 4.11, 5.77 s"
)


@dataclass(frozen=True)
class Size:
    jobs: int
    seconds: float
    concurrency: tuple[int, ...]


SIZES = {
    "small": Size(200, 0.1, (5, 20, 100)),
    "full": Size(1000, 0.5, (5, 10, 20, 50, 100, 250, 500)),
}


def run(scale: Scale, tell: Tell) -> Report:
    """Raises ClutchError where there is no Redis server."""
    size = SIZES[scale]
    report = Report(f"{size.jobs:,} jobs that sleep {size.seconds:g} s, from Redis", facts())
    found: dict[str, dict[int, Figures]] = {}
    with redis_server.running() as url:
        work = JobRun(MODULE, "wait", {"seconds": size.seconds}, url)
        for count in size.concurrency:
            ideal = size.jobs * size.seconds / count
            for name, one in contenders(work, count, scale, tell, report.notes):
                tell(f"{name}, {count} at a time: {ideal:.1f} s would be ideal")
                try:
                    with one.start() as trial:
                        found.setdefault(name, {})[count] = trial.measure(one.load, ideal)
                except TrialFailed as error:
                    report.notes.append(f"{name} at {count}: {str(error).splitlines()[0]}")
    seconds = {count: size.jobs * size.seconds / count for count in size.concurrency}
    heads = list(map(str, size.concurrency))
    lines = [["ideal", *(f"{ideal:.2f}" for ideal in seconds.values())]]
    lines += [[name, *(shown(by.get(count), ideal) for count, ideal in seconds.items())] for name, by in found.items()]
    report.sheets.append(Sheet("", ["s, and share of the ideal rate, by concurrency", *heads], lines, [PUBLISHED]))
    memory = [[name, *(megabytes(by.get(count)) for count in seconds)] for name, by in found.items()]
    report.sheets.append(Sheet("", ["MB", *heads], memory))
    cpu = [[name, *(microseconds(by.get(count)) for count in seconds)] for name, by in found.items()]
    report.sheets.append(Sheet("", ["CPU µs a job", *heads], cpu))
    chart = [Line(name, [(count, one.wall_s) for count, one in by.items()]) for name, by in found.items()]
    chart.append(Line("ideal", list(seconds.items()), is_ideal=True))
    report.charts.append(Lines("seconds to drain", Axis("concurrency", "log"), Axis("s", "log"), chart))
    report.data = {name: {str(count): one.__dict__ for count, one in by.items()} for name, by in found.items()}
    return report


def contenders(work: JobRun, count: int, scale: Scale, tell: Tell, notes: list[str]) -> Iterator[tuple[str, Contender]]:
    """Of one concurrency. Those that cannot run are told once."""
    load = Load(count, units=SIZES[scale].jobs)
    settings = {
        "Clutch thread": Setting("thread", 1, threads=count),
        "Clutch greenlet": Setting("greenlet", 1, tasks=count),
    }
    if count <= PROCESSES_MAX[scale]:
        settings["Clutch process"] = Setting("process", count)
    for name, setting in settings.items():
        yield name, replace(contender_of(work, setting, load), name=f"{name} {count}")
    names = [name for name in PEERS if not name.endswith("prefork") or count <= PROCESSES_MAX[scale]]
    for one in beside(names, work, "jobs", count, load, notes, tell):
        yield one.name, replace(one, name=f"{one.name} {count}")


def shown(one: Figures | None, ideal: float) -> str:
    return "–" if one is None else f"{one.wall_s:.2f} ({ideal / one.wall_s:.0%})"


def megabytes(one: Figures | None) -> str:
    return "–" if one is None else f"{one.pss_bytes / 1e6:,.0f}"


def microseconds(one: Figures | None) -> str:
    return "–" if one is None else f"{one.cpu_each_s * 1e6:,.0f}"
