"""Who of those that hold a lease lives: what looks at their counters tell."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from clutch._jobs.runners import LOOK_INTERVAL, Runner, Watch
from clutch.cli.jobs_shown import runner_row, served
from clutch.jobs import Queue

RENEWAL_MS, NEEDED = 10_000, 16.0
"""Of a lease of 30 s: the interval of its renewals, and seconds after which one that did not renew is silent."""


def holder(name: str, renewals: int, **more: Any) -> dict[str, Any]:
    told = {"running": 0, "leads": False, "lease_ms": 3 * RENEWAL_MS, "renewal_ms": RENEWAL_MS}
    return {"name": f"host:7:{name}", "renewals": renewals, **told, **more}


def watched(*looks: list[dict[str, Any]], every: float = LOOK_INTERVAL) -> tuple[Watch, bool]:
    watch, is_told = Watch(), False
    for nr, look in enumerate(looks):
        is_told = watch.looked(look, nr * every)
    return watch, is_told


def alive(watch: Watch) -> dict[str, bool | None]:
    return {runner.name.rpartition(":")[2]: runner.is_alive for runner in watch.runners()}


def test_who_renews_lives_and_who_was_not_watched_for_long_is_not_judged() -> None:
    watch, is_told = watched([holder("a", 1), holder("b", 1)], [holder("a", 2), holder("b", 1)])
    assert (alive(watch), is_told) == ({"a": True, "b": None}, False)
    watch, is_told = watched([holder("a", 1)], [holder("a", 1), holder("new", 0)], [holder("a", 2), holder("new", 0)])
    assert (alive(watch), is_told) == ({"a": True, "new": True}, True)
    assert watched([])[1], "nobody is waited for"


def test_who_does_not_renew_for_longer_than_one_that_lives_takes_is_silent() -> None:
    looks = [[holder("a", 5), holder("leader", 1, leads=True, renewal_ms=1000)]]
    short, _ = watched(*looks * round(3 / LOOK_INTERVAL))
    assert alive(short) == {"a": None, "leader": False}
    long, is_told = watched(*looks * (round(NEEDED / LOOK_INTERVAL) + 1))
    assert (alive(long), is_told) == ({"a": False, "leader": False}, True)


def test_time_in_which_the_store_did_not_answer_does_not_count() -> None:
    watch, is_told = watched([holder("a", 5)], [holder("a", 5)], every=3600)
    assert (alive(watch), is_told) == ({"a": None}, False)


@pytest.mark.parametrize(("name", "host", "pid"), [("web:1:f", "web", 1), ("odd", "odd", None), ("x:y", "x", None)])
def test_a_name_tells_host_and_process(name: str, host: str, pid: int | None) -> None:
    watch, _ = watched([{**holder("", 0), "name": name}])
    assert [(one.name, one.host, one.pid) for one in watch.runners()] == [(name, host, pid)]


def queue(**counts: int) -> Queue:
    states = dict.fromkeys(("waiting", "scheduled", "available", "running", "completed", "cancelled", "dead"), 0)
    return Queue(name="q", is_paused=False, running_max=None, rate=None, oldest_at=datetime.now(UTC), **states | counts)


def test_what_people_are_told() -> None:
    runner = Runner("h:7:a", "h", 7, 3, 30.0, False, False)
    assert runner_row(runner) == ("h", "7", "3 running", "30s", "silent: dead, suspended, or cut off from the store")
    queues = [queue(available=120, running=1), queue(running=2)]
    told = served([runner], queues)
    assert told is not None and "(available jobs: 120; still claimed by runners that are gone: 3)" in told
    assert served([], [queue(available=8)]) == (
        "nobody works on this store (available jobs: 8): start a dispatcher, as with `clutch work`"
    ), "nobody at all, and nothing to put back"
    for is_alive in (True, None):
        one = Runner("h:8:b", "h", 8, 0, 30.0, True, is_alive)
        assert served([runner, one], queues) is None
