"""A Celery app in a configuration, beside pools and fronts of other kinds; and the node that stands for it."""

from __future__ import annotations

import os
import re
import signal
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import clutch
from support.celery_house import broker_of, loaded, node, outcome, settings_told
from support.clutch_process import COMMAND, WAIT_SECONDS, Dispatcher, environment, soon
from support.redis_server import RedisServer

pytest.importorskip("celery")

CONFIG = """
[pools.tasks]
target = "celery_shop"
workers = 1

[fronts.shop]
kind = "celery"
pool = "tasks"
queues = "celery:3,slow"
"""


def running(redis: RedisServer, config: str = CONFIG) -> Dispatcher:
    (redis.folder / "clutch.toml").write_text(config)
    env = {**environment(), "SHOP_BROKER": broker_of(redis)}
    return Dispatcher(redis.folder, [*COMMAND, "run"], env=env)


def answers(shop: ModuleType, question: str = "ping") -> dict[str, Any]:
    """What the nodes answer, by their names without the host."""
    found: Any = getattr(shop.app.control.inspect(timeout=2), question)() or {}
    return {name.partition("@")[0]: answer for name, answer in found.items()}


def node_process(dispatcher: Dispatcher) -> int:
    pid = dispatcher.process.pid
    found: list[int] = []

    def is_there() -> bool:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        others = [path.name for path in Path("/proc").iterdir() if path.name.isdecimal()]
        found[:] = [int(one) for one in {*children, *others} if is_node(int(one), pid)]
        return bool(found)

    soon(is_there)
    return found[0]


def is_node(pid: int, parent: int) -> bool:
    try:
        status = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return int(status[1]) == parent and b"clutch.celery.node" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def test_a_front_of_a_config_runs_the_tasks_of_its_pools_app(redis: RedisServer, shop: ModuleType) -> None:
    with running(redis) as dispatcher:
        dispatcher.wait_ready("tasks")
        assert outcome(shop.add.delay(1, 2)) == 3
        assert outcome(shop.add.apply_async((2, 3), queue="slow")) == 5
        soon(lambda: set(answers(shop)) == {"shop"})
        assert {queue["name"] for queue in answers(shop, "active_queues")["shop"]} == {"celery", "slow"}


def test_its_node_is_started_again_and_anew(redis: RedisServer, shop: ModuleType) -> None:
    with running(redis) as dispatcher:
        dispatcher.wait_ready("tasks")
        first = node_process(dispatcher)
        os.kill(first, signal.SIGKILL)
        dispatcher.err.wait("node of the Celery app: ended")
        soon(lambda: answers(shop))
        second = node_process(dispatcher)
        assert second != first
        dispatcher.process.send_signal(signal.SIGHUP)
        dispatcher.err.wait("fronts.shop: reloaded")
        assert node_process(dispatcher) != second
        soon(lambda: answers(shop))
        assert outcome(shop.add.delay(1, 2)) == 3


def test_a_pool_without_an_app_is_told(redis: RedisServer) -> None:
    with running(redis, CONFIG.replace("celery_shop", "json")) as dispatcher:
        dispatcher.err.wait(r"fronts\.shop\.pool: the target of pools\.tasks has no Celery app")
        assert dispatcher.process.wait() == 2


def test_what_is_broadcast_runs_once_on_each_node(redis: RedisServer, tmp_path: Path) -> None:
    news, heard = {"SHOP_NEWS": "on"}, tmp_path / "heard"
    with (
        node(redis, "--workers", "1", "--node", "one", "--queues", "news:2,celery", **news) as one,
        node(redis, "--workers", "1", "--node", "two", **news) as two,
        loaded(redis, **news) as shop,
    ):
        soon(lambda: set(answers(shop)) == {"one", "two"})
        shop.note.apply_async((str(heard), "new prices"), queue="news")
        assert outcome(shop.add.delay(1, 2)) == 3
        soon(lambda: heard.exists() and len(heard.read_text().splitlines()) == 2)
        # Into the list of its queue, as a client sends it that has not declared the exchange.
        shop.note.apply_async((str(heard), "for one"), queue=f"bcast.news.one@{os.uname().nodename}")
        soon(lambda: "for one" in heard.read_text())
        for dispatcher in (one, two):
            dispatcher.terminate()
            assert dispatcher.process.wait() == 0
    assert redis.ask("SMEMBERS", "_kombu.binding.news").strip() == "", "nobody listens any more"


