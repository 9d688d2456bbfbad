"""The test suite of a Celery app, with Celery's fixtures, on Clutch: one line of its conftest.py."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from support.clutch_process import WAIT_SECONDS, environment

pytest.importorskip("celery")

CONFTEST = """
pytest_plugins = ["celery.contrib.pytest", "clutch.celery.testing"]
"""
TASKS = """
import asyncio, os
import celery

@celery.shared_task
def add(x, y):
    return x + y

@celery.shared_task
def pid():
    return os.getpid()

@celery.shared_task
async def wait():
    await asyncio.sleep(0)
    return "waited"

@celery.shared_task(bind=True)
def fail(self):
    raise ValueError(self.name)

class Multiply(celery.Task):
    name = "multiply"

    def run(self, x, y):
        return x * y
"""
OF_SESSION = """
import os
import pytest
from tasks import Multiply, add, fail, pid, wait

@pytest.fixture(scope="session")
def celery_class_tasks():
    return [Multiply()]

def test_the_worker_is_another_process(celery_session_worker, celery_session_app):
    assert add.delay(1, 2).get(timeout=60) == 3
    assert pid.delay().get(timeout=60) != os.getpid()
    assert wait.delay().get(timeout=60) == "waited"
    assert celery_session_app.tasks["multiply"].delay(2, 3).get(timeout=60) == 6
    with pytest.raises(ValueError, match="tasks.fail"):
        fail.delay().get(timeout=60)
"""
OF_TEST = """
def test_a_task_of_a_test(celery_app, celery_worker):
    @celery_app.task
    def mul(x, y):
        return x * y

    celery_worker.reload()
    assert mul.delay(4, 4).get(timeout=60) == 16
"""


@pytest.mark.parametrize("suite", [OF_SESSION, OF_TEST])
def test_celerys_fixtures_run_tasks_in_a_pool_of_clutch(tmp_path: Path, suite: str) -> None:
    for name, text in {"conftest": CONFTEST, "tasks": TASKS, "test_it": suite}.items():
        (tmp_path / f"{name}.py").write_text(text)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "ignore"]
    env = environment()
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=4 * WAIT_SECONDS)
    assert "1 passed" in done.stdout, done.stdout[-6000:] + done.stderr[-2000:]
