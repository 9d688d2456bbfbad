"""What operators do to a node of a Celery app, and what becomes of its tasks: signals, revokes, other nodes."""

from __future__ import annotations

import json
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from click.testing import CliRunner

from clutch import Jobs
from clutch.cli import program
from support.celery_house import NODE, broker_of, loaded, node, outcome
from support.clutch_process import WAIT_SECONDS, soon
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


def test_who_runs_no_node_sees_the_queues_of_the_broker(redis: RedisServer, shop: ModuleType) -> None:
    """Single tasks are shown by Celery, not as if there were none."""
    jobs = Jobs(redis.url.replace("redis+unix", "celery+unix"))
    for queue, priority in (("celery", 0), ("celery", 9), ("mails", 0)):
        shop.add.apply_async((1, 2), queue=queue, priority=priority)
    assert {name: queue.available for name, queue in jobs.stats().items()} == {"celery": 2, "mails": 1}
    for typed in (["list"], ["show", "some-id"], ["delete", "--all", "--yes"]):
        done = CliRunner().invoke(program, ["jobs", *typed, "--store", jobs.url])
        assert (done.exit_code, "celery -A APP inspect active" in done.stderr) == (2, True), typed


def test_queues_tell_what_runs_and_what_waits_for_its_time(redis: RedisServer, shop: ModuleType) -> None:
    jobs = Jobs(redis.url.replace("redis+unix", "celery+unix"))
    with node(redis, "--workers", "2"), Rendezvous() as place:
        running, later = shop.wait_at.delay(place.port), [shop.add.apply_async((1, 2), countdown=600) for _ in range(2)]
        (guest,) = place.guests(1)

        def counts() -> tuple[int, int, int]:
            queue = jobs.stats()["celery"]
            return queue.running, queue.scheduled, queue.available

        soon(lambda: counts() == (1, 2, 0))
        guest.let_go("done")
        assert outcome(running) == "done"
        soon(lambda: counts() == (0, 2, 0))
        assert not any(one.ready() for one in later)


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


def is_online(shop: ModuleType) -> bool:
    return bool(shop.app.control.inspect([NODE], timeout=1).ping())


def asked(shop: ModuleType, what: str) -> Any:
    return (getattr(shop.app.control.inspect([NODE], timeout=2), what)() or {}).get(NODE, [])


def test_what_is_revoked_stays_so_over_a_restart_and_what_runs_is_not(redis: RedisServer, shop: ModuleType) -> None:
    """The store keeps it, for as long as Celery's workers know it."""
    options = "--workers", "1", "--node", NODE
    with Rendezvous() as place:
        with node(redis, *options) as dispatcher:
            soon(lambda: is_online(shop))
            running = shop.wait_at.delay(place.port)
            guest = place.guest()
            behind, later = shop.add.delay(1, 1), shop.add.apply_async((1, 1), countdown=3600)
            for task in (running, behind, later):
                task.revoke()
            soon(lambda: {running.id, behind.id, later.id} <= set(asked(shop, "revoked")))
            assert running.state == "PENDING", "it goes on"
            dispatcher.terminate()
            dispatcher.err.wait("SIGTERM: stopping")
            guest.let_go("done")
            assert dispatcher.wait() == 0
        assert outcome(running) == "done"
        with node(redis, *options):
            assert "TaskRevokedError" in repr(outcome(behind))
            assert "TaskRevokedError" in repr(outcome(later))
            assert outcome(shop.add.delay(2, 2)) == 4
            soon(lambda: count(redis) == 1)  # what was revoked is dropped when it is due, as by Celery


def test_tasks_are_revoked_by_their_stamps(redis: RedisServer, shop: ModuleType) -> None:
    """Also those that run, if they are to be terminated."""
    with node(redis, "--workers", "2", "--node", NODE), Rendezvous() as place:
        soon(lambda: is_online(shop))
        stamped = {"stamped_headers": ["customer"], "customer": "7"}
        running, other = shop.wait_at.apply_async((place.port,), **stamped), shop.wait_at.delay(place.port)
        guests = place.guests(2)
        behind = shop.add.apply_async((1, 1), **stamped)
        shop.app.control.revoke_by_stamped_headers({"customer": ["7"]}, terminate=True)
        assert "TaskRevokedError" in repr(outcome(running))
        assert "TaskRevokedError" in repr(outcome(behind))
        assert "TaskRevokedError" in repr(outcome(shop.add.apply_async((1, 1), **stamped)))
        assert outcome(shop.add.delay(2, 2)) == 4
        for guest in guests:
            guest.let_go("done")
        assert outcome(other) == "done"


def holders(redis: RedisServer) -> list[str]:
    """Runners with a lease."""
    return redis.ask("HKEYS", "clutch.celery:renewals").split()


def test_a_task_of_another_hour_is_kept_over_restarts(redis: RedisServer, shop: ModuleType) -> None:
    options = "--workers", "1", "--node", NODE
    tasks = [shop.add.apply_async((nr, nr), countdown=3600) for nr in range(3)]
    for how in (signal.SIGKILL, signal.SIGTERM):
        with node(redis, *options, "--lease", "1s") as dispatcher:
            soon(lambda: {one["request"]["id"] for one in asked(shop, "scheduled")} == {task.id for task in tasks})
            soon(lambda: all(f":{dispatcher.process.pid}:" in one for one in holders(redis)))
            dispatcher.process.send_signal(how)
            dispatcher.wait()
    assert [message["headers"]["id"] for message in reversed(queued(redis))] == [task.id for task in tasks]
    assert redis.ask("HLEN", "unacked").strip() == "0"


@pytest.mark.parametrize("profile", ["process", "thread"])
def test_clients_and_commands_in_many_threads(redis: RedisServer, shop: ModuleType, profile: str) -> None:
    """Commands are answered under load."""
    sizes = ["--workers", "2"] if profile == "process" else ["--profile", "thread", "--workers", "1", "--threads", "8"]
    with node(redis, *sizes, "--node", NODE), ThreadPoolExecutor(9) as threads:
        soon(lambda: is_online(shop))
        sending = [threads.submit(lambda: [shop.add.delay(nr, 1) for nr in range(50)]) for _ in range(8)]
        answers = threads.submit(lambda: [asked(shop, what) for what in ("stats", "active", "registered") * 3])
        sent = [task for one in sending for task in one.result(WAIT_SECONDS)]
        assert all(answer for answer in answers.result(WAIT_SECONDS)[::3])
        assert [outcome(task) for task in sent] == [nr + 1 for nr in range(50)] * 8


def test_of_several_brokers_one_that_answers_is_served(redis: RedisServer, tmp_path: Path) -> None:
    with RedisServer(tmp_path, "second") as second:
        urls = f"{broker_of(redis)};{broker_of(second)}"
        redis.kill()
        more = {"SHOP_BROKER": urls, "SHOP_BACKEND": broker_of(second)}
        with loaded(second) as shop, node(second, "--workers", "1", "--node", NODE, **more) as dispatcher:
            assert "of several brokers" in dispatcher.err.text
            assert outcome(shop.add.delay(1, 1)) == 2
            soon(lambda: is_online(shop))
