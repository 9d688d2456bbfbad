"""The app that `celery worker` and `clutch work` run alike. Its settings are in the environment."""

from __future__ import annotations

import os
import time

from celery import Celery

from benches.celery import BROKER, RESULTS
from clutch.lab.drivers import marks

app = Celery("bench", broker=os.environ[BROKER])
app.conf.broker_connection_retry_on_startup = True
if os.environ.get(RESULTS):
    app.conf.result_backend = os.environ[BROKER]
else:
    app.conf.task_ignore_result = True


@app.task
def nothing() -> None:
    marks.mark(time.time())


@app.task
def nap(seconds: float) -> None:
    began = time.time()
    time.sleep(seconds)
    marks.mark(began)
