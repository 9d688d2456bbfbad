"""An empty Redis with a Celery app on it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from support.celery_house import loaded
from support.redis_server import RedisServer


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[RedisServer]:
    pytest.importorskip("celery")
    with RedisServer(tmp_path) as server:
        yield server


@pytest.fixture
def shop(redis: RedisServer) -> Iterator[ModuleType]:
    """Its module, as a client has it."""
    with loaded(redis) as module:
        yield module
