"""Log lines about pools and workers, for operators who read only the log.

Each event that has a line here becomes one, with its fields; a thread reads the events and writes.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable
from typing import Any

from clutch import _core
from clutch._dispatcher import logs
from clutch.celery import RAN_IN_VAIN, REFUSED
from clutch.control.client import named_by

Event = dict[str, Any]
Line = tuple[int, str]

LEAVES = {
    "age": "it reached recycle.age",
    "calls": "it reached recycle.calls",
    "memory": "its memory reached recycle.memory",
    "deadlines": "its last calls were all past their deadlines",
    "recycle": "recycled by command",
    "term": "another process sent it SIGTERM",
    "reload": "new code is loaded",
    "surplus": "the pool is scaling down",
    "stuck": "its work did not stop when told to",
    "stopped": "the pool is shutting down",
}
RUNNING_SHOWN_MAX = 10
GRACE_OVER = "it was told to end, and its grace has passed"
"""Part of why a worker is killed."""


class EventLog:
    """Writes events to the log, in a thread of its own, until it is closed."""

    def __init__(self, development: bool = False) -> None:
        """`development`: also report pools that fail at their first start; otherwise their waiters raise it."""
        self._events = _core.Events("lives")
        self._development = development
        self._served: set[str] = set()
        """Pools that have had a worker. Until then, whoever waits for the pool gets the error."""
        self._thread = threading.Thread(target=self._write, name="clutch-events", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Return when all events so far are written."""
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
                    message = beginning(message)
                logs.log.log(level, "%s", message, extra={"fields": fields_of(event)})


def beginning(message: str) -> str:
    """Returns its first line, whose brackets are closed."""
    line, _, rest = message.partition("\n")
    return f"{line} …)" if rest and line.count("(") > line.count(")") else line


def fields_of(event: Event) -> Event:
    """Fields of the JSON log: those of the event, with `worker` as `pool/nr`."""
    fields = dict(event)
    if (nr := fields.pop("nr", None)) is not None:
        fields["worker"] = f"{event['pool']}/{nr}"
    return fields


def worker(event: Event) -> str:
    return f"worker {event['pool']}/{event['nr']} (pid {event['pid']})"


def running(event: Event) -> str:
    """What a worker was running, at most `RUNNING_SHOWN_MAX` calls."""
    known = (f"{one['what']} ({named_by(one)}, {seconds(one['seconds'])})" for one in event["running"])
    # Those of connections that it held are short: any of them may be what has killed it.
    found = [printable(text) for text in (*event.get("held", ()), *known)]
    if not found and not event["served"]:
        return "; it was starting"
    if not found:
        return "; it was shutting down (the app's lifespan, on_stop, atexit)" if is_late(event) else "; it was idle"
    shown = found[:RUNNING_SHOWN_MAX]
    more = f" and {len(found) - len(shown)} more" if len(found) > len(shown) else ""
    return f"; it was running {', '.join(shown)}{more}"


def is_late(event: Event) -> bool:
    """Whether a worker without work has not ended when told to."""
    return GRACE_OVER in event.get("reason", event.get("cause", ""))


def seconds(given: float) -> str:
    return f"{given:.0f} s" if given >= 10 else f"{given:.3f} s"


def wait(given: float) -> str:
    """Returns a delay in its largest unit: `1.5 s`, `22 s`, `3 min`, `6 h`."""
    for unit, length in (("days", 172_800), ("h", 7200), ("min", 120)):
        if given >= length:
            return f"{given / (length / 2):.0f} {unit}"
    return f"{given:.1f}".removesuffix(".0") + " s" if given < 10 else f"{given:.0f} s"


def gone(event: Event) -> Line:
    if event["left"] is not None and not event["running"]:
        return logging.INFO, f"{worker(event)}: gone: {LEAVES[event['left']]}"
    if event["ended"] and not event["served"] and "exited with code 0" in event["cause"]:
        return logging.INFO, f"{worker(event)}: gone: its start was not wanted any more"
    guess = " (by the kernel, out of memory?)" if event["cause"].endswith("(SIGKILL)") else ""
    return harm(event, event["ended"]), f"{event['cause']}{guess}{running(event)}"


