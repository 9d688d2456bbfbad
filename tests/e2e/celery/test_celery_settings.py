"""Settings of a Celery app that `clutch work` heeds, beside those that Celery's own code does."""

from __future__ import annotations

import json
import re
import socket
from pathlib import Path
from types import ModuleType

import pytest

from support.celery_house import broker_of, node, outcome
from support.clutch_process import COMMAND, Dispatcher, environment, soon
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
        # Once remote control has changed the queues, as before.
        shop.app.control.add_consumer("late", destination=[name])
        assert outcome(shop.add.apply_async((1, 4), queue="late")) == 5
        assert outcome(shop.add.apply_async((1, 5), exchange="C.dq2", routing_key=name)) == 6


def test_handlers_of_signals_set_the_node_up(redis: RedisServer, shop: ModuleType, tmp_path: Path) -> None:
    ended, more = tmp_path / "ended", {"SHOP_ADDED": "own", "SHOP_ENDED": str(tmp_path / "ended")}
    with node(redis, "--workers", "1", "--node", "cautious@here", "--queues", "parcels:2,celery", **more) as dispatcher:
        assert repr(outcome(shop.note.delay(str(tmp_path / "noted"), "x", 60))) == "TimeLimitExceeded(0.5)"
        assert outcome(shop.add.apply_async((1, 2), queue="cautious@here.own")) == 3
        ended.unlink(missing_ok=True)  # of the worker that the limit has ended
        dispatcher.terminate()
        assert dispatcher.wait() == 0
    assert ended.read_text() == "True 0\n"


def test_the_order_of_queues(redis: RedisServer, shop: ModuleType, tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    order = {"broker_transport_options": {"queue_order_strategy": "priority"}}
    with node(redis, "--workers", "1", "--queues", "first,second", **settings(**order)):
        blocking = shop.meet.apply_async((str(tmp_path / "met"), 2), queue="second")
        soon(lambda: (tmp_path / "met").exists())
        later = [shop.note.apply_async((str(ran), name), queue=name) for _ in range(4) for name in ("second", "first")]
        (tmp_path / "met").write_text("met\nmet\n")
        assert [outcome(sent) for sent in (blocking, *later)] == [2] + 8 * [None]
    assert ran.read_text().split() == 4 * ["first"] + 4 * ["second"]


def test_queues_that_the_app_does_not_know(redis: RedisServer, tmp_path: Path) -> None:
    env = {**environment(), "SHOP_BROKER": broker_of(redis), **settings(task_create_missing_queues=False)}
    with Dispatcher(tmp_path, [*COMMAND, "work", "celery_shop", "--queues", "parcels"], env=env) as dispatcher:
        dispatcher.err.wait("no queue 'parcels' in task_queues, which has celery")
        assert dispatcher.wait() == 2


def test_a_deadline_is_a_time_limit(redis: RedisServer, shop: ModuleType) -> None:
    with node(redis, "--workers", "1", "--deadline", "1s"):
        assert re.match(r"TimeLimitExceeded\(1\.\d+\)", repr(outcome(shop.sleep_long.delay())))


def test_the_level_of_the_log(redis: RedisServer, shop: ModuleType) -> None:
    with node(redis, "--workers", "1", "--log-level", "info") as dispatcher:
        assert outcome(shop.add.delay(1, 2)) == 3
        dispatcher.err.wait(r"Task celery_shop\.add\[.*\] succeeded")


def test_a_node_without_remote_control(redis: RedisServer, shop: ModuleType) -> None:
    with node(redis, "--workers", "1", **settings(worker_enable_remote_control=False)):
        assert outcome(shop.add.delay(1, 2)) == 3
        assert redis.ask("EXISTS", "_kombu.binding.celery.pidbox").strip() == "0"
