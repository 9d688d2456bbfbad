"""Messages of every kind that clients of Celery send, and some that none does: each runs, or whoever waits is told."""

from __future__ import annotations

import base64
import functools
import json
import os
import re
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from support.celery_house import NODE, loaded, node, outcome, settings_told
from support.clutch_process import soon
from support.redis_server import RedisServer
from support.rendezvous import Rendezvous

celery = pytest.importorskip("celery")

SETTINGS = json.dumps({"accept_content": ["json", "pickle"]})


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """An app that accepts pickle, and its node."""
    with (
        RedisServer(tmp_path_factory.mktemp("inputs")) as redis,
        node(redis, "--workers", "2", "--node", NODE, SHOP_SETTINGS=SETTINGS) as dispatcher,
        loaded(redis) as shop,
    ):
        yield SimpleNamespace(redis=redis, shop=shop, dispatcher=dispatcher)


def sent(house: Any, **changes: Any) -> Any:
    """A message as no client writes it. `args`, `embed`, `headers`: parts of a usual one; others replace its fields."""
    task_id = celery.uuid()
    arguments = [changes.pop("args", [1, 2]), changes.pop("kwargs", {}), changes.pop("embed", {})]
    body = changes.pop("text", None) or json.dumps(arguments).encode()
    headers = {"lang": "py", "task": "celery_shop.add", "id": task_id, **changes.pop("headers", {})}
    properties = {
        "body_encoding": "base64",
        "delivery_tag": os.urandom(8).hex(),
        "delivery_info": {"exchange": "", "routing_key": "celery"},
        **changes.pop("properties", {}),
    }
    message = {
        "body": base64.b64encode(body).decode(),
        "content-encoding": "utf-8",
        "content-type": "application/json",
        "headers": headers,
        "properties": properties,
        **changes,
    }
    result = house.shop.app.AsyncResult(task_id)
    house.redis.ask("LPUSH", "celery", json.dumps(message))
    return result


RUN: dict[str, dict[str, Any]] = {
    "minimal headers": {},
    "no embed": {"embed": None},
    "a body that is not encoded": {"body": "[[1, 2], {}, {}]", "properties": {"body_encoding": None}},
    "a priority that is text": {"properties": {"priority": "7"}},
    "a time of the past without an offset": {"headers": {"eta": "2020-01-01T00:00:00"}},
    "a time of the past in UTC": {"headers": {"eta": "2020-01-01T00:00:00Z"}},
    "a day": {"headers": {"eta": "2020-01-01"}},
    "headers of the client's own": {"headers": {"customer": {"id": 7}}},
    "a header of 4,000 digits": {"headers": {"customer": 10**3999}},
    "headers that are JSON to Python alone": {"headers": {"customer": [float("nan"), float("-inf"), "NaN"]}},
    "a deep header": {"headers": {"customer": functools.reduce(lambda inner, _: [inner], range(200), 7)}},
}


@pytest.mark.parametrize("name", RUN)
def test_what_celery_accepts_runs(house: Any, name: str) -> None:
    assert outcome(sent(house, **RUN[name])) == 3


