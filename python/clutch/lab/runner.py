"""One setting in a process of its own: `python -m clutch.lab.runner`, told what to do by lines of JSON.

It is given the work and the options of the pool; it starts the pool, makes one call to see that the work works, and
says so. Then each line asks for a measurement. A process of its own, since a setting is measured as it would be
deployed: started afresh, without what others have left in memory.
"""

from __future__ import annotations

import concurrent.futures
import importlib
import inspect
import json
import os
import sys
import threading
import time
from collections import Counter
from typing import Any, TextIO

import clutch
from clutch.lab import watching

PERCENTILES = (50, 75, 90, 95, 99, 99.9)
CHECK_SECONDS_MAX = 60.0


def main() -> None:
    # What the work prints is not to be read as answers.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    sys.path.insert(0, os.getcwd())
    order = json.loads(sys.stdin.readline())
    try:
        run(order, answers)
    except BaseException as error:
        say(answers, {"error": f"{type(error).__name__}: {error}", "notes": getattr(error, "__notes__", [])})
        raise SystemExit(1) from None


def say(answers: TextIO, what: dict[str, Any]) -> None:
    answers.write(json.dumps(what) + "\n")


def run(order: dict[str, Any], answers: TextIO) -> None:
    began = time.perf_counter()
    function = found(order["module"], order["name"])
    with clutch.Pool(target=order["module"], name="lab", **order["options"]) as pool:
        pool.wait_ready(order["options"]["workers"])
        start_s = time.perf_counter() - began
        work = Work(pool, function, order["args"], order["kwargs"])
        began = time.perf_counter()
        pool.options(deadline=order.get("check_s", CHECK_SECONDS_MAX)).call(function, *order["args"], **order["kwargs"])
        check_s = time.perf_counter() - began
        is_async = inspect.iscoroutinefunction(inspect.unwrap(function))
        say(answers, {"start_s": start_s, "check_s": check_s, "is_async": is_async, "pid": os.getpid()})
        for line in sys.stdin:
            asked = json.loads(line)
            say(answers, work.measure(asked["callers"], asked["seconds"]))
        pool.kill_workers()


def found(module: str, name: str) -> Any:
    """The function. Raises AttributeError or ImportError."""
    function: Any = importlib.import_module(module)
    for part in name.split("."):
        function = getattr(function, part)
    return function


class Work:
    """Calls of one function in a closed loop."""

    def __init__(self, pool: clutch.Pool, function: Any, args: list[Any], kwargs: dict[str, Any]) -> None:
        self.pool, self.function, self.args, self.kwargs = pool, function, args, kwargs

    def measure(self, callers: int, seconds: float) -> dict[str, Any]:
        """Keep as many calls under way for so long; then wait for those. Figures are of calls that ended in time."""
        free = threading.Semaphore(callers)
        latencies: list[float] = []
        errors: Counter[str] = Counter()
        workers = [worker["pid"] for worker in self.pool.stats()["workers"]]
        load = [os.getpid()]
        before, before_load = watching.usage(workers), watching.usage(load)
        began = time.perf_counter()
        until = began + seconds

        def ended(future: concurrent.futures.Future[Any], since: float) -> None:
            now = time.perf_counter()
            error = future.exception()
            if error is not None:
                errors[type(error).__name__] += 1
            elif now <= until:
                latencies.append(now - since)
            free.release()

        submit, function, args, kwargs = self.pool.submit, self.function, self.args, self.kwargs
        while (now := time.perf_counter()) < until:
            if not free.acquire(timeout=max(0.0, until - now)):
                break
            since = time.perf_counter()
            submit(function, *args, **kwargs).add_done_callback(lambda future, since=since: ended(future, since))
        wall = time.perf_counter() - began
        used, used_load = watching.usage(workers) - before, watching.usage(load) - before_load
        for _ in range(callers):
            free.acquire()
        latencies.sort()
        units = len(latencies)
        return {
            "units": units,
            "wall_s": wall,
            "errors": dict(errors),
            "cpu_s": used.cpu_s,
            "load_cpu_s": used_load.cpu_s,
            "switches": used.switches,
            "forced": used.forced,
            "latency_s": {str(p): latencies[min(units - 1, int(units * p / 100))] for p in PERCENTILES}
            if units
            else {},
            "pss_bytes": watching.pss_bytes(watching.below(os.getpid())),
            "cpus": [watching.last_cpu(pid) for pid in workers],
        }


if __name__ == "__main__":
    main()
