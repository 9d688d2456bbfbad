"""What goes wrong between a Celery app, its broker and Clutch, and what becomes of the tasks."""

from __future__ import annotations

import base64
import json
import os
import signal
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from support.celery_house import node, outcome, worker_of_celery
from support.clutch_process import soon
from support.redis_server import RedisServer

celery = pytest.importorskip("celery")


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def test_failure_44_a_task_longer_than_the_visibility_timeout_runs_once(
    redis: RedisServer, shop: ModuleType, tmp_path: Path
) -> None:
    """Clients restore what was not renewed for that long when they wait for an answer, and so do workers
    of Celery, of whatever queue."""
    runs = tmp_path / "runs"
    peer = worker_of_celery(redis, "--pool", "threads", "-Q", "others", SHOP_VISIBILITY="1")
    with peer, node(redis, "--workers", "2", SHOP_VISIBILITY="1"):
        sent = shop.note_late.delay(str(runs), "ran", 4)
        while not sent.ready():
            shop.app.control.inspect(timeout=0.3).ping()
        assert outcome(sent) == "ran"
    assert lines(runs) == ["ran"]


def test_a_killed_dispatcher_loses_no_late_task_and_runs_no_early_one_again(
    redis: RedisServer, shop: ModuleType, tmp_path: Path
) -> None:
    late, early = tmp_path / "late", tmp_path / "early"
    with node(redis, "--workers", "2", "--lease", "1s") as first:
        tasks = shop.note_late.delay(str(late), "ran", 5), shop.note.delay(str(early), "ran", 5)
        soon(lambda: lines(late) and lines(early))
        os.kill(first.process.pid, signal.SIGKILL)
        first.process.wait()
        with node(redis, "--workers", "2", "--lease", "1s"):
            assert outcome(tasks[0]) == "ran"
            assert "WorkerLostError" in repr(outcome(tasks[1]))
    assert (lines(late), lines(early)) == (["ran", "ran"], ["ran"])


def test_workers_of_celery_and_nodes_of_clutch_share_a_queue(
    redis: RedisServer, shop: ModuleType, tmp_path: Path
) -> None:
    runs = tmp_path / "runs"
    with worker_of_celery(redis, "--pool", "threads", "-c", "2") as peer, node(redis, "--workers", "2"):
        tasks = [shop.note.delay(str(runs), str(nr), 0.01) for nr in range(200)]
        assert all(outcome(task) is None for task in tasks)
        assert sorted(map(int, lines(runs))) == list(range(200))
        peer.err.wait("celery_shop.note.*succeeded")
        began = celery.chord([shop.add.s(nr, nr) for nr in range(20)])(shop.total.s())
        assert outcome(began) == 380


def test_a_stop_gives_back_what_waits_for_its_time(redis: RedisServer, shop: ModuleType) -> None:
    """Workers of Celery look for it in the queue."""
    with node(redis, "--workers", "1") as dispatcher:
        shop.add.apply_async((1, 1), countdown=3600)
        soon(lambda: redis.ask("ZCARD", "clutch.celery:scheduled").strip() == "1")
        dispatcher.terminate()
        assert dispatcher.wait() == 0
    assert redis.ask("LLEN", "celery").strip() == "1"
    assert redis.ask("HLEN", "unacked").strip() == "0"


def envelope(**changes: Any) -> dict[str, Any]:
    body = base64.b64encode(
        b'[[1, 2], {}, {"callbacks": null, "errbacks": null, "chain": null, "chord": null}]'
    ).decode()
    headers = {"lang": "py", "task": "celery_shop.add", "id": "first", "retries": 0, "timelimit": [None, None]}
    properties = {
        "correlation_id": "first",
        "reply_to": "",
        "delivery_mode": 2,
        "priority": 0,
        "body_encoding": "base64",
        "delivery_tag": os.urandom(8).hex(),
        "delivery_info": {"exchange": "", "routing_key": "celery"},
    }
    message = {"body": body, "content-encoding": "utf-8", "content-type": "application/json", "headers": headers}
    return {**message, "properties": properties, **changes}


def body(value: Any) -> str:
    return base64.b64encode(json.dumps(value).encode()).decode()


HEADERS = envelope()["headers"]
MALFORMED: dict[str, Any] = {
    "not JSON": "{",
    "null": "null",
    "a list": "[]",
    "no properties": {"body": "", "headers": {}},
    "properties that are a list": envelope(properties=[]),
    "no properties but an id": {name: value for name, value in envelope().items() if name != "properties"},
    "no delivery tag": envelope(properties={"delivery_info": {"exchange": "", "routing_key": "celery"}}),
    "no delivery information": envelope(properties={"delivery_tag": "7"}),
    "a number that is JSON to Python alone": envelope(headers={**HEADERS, "timelimit": [float("nan")]}),
    "no id": envelope(headers={"task": "celery_shop.add"}),
    "no body": {name: value for name, value in envelope().items() if name != "body"},
    "no content type": {name: value for name, value in envelope().items() if name != "content-type"},
    "a content type that is null": envelope(**{"content-type": None}),
    "a body of two": envelope(body=body([[1, 2], {}])),
    "a number for a body": envelope(body=body(7)),
    "a mapping without arguments": envelope(body=body({"a": 1})),
    "one time limit": envelope(headers={**HEADERS, "timelimit": [1]}),
    "no base64": envelope(body="!"),
    "an unknown encoding of the body": envelope(properties={**envelope()["properties"], "body_encoding": "rot13"}),
    "an unknown compression": envelope(headers={**HEADERS, "compression": "application/x-nothing"}),
    "an unknown type in it": envelope(body=body([[{"__type__": "nothing", "__value__": 1}], {}, {}])),
    "a wrong time": envelope(headers={**HEADERS, "eta": "tomorrow"}),
    "a serializer that the app refuses": envelope(**{"content-type": "application/x-python-serialize"}),
    "no task": envelope(headers={"id": "first"}),
    "another type of task": envelope(headers={**HEADERS, "task": 7}),
}


UNTOLD = {"not JSON", "null", "a list", "no properties", "no id"}
UNKNOWN = {"another type of task"}
TOLD = MALFORMED.keys() - UNTOLD


def status(redis: RedisServer, task_id: str) -> str | None:
    found = redis.ask("GET", f"celery-task-meta-{task_id}").strip()
    return json.loads(found)["status"] if found else None


def test_a_malformed_message_hurts_no_other(redis: RedisServer, shop: ModuleType) -> None:
    """Twelve of these end a worker of Celery 5.7.0, and the next, and one keeps it from ever doing anything else."""
    with node(redis, "--workers", "1") as dispatcher:
        for name, message in MALFORMED.items():
            text = message if isinstance(message, str) else json.dumps(message)
            redis.ask("LPUSH", "celery", text.replace('"id": "first"', f'"id": "{name}"'))
        assert outcome(shop.add.delay(1, 1)) == 2
        soon(lambda: redis.ask("LLEN", "celery").strip() == redis.ask("HLEN", "unacked").strip() == "0")
        assert len(dispatcher.err.text) < 200_000
        # Whoever waits for one of them is told, where it says which it is.
        assert {name for name in MALFORMED if status(redis, name) == "FAILURE"} == TOLD
        assert int(redis.ask("LLEN", "clutch.celery:malformed")) == len(MALFORMED) - len(UNKNOWN)
        assert dispatcher.process.poll() is None
