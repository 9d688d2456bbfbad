"""What `clutch jobs` prints: rows of tables, for people, and JSON."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Collection, Iterable, Mapping
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from typing import Any

import click

from clutch._jobs.records import STATES
from clutch.cli.table import age, aligned, cut, printable
from clutch.jobs import Job, Queue, Runner

ARGUMENTS_SHOWN = 60
UNSERVED = timedelta(minutes=1)
"""A queue whose first job has waited this long, with none running, is reported."""


def queue_row(queue: Queue) -> tuple[str, ...]:
    notes = ["paused"] if queue.is_paused else []
    notes += [f"at most {queue.running_max} at a time"] if queue.running_max is not None else []
    notes += [f"at most {rate_text(queue.rate)}"] if queue.rate is not None else []
    oldest = "-" if queue.oldest_at is None else since(queue.oldest_at)
    notes += ["none runs: is it in the --queues of a `clutch work`?"] if seems_unserved(queue) else []
    return (queue.name, *(str(getattr(queue, state)) for state in STATES), oldest, ", ".join(notes))


def rate_text(rate: str) -> str:
    """Returns `100/60s` as people write it: `100/m`."""
    count, _, time = rate.partition("/")
    return f"{count}/{ {'1s': 's', '60s': 'm', '3600s': 'h', '86400s': 'd'}.get(time, time) }"


def runner_row(runner: Runner) -> tuple[str, ...]:
    what = "maintains the store" if runner.leads else f"{runner.running} running"
    return (runner.host, str(runner.pid or ""), what, f"{runner.lease_seconds:g}s", SIGNS[runner.is_alive])


SIGNS = {
    True: "alive",
    False: "silent: dead, suspended, or cut off from the store",
    None: "not watched for long enough",
}


def served(runners: Iterable[Runner], queues: Collection[Queue]) -> str | None:
    """Returns what is to be said where nobody works on the jobs of a store."""
    if any(runner.is_alive is not False for runner in runners):
        return None
    claimed, available = (sum(getattr(queue, state) for queue in queues) for state in ("running", "available"))
    gone = f"; still claimed by runners that are gone: {claimed}" if claimed else ""
    back = ", which puts those back when their lease has lapsed" if claimed else ""
    start = "start a dispatcher, as with `clutch work`"
    return f"nobody works on this store (available jobs: {available}{gone}): {start}{back}"


def seems_unserved(queue: Queue) -> bool:
    if queue.is_paused or queue.running or queue.oldest_at is None:
        return False
    return datetime.now(UTC) - queue.oldest_at >= UNSERVED


def job_row(job: Job) -> tuple[str, ...]:
    attempt = f"{job.attempt} of {job.attempts_max}"
    return (job.id, job.state, job.queue, job.tool, attempt, since(job.created_at), note_of(job))


def note_of(job: Job) -> str:
    """Returns what a person wants to know of a job in its state."""
    if job.state == "scheduled" and job.scheduled_at is not None:
        away = max(0.0, (job.scheduled_at - datetime.now(UTC)).total_seconds())
        return ": ".join(filter(None, (f"in {age(away)}", said_of(job))))
    return said_of(job)


def said_of(job: Job) -> str:
    if job.state in ("scheduled", "dead") and job.errors:
        return shortened(job.errors[-1].message.partition("\n")[0])
    if job.state == "waiting":
        return f"waits for {job.waits_for} of {job.after_count} jobs"
    if job.state == "running" and job.progress is not None:
        return f"progress: {shortened(json.dumps(job.progress, ensure_ascii=False))}"
    reason = None if job.state == "running" else job.reason
    return reason or shortened(called_with(job.arguments))


def called_with(arguments: Any) -> str:
    """Returns arguments as in a call: `7, to="ann"`."""
    if not (isinstance(arguments, Mapping) and arguments.keys() <= {"args", "kwargs"}):
        return json.dumps(arguments, ensure_ascii=False)
    by_position = (json.dumps(value, ensure_ascii=False) for value in arguments.get("args", ()))
    by_name = (f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in arguments.get("kwargs", {}).items())
    return ", ".join([*by_position, *by_name])


def shortened(text: str) -> str:
    return cut(text, ARGUMENTS_SHOWN)


def print_json(value: Any) -> None:
    try:
        text = json.dumps(value, indent=2, default=simpler)
    except RecursionError:  # lines that are indented take more of the stack
        text = json.dumps(value, default=simpler)
    click.echo(text)


def simpler(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    return {field.name: getattr(value, field.name) for field in fields(value)}


def print_table(rows: Iterable[tuple[str, ...]], fits: bool = False) -> None:
    """`fits`: in a terminal, lines are cut to its width."""
    # What others have written into a store gives no orders to a terminal.
    lines = aligned(tuple(map(printable, row)) for row in rows)
    if fits and sys.stdout.isatty():
        columns = shutil.get_terminal_size().columns
        lines = [cut(line, columns) for line in lines]
    click.echo("\n".join(lines))


def moment(time: datetime) -> str:
    """Returns a time, and how far it is from now: `2026-05-01 12:00:00 UTC (3m ago)`."""
    away = (time - datetime.now(UTC)).total_seconds()
    return f"{time:%Y-%m-%d %H:%M:%S} UTC ({f'in {age(away)}' if away > 0 else f'{age(-away)} ago'})"


def since(time: datetime) -> str:
    return age(max(0.0, (datetime.now(UTC) - time).total_seconds()))
