"""Pools of a worker of Celery that are hit at the worst instant."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

from clutch.celery.pool import TaskPool


class StoppedInSubmit(TaskPool):
    """Its first task runs; then the signal of a cold shutdown comes before anybody here knows of it."""

    def submit(self, *args: Any) -> Any:
        future = super().submit(*args)
        while not Path(os.environ["RAN"]).exists():
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGQUIT)
        return future