def test_no_broadcast_is_lost_while_a_reload_replaces_the_node(redis: RedisServer, tmp_path: Path) -> None:
    """Nor is one carried out twice: for a while both listen."""
    news, commands, tasks = {"SHOP_NEWS": "on"}, tmp_path / "commands", tmp_path / "tasks"
    with (
        node(redis, "--workers", "1", "--node", "one", **news) as dispatcher,
        loaded(redis, **news) as shop,
    ):
        soon(lambda: answers(shop))
        sent: list[str] = []
        for reload in range(1, 3):
            before = node_process(dispatcher)
            dispatcher.process.send_signal(signal.SIGHUP)
            while len(re.findall("fronts.*: reloaded", dispatcher.err.text)) < reload:
                sent.append(str(len(sent)))
                is_asked = len(sent) % 10 == 0  # it is not to send more than the node can carry out
                more: dict[str, Any] = {"reply": True, "limit": 1, "timeout": WAIT_SECONDS} if is_asked else {}
                told = shop.app.control.broadcast("note_down", {"path": str(commands), "text": sent[-1]}, **more)
                assert bool(told) == is_asked
                shop.note.apply_async((str(tasks), sent[-1]), queue="news")
            assert node_process(dispatcher) != before
        for path in (commands, tasks):
            soon(lambda path=path: path.exists() and len(path.read_text().splitlines()) >= len(sent))
            assert sorted(path.read_text().splitlines(), key=int) == sent


def test_what_a_command_changes_during_a_reload_holds_afterwards(redis: RedisServer, shop: ModuleType) -> None:
    with node(redis, "--workers", "1", "--node", "one") as dispatcher:
        soon(lambda: answers(shop))
        before, rate, heard = node_process(dispatcher), 0, []
        dispatcher.process.send_signal(signal.SIGHUP)
        while not re.search("fronts.*: reloaded", dispatcher.err.text):
            rate += 1
            heard += shop.app.control.rate_limit("celery_shop.add", f"{rate}/s", reply=True, timeout=1, limit=1)
        assert len(heard) > 1 and node_process(dispatcher) != before
        told = f'"celery_shop.add": {1000 / rate}'
        soon(lambda: told in settings_told(redis, f"one@{os.uname().nodename}"))


def test_nodes_of_one_name_keep_their_own_queues_and_settings(redis: RedisServer, shop: ModuleType) -> None:
    """As two on one host, without --node."""
    with (
        node(redis, "--workers", "1", "--node", "one", "--queues", "celery"),
        node(redis, "--workers", "1", "--node", "one", "--queues", "slow") as slow,
    ):
        soon(lambda: len(shop.app.control.ping(timeout=1)) == 2)
        assert outcome(shop.add.delay(1, 2)) == 3
        assert outcome(shop.add.apply_async((1, 3), queue="slow")) == 4
        slow.terminate()
        assert slow.wait() == 0
        assert outcome(shop.add.delay(1, 4)) == 5
        shop.add.apply_async((1, 5), queue="slow")
        assert outcome(shop.add.delay(1, 6)) == 7
        assert redis.ask("LLEN", "slow") == "1\n"


def test_a_program_runs_an_app_in_a_dispatcher_of_its_own(
    redis: RedisServer, shop: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    (redis.folder / "clutch.toml").write_text(CONFIG)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    with clutch.Dispatcher(redis.folder / "clutch.toml"):
        assert outcome(shop.add.delay(1, 2)) == 3
        soon(lambda: "shop" in answers(shop))
        sent = shop.note.delay(str(redis.folder / "runs"), "ran", 600)
        soon(lambda: [task["id"] for task in answers(shop, "active")["shop"]] == [sent.id])
        sent.revoke(terminate=True)
        assert repr(outcome(sent)) == "TaskRevokedError('terminated')"
