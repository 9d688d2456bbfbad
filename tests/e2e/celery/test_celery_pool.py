"""`celery worker --pool custom`: Celery's own worker with a pool of Clutch."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from types import ModuleType

import pytest

from support.celery_house import NODE, asked, broker_of, outcome, worker_of_celery
from support.clutch_process import Dispatcher, environment, soon
from support.redis_server import RedisServer

celery = pytest.importorskip("celery")

POOL = {"CELERY_CUSTOM_WORKER_POOL": "clutch.celery:TaskPool"}
CUSTOM = "--pool", "custom", "-n", NODE, "--without-gossip", "--without-mingle"


@pytest.mark.parametrize("profile", ["process", "thread", "async", "greenlet"])
def test_a_worker_of_celery_runs_its_tasks_in_every_profile(redis: RedisServer, shop: ModuleType, profile: str) -> None:
    with worker_of_celery(redis, *CUSTOM, "-c", "4", CLUTCH_PROFILE=profile, **POOL) as worker:
        assert repr(outcome(shop.hang.delay())) == "TimeLimitExceeded(1)"
        assert "WorkerLostError" in repr(outcome(shop.end_worker.delay()))
        assert outcome(shop.add.delay(1, 2)) == 3
        assert repr(outcome(shop.fail.delay())) == "ValueError('out of stock')"
        assert outcome(shop.try_again.delay(1)) == 1
        sent = shop.greet.delay("Ada")
        assert outcome(sent) == [sent.id, "hello Ada"]
        assert outcome(celery.group(shop.greet.s(str(nr)) for nr in range(20))())[19][1] == "hello 19"
        assert outcome(celery.chord([shop.add.s(1, 1), shop.add.s(2, 2)])(shop.total.s())) == 6
        worker.terminate()
        assert worker.wait() == 0


def test_limits_are_those_of_prefork(redis: RedisServer, shop: ModuleType, tmp_path: Path) -> None:
    limits = "--time-limit", "3", "--soft-time-limit", "1", "--max-tasks-per-child", "2", "-l", "INFO"
    with worker_of_celery(redis, *CUSTOM, "-c", "1", *limits, **POOL) as worker:
        ran = str(tmp_path / "ran")
        waiting = [shop.sleep_long.delay(), *(shop.pid_of_worker.delay() for _ in range(4))]
        assert repr(outcome(waiting[0])) == "SoftTimeLimitExceeded()"
        worker.err.wait(r"Soft time limit \(1.0s\) exceeded for celery_shop.sleep_long")
        pids = [outcome(sent) for sent in waiting[1:]]
        assert len(set(pids)) == 3 and pids[1] == pids[2]
        worker.err.wait(r"INFO/celery/\d\] Task celery_shop.pid_of_worker.* succeeded")
        assert repr(outcome(shop.outlive.delay())) == "TimeLimitExceeded(3.0)"
        assert outcome(shop.end_worker_once.delay(ran)) == "done"
        stats = asked(shop, lambda inspect: inspect.stats())["pool"]
        assert (stats["max-tasks-per-child"], stats["timeouts"]) == (2, [1.0, 3.0])


def test_a_worker_that_grows_too_large_is_replaced(redis: RedisServer, shop: ModuleType) -> None:
    with worker_of_celery(redis, *CUSTOM, "-c", "1", "--max-memory-per-child", "150000", **POOL):
        before = outcome(shop.pid_of_worker.delay())
        assert outcome(shop.pid_of_worker.delay()) == before
        assert outcome(shop.use_memory.delay(200)) == before
        soon(lambda: outcome(shop.pid_of_worker.delay()) != before)


def test_tasks_are_terminated_and_the_pool_is_steered(redis: RedisServer, shop: ModuleType, tmp_path: Path) -> None:
    control, path = shop.app.control, str(tmp_path / "ran")

    def workers() -> int:
        return len(asked(shop, lambda inspect: inspect.stats())["pool"]["processes"])

    with worker_of_celery(redis, *CUSTOM, "-c", "1", **POOL) as worker:
        first, behind = shop.note.delay(path, "first", 600), shop.note.delay(path, "behind")
        pids = asked(shop, lambda inspect: inspect.stats())["pool"]["processes"]
        soon(lambda: [task["worker_pid"] for task in asked(shop, lambda inspect: inspect.active())] == pids)
        soon(lambda: [task["id"] for task in asked(shop, lambda inspect: inspect.reserved())] == [behind.id])
        first.revoke(terminate=True)
        assert repr(outcome(first)) == "TaskRevokedError('terminated')"
        assert outcome(behind) is None
        control.pool_grow(2, destination=[NODE])
        soon(lambda: workers() == 3)
        together = [shop.meet.delay(str(tmp_path / "met"), 3) for _ in range(3)]
        assert [outcome(sent) for sent in together] == [3, 3, 3]
        control.pool_shrink(2, destination=[NODE])
        soon(lambda: workers() == 1)
        before = outcome(shop.pid_of_worker.delay())
        control.broadcast("pool_restart", destination=[NODE])
        soon(lambda: outcome(shop.pid_of_worker.delay()) != before)
        late = shop.note_late.delay(path, "late", 1)
        soon(lambda: "late" in Path(path).read_text())
        worker.terminate()
        assert outcome(late) == "late"
        assert worker.wait() == 0
    assert redis.ask("HLEN", "unacked").strip() == "0"


@pytest.mark.parametrize("profile", ["process", "thread"])
def test_celery_scales_it_by_itself(redis: RedisServer, shop: ModuleType, tmp_path: Path, profile: str) -> None:
    path = str(tmp_path / "ran")
    more = {"AUTOSCALE_KEEPALIVE": "1", "CLUTCH_PROFILE": profile, **POOL}
    with worker_of_celery(redis, *CUSTOM, "--autoscale", "3,1", **more):
        together = [shop.meet.delay(path, 3) for _ in range(3)]
        assert [outcome(sent) for sent in together] == [3, 3, 3]
        soon(lambda: asked(shop, lambda inspect: inspect.stats())["autoscaler"]["current"] == 1)


def test_a_cold_shutdown_leaves_late_tasks_to_others(redis: RedisServer, shop: ModuleType, tmp_path: Path) -> None:
    path = str(tmp_path / "ran")
    with worker_of_celery(redis, *CUSTOM, "-c", "1", **POOL) as worker:
        shop.note_late.delay(path, "late", 600)
        soon(lambda: Path(path).exists())
        worker.process.send_signal(signal.SIGQUIT)
        worker.wait()
    assert redis.ask("LLEN", "celery").strip() == "1"
    assert redis.ask("HLEN", "unacked").strip() == "0"


def test_a_cold_shutdown_in_the_middle_of_handing_a_task_over(
    redis: RedisServer, shop: ModuleType, tmp_path: Path
) -> None:
    path, pool = str(tmp_path / "ran"), "celery_pools:StoppedInSubmit"
    with worker_of_celery(redis, *CUSTOM, "-c", "1", CELERY_CUSTOM_WORKER_POOL=pool, RAN=path) as worker:
        shop.note_late.delay(path, "late", 600)
        worker.wait()
    assert redis.ask("LLEN", "celery").strip() == "1"


PROJECT = """
import os
from celery import Celery