def killed(event: Event) -> Line:
    level = logging.WARNING if is_late(event) and event["served"] else harm(event, True)
    return level, f"{worker(event)}: sent {event['signal']}: {event['reason']}{running(event)}"


def printable(text: str) -> str:
    """What others have written into a store, on one line and without orders to a terminal."""
    return text if text.isprintable() else repr(text)[1:-1]


def job_failed(event: Event) -> str:
    """`job 7 (send, queue mail), attempt 2 of 21: ValueError: no; next in 16 s`."""
    error = printable(event["error"].partition("\n")[0])
    why = f": {printable(event['reason'])}" if event["reason"] else ""
    then = f"it is dead{why}" if event["next_s"] is None else f"next attempt in {wait(event['next_s'])}"
    attempt = f"attempt {event['attempt']} of {event['attempts_max']}"
    job = f"job {event['job']} ({printable(event['tool'])}, queue {printable(event['queue'])})"
    return f"{job}, {attempt}: {error}; {then}"


def harm_of_job(event: Event) -> int:
    if event["reason"] == RAN_IN_VAIN:
        return logging.INFO  # its worker has told it, as an error
    if event["reason"] == REFUSED:
        return logging.DEBUG  # its worker has told it or counted it: others may send thousands
    return logging.ERROR if event["next_s"] is None else logging.WARNING


def jobs(event: Event, count: str = "jobs") -> str:
    return "1 job" if event[count] == 1 else f"{event[count]} jobs"


def ticks(event: Event) -> str:
    return "1 tick" if event["missed"] == 1 else f"{event['missed']} ticks"


def jobs_rescued(event: Event) -> str:
    dead = f"; {event['dead']} of them are dead of it" if event["dead"] else ""
    return (
        f"{event['front']}: leases of other runners have lapsed, and {jobs(event)} of theirs will run again{dead}; "
        "was a dispatcher killed, or cut off from the store?"
    )


def queue_unserved(event: Event) -> str:
    front, waits = event["front"], f"the first of which has waited for {event['waited_s']} s"
    return (
        f"{front}: nobody runs the {jobs(event, 'available')} of queue {printable(event['queue'])}, {waits}, and "
        "this front does not take from it: is another one to, or is it missing in `queues`?"
    )


