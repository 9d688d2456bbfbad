"""Settings of a Celery app that `clutch work` heeds, beside those that Celery's own code does."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from types import ModuleType

import pytest

from support.celery_house import node, outcome
from support.redis_server import RedisServer

pytest.importorskip("celery")


def settings(**given: object) -> dict[str, str]:
    """For the environment of a node: settings of the app."""
    return {"SHOP_SETTINGS": json.dumps(given)}


def test_the_pool_of_the_app(redis: RedisServer, shop: ModuleType, tmp_path: Path) -> None:
    with node(redis, **settings(worker_pool="threads", worker_concurrency=3)):
        together = [shop.meet_in.delay(str(tmp_path / "met"), 3) for _ in range(3)]
        assert len({outcome(sent) for sent in together}) == 1


def test_how_long_its_processes_live(redis: RedisServer, shop: ModuleType) -> None:
    given = settings(worker_concurrency=1, worker_max_tasks_per_child=2, worker_max_memory_per_child=150_000)
    with node(redis, **given):
        pids = [outcome(shop.pid_of_worker.delay()) for _ in range(4)]
        assert pids[0] == pids[1] != pids[2] == pids[3]
        grown = outcome(shop.use_memory.delay(200))
        assert outcome(shop.pid_of_worker.delay()) != grown


def test_an_option_goes_before_a_setting(redis: RedisServer, shop: ModuleType) -> None:
    with node(redis, "--workers", "1", "--recycle-calls", "1", **settings(worker_max_tasks_per_child=100)):
        assert len({outcome(shop.pid_of_worker.delay()) for _ in range(3)}) == 3


def test_its_own_queue_and_the_name_of_the_node(redis: RedisServer, shop: ModuleType) -> None:
    name = f"w1@{socket.gethostname()}"
    with node(redis, "--workers", "1", "--node", "w1@%h", "--queues", "parcels", **settings(worker_direct=True)):
        assert outcome(shop.add.apply_async((1, 2), exchange="C.dq2", routing_key=name)) == 3
        assert outcome(shop.add.apply_async((1, 3), queue="parcels")) == 4
        assert shop.app.control.ping([name], timeout=5, limit=1) == [{name: {"ok": "pong"}}]


def test_the_level_of_the_log(redis: RedisServer, shop: ModuleType) -> None:
    with node(redis, "--workers", "1", "--log-level", "info") as dispatcher:
        assert outcome(shop.add.delay(1, 2)) == 3
        dispatcher.err.wait(r"Task celery_shop\.add\[.*\] succeeded")


def test_a_node_without_remote_control(redis: RedisServer, shop: ModuleType) -> None:
    with node(redis, "--workers", "1", **settings(worker_enable_remote_control=False)):
        assert outcome(shop.add.delay(1, 2)) == 3
        assert redis.ask("EXISTS", "_kombu.binding.celery.pidbox").strip() == "0"
