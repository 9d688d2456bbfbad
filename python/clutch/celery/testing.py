"""A plugin of pytest: the workers of Celery's own plugin run tasks in a pool of Clutch.

    pytest_plugins = ["celery.contrib.pytest", "clutch.celery.testing"]

`celery_worker` and `celery_session_worker` stay what they are, threads of the test's process; their tasks run in a
worker process, in which the modules of the tasks are imported. Tasks defined inside of a function cannot be imported:
they run in a thread of the test's process.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from clutch.celery import pool

POOL = "clutch.celery.testing:TaskPool"


class TaskPool(pool.TaskPool):
    """A pool for tests."""

    def on_start(self) -> None:
        super().on_start()
        self._threads = ThreadPoolExecutor(self.limit, thread_name_prefix="clutch.celery.testing")

    def submit(self, name: str, seconds: float | None, *args: Any) -> Any:
        app: Any = self.app
        if pool.is_importable(app.tasks.get(name)):
            return super().submit(name, seconds, *args)
        return self._threads.submit(pool.run, *args)

    def on_terminate(self) -> None:
        super().on_terminate()
        self._threads.shutdown(wait=False, cancel_futures=True)


@pytest.fixture(scope="session")
def celery_worker_pool() -> str:
    return POOL


@pytest.fixture(scope="session")
def celery_config(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Results are in files, where they are seen by more than one process. Yours goes before, if you have one."""
    return {"result_backend": f"file://{tmp_path_factory.mktemp('results')}"}
