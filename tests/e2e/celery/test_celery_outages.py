"""What becomes of a node and of its tasks when the broker goes, stands still or forgets everything."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from support.celery_house import NODE, node, outcome, readiness, settings_told
from support.clutch_process import soon
from support.redis_server import RedisServer
from support.rendezvous import Rendezvous

celery = pytest.importorskip("celery")
redis_errors = pytest.importorskip("redis").exceptions.RedisError

VISIBILITIES_SECONDS = 3.5
"""Longer than three visibility timeouts here, and than a lease."""
TASKS = 200


def is_online(shop: ModuleType) -> bool:
    """Whether it answers a client, whose own connections may have just ended."""
    try:
        return bool(shop.app.control.inspect([NODE], timeout=1).ping())
    except redis_errors:
        return False


def sent(shop: ModuleType, *args: Any) -> Any:
    """A task that a client has sent, whose connections may have just ended."""
    found: list[Any] = []

    def is_sent() -> bool:
        try:
            found.append(shop.add.delay(*args))
        except celery.exceptions.OperationalError:
            return False
        return True

    soon(is_sent)
    return found[0]


def lines(path: Path) -> list[str]:
    return path.read_text().split()


def metas(redis: RedisServer, tasks: list[Any]) -> list[str]:
    """What is kept of these tasks. (A client's own subscription has ended with the broker.)"""
    found = redis.ask("MGET", *(f"celery-task-meta-{task.id}" for task in tasks)).splitlines()
    return [text or '{"status": "PENDING"}' for text in found]


def status(meta: str) -> str:
    return json.loads(meta)["status"]


def get(redis: RedisServer, task: Any) -> Any:
    soon(lambda: "SUCCESS" in metas(redis, [task])[0])
    return json.loads(metas(redis, [task])[0])["result"]


def test_a_broker_that_forgets_everything_is_served_on(redis: RedisServer, shop: ModuleType) -> None:
    with node(redis, "--workers", "2", "--node", NODE) as dispatcher, Rendezvous() as place:
        soon(lambda: is_online(shop))
        shop.app.control.rate_limit("celery_shop.total", "600/m", destination=[NODE], reply=True)
        held = shop.wait_at_late.delay(place.port)
        guest = place.guest()
        redis.ask("FLUSHDB")
        assert outcome(shop.add.delay(1, 2)) == 3
        soon(lambda: is_online(shop))
        assert not guest.is_gone()
        guest.let_go("done")
        assert outcome(held) == "done"
        soon(lambda: is_online(shop))
        soon(lambda: "celery_shop.total" in settings_told(redis, NODE))
        assert outcome(shop.add.delay(2, 2)) == 4
        dispatcher.terminate()
        assert dispatcher.wait() == 0
    assert redis.ask("HLEN", "unacked").strip() == "0"


def test_failure_45_a_broker_that_restarts_under_load_loses_no_task(
    redis: RedisServer, shop: ModuleType, tmp_path: Path
) -> None:
    """A result that cannot be stored is told later, as the failure that the tracer saw; or a late task runs again."""
    runs, early = tmp_path / "runs", tmp_path / "early"
    with node(redis, "--workers", "2", "--node", NODE, "--admin", "127.0.0.1:0") as dispatcher:
        soon(lambda: is_online(shop))
        shop.app.control.enable_events(destination=[NODE])
        tasks = [shop.note_late.delay(str(runs), str(nr), 0.01) for nr in range(TASKS)]
        tasks_early = [shop.note.delay(str(early), str(nr), 0.01) for nr in range(TASKS)]
        for restart in range(2):
            soon(lambda restart=restart: runs.exists() and len(lines(runs)) > TASKS // 3 * (restart + 1))
            redis.kill()
            soon(lambda: readiness(dispatcher) == 503)
            redis.start()
            restarted_at = time.monotonic()
            soon(lambda: readiness(dispatcher) == 200)
            assert time.monotonic() - restarted_at < 5
        soon(lambda: {status(found) for found in metas(redis, tasks)} <= {"SUCCESS", "FAILURE"})
        assert sum(status(found) == "FAILURE" for found in metas(redis, tasks)) <= 2 * 2
        assert sorted(set(lines(runs))) == sorted(map(str, range(TASKS)))
        assert len(lines(runs)) - TASKS <= 2 * 2, "what runs when the broker goes may run again"
        soon(lambda: {status(found) for found in metas(redis, tasks_early)} <= {"SUCCESS", "FAILURE"})
        assert sorted(lines(early)) == sorted(map(str, range(TASKS))), "each once"
        assert sum(status(found) == "FAILURE" for found in metas(redis, tasks_early)) <= 2 * 2
        soon(lambda: is_online(shop))
        assert get(redis, sent(shop, 1, 1)) == 2
        dispatcher.terminate()
        assert dispatcher.wait() == 0


def test_heartbeats_stay_one_at_a_time_when_connections_are_lost(redis: RedisServer, shop: ModuleType) -> None:
    with node(redis, "--workers", "1", "--node", NODE):
        for _ in range(2):
            soon(lambda: is_online(shop))
            redis.ask("CLIENT", "KILL", "TYPE", "normal")
            redis.ask("CLIENT", "KILL", "TYPE", "pubsub")
        soon(lambda: is_online(shop))
        beats: list[float] = []
        with shop.app.connection_for_read() as connection:
            handlers = {"worker-heartbeat": lambda event: beats.append(event["timestamp"])}
            receiver = shop.app.events.Receiver(connection, handlers=handlers)
            listener = threading.Thread(target=lambda: list(receiver.itercapture(wakeup=False)), daemon=True)
            listener.start()
            soon(lambda: len(beats) >= 4)
            receiver.should_stop = True
            listener.join(30)
        assert beats[3] - beats[0] > 4


def test_failure_45_a_broker_that_stands_still_for_three_visibility_timeouts(
    redis: RedisServer, shop: ModuleType
) -> None:
    """Nodes take nothing for abandoned that could not be renewed meanwhile."""
    options = "--workers", "1", "--lease", "2s"
    with (
        node(redis, *options, SHOP_VISIBILITY="1") as one,
        node(redis, *options, "--node", "other", SHOP_VISIBILITY="1") as other,
        Rendezvous() as place,
    ):
        held = [shop.wait_at_late.delay(place.port) for _ in range(2)]
        guests = place.guests(2)
        redis.stop_answering()
        let_pass(VISIBILITIES_SECONDS)
        redis.answer_again()
        let_pass(VISIBILITIES_SECONDS)
        assert place.nobody_waits() and not any(guest.is_gone() for guest in guests)
        for guest in guests:
            guest.let_go("done")
        assert [get(redis, task) for task in held] == ["done", "done"]
        assert get(redis, sent(shop, 1, 2)) == 3
        assert place.nobody_waits()
        for dispatcher in (one, other):
            dispatcher.terminate()
            assert dispatcher.wait() == 0


def let_pass(seconds: float) -> None:
    """Nothing tells when a lease or a visibility timeout has lapsed by somebody's clock."""
    until = time.monotonic() + seconds
    soon(lambda: time.monotonic() >= until)
