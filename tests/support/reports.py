"""A report such as the lab makes, for tests of how it is shown."""

from __future__ import annotations

import math

from clutch.lab.report import Axis, HeatMap, Line, Lines, Report, Sheet

WORKERS, THREADS = (1, 2, 4, 6, 8), (1, 4, 8, 16, 32)
PERCENTILES = (50, 75, 90, 95, 99, 99.5, 99.9, 99.99)
CALLERS = (1, 2, 4, 8, 16, 32, 64)
SETTINGS = {
    "process × 4": (3.1, 0.35),
    "process × 8": (2.6, 0.42),
    "thread × 4 · 8": (4.4, 0.5),
    "thread × 4 · 16": (5.2, 0.62),
    "async × 4 · 64": (6.9, 0.3),
    "greenlet × 4 · 64": (6.1, 0.75),
}
"""Milliseconds of the median, and how steep the tail is."""


def realistic() -> Report:
    return Report(
        "clutch bench tools:resize width=800",
        machine={
            "Processor": "16 CPUs, AMD EPYC 7R13",
            "Memory": "62 GiB, no swap",
            "System": "Linux 6.8.0-45-generic",
            "Python": "CPython 3.13.0",
            "Clutch": "0.1.0",
            "Measured": "2026-11-20, 12 rounds of 3 s",
        },
        sheets=[figures(), comparison()],
        charts=[heat_map("process", 640), heat_map("thread", 410), latencies(), throughput(), memory()],
        advice=[
            "Take --profile process --workers 8: 4,812 calls/s, 1.31 times the default's [1.28, 1.35].",
            "Memory allows no more than 10 such workers; each takes about 48 MB beyond what they share.",
            "Warning: the machine was busy: others used 1.4 CPUs during 3 of 12 rounds. Trust the CPU time of a call "
            "more than its latency.",
        ],
        notes=[
            "Each setting ran in a process of its own; rounds were interleaved.",
            "Ratios are medians over rounds, with the bounds of the bootstrap at 95 %.",
            "Latencies count from the call to its result, with the wait for a slot.",
        ],
        data={"format": 1, "seconds": 3.0, "rounds": [{"rate": 4812.25 + nr, "p99_s": 0.0123} for nr in range(12)]},
    )


def figures() -> Sheet:
    headings = ("setting", "calls/s", "p50 ms", "p99 ms", "CPU µs each", "CPUs", "MB", "errors", "to the best")
    lines = [
        (
            name,
            f"{12_500 / median:,.1f}",
            f"{median:,.2f}",
            f"{median * 100**tail:,.2f}",
            f"{830 + 60 * median:,.0f}",
            f"{12_500 / median * (830 + 60 * median) / 1e6:.2f}",
            f"{120 + 37 * nr:,}",
            "3" if nr == 4 else "",
            f"{2.6 / median:.3f} [{2.6 / median - 0.021:.3f}, {2.6 / median + 0.018:.3f}]",
        )
        for nr, (name, (median, tail)) in enumerate(SETTINGS.items())
    ]
    return Sheet("Settings", headings, lines, ["Errors are not among the calls/s."])


def comparison() -> Sheet:
    lines = [("process × 8", "1.312 [1.284, 1.351]", "0.0005", "better"), ("thread × 4 · 16", "0.998", "0.91", "alike")]
    return Sheet("Against before.json", ("setting", "ratio", "p", "verdict"), lines)


def heat_map(profile: str, rate: float) -> HeatMap:
    values = [
        [None if (w, t) == (8, 32) else rate * w**0.82 * (1 + 0.2 * math.log2(t)) / (1 + w * t / 180) for t in THREADS]
        for w in WORKERS
    ]
    names = [f"{size}" for size in THREADS], [f"{size}" for size in WORKERS]
    return HeatMap(
        f"Throughput, profile {profile}", "threads of each worker", names[0], "workers", names[1], values, "calls/s"
    )


def latencies() -> Lines:
    lines = [
        Line(name, [(p, median * (50 / (100 - p)) ** tail) for p in PERCENTILES])
        for name, (median, tail) in SETTINGS.items()
    ]
    return Lines("Latency by percentile", Axis("percentile of calls", "percentile"), Axis("ms", "log"), lines)


def throughput() -> Lines:
    lines = [
        Line(name, [(n, 310 * n / (1 + n / (28 - 4 * nr))) for n in CALLERS])
        for nr, name in enumerate(["process × 8", "thread × 4 · 8", "async × 4 · 64"])
    ]
    ideal = Line("each caller adds as much as the first", [(n, 310 * n) for n in CALLERS], is_ideal=True)
    return Lines("Throughput over callers", Axis("callers at once", "log"), Axis("calls/s"), [*lines, ideal])


def memory() -> Lines:
    seconds = [nr / 2 for nr in range(121)]
    lines = [
        Line("process × 8", [(s, 160 + 250 * (1 - math.exp(-s / 9)) + 6 * math.sin(s * 1.7)) for s in seconds]),
        Line("thread × 4 · 8", [(s, 120 + 90 * (1 - math.exp(-s / 5)) + 4 * math.sin(s * 2.3)) for s in seconds]),
        Line("async × 4 · 64", [(s, 95 + 1.1 * s + 3 * math.sin(s)) for s in seconds]),
    ]
    return Lines(
        "Memory of all processes",
        Axis("seconds since the start"),
        Axis("MB, pages that are shared counted once"),
        lines,
    )
