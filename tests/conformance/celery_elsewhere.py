"""A plugin of pytest for Celery's own integration tests: the worker that they would start in their process is another
program, CELERY_SUITE_WORKER, and its app is this module's `app`."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

from celery.contrib.testing import worker
from celery.utils.nodenames import anon_nodename

SETTINGS = ("broker_url", "result_backend", "result_extended", "task_create_missing_queues")
START_SECONDS, END_SECONDS = 60, 30
MISSED = "the result is there, but the client missed the notice of it"
IS_WORKER = "CELERY_SUITE_SETTINGS" in os.environ
NODE = anon_nodename()
"""The name that the tests of remote control ask for."""


def app_of_tests() -> Any:
    """The app of the tests as the worker has it."""
    from celery.contrib.testing.app import TestApp

    made = TestApp(set_as_current=True, enable_logging=True, config=json.loads(os.environ["CELERY_SUITE_SETTINGS"]))
    made.set_default()
    for module in ("t.integration.tasks", "celery.contrib.testing.tasks"):
        made.loader.import_task_module(module)
    tasks: Any = sys.modules["t.integration.tasks"]
    made.register_task(tasks.ClassBasedAutoRetryTask())
    made.finalize()
    return made


if IS_WORKER:
    app = app_of_tests()


@contextlib.contextmanager
def elsewhere(app: Any, **_: Any) -> Iterator[None]:
    """In place of Celery's `start_worker`."""
    no_file: Any = None
    worker.setup_app_for_worker(app, worker.WORKER_LOGLEVEL, no_file)
    settings = json.dumps({name: app.conf[name] for name in SETTINGS})
    command = shlex.split(os.environ["CELERY_SUITE_WORKER"].format(node=NODE))
    with open(os.environ["CELERY_SUITE_LOG"], "wb") as log:
        env = {**os.environ, "CELERY_SUITE_SETTINGS": settings}
        process = subprocess.Popen(command, env=env, stdout=log, stderr=subprocess.STDOUT, start_new_session=True)
        try:
            wait_until_it_works(process)
            worker._set_task_join_will_block(False)
            yield
        finally:
            process.terminate()
            process.wait(END_SECONDS)


def wait_until_it_works(process: Any) -> None:
    from celery.contrib.testing import tasks
    from celery.result import allow_join_result

    until = time.monotonic() + START_SECONDS
    while True:
        try:
            with allow_join_result():
                ping: Any = tasks.ping
                assert ping.delay().get(timeout=10) == "pong"
            return
        except Exception:
            if process.poll() is not None or time.monotonic() > until:
                raise


def pytest_configure() -> None:
    """A client looks for a result once, then for a notice of it, and may miss that. Such a test is run again, as
    most are by marks of Celery's own; one whose result is not there has failed."""
    from celery.backends import redis
    from celery.exceptions import TimeoutError as WaitedTooLong

    consumer: Any = redis.ResultConsumer
    wait = consumer._wait_for_pending

    def wait_or_say_why(self: Any, result: Any, *args: Any, **kwargs: Any) -> Iterator[None]:
        try:
            yield from wait(self, result, *args, **kwargs)
        except WaitedTooLong as error:
            waiting = {name: self.backend.client.llen(name) for name in ("celery", "clutch.celery:due")}
            raise WaitedTooLong(MISSED if result.ready() else f"{error} There is no result; {waiting}") from error

    consumer._wait_for_pending = wait_or_say_why


def pytest_collection_finish() -> None:
    """By now all have been imported that name it."""
    there: Any = worker
    there.start_worker = elsewhere
    inspecting: Any = sys.modules.get("t.integration.test_inspect")
    if inspecting is not None:
        inspecting.NODENAME = NODE
