"""`celery beat` beside nodes of Clutch: its own scheduler, and that of django-celery-beat."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from support.celery_house import beat, broker_of, node, outcome
from support.clutch_process import COMMAND, PYTHON_PATH, WAIT_SECONDS, Dispatcher, environment, soon
from support.redis_server import RedisServer

celery = pytest.importorskip("celery")


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
