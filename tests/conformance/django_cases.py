"""Runs Django's own cases for tasks with backends of Clutch in place of Django's: `python django_cases.py FOLDER`.

FOLDER has the package `tasks` of Django's tests. Where tasks are of the package django-tasks, its names replace those
of Django 6. Prints one line of JSON: by the name of each case, why it failed, or null.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
import tempfile
import unittest
from importlib import import_module
from pathlib import Path
from typing import Any

import django
from django.conf import settings

STORE = f"sqlite:///{tempfile.mkdtemp()}/jobs.db"
BACKENDS = {"dummy.DummyBackend": "Waiting", "immediate.ImmediateBackend": "Immediate"}

settings.configure(
    SECRET_KEY="of a test",
    USE_TZ=True,
    INSTALLED_APPS=["tasks"],
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}},
    TASKS={"default": {"BACKEND": "django_cases.Immediate", "QUEUES": [], "OPTIONS": {"STORE": STORE}}},
)

from clutch.django import PACKAGE, ClutchBackend  # noqa: E402
from clutch.testing import drain  # noqa: E402


class Waiting(ClutchBackend):
    """Tasks stay in the store, as with `DummyBackend`, whose face it has.

    Results are refreshed: until then, `enqueued_at` is by the clock of the program and not that of the store.
    """

    def __init__(self, alias: str, params: dict[str, Any]) -> None:
        super().__init__(alias, {**params, "OPTIONS": {"STORE": STORE}})
        self.options = params.get("OPTIONS", {})

    def enqueue(self, task: Any, args: Any, kwargs: Any) -> Any:
        result = super().enqueue(task, args, kwargs)
        result.refresh()
        return result

    async def aenqueue(self, task: Any, args: Any, kwargs: Any) -> Any:
        result = await super().aenqueue(task, args, kwargs)
        await result.arefresh()
        return result

    @property
    def results(self) -> list[Any]:
        return [self.get_result(job.id) for job in reversed(self.jobs.list())]

    def clear(self) -> None:
        for job in list(self.jobs.each()):
            self.jobs.delete(job.id)


class Immediate(Waiting):
    """Tasks run at once, as with `ImmediateBackend`: by the code of workers, in this process."""

    def enqueue(self, task: Any, args: Any, kwargs: Any) -> Any:
        result = super().enqueue(task, args, kwargs)
        return self.ended(result)

    async def aenqueue(self, task: Any, args: Any, kwargs: Any) -> Any:
        result = await super().aenqueue(task, args, kwargs)
        return await asyncio.to_thread(self.ended, result)

    def ended(self, result: Any) -> Any:
        try:
            drain(self.jobs, target="clutch.django.tasks", raises=False)
        except KeyboardInterrupt:  # it was put back
            self.jobs.cancel(result.id)
            raise
        result.refresh()
        return result


def translated(text: str) -> str:
    for name, own in BACKENDS.items():
        module, _, kind = name.partition(".")
        text = text.replace(f"django.tasks.backends.{name}", f"django_cases.{own}")
        text = text.replace(
            f"from django.tasks.backends.{module} import {kind}", f"from django_cases import {own} as {kind}"
        )
    if PACKAGE != "django.tasks":
        text = text.replace("django.tasks", PACKAGE)
        text = re.sub(r"\bInvalidTask(Backend)?\b", r"InvalidTask\1Error", text)
        text = text.replace("async Tasks", "async tasks")
    return text


def cases(suite: unittest.TestSuite) -> list[Any]:
    return [case for one in suite for case in (cases(one) if isinstance(one, unittest.TestSuite) else [one])]


def main(folder: Path) -> dict[str, str | None]:
    work = Path(tempfile.mkdtemp())
    (work / "tasks").mkdir()
    for file in folder.glob("*.py"):
        (work / "tasks" / file.name).write_text(translated(file.read_text()))
    sys.path.insert(0, str(work))
    django.setup()
    from django.test.runner import DiscoverRunner

    runner = DiscoverRunner(verbosity=0, interactive=False)
    runner.setup_test_environment()
    databases = runner.setup_databases()
    names = [f"tasks.test_{name}" for name in ("tasks", "dummy_backend", "immediate_backend")]
    suite = unittest.TestSuite(unittest.defaultTestLoader.loadTestsFromModule(import_module(name)) for name in names)
    found: dict[str, str | None] = {".".join(case.id().split(".")[1:]): None for case in cases(suite)}
    outcome = unittest.TestResult()
    suite.run(outcome)
    for case, trace in [*outcome.errors, *outcome.failures]:
        case = getattr(case, "test_case", case)
        found[".".join(case.id().split(".")[1:])] = trace
    runner.teardown_databases(databases)
    return found


if __name__ == "__main__":
    sys.modules["django_cases"] = sys.modules["__main__"]
    print(json.dumps(main(Path(sys.argv[1]))))