def harm(event: Event, by_us: bool) -> int:
    """Level INFO if Clutch ended an idle worker itself, else WARNING."""
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
        logging.WARNING, lambda event: "stopped by a signal; it gets no work until it continues"
    ),
    "worker_continued": about_worker(logging.INFO, lambda event: "goes on"),
    "worker_debugged": about_worker(
        logging.WARNING,
        lambda event: "is in the debugger and is replaced after you leave its prompt; new work runs the new code",
    ),
    "worker_killed": killed,
    "worker_gone": gone,
    "work_cut_off": about_pool(
        logging.WARNING,
        lambda event: (
            f"{printable(event['what'])} (behind its response) was told to stop after {seconds(event['run_s'])}: "
            "its worker is to end"
        ),
    ),
    "work_poisoned": about_pool(
        logging.ERROR,
        lambda event: (
            f"{printable(event['what'])} ({named_by(event)}) is not retried (deaths_max); "
            f"workers it has killed: {event['deaths']}"
        ),
    ),
    "pool_scaled": about_pool(
        logging.INFO, lambda event: f"{event['from']} → {event['to']} workers: {event['reason']}"
    ),
    "pool_short": about_pool(logging.WARNING, lambda event: event["reason"]),
    "pool_full": about_pool(
        logging.WARNING,
        lambda event: (
            f"full: {event['limit']} calls are waiting (queue.limit); "
            f"refused since the last such line: {event['refused']}"
        ),
    ),
    "pool_failing": about_pool(logging.ERROR, lambda event: f"failing: {event['reason'].rstrip()}"),
    "pool_recovered": about_pool(logging.INFO, lambda event: "recovered: it has workers again"),
    "job_failed": lambda event: (harm_of_job(event), f"pool {event['pool']}: {job_failed(event)}"),
    "tool_missing": about_pool(
        logging.WARNING,
        lambda event: (
            f"{event['front']}: job {event['job']} waits for workers that know its tool '{event['tool']}', for a day: "
            f"{event['reason']}"
        ),
    ),
    "jobs_lapsed": about_pool(
        logging.WARNING,
        lambda event: (
            f"{event['front']}: its lease has lapsed, so others may run {jobs(event)} now; here they are stopped, and "
            "what they did is not noted; was this process stopped, or the store out of reach?"
        ),
    ),
    "jobs_unsettled": about_pool(
        logging.WARNING,
        lambda event: (
            f"{event['front']}: stopped before its store could be told what became of {jobs(event)}; they run again, "
            "also if they have ended, when the lease of this process has lapsed"
        ),
    ),
    "jobs_rescued": about_pool(logging.WARNING, jobs_rescued),
    "jobs_inherited": about_pool(
        logging.INFO,
        lambda event: (
            f"{event['front']}: {jobs(event)} had completed under a dispatcher of this machine that was killed before "
            "it could tell its store; settled now"
        ),
    ),
    "queue_unserved": about_pool(logging.WARNING, queue_unserved),
    "store_lost": about_pool(
        logging.ERROR, lambda event: f"{event['front']}: {event['reason']}; its jobs wait until that is over"
    ),
    "store_damaged": about_pool(
        logging.ERROR,
        lambda event: (
            f"{event['front']}: {event['store']}: {event['reason']}; jobs that need it wait until then, the others run"
        ),
    ),
    "store_filling": about_pool(
        logging.WARNING,
        lambda event: (
            f"{event['front']}: the memory of {event['store']} is more than three quarters full, so completed jobs are "
            "deleted after a minute; raise its maxmemory, or set keep.completed to less"
        ),
    ),
    "clock_differs": about_pool(
        logging.ERROR,
        lambda event: (
            f"{event['front']}: this machine's clock is {abs(event['ahead_s']):.0f} s "
            f"{'ahead of' if event['ahead_s'] > 0 else 'behind'} that of {event['store']}, by which its jobs go: set it"
        ),
    ),
    "cron_skipped": about_pool(
        logging.WARNING,
        lambda event: (
            f"{event['front']}: ticks of {event['entry']} are skipped, since the job of an earlier one has not ended: "
            f"clutch jobs list --tag cron:{event['entry']}"
        ),
    ),
    "cron_missed": about_pool(
        logging.WARNING,
        lambda event: (
            f"{event['front']}: {event['entry']} has missed {ticks(event)}, since no dispatcher ran: "
            f"{'the last one is made up for' if event['is_made_up'] else 'none is made up for'}"
        ),
    ),
    "cron_ahead": about_pool(
        logging.WARNING,
        lambda event: (
            f"{event['front']}: the last tick of {event['entry']} is {event['ahead_s']} s in the future, since a clock "
            "was ahead: it has no jobs until then; give it another name"
        ),
    ),
    "cron_refused": about_pool(
        logging.ERROR,
        lambda event: (
            f"{event['front']}: the clock of this machine is more than a minute ahead of the store's: ticks of "
            f"{event['entry']} are refused; set the clock"
        ),
    ),
    "store_recovered": about_pool(logging.INFO, lambda event: f"{event['front']}: {event['store']} works again"),
    "operator_acted": about_pool(logging.INFO, lambda event: f"{event['action']}, by command"),
    "zygote_lost": about_pool(
        logging.WARNING,
        lambda event: f"its zygote (the process that workers are forked from) is gone: {event['reason']}",
    ),
}
