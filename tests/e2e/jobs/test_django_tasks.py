"""Tasks of a Django project, by the backend of Clutch: enqueued, run by `clutch work --django`, and looked at."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest

import clutch
from clutch.cli.django_project import Taken, taken
from support.clutch_process import COMMAND, Dispatcher, environment

SETTINGS = """
from importlib.util import find_spec
from pathlib import Path
HERE = Path(__file__).parent.parent
SECRET_KEY = "of a test"
USE_TZ = True
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": HERE / "app.db"}}
INSTALLED_APPS = ["shop"] if find_spec("django.tasks") else ["shop", "django_tasks"]
OPTIONS = {"STORE": f"sqlite:///{HERE}/app.db", "MODULES": ["shop.other"]}
TASKS = {
    "default": {"BACKEND": "clutch.django.ClutchBackend", "QUEUES": ["default", "mail"], "OPTIONS": OPTIONS},
    "together": {"BACKEND": "clutch.django.ClutchBackend", "OPTIONS": {**OPTIONS, "DATABASE": "default"}},
}
print("settings may print")
"""
MODELS = """
from django.db import models

class Order(models.Model):
    item = models.CharField(max_length=20)
"""
TASKS = """
import clutch
from clutch.django import PACKAGE
from importlib import import_module
from .models import Order
task = import_module(PACKAGE).task

@task
def count(item: str) -> int:
    return Order.objects.filter(item=item).count()

@task(queue_name="mail", priority=-100, takes_context=True)
def about(context, n: int, *, queue: str = "q"):
    return [context.attempt, context.task_result.id, n, queue]

@task
async def count_soon(item):
    return await Order.objects.filter(item=item).acount()

@task
def fail(text):
    raise ValueError(text)

@task
@clutch.tool(retry=1, backoff=0, give_up_on=(KeyError,))
def fail_again(kind):
    raise {"key": KeyError, "value": ValueError}[kind](kind)

@task
def leave():
    raise SystemExit("bye")

@task
def odd():
    return object()

@task(backend="together")
def ship(item):
    return item

@task
def has_old_connection():
    from django.db import connection
    is_old = connection.connection is not None
    Order.objects.count()
    return is_old
"""
OTHER = "from .tasks import task\n\n@task\ndef beside():\n    return 'here'\n"
PROGRAM = """
import asyncio, json, os, sys, time
from datetime import timedelta
os.environ["DJANGO_SETTINGS_MODULE"] = "site_of_test.settings"
import django
django.setup()
from django.db import connection, transaction
from django.utils import timezone
from shop import other, tasks
from shop.models import Order
from clutch.django import exceptions, signals
def ended(result):
    result.task.get_backend().jobs.wait(result.id, 60)
    result.refresh()
    return result
enqueued = []
signals.task_enqueued.connect(lambda sender, task_result, **_: enqueued.append(task_result.id), weak=False)
"""


def need_tasks() -> None:
    """Django 6 has them; versions before need a package."""
    django = pytest.importorskip("django")
    if django.VERSION < (6,):
        pytest.importorskip("django_tasks")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    need_tasks()
    folder = tmp_path_factory.mktemp("django")
    for name, text in {
        "site_of_test/__init__.py": "",
        "site_of_test/settings.py": SETTINGS,
        "shop/__init__.py": "",
        "shop/models.py": MODELS,
        "shop/tasks.py": TASKS,
        "shop/other.py": OTHER,
    }.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    run(
        folder,
        "with connection.schema_editor() as editor: editor.create_model(Order)\n"
        "Order.objects.create(item='tea')\nprint('null')",
    )
    return folder


def run(folder: Path, code: str) -> Any:
    """What the code prints last, in a program of the project."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM + code],
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=90,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def works(folder: Path, *flags: str, settings: str = "site_of_test.settings") -> Dispatcher:
    return Dispatcher(folder, [*COMMAND, "work", "--django", settings, *flags])


