"""Calls: Clutch's pools beside those of the standard library, and what is large beside what is small."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path

from benches.suite import BEST, OURS, Line, Row, Rows, Share, Size, at_most, faster, more, pair, probe, within
from clutch.lab.contender import Contender, contender_of
from clutch.lab.load import Load
from clutch.lab.setting import Setting
from clutch.lab.work import App, Calls, Request

PROBES, SCALE = "calls.probes", "calls.scale"
EXECUTOR = "ProcessPoolExecutor"
FREE_THREADED = "CLUTCH_TEST_FT_PYTHON"
ROOT = Path(__file__).resolve().parents[2]
TWO = Setting("process", 2)
LONG = 60.0
"""Seconds of a sample that does as much as it does: the lab waits twice as long for it, and a minute."""


def rows(size: Size) -> Rows:
    return {**calls(), **lives(), **scale(size)}


def calls() -> Rows:
    submit = Calls("benches.calls.plain", "increment", [1])
    echoes = {
        "ours": (probe(OURS, f"{PROBES}:blocking", who=OURS),),
        "others": (
            probe("ping-pong of 64 bytes in Rust", f"{PROBES}:ping_pong", calls=2_500),
            probe(EXECUTOR, f"{PROBES}:blocking", who="executor"),
        ),
    }
    p50, cpu = Line("p50", unit="µs", title="p50"), Line("cpu", unit="µs", title="CPU of all processes")
    bars = {"ping-pong of 64 bytes in Rust": within(1.6), EXECUTOR: faster(8)}
    return {
        "echo": Row("echo, one blocking call, pinned", (replace(p50, bars=bars), cpu), place="one CPU", **echoes),
        "echo-unpinned": Row("echo, not pinned", (p50, cpu), **echoes),
        "submit": Row(
            "submit, 256 in flight",
            (Line("rate", {"futures process": more(8), "multiprocessing.Pool": more(4)}),),
            (replace(contender_of(submit, TWO), name=OURS),),
            work=submit,
            peers=("futures process", "multiprocessing.Pool"),
            loads=(Load(256),),
        ),
        "map": Row(
            "map, 200,000 items",
            (Line("rate", {"its best chunk size": more(1), "its default": more(20)}, "/s"),),
            (probe(OURS, f"{PROBES}:mapping", who=OURS),),
            (
                probe("its best chunk size", f"{PROBES}:mapping", who="best"),
                probe("its default", f"{PROBES}:mapping", who="default"),
            ),
            note=f"2 workers; chunk sizes of {EXECUTOR}.map; at the default (1) the rate is that of 4,000 items",
        ),
        "asyncio": Row(
            "from asyncio, 256 in flight",
            (Line("rate", {BEST: more(8)}, "/s"),),
            (probe(OURS, f"{PROBES}:from_asyncio", who=OURS),),
            (probe(f"run_in_executor on {EXECUTOR}", f"{PROBES}:from_asyncio", who="executor"),),
        ),
        **{
            f"payload-{kind}": Row(
                f"1 MB, {kind}, there and back",
                (Line("mean", {BEST: faster(4)}, "µs"),),
                (probe(OURS, f"{PROBES}:blocking", who=OURS, payload=kind),),
                (probe(EXECUTOR, f"{PROBES}:blocking", who="executor", payload=kind),),
            )
            for kind in ("bytes", "array")
        },
        "http": over_http(),
    }


def over_http() -> Row:
    """Two workers on each side, the same request and the same body of the answer."""
    headers = (("Content-Type", "application/json"),)
    asked = (Request("/pools/bench/tools/echo", "POST", headers, b'{"message": "hello, clutch"}'),)
    command = [sys.executable, "-m", "clutch", "run", "--log-level", "warning"]
    command += ["--set", "fronts.http.bind=127.0.0.1:{port}", "benches/calls/echo.toml"]
    order = {"kind": "http", "command": command, "is_clutch": False, "requests": [one.as_data() for one in asked]}
    return Row(
        "HTTP, JSON echo, 64 connections, FastAPI beside",
        (Line("rate", {BEST: more(3)}),),
        (Contender("clutch run", order, Load(64)),),
        work=App("benches.calls.fastapi_app:app", asked),
        face="asgi",
        peers=("uvicorn httptools",),
        loads=(Load(64),),
        seconds=2.0,
    )


def lives() -> Rows:
    """Of workers: their start, their deaths, threads without a GIL, deadlines, recycling."""
    methods = {"spawn": within(0.2), "fork": within(0.25)}
    far = probe("with one", f"{PROBES}:blocking", who=OURS, deadline_s=10.0)
    none = probe("without", f"{PROBES}:blocking", who=OURS)
    return {
        "start": Row(
            "100 workers with numpy, all answering",
            (
                Line("seconds", {f"{EXECUTOR} {name}": faster(14) for name in methods}, "s"),
                Line("megabytes", {f"{EXECUTOR} {name}": bar for name, bar in methods.items()}, "MB", "memory (PSS)"),
            ),
            (probe(OURS, f"{PROBES}:crowd", who=OURS, count=100),),
            tuple(probe(f"{EXECUTOR} {name}", f"{PROBES}:crowd", who=name, count=100) for name in methods),
            pace="slow",
            seconds=LONG,
        ),
        "thread": threads(),
        "deadline": Row(
            "CPU of an echo with a deadline",
            (Line("cpu", {BEST: within(1.02)}, "µs"),),
            (far,),
            (none,),
            pace="fine",
            place="one CPU",
        ),
        "backlog": Row(
            "a submit with 10,000 queued",
            (Line("submit", {BEST: within(1.2)}, "ns"),),
            pace="fine",
            **pair(f"{PROBES}:queued", "queued", 10_000, 10, workers=2),
        ),
        "recycle": recycling(),
        **{
            f"replacement-{kind}": Row(
                f"{kind} worker that was killed until another is ready",
                (Line("median", at_most(100), "ms"), Line("longest", at_most(100), "ms", "the longest")),
                (probe(OURS, f"{PROBES}:replaced", is_busy=kind == "busy"),),
            )
            for kind in ("idle", "busy")
        },
    }


def threads() -> Row | str:
    usual = ROOT / ".venv-ft"
    python = os.environ.get(FREE_THREADED) or (str(usual / "bin/python") if (usual / ".released").exists() else None)
    if python is None:
        return f"no free-threaded interpreter: `make free-threaded` sets one up, or set {FREE_THREADED}"
    return Row(
        "threads of a free-threaded worker, pure Python",
        (Line("rate", {BEST: more(1.8)}, "/s"),),
        seconds=LONG,
        **pair(f"{PROBES}:primes", "threads", 2, 1, python=python),
    )


def recycling() -> Row:
    """Calls come at 70 % of what can be done, whether earlier ones are answered or not."""
    stays = replace(contender_of(Calls("benches.calls.plain", "busy", [0.001]), TWO), name="workers that stay")
    options = {**stays.order["options"], "recycle": {"calls": 500}}
    recycled = replace(stays, name="recycled", order={**stays.order, "options": options})
    lines = (
        Line("rate", {BEST: more(0.99)}),
        Line("p99", {BEST: within(1.2)}, title="p99"),
        Line("errors", at_most(0), title="errors"),
    )
    load = Share(0.7, 8, "peers")
    return Row("each worker recycled after 500 calls", lines, (recycled,), (stays,), loads=(load,), seconds=3.0)


def scale(size: Size) -> Rows:
    """Each as large as anybody has, beside the same that is small."""
    waiting = 100_000 if size.is_quick else 1_000_000
    return {
        "scale-start": Row(
            "600 workers",
            (
                Line("ready", {BEST: within(8)}, "s", "ready"),
                Line("stop", at_most(4), "s", "stopped, with a grace of 2 s"),
            ),
            pace="slow",
            is_fresh=True,
            seconds=LONG,
            **pair(f"{SCALE}:many_workers", "workers", 600, 100),
        ),
        "scale-calls": Row(
            "among 1,000 workers",
            (
                Line("call", {BEST: within(1.3)}, "µs", "an echo, pinned"),
                Line("worker", {BEST: within(1.3)}, "MB", "memory of each"),
            ),
            place="one CPU",
            seconds=LONG,
            **pair(f"{SCALE}:among", "workers", 1_000, 2),
        ),
        "scale-slots": Row(
            "CPU of a call among 10,000 in one worker",
            (Line("each", {BEST: within(1.5)}, "µs"),),
            seconds=LONG,
            **pair(f"{SCALE}:under_way", "calls", 10_000, 100, tasks=10_000),
        ),
        "scale-arrays": arrays(10_000 if size.is_quick else 100_000),
        "scale-queue": Row(
            f"a submit with {waiting:,} queued",
            (
                Line("submit", {BEST: within(1.3)}, "ns"),
                Line("bytes", at_most(2_000), "bytes", "memory of each that waits"),
            ),
            pace="fine",
            **pair(f"{PROBES}:queued", "queued", waiting, 1_000),
        ),
        # A hundred times as many; a wake-up, which is most of it, is the same.
        "scale-deadlines": Row(
            "the last of 10,000 deadlines that pass at one moment",
            (Line("late", {BEST: within(50), **at_most(50)}, "ms"),),
            seconds=LONG,
            **pair(f"{SCALE}:deadlines", "at_once", 10_000, 100),
        ),
    }


def arrays(kept: int) -> Row | str:
    with open("/proc/meminfo") as file:
        free = next(int(line.split()[1]) >> 10 for line in file if line.startswith("MemAvailable"))
    if free < (needed := kept * 80 // 1_000):
        return f"needs {needed:,} MB of memory, and {free:,} are available"
    lines = (Line("call", {BEST: within(1.3)}, "µs"),)
    return Row(f"an array while {kept:,} are kept", lines, seconds=LONG, **pair(f"{SCALE}:arrays", "kept", kept, 100))
