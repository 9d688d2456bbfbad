"""Processes beside threads, as an experiment has published it: echo, product of matrices, a mix, inference, memory,
start, load that lasts, load beyond what can be done, recycling, and two pools at a time."""

from __future__ import annotations

import contextlib
import importlib.util
import threading
from dataclasses import dataclass
from typing import Any

from clutch.lab.contender import Contender, contender_of
from clutch.lab.load import PERCENTILES, Figures, Load
from clutch.lab.machine import facts
from clutch.lab.presets import Scale, Tell
from clutch.lab.presets.beside import beside
from clutch.lab.presets.playing import Played, as_data, play
from clutch.lab.report import Axis, Line, Lines, Report, Sheet
from clutch.lab.setting import Setting
from clutch.lab.shown import by_percentile, figure, milliseconds
from clutch.lab.trial import TrialFailed
from clutch.lab.work import Calls

MODULE = "clutch.lab.samples.tools"
SUSTAINED, PEAK = 0.6, 1.3
"""Shares of what the slots of a pool can do at most."""
WAIT_SECONDS = 0.005
"""Of the calls of the load that lasts."""
PEERS = ("futures process", "multiprocessing.Pool")
PLAIN = 1.1
"""Ratio from which a difference is called one."""
THREADS = 25
"""Threads of a worker in the published experiment: as many slots as it had processes."""


@dataclass(frozen=True)
class Size:
    """How much is measured. `processes`: of `process`; `workers`: of `thread`, with `threads` each."""

    processes: int
    workers: int
    threads: int
    matrix: int
    rounds: int
    seconds: float
    sustained_s: float
    peak_s: float
    starts: tuple[int, ...]


SIZES = {
    "small": Size(8, 2, 4, 300, 6, 0.4, 5, 3, (10, 50)),
    "full": Size(100, 4, THREADS, 1000, 9, 3, 1800, 300, (10, 50, 100, 200, 250)),
}
PUBLISHED = {
    "echo": "published, 8 cores: process 1,500/s, p50 3, p99 8 ms, 15 GB; thread 1,200/s, p50 5, p99 12 ms, 1.6 GB",
    "product": (
        "published: process 600 an hour at p50 120 ms, thread 2,400 at 35 ms. That cannot be right: 100 processes at "
        "120 ms each would be 3,000,000 an hour. And BLAS had other numbers of threads in the two arms; here each has "
        "what Clutch gives it"
    ),
    "mixed": "published: process 1,200/s at 15 ms, thread 1,100/s at 18 ms",
    "infer": "published, ResNet50: process 1,200 an hour at 3.0 s, thread 4,800 at 0.75 s; here another model",
    "memory": "published: 150 MB for each process idle, 400 MB for each of threads",
    "sustained": "published, 30 minutes at 1,000/s: 99.98 % and 99.95 % succeed",
    "peak": "published, at the peak: process 2,100 and 1,900/s, deepest queue 42; thread 1,650 and 1,400/s, 156",
    "recycling": "published: process +2 ms p99, −1 %, under 1 s; thread +8 ms, −6.25 %, 2 s",
    "start": "published, 10/50/100/200/250: process 1.2/5.5/10.8/22.3/60.1 s, thread 0.3/1.1/2.2/4.5/5.8 s",
}


def run(scale: Scale, tell: Tell) -> Report:
    size = SIZES[scale]
    report = Report("processes beside threads", facts())
    settings = {
        "process": Setting("process", size.processes),
        "thread": Setting("thread", size.workers, threads=size.threads),
    }
    names = {name: str(setting) for name, setting in settings.items()}
    report.notes.append(f"process: {names['process']}; thread: {names['thread']} (as many slots)")
    played: dict[str, Played] = {}
    for what, kwargs in works(size):
        if (missing := missing_for(what)) is not None:
            report.notes.append(f"{what} is left out: {missing}")
            continue
        tell(f"{what}")
        field = [of(settings[name], what, kwargs) for name in settings]
        if what == "echo":
            load = Load(2 * size.processes)
            field += beside(PEERS, Calls(MODULE, "echo"), "calls", size.processes, load, report.notes, tell)
        played[what], failed = play(field, [Load(2 * size.processes)], size.rounds, size.seconds, tell)
        report.notes += failed
        report.sheets.append(rates(what, played[what]))
        report.data[what] = as_data(played[what])
        if what == "echo":
            middle = {name: next(iter(by.values())) for name, by in played[what].items()}
            report.charts.append(by_percentile("echo: latency by percentile", middle))
    lasting(report, [of(setting, "wait", {"seconds": WAIT_SECONDS}) for setting in settings.values()], size, tell)
    starts(report, size, tell)
    two_pools(report, size, tell)
    report.advice += advice(played)
    return report


