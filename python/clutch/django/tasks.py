"""The target of `clutch work --django mysite.settings`: the tasks of a Django project, as tools.

Importing it sets Django up by `DJANGO_SETTINGS_MODULE`, imports the module `tasks` of each app and the `MODULES` of
each backend, and makes a tool of every task there that a `ClutchBackend` has: by its function's path, with the options
of `@clutch.tool` if that is below `@task`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib import import_module
from traceback import format_exception
from typing import Any

import django
from django.apps import apps
from django.utils import timezone
from django.utils.module_loading import module_has_submodule

if not apps.ready:  # it would also set up logging anew, in the midst of a test
    django.setup()

from clutch._worker.handlers.job import Dead, Directive, current_job
from clutch.django import PACKAGE, ClutchBackend, InvalidBackend, base, signals
from clutch.tools import TOOL_MARK, ToolOptions, options_of

task_backends: Any = import_module(PACKAGE).task_backends


def tasks() -> Iterator[Any]:
    """Yields the tasks of the project."""
    names = [f"{app.name}.tasks" for app in apps.get_app_configs() if module_has_submodule(app.module, "tasks")]
    names += [name for backend in backends() for name in backend.options.get("MODULES", ())]
    for name in names:
        for value in list(vars(import_module(name)).values()):
            if isinstance(value, base.Task) and isinstance(value.get_backend(), ClutchBackend):
                yield value


def backends() -> Iterator[ClutchBackend]:
    """Yields those in TASKS. Others may be of packages that these workers lack."""
    for alias in task_backends:
        try:
            backend = task_backends[alias]
        except InvalidBackend:
            continue
        if isinstance(backend, ClutchBackend):
            yield backend


def tool_of(task: Any) -> Callable[..., Any]:
    """Returns what a worker calls. Arguments come as JSON has them, as Django wants it: no hint converts them."""
    if inspect.iscoroutinefunction(task.func):

        async def run_soon(*args: Any, **kwargs: Any) -> Any:
            with running(task, args, kwargs) as (result, context):
                return ended(result, await task.func(*context, *args, **kwargs))

        return marked(run_soon, task)

    def run(*args: Any, **kwargs: Any) -> Any:
        with running(task, args, kwargs) as (result, context):
            return ended(result, task.func(*context, *args, **kwargs))

    return marked(run, task)


def marked(function: Callable[..., Any], task: Any) -> Callable[..., Any]:
    options = replace(options_of(task.func) or ToolOptions(), name=task.module_path)
    setattr(function, TOOL_MARK, options)
    return function


@contextmanager
def running(task: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[tuple[Any, tuple[Any, ...]]]:
    """The result of a task that runs, and the context that its function takes, if it does. Sends Django's signals."""
    job = current_job()
    assert job is not None, "a task is run as a job"
    now = timezone.now()
    result = base.TaskResult(
        task=task,
        id=job.id,
        status=base.TaskResultStatus.RUNNING,
        enqueued_at=job.created_at,
        started_at=now,
        finished_at=None,
        last_attempted_at=now,
        args=list(args),
        kwargs=kwargs,
        backend=task.backend,
        errors=[],
        worker_ids=["clutch"] * job.attempt,
    )
    sender = type(task.get_backend())
    signals.task_started.send(sender=sender, task_result=result)
    try:
        yield result, (base.TaskContext(task_result=result),) if task.takes_context else ()
    except (Exception, SystemExit, KeyboardInterrupt) as error:
        if is_last(task, job.attempt >= job.attempts_max, error):
            kind = type(error)
            path, text = f"{kind.__module__}.{kind.__qualname__}", "".join(format_exception(error))
            result.errors.append(base.TaskError(exception_class_path=path, traceback=text))
            change(result, status=base.TaskResultStatus.FAILED, finished_at=timezone.now())
            signals.task_finished.send(sender, task_result=result)
        raise
    signals.task_finished.send(sender, task_result=result)


def is_last(task: Any, has_no_attempt_left: bool, error: BaseException) -> bool:
    if isinstance(error, Directive):
        return isinstance(error, Dead)
    options = options_of(task.func)
    return has_no_attempt_left or (options is not None and options.gives_up(error))


def ended(result: Any, value: Any) -> Any:
    value = normalize_json(value)
    change(result, status=base.TaskResultStatus.SUCCESSFUL, finished_at=timezone.now(), _return_value=value)
    return value


def change(result: Any, **values: Any) -> None:
    for name, value in values.items():
        object.__setattr__(result, name, value)


normalize_json: Callable[[Any], Any] = base.normalize_json

globals().update({task.module_path: tool_of(task) for task in tasks()})
