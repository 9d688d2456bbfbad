"""What a deadline costs: CPU time of an echo with one that is far away, against the same without."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial

from benches import contestants, plain, processes
from benches.harness import Contestant, Report, Scale, interleave, within

_TEXT = "hello, clutch"
_DEADLINE_SECONDS = 10.0
_CALLS_FACTOR = 4
_WITHOUT = "without a deadline"


def run(scale: Scale) -> Report:
    """One caller, one worker, blocking calls, everything on one CPU."""
    calls = _CALLS_FACTOR * scale.calls
    with contestants.clutch_pool(1) as pool:
        processes.pin(processes.tree(), {max(os.sched_getaffinity(0))})
        field = [
            Contestant(name, partial(_cpu_us, partial(options.call, plain.echo, _TEXT), calls))
            for name, options in (
                ("with a deadline", pool.options(deadline=_DEADLINE_SECONDS)),
                (_WITHOUT, pool.options()),
            )
        ]
        interleave(field, 1)
        samples = interleave(field, scale.fine_rounds)
    report = Report(notes=[f"deadline: {_DEADLINE_SECONDS:g} s; user and system time of caller, zygote and worker"])
    report.compare("CPU time of an echo with a deadline", "µs", samples, {_WITHOUT: within(1.02)})
    return report


def _cpu_us(call: Callable[[], object], calls: int) -> float:
    """For each call, of all processes."""
    tree = processes.tree()
    before = processes.cpu_ns(tree)
    for _ in range(calls):
        call()
    return (processes.cpu_ns(tree) - before) / calls / 1_000