@pytest.mark.parametrize("profile", ["process", "thread", "async"])
def test_tasks_run_and_are_looked_at(site: Path, profile: str) -> None:
    with works(site, "--profile", profile):
        told = run(
            site,
            """
now = [tasks.count.enqueue("tea"), tasks.count_soon.enqueue("tea"), tasks.about.enqueue(1, queue="x"),
       other.beside.enqueue(), asyncio.run(tasks.count.aenqueue(item="none"))]
ready = now[0].status, now[0].is_finished, now[0].attempts
values = [ended(one).return_value for one in now]
later = tasks.count.using(run_after=timezone.now() + timedelta(hours=1)).enqueue("tea")
print(json.dumps([[*ready], values, now[2].id, [now[0].status, now[0].attempts, now[0].args, now[0].kwargs],
    tasks.count.get_result(later.id).status, enqueued == [one.id for one in [*now, later]],
    now[0].enqueued_at <= now[0].started_at <= now[0].finished_at]))
""",
        )
    ready, values, about, ended, later, is_told, is_ordered = told
    assert ready == ["READY", False, 0]
    assert values == [1, 1, [1, about, 1, "x"], "here", 0]
    assert ended == ["SUCCESSFUL", 1, [], {"item": "tea"}] or ended == ["SUCCESSFUL", 1, ["tea"], {}]
    assert (later, is_told, is_ordered) == ("READY", True, True)


def test_tasks_that_fail_have_their_errors(site: Path) -> None:
    with works(site):
        told = run(
            site,
            """
failed = [tasks.fail.enqueue("no"), tasks.fail_again.enqueue("value"), tasks.fail_again.enqueue("key"),
          tasks.odd.enqueue()]
for one in failed:
    ended(one)
def of(one):
    try:
        one.return_value
    except ValueError as error:
        return [one.status, one.attempts, str(error), [error.exception_class.__name__ for error in one.errors]]
print(json.dumps([list(map(of, failed)), "in fail" in failed[0].errors[0].traceback]))
""",
        )
    assert told == [
        [
            ["FAILED", 1, "Task failed", ["ValueError"]],
            ["FAILED", 2, "Task failed", ["ValueError"] * 2],
            ["FAILED", 1, "Task failed", ["KeyError"]],
            ["FAILED", 1, "Task failed", ["TypeError"]],
        ],
        True,
    ]


def test_a_task_is_part_of_a_transaction(site: Path) -> None:
    told = run(
        site,
        """
try:
    with transaction.atomic():
        Order.objects.create(item="milk")
        gone = tasks.ship.enqueue("milk")
        raise KeyError
except KeyError:
    pass
with transaction.atomic():
    kept = tasks.ship.enqueue("tea")
def missing(ask):
    try:
        ask()
    except (exceptions.TaskResultDoesNotExist, exceptions.TaskResultMismatch) as error:
        return type(error).__name__
jobs = kept.task.get_backend().jobs
print(json.dumps([len(jobs.list(tool="shop.tasks.ship")), tasks.ship.get_result(kept.id).status,
    missing(lambda: tasks.ship.get_result("9999")), missing(lambda: tasks.count.get_result(kept.id))]))
""",
    )
    assert told == [1, "READY", "TaskResultDoesNotExist", "TaskResultMismatch"]


OF_TRANSACTIONS = """
from clutch.testing import drain, temporary_store
from django.db import connection, transaction
from django.test import TransactionTestCase
from shop import tasks

class OrderTests(TransactionTestCase):
    def test_a_task_of_a_transaction_runs(self):
        jobs = tasks.ship.get_backend().jobs
        with temporary_store(jobs, file=connection.settings_dict["NAME"]):
            with transaction.atomic():
                kept = tasks.ship.enqueue("tea")
            assert drain(jobs, target="clutch.django.tasks").completed == 1
            assert tasks.ship.get_result(kept.id).return_value == "tea"

    def test_a_task_outside_of_a_transaction_runs(self):
        jobs = tasks.ship.get_backend().jobs
        with temporary_store(jobs, file=connection.settings_dict["NAME"]):
            tasks.ship.enqueue("tea")
            assert drain(jobs, target="clutch.django.tasks").completed == 1
"""


def test_tasks_of_transactions_are_tested_with_a_database_in_a_file(site: Path) -> None:
    (site / "shop/of_transactions.py").write_text(OF_TRANSACTIONS)
    code = """
from django.conf import settings
from django.test.utils import get_runner
settings.DATABASES["default"]["TEST"]["NAME"] = str(settings.HERE / "test.db")
print(get_runner(settings)(verbosity=0, interactive=False).run_tests(["shop.of_transactions"]))
"""
    assert run(site, code) == 0


