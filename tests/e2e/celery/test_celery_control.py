"""A node of Clutch is a worker to Celery's own tools: it answers remote control and sends events."""

from __future__ import annotations

import threading
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from support.celery_house import NODE, asked, node, outcome, settings_told
from support.clutch_process import WAIT_SECONDS, soon
from support.redis_server import RedisServer

pytest.importorskip("celery")


def test_it_answers_what_celery_inspect_asks(redis: RedisServer, shop: ModuleType, tmp_path: Path) -> None:
    with node(redis, "--workers", "2", "--node", NODE) as dispatcher:
        assert asked(shop, lambda inspect: inspect.ping()) == {"ok": "pong"}
        assert "celery_shop.add" in asked(shop, lambda inspect: inspect.registered())
        assert [queue["name"] for queue in asked(shop, lambda inspect: inspect.active_queues())] == ["celery"]
        assert asked(shop, lambda inspect: inspect.stats())["pid"] == dispatcher.process.pid
        assert asked(shop, lambda inspect: inspect.conf())["result_extended"] is True
        later = shop.add.apply_async((1, 1), countdown=3600)
        sent = shop.note.delay(str(tmp_path / "runs"), "ran", 600)
        soon(lambda: [task["id"] for task in asked(shop, lambda inspect: inspect.active())] == [sent.id])
        soon(lambda: [one["request"]["id"] for one in asked(shop, lambda inspect: inspect.scheduled())] == [later.id])
        found = asked(shop, lambda inspect: inspect.query_task(sent.id, later.id))
        assert (found[sent.id][0], found[later.id][0]) == ("active", "scheduled")


def test_tasks_are_revoked_and_terminated(redis: RedisServer, shop: ModuleType, tmp_path: Path) -> None:
    with node(redis, "--workers", "1", "--node", NODE):
        asked(shop, lambda inspect: inspect.ping())
        sent = shop.note.delay(str(tmp_path / "runs"), "ran", 600)
        soon(lambda: asked(shop, lambda inspect: inspect.active()))
        behind = shop.note.delay(str(tmp_path / "behind"), "ran")
        behind.revoke()
        soon(lambda: behind.id in asked(shop, lambda inspect: inspect.revoked()))
        sent.revoke(terminate=True)
        assert repr(outcome(sent)) == "TaskRevokedError('terminated')"
        assert outcome(shop.add.delay(1, 1)) == 2
        assert repr(outcome(behind)) == "TaskRevokedError('revoked')"
    assert not (tmp_path / "behind").exists()


def test_the_pool_and_the_queues_are_steered(redis: RedisServer, shop: ModuleType) -> None:
    control = shop.app.control
    with node(redis, "--workers", "1", "--node", NODE) as dispatcher:
        asked(shop, lambda inspect: inspect.ping())
        control.pool_grow(2, destination=[NODE])
        soon(lambda: len(asked(shop, lambda inspect: inspect.stats())["pool"]["processes"]) == 3)
        control.pool_shrink(1, destination=[NODE])
        soon(lambda: len(asked(shop, lambda inspect: inspect.stats())["pool"]["processes"]) == 2)
        answers = control.autoscale(max=3, min=2, destination=[NODE], reply=True)
        assert answers == [{NODE: {"ok": "autoscale now max=3 min=2"}}]
        assert asked(shop, lambda inspect: inspect.stats())["autoscaler"]["max"] == 3
        answers = control.broadcast("pool_restart", destination=[NODE], reply=True, timeout=2)
        assert answers == [{NODE: {"ok": "reload started"}}]
        dispatcher.err.wait("pool work: reloaded")  # a change of queues is one of the node before until then
        control.add_consumer("parcels", destination=[NODE])
        sent = shop.add.apply_async((1, 2), queue="parcels")
        assert outcome(sent) == 3
        soon(lambda: asked(shop, lambda inspect: inspect.stats())["total"] == {"celery_shop.add": 1})
        control.cancel_consumer("parcels", destination=[NODE])
        soon(lambda: "parcels" not in str(asked(shop, lambda inspect: inspect.active_queues())))
        control.time_limit("celery_shop.note", soft=None, hard=1, destination=[NODE])
        soon(lambda: "1" in settings_told(redis, NODE))
        assert repr(outcome(shop.note.delay("/dev/null", "x", 600))) == "TimeLimitExceeded(1)"
        control.shutdown(destination=[NODE])
        assert dispatcher.wait() == 0


def test_events_are_those_of_a_worker(redis: RedisServer, shop: ModuleType) -> None:
    seen: list[dict[str, Any]] = []
    with shop.app.connection_for_read() as connection:
        receiver = shop.app.events.Receiver(connection, handlers={"*": seen.append})
        listener = threading.Thread(target=lambda: list(receiver.itercapture(wakeup=False)), daemon=True)
        listener.start()
        soon(lambda: int(redis.ask("PUBSUB", "NUMPAT")) == 1)
        check_events(redis, shop, seen)
        receiver.should_stop = True
        listener.join(WAIT_SECONDS)


def check_events(redis: RedisServer, shop: ModuleType, seen: list[dict[str, Any]]) -> None:
    def kinds() -> set[str]:
        return {event["type"] for event in seen}

    with node(redis, "--workers", "1", "--node", NODE) as dispatcher:
        soon(lambda: "worker-heartbeat" in kinds())
        shop.app.control.enable_events(destination=[NODE])
        soon(lambda: '"events": true' in settings_told(redis, NODE))
        sent, failed = shop.add.delay(1, 1), shop.fail.delay()
        assert [repr(outcome(one)) for one in (sent, failed)] == ["2", "ValueError('out of stock')"]
        wanted = {"task-received", "task-started", "task-succeeded", "task-failed"}
        soon(lambda: wanted <= kinds())
        told = next(event for event in seen if event["type"] == "task-succeeded" and event["uuid"] == sent.id)
        assert (told["hostname"], told["result"]) == (NODE, "2")
        dispatcher.terminate()
        dispatcher.wait()
        soon(lambda: "worker-offline" in kinds())