app = Celery("proj", broker=os.environ["BROKER"], backend=os.environ["BROKER"])

@app.task(name="add")
def add(x, y):
    return x + y
"""


def test_the_app_is_found_where_celery_finds_it(redis: RedisServer) -> None:
    """In the folder that it is started in, which is not on the path of its script."""
    package = redis.folder / "proj"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "celery.py").write_text(PROJECT)
    command = [str(Path(sys.executable).with_name("celery")), "-A", "proj", "worker", "-l", "INFO", *CUSTOM, "-c", "1"]
    broker = broker_of(redis)
    with Dispatcher(redis.folder, command, env={**environment(), "BROKER": broker, **POOL}) as worker:
        worker.err.wait(r"ready\.")
        with celery.Celery(broker=broker, backend=broker) as client:
            assert outcome(client.send_task("add", (1, 2))) == 3
            client.backend.result_consumer.stop()


def test_a_broker_without_an_event_loop(redis: RedisServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """That of folders; Redis has the results."""
    folder = tmp_path / "broker"
    folder.mkdir()
    monkeypatch.setenv("SHOP_FOLDER", str(folder))
    from support.celery_house import loaded

    with loaded(redis) as shop, worker_of_celery(redis, *CUSTOM, "-c", "2", SHOP_FOLDER=str(folder), **POOL) as worker:
        assert outcome(celery.group(shop.add.s(nr, 1) for nr in range(8))()) == list(range(1, 9))
        assert repr(outcome(shop.hang.delay())) == "TimeLimitExceeded(1)"
        assert outcome(shop.sleep_softly.delay()) == "tidied up"
        assert outcome(shop.end_worker_once.delay(str(tmp_path / "ended"))) == "done"
        together = [shop.meet.delay(str(tmp_path / "met"), 2) for _ in range(2)]
        assert [outcome(sent) for sent in together] == [2, 2]
        late = shop.note_late.delay(str(tmp_path / "ran"), "late", 1)
        soon(lambda: (tmp_path / "ran").exists())
        worker.terminate()
        assert outcome(late) == "late"
        assert worker.wait() == 0