def test_old_connections_are_closed_around_each_task(site: Path) -> None:
    with works(site, "--profile", "thread", "--workers", "1", "--threads", "1"):
        told = run(
            site,
            "asked = [tasks.has_old_connection.enqueue() for _ in range(3)]\n"
            "print(json.dumps([ended(one).return_value for one in asked]))",
        )
    assert told == [False] * 3


def test_tasks_of_any_queue_run_from_the_store_that_is_given(site: Path) -> None:
    (site / "site_of_test/free.py").write_text(
        "import subprocess\n"
        "from .settings import *\n"
        "subprocess.run(['echo', 'of the import'], check=True)\n"
        'own = {**TASKS["default"], "QUEUES": [], "OPTIONS": {**OPTIONS, "STORE": f"sqlite:///{HERE}/free.db"}}\n'
        'TASKS = {**TASKS, "default": own, "elsewhere": {"BACKEND": "package.that.is.not.here.Backend"}}\n'
    )
    store = f"sqlite:///{site}/free.db"
    with works(site, "--store", store, settings="site_of_test.free") as dispatcher:
        told = run(
            site,
            "from django.test import override_settings\n"
            f"with override_settings(TASKS={{'default': {{'BACKEND': 'clutch.django.ClutchBackend', 'QUEUES': [], "
            f"'OPTIONS': {{'STORE': {store!r}}}}}}}):\n"
            "    made = tasks.about.enqueue(1)\n"
            "    print(json.dumps(ended(made).status))",
        )
        assert told == "SUCCESSFUL", "the task names the queue mail"
        dispatcher.err.wait(r"TASKS\['together'\] has another store: start another `clutch work` with its --store")


@pytest.mark.parametrize(
    ("settings", "folder", "what"),
    [
        ("site_of_test", "", "site_of_test is a module without settings: write --django site_of_test.settings"),
        ("site_of_test.setings", "", "there is no module 'site_of_test.setings' in site_of_test: it has"),
        ("site_of_test.settings", "shop", "there is no module 'site_of_test' in"),
        ("site_of_test.lacking", "", "the project cannot be imported: ModuleNotFoundError: No module named 'lacking'"),
        ("site_of_test.without", "", "no backend in its TASKS is Clutch's: TASKS['x'] names not.here, which cannot"),
        ("site_of_test.ending", "", "the import of the settings ends the program, with the exit code 0"),
        ("site_of_test.lettered", "", "QUEUES of TASKS['default'] is the text 'mail': write a list, ['mail']"),
    ],
)
def test_settings_that_do_not_do_are_told_with_what_to_write(site: Path, settings: str, folder: str, what: str) -> None:
    (site / "site_of_test/lacking.py").write_text("import lacking\n")
    (site / "site_of_test/without.py").write_text("TASKS = {'x': {'BACKEND': 'not.here'}}\n")
    (site / "site_of_test/ending.py").write_text("raise SystemExit\n")
    (site / "site_of_test/lettered.py").write_text(
        "from .settings import *\nTASKS = {'default': {**TASKS['default'], 'QUEUES': 'mail'}}\n"
    )
    command = [*COMMAND, "work", "--django", settings]
    done = subprocess.run(command, cwd=site / folder, env=environment(), capture_output=True, text=True, timeout=90)
    assert done.returncode == 2 and what in done.stderr, done.stderr


@pytest.mark.parametrize("words", [("work", "shop.tasks"), ("jobs", "enqueue", "shop.tasks:count", "tea")])
def test_a_module_of_tasks_that_needs_django_is_answered(site: Path, words: tuple[str, ...]) -> None:
    clutch.Jobs(f"sqlite:///{site}/app.db").stats()
    command = [*COMMAND, *words, "--store", f"sqlite:///{site}/app.db"]
    done = subprocess.run(command, cwd=site, env=environment(), capture_output=True, text=True, timeout=90)
    assert done.returncode == 2 and "; Django is not set up here: `clutch work --django SETTINGS`" in done.stderr


