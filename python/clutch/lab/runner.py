"""One trial in a process of its own: `python -m clutch.lab.runner`, told what to do by lines of JSON.

It is given an order; it starts what is ordered, has it do one unit to see that it works, and says so. Then each line
asks for a measurement. A process of its own, since a setting is measured as it would be deployed: started afresh,
without what others have left in memory.
"""

from __future__ import annotations

import atexit
import json
import os
import signal
import sys
from typing import Any, TextIO

from clutch.lab import orphans, watching
from clutch.lab.drivers import Driver, driver_of
from clutch.lab.load import Load


def main() -> None:
    # What the work prints is not to be read as answers.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    sys.path.insert(0, os.getcwd())
    # Who presses Ctrl-C means the lab, which ends this process in its way.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    orphans.adopt()
    # Before any other, so that it runs after all others: what is left by then has not ended by itself.
    atexit.register(orphans.end_below)
    order = json.loads(sys.stdin.readline())
    try:
        run(order, answers)
    except BaseException as error:
        say(answers, {"error": f"{type(error).__name__}: {error}", "notes": getattr(error, "__notes__", [])})
        raise SystemExit(1) from None


def say(answers: TextIO, what: dict[str, Any]) -> None:
    answers.write(json.dumps(what) + "\n")


def run(order: dict[str, Any], answers: TextIO) -> None:
    driver = driver_of(order)
    try:
        say(answers, {**driver.hello(), "pid": os.getpid()})
        for line in sys.stdin:
            asked = json.loads(line)
            say(answers, measured(driver, Load(**asked["load"]), asked["seconds"]))
    finally:
        driver.end()


def measured(driver: Driver, load: Load, seconds: float) -> dict[str, Any]:
    """What the driver has measured, and what the machine did meanwhile."""
    mine = os.getpid()
    ours_before = sum(map(watching.cpu_s, dict.fromkeys([*watching.below(mine), *driver.pids()])))
    before = watching.machine()
    figures = driver.measure(load, seconds)
    meanwhile = watching.machine() - before
    pids = driver.pids()
    everyone = dict.fromkeys([*watching.below(mine), *pids])
    ours = sum(map(watching.cpu_s, everyone)) - ours_before
    # Of a server that ran before, and cannot be seen, nobody can tell what is its.
    figures["others_cpu_s"] = max(0.0, meanwhile.busy_s + meanwhile.stolen_s - ours) if pids else 0.0
    figures["idle_s"] = meanwhile.idle_s
    figures["pss_bytes"] = watching.pss_bytes(everyone) if pids else 0
    figures["cpus"] = [watching.last_cpu(pid) for pid in pids]
    return figures


if __name__ == "__main__":
    main()
