"""What operators do to a node of a Celery app, and what becomes of its tasks: signals, revokes, other nodes."""

from __future__ import annotations

import json
import signal
from types import ModuleType

import pytest

from support.celery_house import node, outcome
from support.clutch_process import soon
from support.redis_server import RedisServer
from support.rendezvous import Rendezvous

celery = pytest.importorskip("celery")


def queued(redis: RedisServer, queue: str = "celery") -> list[dict]:
    """Messages, the next one last."""
    return [json.loads(line) for line in redis.ask("LRANGE", queue, "0", "-1").splitlines() if line]


def count(redis: RedisServer) -> int:
    return int(redis.ask("LLEN", "celery")) + int(redis.ask("HLEN", "unacked"))


def test_sigterm_lets_running_tasks_end_and_leaves_the_others_in_their_order(
    redis: RedisServer, shop: ModuleType
) -> None:
    with node(redis, "--workers", "2") as dispatcher, Rendezvous() as place:
        running = [shop.wait_at.delay(place.port), shop.wait_at_late.delay(place.port)]
        guests = place.guests(2)
        behind = [shop.add.delay(nr, nr) for nr in range(5)]
        for _ in range(3):
            dispatcher.terminate()
        dispatcher.err.wait("SIGTERM: stopping")
        guests[0].let_go("done")
        guests[1].let_go("done")
        assert dispatcher.wait() == 0
        assert [outcome(one) for one in running] == ["done", "done"]
    left = queued(redis)
    assert [message["headers"]["id"] for message in reversed(left)] == [one.id for one in behind]
    assert not any(message["headers"].get("redelivered") for message in left)
    assert redis.ask("HLEN", "unacked").strip() == "0"


@pytest.mark.parametrize("how", ["SIGQUIT", "REMAP_SIGTERM", "grace", "twice"])
def test_a_stop_that_cuts_tasks_off_loses_none_without_a_word(redis: RedisServer, shop: ModuleType, how: str) -> None:
    """A late one runs again; an early one is told as lost, as it may run once only."""
    options = ["--workers", "2", "--lease", "2s", "--grace", "0.5s" if how == "grace" else "60s"]
    with Rendezvous() as place:
        with node(redis, *options, **({how: "SIGQUIT"} if how == "REMAP_SIGTERM" else {})) as dispatcher:
            early, late = shop.wait_at.delay(place.port, "early"), shop.wait_at_late.delay(place.port, "late")
            place.guests(2)
            behind = shop.add.delay(1, 1)
            if how == "twice":
                dispatcher.terminate()
                dispatcher.err.wait("SIGTERM: stopping")
                dispatcher.hurry(dispatcher.terminate)
            else:
                dispatcher.process.send_signal(signal.SIGQUIT if how == "SIGQUIT" else signal.SIGTERM)
                assert dispatcher.wait() == 0
        with node(redis, *options):
            guest = place.guest()
            assert guest.word == "late"
            guest.let_go("again")
            assert outcome(late) == "again"
            assert "WorkerLostError" in repr(outcome(early))
            assert outcome(behind) == 2
            assert place.nobody_waits()
            soon(lambda: count(redis) == 0)


def test_sigquit_has_the_grace_of_a_soft_shutdown(redis: RedisServer, shop: ModuleType) -> None:
    with (
        node(redis, "--workers", "2", SHOP_SETTINGS='{"worker_soft_shutdown_timeout": 60}') as dispatcher,
        Rendezvous() as place,
    ):
        running = shop.wait_at.delay(place.port)
        guest = place.guest()
        dispatcher.process.send_signal(signal.SIGQUIT)
        dispatcher.err.wait("SIGQUIT: stopping")
        guest.let_go("done")
        assert dispatcher.wait() == 0
    assert outcome(running) == "done"