def test_a_task_that_is_given_to_jobs_is_answered(site: Path) -> None:
    told = run(
        site,
        "told = []\n"
        "jobs = tasks.count.get_backend().jobs\n"
        "for act in (lambda: jobs.enqueue(tasks.count, 'tea'), lambda: jobs.schedule('n', '5m', tasks.count)):\n"
        "    try:\n"
        "        act()\n"
        "    except ValueError as error:\n"
        "        told.append(str(error))\n"
        "jobs.schedule('nightly', '0 3 * * *', tasks.count.module_path)\n"
        "print(json.dumps([*told, jobs.schedules()[0].tool]))",
    )
    assert told[2] == "shop.tasks.count" and told[0] == told[1], told
    assert told[0].startswith("shop.tasks.count is a task of Django: count.enqueue(…) enqueues it"), told


def test_which_store_and_queues_are_taken() -> None:
    def of(store: str, *queues: str) -> dict[str, Any]:
        return {"store": store, "queues": list(queues)}

    def taken_of(given: str | None = None, **backends: Any) -> Taken:
        return taken("s", {"backends": backends, "queues": ["odd"]}, given)

    alone = taken_of(default=of("a", "x", "y"))
    assert (alone.store, alone.queues) == ("a", ("x", "y"))
    same = taken_of(one=of("a", "x", "y"), two=of("a", "y", "z"))
    assert (same.store, same.queues) == ("a", ("x", "y", "z"))
    first = taken_of(one=of("a", "x"), default=of("b", "y"))
    assert (first.store, first.queues) == ("b", ("y",)) and "TASKS['one'] has another store" in first.notes[-1]
    assert taken_of("a", one=of("a", "x"), default=of("b", "y")).queues == ("x",)
    assert taken_of("c", one=of("a", "x"), default=of("b", "y")).queues == ("x", "y"), "it may be another spelling"
    assert taken_of(default=of("a")).queues == ("default", "odd")
    assert taken_of(default={"store": None, "queues": ["x"]}).store is None
    with pytest.raises(click.UsageError, match="have different stores: name one by --store"):
        taken_of(one=of("a", "x"), two=of("b", "y"))


def test_what_a_project_has_set_up_is_left_as_it_is(site: Path) -> None:
    told = run(
        site,
        "import logging\n"
        "handler = logging.NullHandler()\n"
        "logging.getLogger('django').handlers = [handler]\n"
        "import clutch.django.tasks\n"
        "print(json.dumps(logging.getLogger('django').handlers == [handler]))",
    )
    assert told is True


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({}, "missing STORE in OPTIONS, or the variable CLUTCH_STORE"),
        ({"STORE": "sqlite:///x.db", "STOR": 1}, "no option 'STOR'; options are DATABASE, MODULES"),
        ({"STORE": "postgres://x"}, r"TASKS\['default'\]: "),
        ({"STORE": "redis://localhost/0", "DATABASE": "default"}, "DATABASE works with a store on SQLite only"),
        (
            {"STORE": "sqlite:///x.db", "DATABASE": "orders"},
            "DATABASE 'orders': allowed is an alias of DATABASES: 'default'",
        ),
        ({"STORE": "sqlite:///x.db", "RETRY": -1}, "retry -1: allowed are"),
        (
            {"STORE": "sqlite:///x.db", "ENQUEUE_ON_COMMIT": True},
            "write transaction.on_commit\\(partial\\(task.enqueue",
        ),
    ],
)
def test_what_is_wrong_in_the_settings_is_told(monkeypatch: pytest.MonkeyPatch, options: Any, what: str) -> None:
    need_tasks()
    from django.conf import settings
    from django.core.exceptions import ImproperlyConfigured

    if not settings.configured:
        settings.configure()
    from clutch.django import ClutchBackend

    monkeypatch.delenv("CLUTCH_STORE", raising=False)
    with pytest.raises(ImproperlyConfigured, match=what):
        ClutchBackend("default", {"OPTIONS": options})


def test_priorities_keep_their_order() -> None:
    need_tasks()
    from clutch.django import priority_of

    given = [priority_of(priority) for priority in range(-100, 101)]
    assert given == sorted(given) and {given[0], given[100], given[-1]} == {-9, 0, 9}
    assert (priority_of(1), priority_of(-1)) == (1, -1)
