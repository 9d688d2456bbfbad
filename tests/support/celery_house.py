"""A Celery app on a Redis of its own, and nodes of Clutch that run its tasks."""

from __future__ import annotations

import contextlib
import importlib
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest

from support.clutch_process import COMMAND, WAIT_SECONDS, Dispatcher, environment
from support.redis_server import RedisServer


def broker_of(redis: RedisServer) -> str:
    return redis.url.replace("redis+unix", "redis+socket")


def load(redis: RedisServer, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The module of the app as a client has it."""
    monkeypatch.setenv("SHOP_BROKER", broker_of(redis))
    monkeypatch.delitem(sys.modules, "celery_shop", raising=False)
    return importlib.import_module("celery_shop")


@contextlib.contextmanager
def node(redis: RedisServer, *options: str, target: str = "celery_shop:app", **more: str) -> Iterator[Dispatcher]:
    """A node that runs the tasks of the app. `more`: of its environment."""
    env = {**environment(), "SHOP_BROKER": broker_of(redis), **more}
    command = [*COMMAND, "work", target, *options]
    with Dispatcher(redis.folder, command, env=env) as dispatcher:
        dispatcher.wait_ready("work")
        yield dispatcher


def outcome(result: Any) -> Any:
    """What a task has returned, or the exception that it has failed with."""
    try:
        return result.get(timeout=WAIT_SECONDS)
    except Exception as error:
        return error
