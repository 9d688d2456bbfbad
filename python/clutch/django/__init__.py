"""A backend for Django's tasks: `django.tasks` of Django 6, or the package django-tasks for versions before.

    TASKS = {"default": {"BACKEND": "clutch.django.ClutchBackend", "OPTIONS": {"STORE": "sqlite:////var/lib/shop/jobs.db"}}}

Owns how a task becomes a job and a job the result of a task. `clutch work --django mysite.settings` runs them, by
`clutch.django.tasks`. Nothing else of Clutch imports this.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.db import connections
from django.utils import timezone
from django.utils.module_loading import import_string

from clutch._jobs.written import Called, written
from clutch.errors import ConfigError
from clutch.jobs import Job, JobError, JobId, Jobs
from clutch.tools import PRIORITY_MAX, JobOptions, ToolOptions, options_of

PACKAGE = "django.tasks" if find_spec("django.tasks") is not None else "django_tasks"

base: Any = import_module(f"{PACKAGE}.base")
exceptions: Any = import_module(f"{PACKAGE}.exceptions")
signals: Any = import_module(f"{PACKAGE}.signals")
BaseTaskBackend: Any = import_module(f"{PACKAGE}.backends.base").BaseTaskBackend

InvalidBackend: type[Exception] = getattr(exceptions, "InvalidTaskBackend", None) or exceptions.InvalidTaskBackendError

OPTIONS = ("DATABASE", "MODULES", "RESULT", "RETRY", "STORE")
STATUSES = {
    "scheduled": "READY",
    "available": "READY",
    "running": "RUNNING",
    "completed": "SUCCESSFUL",
    "cancelled": "FAILED",
    "dead": "FAILED",
}
ERRORS = {
    "bad_arguments": "clutch.BadArguments",
    "dead": "clutch.Dead",
    "deadline": "clutch.DeadlineExceeded",
    "no_such_tool": "clutch.NoSuchTool",
    "poisoned": "clutch.Poisoned",
    "retry": "clutch.Retry",
    "worker_lost": "clutch.WorkerLost",
}
"""Exceptions by the kinds of errors that no code has raised; all others are `ClutchError`."""


class ClutchBackend(BaseTaskBackend):  # type: ignore[misc]
    """Puts tasks into a store, as jobs whose tools have the paths of the tasks' functions.

    OPTIONS: `STORE`: the URL of the store; default: the variable `CLUTCH_STORE`. `DATABASE`: the alias of the database
    in whose transactions tasks are enqueued, on SQLite, where that is the file of the store. `RETRY`: retries of a task
    that does not say how many, by `@clutch.tool(retry=…)` below `@task`; default 0. `RESULT`: retention of results;
    default `"1d"`. `MODULES`: modules with tasks, beside `tasks` of each app.
    """

    supports_defer = True
    supports_async_task = True

    def __init__(self, alias: str, params: dict[str, Any]) -> None:
        super().__init__(alias, params)
        self.alias = alias
        if unknown := sorted(self.options.keys() - {*OPTIONS, "ENQUEUE_ON_COMMIT"}):
            raise ImproperlyConfigured(f"TASKS[{alias!r}]: no option {unknown[0]!r}; options are {', '.join(OPTIONS)}")
        self.database: str | None = self.options.get("DATABASE")
        if self.database is None and (params.get("ENQUEUE_ON_COMMIT") or self.options.get("ENQUEUE_ON_COMMIT")):
            raise ImproperlyConfigured(
                f"TASKS[{alias!r}]: no backend enqueues on commit by itself since Django 6: write "
                "transaction.on_commit(partial(task.enqueue, …)), or set DATABASE with a store on SQLite, where tasks "
                "are part of the transaction; and leave ENQUEUE_ON_COMMIT out"
            )
        store = self.options.get("STORE") or os.environ.get("CLUTCH_STORE")
        if not store:
            raise ImproperlyConfigured(
                f"TASKS[{alias!r}]: missing STORE in OPTIONS, or the variable CLUTCH_STORE: the URL of a store, such "
                "as sqlite:////var/lib/shop/jobs.db"
            )
        try:
            self.jobs = Jobs(store)
            self._defaults = JobOptions(retry=self.options.get("RETRY", 0))
        except (ConfigError, ValueError) as error:
            raise ImproperlyConfigured(f"TASKS[{alias!r}]: {error}") from None
        offers = self.jobs._offers
        self.supports_get_result = self.supports_priority = offers["results"]
        if offers["results"]:
            self._defaults = JobOptions(result=self.options.get("RESULT", "1d")).over(self._defaults)
        if self.database is not None and not offers["transactions"]:
            raise ImproperlyConfigured(f"TASKS[{alias!r}]: DATABASE works with a store on SQLite only")
        if self.database is not None and self.database not in (aliases := list(connections)):
            raise ImproperlyConfigured(
                f"TASKS[{alias!r}]: DATABASE {self.database!r}: allowed is an alias of DATABASES: "
                f"{', '.join(map(repr, aliases))}"
            )

    # ---- enqueue

    def enqueue(self, task: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        result, text = self._written(task, args, kwargs)
        if self.database is None:
            return self._enqueued(result, self.jobs._enqueue([text])[0])
        database = connections[self.database]
        database.ensure_connection()
        return self._enqueued(result, self.jobs._enqueue_in(database.connection, [text])[0])

    async def aenqueue(self, task: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        if self.database is not None:
            return await super().aenqueue(task, args, kwargs)
        result, text = self._written(task, args, kwargs)
        return self._enqueued(result, (await self.jobs._aenqueue([text]))[0])

    def _written(self, task: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Any, str]:
        """The result of a task that is not enqueued yet, and its job as JSON."""
        self.validate_task(task)
        result = base.TaskResult(
            task=task,
            id="",
            status=base.TaskResultStatus.READY,
            enqueued_at=timezone.now(),
            started_at=None,
            finished_at=None,
            last_attempted_at=None,
            args=list(args),
            kwargs=dict(kwargs),
            backend=self.alias,
            errors=[],
            worker_ids=[],
        )
        run_after = task.run_after
        if run_after is not None and timezone.is_naive(run_after):
            run_after = timezone.make_aware(run_after)  # it is in Django's time zone, which need not be the machine's
        given = JobOptions(
            queue=task.queue_name,
            priority=priority_of(task.priority) or None,
            at=run_after,
            meta={"django": {"backend": self.alias, "priority": task.priority}},
        )
        options = given.over((options_of(task.func) or ToolOptions()).job).over(self._defaults)
        called = Called(task.module_path)
        arguments = called.arguments(tuple(result.args), result.kwargs, self.jobs._offers["keywords"])
        return result, written(called.name, arguments, options)

    def _enqueued(self, result: Any, job: JobId) -> Any:
        object.__setattr__(result, "id", str(job))
        signals.task_enqueued.send(type(self), task_result=result)
        return result

    # ---- results

    def get_result(self, result_id: str) -> Any:
        job = self.jobs.get(result_id) if self.supports_get_result else super().get_result(result_id)
        if job is None or "django" not in job.meta:
            raise exceptions.TaskResultDoesNotExist(result_id)
        return self._result_of(job)

    def _result_of(self, job: Job) -> Any:
        task = import_string(job.tool).using(
            priority=job.meta["django"]["priority"],
            queue_name=job.queue,
            backend=job.meta["django"]["backend"],
            run_after=job.scheduled_at if job.state == "scheduled" and not job.errors else None,
        )
        result = base.TaskResult(
            task=task,
            id=job.id,
            status=base.TaskResultStatus[STATUSES[job.state]],
            enqueued_at=job.created_at,
            started_at=job.attempted_at,
            finished_at=job.finished_at,
            last_attempted_at=job.attempted_at,
            args=job.arguments["args"],
            kwargs=job.arguments["kwargs"],
            backend=job.meta["django"]["backend"],
            errors=list(map(error_of, job.errors)),
            worker_ids=[job.runner or ""] * job.attempt,
        )
        object.__setattr__(result, "_return_value", job.result)
        return result


def priority_of(given: int) -> int:
    """From −100…100 to −9…9. What is not 0 stays so, and no task overtakes one of a larger priority."""
    return int(math.copysign(math.ceil(abs(given) * PRIORITY_MAX / base.TASK_MAX_PRIORITY), given))


def error_of(error: JobError) -> Any:
    path = ERRORS.get(error.kind, "clutch.ClutchError")
    if error.kind == "raised":
        name = error.message.partition(":")[0]
        path = name if "." in name else f"builtins.{name}"
    return base.TaskError(exception_class_path=path, traceback=error.traceback or error.message)
