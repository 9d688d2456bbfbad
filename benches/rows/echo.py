"""Echo of a short string, one blocking call at a time: one caller, one worker.

Pinned, all share one CPU: no wake-up of another core, so the figures repeat. Unpinned figures stand beside.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from benches import contestants, plain, processes
from benches.harness import Contestant, Report, Samples, Scale, faster, interleave, within

_TEXT = "hello, clutch"
_OURS = "clutch"
_PING_PONG = "ping-pong of 64 bytes in Rust"
_BUILD = ["cargo", "bench", "--quiet", "--package", "clutch-pool", "--bench", "pingpong", "--no-run"]
_ROOT = Path(__file__).resolve().parents[2]


@dataclass
class _Meter:
    """Takes samples of one way to call: median latency, and CPU time of the whole process tree for each call."""

    call: Callable[[], object]
    calls: int
    cpu_us: list[float]

    def sample(self) -> float:
        before = processes.cpu_ns(processes.tree())
        latency_us = _median_latency_us(self.call, self.calls)
        self.cpu_us.append((processes.cpu_ns(processes.tree()) - before) / self.calls / 1_000)
        return latency_us


def run(scale: Scale) -> Report:
    """p50 against the ping-pong and ProcessPoolExecutor, pinned; the unpinned figures as notes."""
    ping_pong = _built_ping_pong()
    report = Report(notes=[f"echo: {contestants.EXECUTOR}(1) of {contestants.standard_library()}"])
    with ExitStack() as stack:
        executor = stack.enter_context(contestants.executor(1))
        pool = stack.enter_context(contestants.clutch_pool(1))
        meters = {
            _OURS: _Meter(partial(pool.call, plain.echo, _TEXT), scale.calls, []),
            contestants.EXECUTOR: _Meter(lambda: executor.submit(plain.echo, _TEXT).result(), scale.calls, []),
        }
        field = [Contestant(name, meter.sample) for name, meter in meters.items()]
        field.insert(1, Contestant(_PING_PONG, lambda: _ping_pong_us(ping_pong, scale.calls)))
        every_cpu = os.sched_getaffinity(0)
        pinned = _measured(field, meters, scale, {max(every_cpu)})
        report.notes.append(_beside("pinned", pinned, meters))
        report.notes.append(_beside("not pinned", _measured(field, meters, scale, every_cpu), meters))
    bars = {_PING_PONG: within(1.6), contestants.EXECUTOR: faster(8)}
    report.compare("echo, one blocking call, p50, pinned", "µs", pinned, bars)
    return report


def _measured(field: list[Contestant], meters: dict[str, _Meter], scale: Scale, cpus: set[int]) -> Samples:
    """Samples of all with every thread of every process on `cpus`, after one warm-up round."""
    processes.pin(processes.tree(), cpus)
    interleave(field, 1)
    for meter in meters.values():
        meter.cpu_us.clear()
    return interleave(field, scale.rounds)


def _beside(label: str, samples: Samples, meters: dict[str, _Meter]) -> str:
    """p50 of all and CPU time for each call of those with a meter, in one line."""
    shown = ", ".join(f"{name} {statistics.median(values):.1f} µs" for name, values in samples.items())
    cpu = ", ".join(f"{name} {statistics.median(meter.cpu_us):.1f} µs" for name, meter in meters.items())
    return f"echo, {label}: p50 {shown}; CPU time for each call, caller and workers: {cpu}"


def _median_latency_us(call: Callable[[], object], calls: int) -> float:
    clock = time.perf_counter_ns
    spent_ns = []
    for _ in range(calls):
        began = clock()
        call()
        spent_ns.append(clock() - began)
    return statistics.median(spent_ns) / 1_000


def _built_ping_pong() -> str:
    """Build the Rust program and give its path."""
    built = subprocess.run([*_BUILD, "--message-format=json"], cwd=_ROOT, check=True, stdout=subprocess.PIPE)
    messages = [json.loads(line) for line in built.stdout.splitlines() if line.startswith(b"{")]
    return next(message["executable"] for message in messages if message.get("executable"))


def _ping_pong_us(program: str, calls: int) -> float:
    """p50 of the Rust program; its two processes inherit the CPUs of this thread."""
    printed = subprocess.run([program, "--calls", str(calls)], check=True, stdout=subprocess.PIPE).stdout
    return json.loads(printed)["p50_ns"] / 1_000