REFUSED: dict[str, dict[str, Any]] = {
    "text that is no UTF-8": {"text": b'[["\xff", 2], {}, {}]'},
    "a number of 5,000 digits": {"text": b"[[" + b"9" * 5000 + b", 2], {}, {}]"},
    "deep nesting": {"text": b"[" * 20_000 + b"]" * 20_000},
    "arguments by name that are a list": {"kwargs": [1]},
    "too few arguments": {"args": [1]},
    "no delivery tag": {"properties": {"delivery_tag": None}},
    "no delivery information": {"properties": {"delivery_info": None}},
    "a wrong expiry": {"headers": {"expires": "soon"}},
    "an unknown serializer": {"content-type": "application/x-nothing"},
    "what is no pickle": {"content-type": "application/x-python-serialize", "text": b"\x80"},
    "an unknown compression": {"headers": {"compression": "application/x-nothing"}},
    "what is not compressed": {"headers": {"compression": "application/x-gzip"}},
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_run_fails(house: Any, name: str) -> None:
    error = outcome(sent(house, **REFUSED[name]))
    assert isinstance(error, Exception) and not isinstance(error, celery.exceptions.TimeoutError), error
    soon(lambda: house.redis.ask("HLEN", "unacked").strip() == "0")


@pytest.mark.parametrize("compression", ["gzip", "zlib", "bzip2", "lzma"])
def test_bodies_are_compressed_as_by_kombu(house: Any, compression: str) -> None:
    assert outcome(house.shop.add.apply_async((2, 3), compression=compression)) == 5


def test_pickle_is_read_where_the_app_accepts_it(house: Any) -> None:
    assert outcome(house.shop.add.apply_async((2, 3), serializer="pickle")) == 5


def test_messages_of_protocol_1_run(house: Any) -> None:
    house.shop.app.conf.task_protocol = 1
    try:
        found = [house.shop.app.send_task("celery_shop.add", args) for args in ((2, 3), (4, 5))]
        assert [outcome(one) for one in found] == [5, 9]
        assert outcome(house.shop.try_again.delay(1)) == 1
    finally:
        house.shop.app.conf.task_protocol = 2


def test_a_result_that_cannot_be_encoded_fails(house: Any) -> None:
    assert "EncodeError" in repr(outcome(house.shop.make_object.delay()))


def test_what_is_rejected_after_it_was_acknowledged_fails(house: Any) -> None:
    """Celery says nothing of it: whoever waits for it waits for ever."""
    assert "reject requeue=True" in repr(outcome(house.shop.reject_early.delay()))


def test_an_id_that_is_there_twice_runs_twice(house: Any) -> None:
    with Rendezvous() as place:
        task_id = celery.uuid()
        tasks = [house.shop.wait_at_late.apply_async((place.port, str(nr)), task_id=task_id) for nr in range(2)]
        guests = place.guests(2)
        for guest in guests:
            guest.let_go("done")
        assert outcome(tasks[0]) == "done"
    soon(lambda: house.redis.ask("HLEN", "unacked").strip() == "0")


def test_what_waits_for_its_rate_is_scheduled(house: Any) -> None:
    control = house.shop.app.control
    control.rate_limit("celery_shop.total", "1/h", destination=[NODE], reply=True, timeout=5)
    soon(lambda: "celery_shop.total" in settings_told(house.redis, NODE))
    assert outcome(house.shop.total.delay([1])) == 1
    waiting = house.shop.total.delay([2])

    def scheduled() -> list[str]:
        found = control.inspect([NODE], timeout=2).scheduled() or {NODE: []}
        return [one["request"]["id"] for one in found[NODE]]

    soon(lambda: scheduled() == [waiting.id])


def test_a_rate_that_changes_holds_for_what_waits(house: Any) -> None:
    control = house.shop.app.control

    def set_rate(rate: str, known: str) -> None:
        control.rate_limit("celery_shop.greet", rate, destination=[NODE])
        soon(lambda: known in settings_told(house.redis, NODE))

    before = int(house.redis.ask("ZCARD", "clutch.celery:scheduled"))
    set_rate("1/h", "celery_shop.greet")
    tasks = [house.shop.greet.delay(name) for name in ("Ada", "Bob", "Cyd", "Dan")]
    soon(lambda: int(house.redis.ask("ZCARD", "clutch.celery:scheduled")) >= before + 3)
    set_rate("100/s", '"celery_shop.greet": 10.0')
    assert [outcome(one)[1] for one in tasks] == ["hello Ada", "hello Bob", "hello Cyd", "hello Dan"]


def test_what_has_no_id_and_a_time_of_its_own_does_not_silence_the_node(house: Any) -> None:
    """Remote control looks at all that waits."""
    before = int(house.redis.ask("HLEN", "unacked"))
    for task_id in (None, [1], {}):
        sent(house, headers={"id": task_id, "eta": "2100-01-01T00:00:00Z"})
    soon(lambda: int(house.redis.ask("HLEN", "unacked")) == before + 3)
    soon(lambda: house.shop.app.control.ping([NODE], timeout=2) == [{NODE: {"ok": "pong"}}])


def test_what_is_set_aside_of_a_long_message_is_its_beginning(house: Any) -> None:
    """A thousand are kept, of a megabyte at most."""
    text = "EVAL", "redis.call('LPUSH', KEYS[1], 'longest' .. string.rep('x', 3000000))", "1", "celery"
    house.redis.ask(*text)
    soon(lambda: house.redis.ask("LINDEX", "clutch.celery:malformed", "0").startswith("longest"))
    assert len(house.redis.ask("LINDEX", "clutch.celery:malformed", "0").strip()) == 1 << 20


def test_a_time_holds_where_the_answer_to_a_claim_was_lost(house: Any) -> None:
    """Redis has given the message to the node, which has not heard of it."""
    later = sent(house, headers={"eta": "2100-01-01T00:00:00Z"})

    def scheduled(has_it: bool) -> bool:
        tags = house.redis.ask("ZRANGE", "clutch.celery:scheduled", "0", "-1").split()
        found = [tag for tag in tags if later.id in house.redis.ask("HGET", "unacked", tag)]
        tag[:] = found
        return bool(found) == has_it

    tag: list[str] = []
    soon(lambda: scheduled(True))
    leader = house.redis.ask("HGET", "clutch.celery:leader", "name").strip()
    [runner] = set(house.redis.ask("HKEYS", "clutch.celery:renewals").split()) - {leader}
    claim = "redis.call('ZREM', KEYS[1], ARGV[1]) redis.call('HSET', KEYS[2], ARGV[1], 'celery')"
    house.redis.ask("EVAL", claim, "2", "clutch.celery:scheduled", f"clutch.celery:held:{runner}", *tag)
    soon(lambda: scheduled(True))
    assert later.state == "PENDING"


FLOODS = {
    "Received unregistered task of type 'celery_shop.nowhere'": {"headers": {"task": "celery_shop.nowhere"}},
    "Received invalid task message: ": {"kwargs": {}, "headers": {"eta": "tomorrow"}},
    "cannot read a message: ": {"properties": {"delivery_tag": None}},
}


@pytest.mark.parametrize("line", FLOODS)
def test_of_many_messages_that_cannot_run_the_first_is_logged_and_the_others_are_counted(house: Any, line: str) -> None:
    """Celery logs each with all that is in it."""
    before = len(house.dispatcher.err.text)
    tasks = [sent(house, **FLOODS[line]) for _ in range(300)]
    assert all(isinstance(outcome(task), Exception) for task in tasks)

    def told() -> tuple[int, int]:
        text = house.dispatcher.err.text[before:]
        counts = re.findall(rf"(\d+) more like it: {re.escape(line)}", text)
        return text.count(line) - len(counts), sum(map(int, counts))

    soon(lambda: sum(told()) == 300)
    assert told()[0] < 100 and len(house.dispatcher.err.text) - before < 200_000


def test_nothing_of_all_that_has_ended_the_node(house: Any) -> None:
    assert outcome(house.shop.add.delay(1, 1)) == 2
    assert house.dispatcher.process.poll() is None
