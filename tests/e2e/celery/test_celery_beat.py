"""`celery beat` beside nodes of Clutch: its own scheduler, and that of django-celery-beat."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from support.celery_house import beat, broker_of, node
from support.clutch_process import WAIT_SECONDS, environment, soon
from support.redis_server import RedisServer

pytest.importorskip("celery")


def lines(path: Path) -> list[str]:
    return path.read_text().split() if path.exists() else []


def test_beat_feeds_a_node(redis: RedisServer, shop: ModuleType, tmp_path: Path) -> None:
    """What is due while no node is there runs when one is; beat says that it has sent it."""
    runs = tmp_path / "runs"
    schedule = {"often": {"task": "celery_shop.note_sender", "schedule": 0.2, "args": [str(runs)]}}
    more = {"SHOP_SETTINGS": json.dumps({"beat_schedule": schedule, "beat_max_loop_interval": 0.2})}
    with beat(redis, **more):
        soon(lambda: int(redis.ask("LLEN", "celery")) >= 3)
        with node(redis, "--workers", "2", **more) as dispatcher:
            soon(lambda: len(lines(runs)) >= 10)
            dispatcher.terminate()
            assert dispatcher.wait() == 0
    assert set(lines(runs)) == {"True"}


DEPOT = {
    "__init__.py": "from depot.celery import app as celery_app",
    "settings.py": """
import os

SECRET_KEY = "of a test"
INSTALLED_APPS = ["depot", "django_celery_beat"]
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": "depot.db", "OPTIONS": {"timeout": 30}}}
USE_TZ = True
CELERY_BROKER_URL = CELERY_RESULT_BACKEND = os.environ["SHOP_BROKER"]
CELERY_BEAT_MAX_LOOP_INTERVAL = 0.2
""",
    "celery.py": """
import os

from celery import Celery

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "depot.settings")
app = Celery("depot")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()
""",
    "tasks.py": """
from celery import shared_task


@shared_task(bind=True)
def count(self, path):
    from django_celery_beat.models import PeriodicTask

    with open(path, "a") as file:
        file.write(f"{self.request.get('periodic_task_name')} of {PeriodicTask.objects.count()}\\n")
""",
}
SCHEDULE = """
import json, sys

from django.core.management import call_command
import django

django.setup()
call_command("migrate", verbosity=0)
from django_celery_beat.models import IntervalSchedule, PeriodicTask

often = IntervalSchedule.objects.create(every=200_000, period="microseconds")
PeriodicTask.objects.create(name="often", task="depot.tasks.count", interval=often, args=json.dumps(sys.argv[1:]))
"""


def test_a_django_project_with_its_schedule_in_the_database_moves_over(redis: RedisServer, tmp_path: Path) -> None:
    """`celery -A depot worker` becomes `clutch work depot`; its beat stays."""
    pytest.importorskip("django_celery_beat")
    project, runs = redis.folder / "depot", tmp_path / "runs"
    project.mkdir()
    for name, text in DEPOT.items():
        (project / name).write_text(text)
    more = {"SHOP_BROKER": broker_of(redis), "DJANGO_SETTINGS_MODULE": "depot.settings"}
    command = [sys.executable, "-c", SCHEDULE, str(runs)]
    subprocess.run(command, cwd=redis.folder, env={**environment(), **more}, check=True, timeout=WAIT_SECONDS)
    scheduler = "--scheduler", "django_celery_beat.schedulers:DatabaseScheduler"
    with (
        beat(redis, *scheduler, app="depot", **more),
        node(redis, "--workers", "2", target="depot", **more) as dispatcher,
    ):
        soon(lambda: runs.exists() and len(runs.read_text().splitlines()) >= 5)
        dispatcher.terminate()
        assert dispatcher.wait() == 0
    assert set(runs.read_text().splitlines()) == {"often of 2"}, "beside the clean-up that Celery adds"