def works(size: Size) -> list[tuple[str, dict[str, Any]]]:
    matrix = {"size": size.matrix}
    return [("echo", {}), ("product", matrix), ("mixed", matrix), ("infer", {})]


def missing_for(what: str) -> str | None:
    """The package that work needs and that is not here, in words."""
    needed = {"product": "numpy", "mixed": "numpy", "infer": "magika"}.get(what)
    if needed is None or importlib.util.find_spec(needed) is not None:
        return None
    return f"it needs {needed}: pip install {needed}"


def of(setting: Setting, what: str, kwargs: dict[str, Any]) -> Contender:
    return contender_of(Calls(MODULE, what, kwargs=kwargs), setting)


def rates(what: str, played: Played) -> Sheet:
    head = [what, "calls/s", "an hour", *(f"p{percentile} ms" for percentile in PERCENTILES), "CPU µs each", "MB"]
    lines = []
    for name, by in played.items():
        [one] = by.values()
        latency = [milliseconds(one.latency_s.get(percentile)) for percentile in PERCENTILES]
        memory = f"{one.pss_bytes / 1e6:,.0f}"
        lines.append(
            [name, figure(one.rate), f"{one.rate * 3600:,.0f}", *latency, f"{one.cpu_each_s * 1e6:,.0f}", memory]
        )
    return Sheet("", head, lines, [PUBLISHED[what]])


def lasting(report: Report, field: list[Contender], size: Size, tell: Tell) -> None:
    """Memory idle and under load that lasts; a rate that can be had, and one that cannot; a worker that is replaced.
    The calls wait for a few milliseconds: of calls that do nothing, a program cannot make as many as workers can do."""
    memory, lasts, peak, recycling = [], [], [], []
    over_time: list[Line] = []
    for one in field:
        rate = (one.slots or 1) / WAIT_SECONDS
        offered = PEAK * rate
        tell(f"{one.name}: {size.sustained_s:g} s at {SUSTAINED * rate:,.0f}/s, {size.peak_s:g} s at {offered:,.0f}/s")
        try:
            with one.start() as trial:
                idle = trial.memory()
                points = [(0.0, idle / 1e6)]
                calm: list[Figures] = []
                parts = 5
                for nr in range(parts):
                    calm.append(trial.measure(Load(100_000, SUSTAINED * rate, True, nr), size.sustained_s / parts))
                    points.append(((nr + 1) * size.sustained_s / parts, calm[-1].pss_bytes / 1e6))
                beyond = trial.measure(Load(100_000, offered, True), size.peak_s)
                steady = trial.measure(Load(100_000, SUSTAINED * rate), size.sustained_s)
                replaced = trial.measure(Load(100_000, SUSTAINED * rate, recycles=True), size.sustained_s)
        except TrialFailed as error:
            report.notes.append(f"{one.name}: {str(error).splitlines()[0]}")
            continue
        over_time.append(Line(one.name, points))
        workers = one.workers or 1
        each = idle / 1e6 / workers
        memory.append([one.name, f"{idle / 1e6:,.0f}", f"{each:.1f}", *(f"{y:,.0f}" for _, y in points[1:])])
        units = sum(part.units for part in calm)
        errors = sum(sum(part.errors.values()) for part in calm)
        succeed = f"{units / max(1, units + errors):.2%}"
        lasts.append(
            [one.name, figure(SUSTAINED * rate), f"{size.sustained_s:g}", succeed, middle_p99(calm), spoiled(calm)]
        )
        done = [figure(offered), figure(beyond.rate), f"{beyond.deepest or 0:,}", p99(beyond), spoiled([beyond])]
        peak.append([one.name, *done])
        change = replaced.rate / steady.rate - 1 if steady.rate else 0.0
        took = "" if replaced.recycled_s is None else f"{replaced.recycled_s:.2f}"
        failed = f"{sum(replaced.errors.values())}"
        recycling.append([one.name, p99(steady), p99(replaced), f"{change:+.1%}", took, failed])
        report.data[f"lasting {one.name}"] = {
            "sustained": [part.__dict__ for part in calm],
            "peak": beyond.__dict__,
            "steady": steady.__dict__,
            "replaced": replaced.__dict__,
        }
    parts_s = [f"MB at {(nr + 1) * size.sustained_s / 5:g} s" for nr in range(5)]
    report.sheets.append(Sheet("", ["memory", "MB idle", "MB a worker", *parts_s], memory, [PUBLISHED["memory"]]))
    report.charts.append(Lines("memory under load that lasts", Axis("s"), Axis("MB"), over_time))
    head = ["a rate that can be had", "calls/s", "s", "succeed", "p99 ms", ""]
    report.sheets.append(Sheet("", head, lasts, [PUBLISHED["sustained"]]))
    head = ["more than can be had", "offered/s", "done/s", "deepest queue", "p99 ms", ""]
    report.sheets.append(Sheet("", head, peak, [PUBLISHED["peak"]]))
    head = ["a worker replaced under load", "p99 ms without", "p99 ms with", "calls/s", "took s", "failed"]
    report.sheets.append(Sheet("", head, recycling, [PUBLISHED["recycling"]]))


