"""A Celery app on a Redis of its own, and nodes of Clutch that run its tasks."""

from __future__ import annotations

import contextlib
import gc
import http.client
import importlib
import sys
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import pytest

from support.clutch_process import COMMAND, PYTHON_PATH, WAIT_SECONDS, Dispatcher, environment, soon
from support.redis_server import RedisServer

NODE = "shop@here"
"""What a node or worker is called whom somebody asks."""


def broker_of(redis: RedisServer) -> str:
    return redis.url.replace("redis+unix", "redis+socket")


@contextlib.contextmanager
def loaded(redis: RedisServer, **more: str) -> Iterator[ModuleType]:
    """The module of the app as a client has it. What it holds of the server goes before that. `more`: of its
    environment."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in ({"SHOP_BROKER": broker_of(redis)} | more).items():
            patch.setenv(name, value)
        patch.delitem(sys.modules, "celery_shop", raising=False)
        shop = importlib.import_module("celery_shop")
        yield shop
        gc.collect()  # results, which unsubscribe at their end
        shop.app.backend.result_consumer.stop()
        shop.app.backend.client.connection_pool.disconnect()
        shop.app.close()


@contextlib.contextmanager
def node(redis: RedisServer, *options: str, target: str = "celery_shop:app", **more: str) -> Iterator[Dispatcher]:
    """A node that runs the tasks of the app. `more`: of its environment."""
    env = {**environment(), "SHOP_BROKER": broker_of(redis), **more}
    command = [*COMMAND, "work", target, *options]
    with Dispatcher(redis.folder, command, env=env) as dispatcher:
        dispatcher.wait_ready("work")
        yield dispatcher


def readiness(dispatcher: Dispatcher) -> int:
    """The status of /readyz of a node with `--admin 127.0.0.1:0`."""
    address = dispatcher.err.wait(r"admin: http://(\S+?)(?:\"|$)")[1]
    with contextlib.closing(http.client.HTTPConnection(address, timeout=WAIT_SECONDS)) as connection:
        connection.request("GET", "/readyz")
        return connection.getresponse().status


@contextlib.contextmanager
def worker_of_celery(redis: RedisServer, *options: str, **more: str) -> Iterator[Dispatcher]:
    """Celery's own worker of the app. `more`: of its environment."""
    env = {**environment(), "PYTHONPATH": PYTHON_PATH, "SHOP_BROKER": broker_of(redis), **more}
    command = [sys.executable, "-m", "celery", "-A", "celery_shop", "worker", "--loglevel", "INFO", *options]
    with Dispatcher(redis.folder, command, env=env) as worker:
        worker.err.wait(r"ready\.")
        yield worker


@contextlib.contextmanager
def beat(redis: RedisServer, *options: str, app: str = "celery_shop", **more: str) -> Iterator[Dispatcher]:
    """`celery beat` of the app. `more`: of its environment."""
    env = {**environment(), "PYTHONPATH": PYTHON_PATH, "SHOP_BROKER": broker_of(redis), **more}
    schedule = ["--schedule", f"{redis.folder}/schedule", "--pidfile", ""]
    command = [sys.executable, "-m", "celery", "-A", app, "beat", "--loglevel", "INFO", *schedule, *options]
    with Dispatcher(redis.folder, command, env=env) as sender:
        sender.err.wait("beat: Starting")
        yield sender


def settings_told(redis: RedisServer, node: str) -> str:
    """What the nodes of this name have told their workers."""
    keys = redis.ask("KEYS", f"clutch.celery:settings:{node} *").splitlines()
    return "".join(redis.ask("GET", key) for key in keys)


def outcome(result: Any) -> Any:
    """What a task has returned, or the exception that it has failed with. Celery's clients may miss the word that a
    result is there, and wait for ever: so they are asked for it."""
    soon(result.ready)
    try:
        return result.get(timeout=WAIT_SECONDS)
    except Exception as error:
        return error


def asked(shop: ModuleType, question: Callable[[Any], Any]) -> Any:
    """The answer of the node, or of the worker, that is called NODE, once there is one."""
    found: list[Any] = []

    def has_answer() -> bool:
        answers = question(shop.app.control.inspect([NODE], timeout=2))
        found[:] = [answers[NODE]] if answers else []
        return bool(answers)

    soon(has_answer)
    return found[0]
