"""Empty stores of jobs, on servers and files of their own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.redis_server import RedisServer


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[RedisServer]:
    with RedisServer(tmp_path) as server:
        yield server


@pytest.fixture(params=["sqlite", "redis"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A URL."""
    yield from store_of(request.param, tmp_path)


@pytest.fixture(params=["sqlite", "redis", "sidekiq"])
def any_store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A URL, also of the format of Sidekiq."""
    yield from store_of(request.param, tmp_path)


def store_of(kind: str, tmp_path: Path) -> Iterator[str]:
    if kind == "sqlite":
        yield f"sqlite:///{tmp_path}/jobs.db"
        return
    with RedisServer(tmp_path) as server:
        yield server.url.replace("redis+unix", f"{kind}+unix")
