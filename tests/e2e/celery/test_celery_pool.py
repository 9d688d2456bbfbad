"""`celery worker --pool custom`: Celery's own worker with a pool of Clutch."""

from __future__ import annotations

from types import ModuleType

import pytest

from support.celery_house import outcome, worker_of_celery
from support.redis_server import RedisServer

celery = pytest.importorskip("celery")


@pytest.mark.parametrize("profile", ["process", "thread", "async", "greenlet"])
def test_a_worker_of_celery_runs_its_tasks_in_every_profile(redis: RedisServer, shop: ModuleType, profile: str) -> None:
    more = {"CLUTCH_PROFILE": profile, "CELERY_CUSTOM_WORKER_POOL": "clutch.celery:TaskPool"}
    with worker_of_celery(redis, "--pool", "custom", "-c", "4", **more) as worker:
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
