"""Jobs, their failures and queues, as a store reports them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Self

from clutch import _core

MS_MAX = 253_402_300_799_000
"""End of the year 9999, the latest time in Python; another client of the store may write a later one."""
ENDS = _core.JOB_ENDS
STATES = _core.JOB_STATES
LOST_TOO_OFTEN = "its dispatchers were lost too often in a row (lease_lapsed)"


class JobIds(list["JobId"]):
    """Ids of jobs, as `enqueue_many` returns them."""

    then: JobId | None = None
    """The id of the job that comes after all of them (`then=`)."""


class JobId(str):
    """The id of a job, as `enqueue` returns it."""

    __slots__ = ("is_new",)
    is_new: bool
    """False if an equal job existed already (`unique`); this is the id of that job."""

    def __new__(cls, text: str, is_new: bool = True) -> Self:
        self = super().__new__(cls, text)
        self.is_new = is_new
        return self


@dataclass(frozen=True, slots=True)
class JobError:
    """Failure of one attempt of a job."""

    at: datetime
    attempt: int
    kind: str
    """`"raised"`, `"worker_lost"`, `"poisoned"`, `"deadline"`, `"bad_arguments"`, `"no_such_tool"`, `"encode"`,
    `"retry"`, `"dead"` (it has raised `Dead`), or `"lease_lapsed"`."""
    message: str
    traceback: str


@dataclass(frozen=True, slots=True)
class Job:
    """A job as its store has it. All times are in UTC."""

    id: str
    state: str
    """`"waiting"` (for other jobs), `"scheduled"`, `"available"`, `"running"`, `"completed"`, `"cancelled"` or
    `"dead"`."""
    queue: str
    tool: str
    arguments: Mapping[str, Any]
    """`{"args": […], "kwargs": {…}}`."""
    priority: int
    attempt: int
    """Number of attempts so far, including a running one."""
    attempts_max: int
    created_at: datetime
    scheduled_at: datetime | None
    """Time at which a scheduled job is due."""
    deadline_at: datetime | None
    attempted_at: datetime | None
    finished_at: datetime | None
    runner: str | None
    """Host, pid and a random number of the dispatcher that has the job, or had it last."""
    unique: str | None
    key: str | None
    tags: tuple[str, ...]
    meta: Mapping[str, Any]
    progress: Any
    checkpoint: Any
    errors: tuple[JobError, ...]
    """Failures of the attempts, the oldest first; at most 25 are kept."""
    reason: str | None
    """Reason of a cancel, a snooze or a return to the queue; of a dead job, why it has no other attempt."""
    result: Any
    """Return value while it is kept (`result=`); else None."""
    result_until: datetime | None
    """Time until which its result is kept, or was; None if it is not."""
    after_count: int
    """Number of jobs that it comes after (`after=`)."""
    waits_for: int
    """How many of these have yet to complete."""
    after: tuple[str, ...] | None
    """Ids of the jobs that it comes after, at most 100. None in lists: `get` has them."""
    dependents: tuple[str, ...] | None
    """Ids of the jobs that come after it, at most 100. None in lists: `get` has them."""

    @classmethod
    def of(cls, told: dict[str, Any]) -> Job:
        times = ("created_at", "scheduled_at", "deadline_at", "attempted_at", "finished_at", "result_until")
        errors = [JobError(**{**error, "at": time_of(error["at"])}) for error in told["errors"]]
        # A store that gives up on a job whose runners are lost does not know more than that.
        is_lost = told["state"] == "dead" and bool(errors) and errors[-1].kind == "lease_lapsed"
        return cls(
            **{
                **told,
                **{name: time_of(told[name]) for name in times},
                "tags": tuple(told["tags"]),
                **{name: None if told[name] is None else tuple(told[name]) for name in ("after", "dependents")},
                "meta": told["meta"] or {},
                "reason": LOST_TOO_OFTEN if is_lost else told["reason"],
                "errors": tuple(errors),
            }
        )


@dataclass(frozen=True, slots=True)
class Queue:
    """State of one queue."""

    name: str
    is_paused: bool
    running_max: int | None
    """Maximum number of concurrent jobs, over all runners."""
    rate: str | None
    """Maximum number of jobs that start in a period, over all runners: `"100/60s"`."""
    waiting: int
    """Jobs that wait for others to complete."""
    scheduled: int
    available: int
    running: int
    completed: int
    """Completed jobs that are still kept."""
    cancelled: int
    dead: int
    oldest_at: datetime | None
    """Time at which its oldest available job became available."""


def queue_of(told: dict[str, Any]) -> Queue:
    rate = told["rate"] and f"{told['rate']['count']}/{told['rate']['per_ms'] / 1000:g}s"
    return Queue(**{**told, "rate": rate, "oldest_at": time_of(told["oldest_at"])})


def time_of(ms: int | None) -> datetime | None:
    return None if ms is None else datetime.fromtimestamp(min(max(ms, 0), MS_MAX) / 1000, UTC)
