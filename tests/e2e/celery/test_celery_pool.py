"""`celery worker --pool custom`: Celery's own worker with a pool of Clutch."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest

from support.celery_house import broker_of, outcome
from support.clutch_process import PYTHON_PATH, Dispatcher, environment
from support.redis_server import RedisServer

celery = pytest.importorskip("celery")


@pytest.mark.parametrize("profile", ["process", "thread", "async", "greenlet"])
def test_a_worker_of_celery_runs_its_tasks_in_every_profile(
    redis: RedisServer, shop: ModuleType, tmp_path: Path, profile: str
) -> None:
    more = {"SHOP_BROKER": broker_of(redis), "CLUTCH_PROFILE": profile, "PYTHONPATH": PYTHON_PATH}
    env = {**environment(), **more, "CELERY_CUSTOM_WORKER_POOL": "clutch.celery:TaskPool"}
    command = [sys.executable, "-m", "celery", "-A", "celery_shop", "worker", "--pool", "custom", "-c", "4"]
    with Dispatcher(tmp_path, [*command, "--loglevel", "INFO"], env=env) as worker:
        worker.err.wait(r"ready\.")
        assert outcome(shop.add.delay(1, 2)) == 3
        assert repr(outcome(shop.fail.delay())) == "ValueError('out of stock')"
        assert outcome(shop.try_again.delay(1)) == 1
        sent = shop.greet.delay("Ada")
        assert outcome(sent) == [sent.id, "hello Ada"]
        assert outcome(celery.group(shop.greet.s(str(nr)) for nr in range(20))())[19][1] == "hello 19"
        assert repr(outcome(shop.hang.delay())) == "TimeLimitExceeded(1)"
        assert "WorkerLostError" in repr(outcome(shop.end_worker.delay()))
        assert outcome(celery.chord([shop.add.s(1, 1), shop.add.s(2, 2)])(shop.total.s())) == 6
        worker.terminate()
        assert worker.wait() == 0
