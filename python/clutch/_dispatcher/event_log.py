"""Lines of the log about pools and workers: what somebody has to know who reads nothing but the log.

Each event of the catalogue that has a line here becomes one, with its fields; a thread reads the events and writes.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable
from typing import Any

from clutch import _core
from clutch._dispatcher import logs

Event = dict[str, Any]
Line = tuple[int, str]

LEAVES = {
    "age": "recycle.age has passed",
    "calls": "it has had its recycle.calls",
    "memory": "its memory has reached recycle.memory",
    "recycle": "recycled by command",
    "reload": "new code is loaded",
    "surplus": "the pool is to have fewer workers",
    "stuck": "its work was told to stop and has not",
    "stopped": "the pool stops",
}
RUNNING_SHOWN_MAX = 10


class EventLog:
    """Writes from its making until it is closed, in a thread of its own."""

    def __init__(self, development: bool = False) -> None:
        """`development`: a pool that is failing is news from the first start on, and nobody else tells it."""
        self._events = _core.Events("lives")
        self._development = development
        self._served: set[str] = set()
        """Pools that had a worker. Before, whoever waits for the pool is told why it has none."""
        self._thread = threading.Thread(target=self._write, name="clutch-events", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """When all that has happened until now is written."""
        self._events.close()
        self._thread.join()

    def _write(self) -> None:
        while (text := self._events.next()) is not None:
            event = json.loads(text)
            name, pool = event["event"], event["pool"]
            if name == "worker_ready":
                self._served.add(pool)
            is_known = self._development or pool in self._served
            if name in LINES and (name != "pool_failing" or is_known):
                level, message = LINES[name](event)
                if not is_known:
                    message = message.partition("\n")[0]
                logs.log.log(level, "%s", message, extra={"fields": fields_of(event)})


def fields_of(event: Event) -> Event:
    """For JSON: the event's own, with the worker named as everywhere else."""
    fields = dict(event)
    if (nr := fields.pop("nr", None)) is not None:
        fields["worker"] = f"{event['pool']}/{nr}"
    return fields


def worker(event: Event) -> str:
    return f"worker {event['pool']}/{event['nr']} (pid {event['pid']})"


def running(event: Event) -> str:
    """What a worker was running, the first of it."""
    found = event["running"]
    if not found:
        return "; it was running nothing"
    shown = [f"{one['what']} (call {one['id']}, {seconds(one['seconds'])})" for one in found[:RUNNING_SHOWN_MAX]]
    more = f" and {len(found) - len(shown)} more" if len(found) > len(shown) else ""
    return f"; it was running {', '.join(shown)}{more}"


def seconds(given: float) -> str:
    return f"{given:.0f} s" if given >= 10 else f"{given:.3f} s"


def gone(event: Event) -> Line:
    if event["left"] is not None and not event["running"]:
        return logging.INFO, f"{worker(event)}: gone: {LEAVES[event['left']]}"
    guess = " (by the kernel, out of memory?)" if event["cause"].endswith("(SIGKILL)") else ""
    return harm(event, event["ended"]), f"{event['cause']}{guess}{running(event)}"


def killed(event: Event) -> Line:
    return harm(event, True), f"{worker(event)}: sent {event['signal']}: {event['reason']}{running(event)}"


def harm(event: Event, by_us: bool) -> int:
    """A worker that Clutch itself ends while nothing runs there is no harm."""
    return logging.INFO if by_us and not event["running"] else logging.WARNING


def about_worker(level: int, text: Callable[[Event], str]) -> Callable[[Event], Line]:
    return lambda event: (level, f"{worker(event)}: {text(event)}")


def about_pool(level: int, text: Callable[[Event], str]) -> Callable[[Event], Line]:
    return lambda event: (level, f"pool {event['pool']}: {text(event)}")


LINES: dict[str, Callable[[Event], Line]] = {
    "worker_starting": about_worker(logging.DEBUG, lambda event: "starts"),
    "worker_ready": about_worker(logging.INFO, lambda event: "ready"),
    "worker_draining": about_worker(
        logging.INFO, lambda event: f"takes no more work: {LEAVES.get(event['reason'], event['reason'])}"
    ),
    "worker_stopped": about_worker(
        logging.WARNING, lambda event: "stopped by a signal; it gets no work until it goes on"
    ),
    "worker_continued": about_worker(logging.INFO, lambda event: "goes on"),
    "worker_debugged": about_worker(
        logging.WARNING,
        lambda event: "is in the debugger and not ended before its prompt is left; what comes now runs the new code",
    ),
    "worker_killed": killed,
    "worker_gone": gone,
    "work_poisoned": about_pool(
        logging.ERROR,
        lambda event: (
            f"{event['what']} (call {event['id']}) has killed its worker {event['deaths']} times; "
            "it is not tried again (deaths_max)"
        ),
    ),
    "pool_scaled": about_pool(
        logging.INFO, lambda event: f"{event['from']} → {event['to']} workers: {event['reason']}"
    ),
    "pool_short": about_pool(logging.WARNING, lambda event: event["reason"]),
    "pool_full": about_pool(
        logging.WARNING,
        lambda event: (
            f"full: {event['limit']} calls wait (queue.limit); refused since the last such line: {event['refused']}"
        ),
    ),
    "pool_failing": about_pool(logging.ERROR, lambda event: f"failing: {event['reason'].rstrip()}"),
    "pool_recovered": about_pool(logging.INFO, lambda event: "recovered: it has workers again"),
    "operator_acted": about_pool(logging.INFO, lambda event: f"{event['action']}, by an operator"),
    "zygote_lost": about_pool(
        logging.WARNING, lambda event: f"the process that its workers are forked from is gone: {event['reason']}"
    ),
}
