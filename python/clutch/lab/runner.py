"""One trial in a process of its own: `python -m clutch.lab.runner`, told what to do by lines of JSON.

It is given an order; it starts what is ordered, has it do one unit to see that it works, and says so. Then each line
asks for a measurement. A process of its own, since a setting is measured as it would be deployed: started afresh,
without what others have left in memory.
"""

from __future__ import annotations

import atexit
import faulthandler
import json
import os
import resource
import signal
import sys
import threading
import time
from typing import Any, TextIO

from clutch.errors import ClutchError
from clutch.lab import orphans, watching
from clutch.lab.drivers import Driver, driver_named
from clutch.lab.drivers.program import Wrong
from clutch.lab.load import Load
from clutch.lab.placing import Placed

MEMORY_SECONDS_MIN = 0.1
ORDER_SECONDS_MAX = 5.0
"""Time to end in order for a runner that is told to end."""
PACE_TURNS = 20_000
STACK_SIGNAL = signal.SIGUSR1
"""Asks for the stack of this process."""


def main() -> None:
    # What the work prints is not to be read as answers.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    tell_stacks(int(sys.argv[1]))
    # Who presses Ctrl-C means the lab, which ends this process in its way.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Who ends the lab, or interrupts a measurement, does not want to wait for its end.
    signal.signal(signal.SIGTERM, terminated)
    os.register_at_fork(after_in_child=lambda: signal.signal(signal.SIGTERM, signal.SIG_DFL))
    orphans.adopt()
    # Before any other, so that it runs after all others: what is left by then has not ended by itself.
    atexit.register(orphans.end_below)
    order = json.loads(sys.stdin.readline())
    driver = driver_named(order["kind"])
    # Only now, since what is there may have the name of a module of Python.
    sys.path.insert(0, os.getcwd())
    try:
        run(driver.start(order), answers)
    except BaseException as error:
        # A worker's traceback comes as the cause.
        where = [] if error.__cause__ is None else [str(error.__cause__).strip().strip('"').strip()]
        hidden = hidden_modules(os.getcwd()) if isinstance(error, ImportError | AttributeError | Wrong) else []
        notes = [*where, *getattr(error, "__notes__", []), *hidden]
        said = str(error) if isinstance(error, Wrong | ClutchError) else f"{type(error).__name__}: {error}"
        say(answers, {"error": said, "notes": [note for note in notes if note != said]})
        raise SystemExit(1) from None


def terminated(number: int, frame: object) -> None:
    """End in order, but also where what is measured does not: a pool that is interrupted anywhere may wait for ever."""
    late = threading.Timer(ORDER_SECONDS_MAX, end_at_once)
    late.daemon = True
    late.start()
    sys.exit(128 + number)


def end_at_once() -> None:
    orphans.end_below()
    os._exit(1)


def tell_stacks(file: int) -> None:
    """Write there where this process is, when it is asked or crashes."""
    faulthandler.enable(file)
    faulthandler.register(STACK_SIGNAL, file, all_threads=False)
    os.register_at_fork(after_in_child=lambda: faulthandler.unregister(STACK_SIGNAL))


def hidden_modules(folder: str) -> list[str]:
    """A sentence if what is in the folder hides modules of Python."""
    try:
        names = [entry.name.removesuffix(".py") for entry in os.scandir(folder) if is_module(entry)]
    except OSError:
        return []
    hidden = sorted(sys.stdlib_module_names.intersection(names))
    return [f"note: {', '.join(hidden)} in this folder hides the module of Python of that name"] if hidden else []


def is_module(entry: os.DirEntry[str]) -> bool:
    return entry.name.endswith(".py") or entry.is_dir()


def say(answers: TextIO, what: dict[str, Any]) -> None:
    answers.write(json.dumps(what) + "\n")


def run(driver: Driver, answers: TextIO) -> None:
    try:
        say(answers, {**driver.hello(), "pid": os.getpid()})
        for line in sys.stdin:
            asked = json.loads(line)
            say(answers, measured(driver, Load(**asked["load"]), asked["seconds"], asked["turn"]))
    finally:
        driver.end()


def measured(driver: Driver, load: Load, seconds: float, turn: int) -> dict[str, Any]:
    """What the driver has measured, and what the machine did meanwhile."""
    began, before, ours_before = time.perf_counter(), watching.machine(), ours_cpu_s(driver)
    worked, paces = driver.pids(), [pace()]
    with Memory(driver, seconds) as memory, Placed(worked, turn):
        figures = driver.measure(load, seconds)
    figures["pace_s"] = min(*paces, pace())
    figures["offered"], figures["callers"] = load.rate, load.callers
    elapsed, meanwhile = time.perf_counter() - began, watching.machine() - before
    ours = ours_cpu_s(driver) - ours_before
    # As much of it as belongs to the time that the figures are of.
    part = figures["wall_s"] / elapsed if elapsed > 0 else 0.0
    pids = driver.pids()
    if "ended" not in figures and (ended := sum(not watching.is_there(pid) for pid in worked)):
        figures |= {"ended": ended, "cpu_s": 0.0}
    # Of a server that ran before, and cannot be seen, nobody can tell what is its.
    others = max(0.0, meanwhile.busy_s + meanwhile.stolen_s - ours) if pids else 0.0
    figures["others_cpu_s"], figures["idle_s"] = others * part, meanwhile.idle_s * part
    figures["pss_bytes"] = memory.most
    figures["largest_bytes"] = max((watching.pss_bytes([pid]) for pid in pids), default=0)
    figures["cpus"] = [watching.last_cpu(pid) for pid in pids]
    return figures


def pace() -> float:
    """CPU time of a fixed piece of Python, about half a millisecond."""
    began = time.thread_time()
    for _ in range(PACE_TURNS):
        pass
    return time.thread_time() - began


def ours_cpu_s(driver: Driver) -> float:
    """Of this process, all that it has started, those of them that have ended, and whoever does the work."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    everyone = dict.fromkeys([*watching.below(os.getpid()), *driver.pids()])
    of_workers = sum(map(watching.children_cpu_s, driver.pids()))
    return sum(map(watching.cpu_s, everyone)) + of_workers + ended.ru_utime + ended.ru_stime


class Memory:
    """The most memory that the work's processes took together while they were under load."""

    def __init__(self, driver: Driver, seconds: float) -> None:
        self.driver = driver
        self.interval = max(MEMORY_SECONDS_MIN, seconds / 4)
        self.most = 0
        self.is_over = threading.Event()
        self.watcher = threading.Thread(target=self.watch, daemon=True)

    def __enter__(self) -> Memory:
        self.watcher.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.is_over.set()
        self.watcher.join()
        self.look()

    def watch(self) -> None:
        while not self.is_over.wait(self.interval):
            self.look()

    def look(self) -> None:
        self.most = max(self.most, watching.pss_bytes(self.driver.memory_of()))


if __name__ == "__main__":
    main()