def spoiled(figures: list[Figures]) -> str:
    return "not valid: the load was late" if any(one.spoiled for one in figures) else ""


def p99(one: Figures) -> str:
    return milliseconds(one.latency_s.get("99"))


def middle_p99(figures: list[Figures]) -> str:
    found = sorted(one.latency_s.get("99", 0.0) for one in figures)
    return milliseconds(found[len(found) // 2])


def starts(report: Report, size: Size, tell: Tell) -> None:
    """From nothing to all workers ready, for both profiles: of threads, as many slots."""
    lines: dict[str, list[str]] = {"process": [], "thread": []}
    for count in size.starts:
        tell(f"start of {count} workers")
        for name, setting in {
            "process": Setting("process", count),
            "thread": Setting("thread", max(1, count // size.threads), threads=size.threads),
        }.items():
            try:
                with of(setting, "echo", {}).start() as trial:
                    lines[name].append(f"{trial.start_s:.2f}")
            except TrialFailed as error:
                lines[name].append("fails")
                report.notes.append(f"start of {setting}: {str(error).splitlines()[0]}")
    head = ["start, s, by slots", *map(str, size.starts)]
    report.sheets.append(Sheet("", head, [[name, *cells] for name, cells in lines.items()], [PUBLISHED["start"]]))


def two_pools(report: Report, size: Size, tell: Tell) -> None:
    """Echoes in one pool while products run in another, against echoes alone."""
    if missing_for("product") is not None:
        return
    tell("two pools at a time")
    api = of(Setting("process", max(2, size.processes // 2)), "echo", {})
    jobs = of(Setting("thread", size.workers, threads=max(1, size.threads // 2)), "product", {"size": size.matrix})
    lines = []
    with contextlib.ExitStack() as stack:
        try:
            front, back = stack.enter_context(api.start()), stack.enter_context(jobs.start())
        except TrialFailed as error:
            report.notes.append(f"two pools: {str(error).splitlines()[0]}")
            return
        seconds, beside = max(2.0, 4 * size.seconds), list[Figures]()
        alone = front.measure(Load(4), seconds)
        worker = threading.Thread(target=lambda: beside.append(back.measure(jobs.load, seconds * 1.5)))
        worker.start()
        together = front.measure(Load(4), seconds)
        worker.join()
        lines.append([f"echoes alone, {api.name}", figure(alone.rate), p99(alone)])
        lines.append(["echoes beside products", figure(together.rate), p99(together)])
        lines += [[f"products beside them, {jobs.name}", figure(one.rate), p99(one)] for one in beside]
    report.sheets.append(Sheet("", ["two pools in one machine", "calls/s", "p99 ms"], lines))


def advice(played: dict[str, Played]) -> list[str]:
    """Which profile each kind of work was better under, where that is plain."""
    found = []
    for what, by_name in played.items():
        measured = {name: next(iter(by.values())) for name, by in by_name.items()}
        if len(measured) < 2:
            continue
        best, other = sorted(measured, key=lambda name: -measured[name].rate)[:2]
        faster = measured[best].rate / max(measured[other].rate, 1e-9)
        cpu = measured[best].cpu_each_s / max(measured[other].cpu_each_s, 1e-9)
        if faster > PLAIN and cpu < PLAIN:
            found.append(f"{what}: {best} does {faster:.2f} × as much, for {cpu:.2f} × the CPU time of each")
        else:
            found.append(f"{what}: no plain difference ({best} {faster:.2f} ×, CPU time {cpu:.2f} ×)")
    return [*found, "what suits your own code: clutch tune MODULE:FUNCTION"]
