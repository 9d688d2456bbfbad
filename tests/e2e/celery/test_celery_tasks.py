"""Tasks of a Celery app run on Clutch as Celery's own clients expect it, in every profile."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from support.celery_house import loaded, node, outcome
from support.clutch_process import soon
from support.redis_server import RedisServer

celery = pytest.importorskip("celery")

PROFILES = {
    "process": ["--workers", "2"],
    "thread": ["--profile", "thread", "--workers", "1", "--threads", "4"],
    "async": ["--profile", "async", "--workers", "1", "--tasks", "20"],
    "greenlet": ["--profile", "greenlet", "--workers", "1", "--tasks", "20"],
}


@pytest.fixture(scope="module", params=PROFILES)
def running(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The module of an app whose tasks run in this profile."""
    with (
        RedisServer(tmp_path_factory.mktemp(request.param)) as redis,
        node(redis, *PROFILES[request.param]),
        loaded(redis) as shop,
    ):
        yield SimpleNamespace(profile=request.param, **vars(shop))


def test_values_and_exceptions_are_those_of_celery(running: Any) -> None:
    assert outcome(running.add.delay(2, 3)) == 5
    assert repr(outcome(running.fail.delay())) == "ValueError('out of stock')"
    failed = running.fail.delay()
    outcome(failed)
    assert 'raise ValueError("out of stock")' in failed.traceback
    extended = running.add.delay(1, 1)
    outcome(extended)
    assert (extended.name, extended.args, extended.queue) == ("celery_shop.add", [1, 1], "celery")


def test_canvases_run_to_their_ends(running: Any) -> None:
    add, total = running.add, running.total
    assert outcome(celery.chain(add.s(1, 2), add.s(4), add.s(8))()) == 15
    assert outcome(celery.group(add.s(nr, nr) for nr in range(5))()) == [0, 2, 4, 6, 8]
    assert outcome(celery.chord([add.s(nr, nr) for nr in range(5)])(total.s())) == 20
    nested = celery.chain(add.s(1, 1), celery.group(add.s(1), add.s(2)), total.s())
    assert outcome(nested()) == 7
    assert outcome(running.replaced.delay(4)) == 5


def test_tasks_share_connections_to_the_result_backend(running: Any) -> None:
    def connections() -> int:
        return running.app.backend.client.info("stats")["total_connections_received"]

    tasks, before = 60, connections()
    assert [outcome(running.add.delay(nr, 1)) for nr in range(tasks)] == list(range(1, tasks + 1))
    assert connections() - before < tasks / 2


def test_large_and_nested_canvases_end(running: Any, tmp_path: Path) -> None:
    add, total = running.add, running.total
    assert outcome(celery.chord([add.s(nr, nr) for nr in range(1000)])(total.s())) == 999_000
    inner = [celery.chord([add.s(nr, 1), add.s(nr, 2)], total.s()) for nr in range(4)]
    assert outcome(celery.chord(inner)(total.s())) == 24
    path = tmp_path / "failed"
    sent = celery.chain(running.fail.s(), add.s(1)).apply_async(link_error=running.note_failure.s(str(path)))
    assert repr(outcome(sent.parent)) == "ValueError('out of stock')"
    soon(path.exists)


def test_retries_run_again_under_their_id(running: Any) -> None:
    assert outcome(running.try_again.delay(2)) == 2
    assert "MaxRetriesExceededError" in repr(outcome(running.try_again.delay(9)))
    assert outcome(running.try_again_later.delay()) == 1


def test_tasks_are_coroutines(running: Any) -> None:
    sent = running.greet.delay("Ada")
    assert outcome(sent) == [sent.id, "hello Ada"]
    assert outcome(celery.group(running.greet.s(str(nr)) for nr in range(40))())[39][1] == "hello 39"
    assert outcome(running.wait_softly.delay()) == "tidied up"
    assert repr(outcome(running.wait_softly_for_many.delay())) == "SoftTimeLimitExceeded()"
    assert outcome(running.greet.delay("Ada"))[1] == "hello Ada", "nothing is left of the limit"


def test_what_is_tried_again_at_once_is_told_as_it_ended(running: Any) -> None:
    """A retry may be there before the attempt that sent it has stored so."""
    for _ in range(4):
        assert outcome(running.connect_later.delay()) == 2
    assert outcome(celery.group(running.connect_later.s() for _ in range(50))()) == [2] * 50


def test_what_celery_and_decorators_put_around_a_coroutine_works(running: Any) -> None:
    assert outcome(running.connect_later.delay()) == 2
    assert outcome(running.greet_decorated.delay("Ada")) == "hello Ada"
    assert outcome(running.pack.delay(parcel={"count": 1})) == {"count": 2}


def test_a_task_that_cannot_go_on_fails_and_hurts_no_other(running: Any) -> None:
    assert "SystemExit(3)" in repr(outcome(running.leave.delay()))
    assert repr(outcome(running.use_up_memory.delay())) == "MemoryError('no more')"
    assert "never registered" in repr(outcome(running.app.send_task("celery_shop.nowhere")))
    assert outcome(running.add.delay(1, 1)) == 2


def test_whoever_waits_for_an_unknown_task_is_told_however_many_there_are(running: Any) -> None:
    sent = [running.app.send_task(f"celery_shop.nowhere_{nr}") for nr in range(1100)]
    assert "nowhere_1099" in repr(outcome(sent[-1]))
    assert all("never registered" in repr(outcome(one)) for one in sent)


def test_a_chord_ends_whatever_becomes_of_its_parts(running: Any) -> None:
    for part in (running.fail.s(), celery.signature("celery_shop.nowhere", app=running.app), running.leave.s()):
        error = outcome(celery.chord([running.add.s(1, 1), part])(running.total.s()))
        assert isinstance(error, Exception), part


def test_times_are_kept(running: Any) -> None:
    assert outcome(running.add.apply_async((1, 1), countdown=0.3)) == 2
    assert repr(outcome(running.add.apply_async((1, 1), expires=-1))) == "TaskRevokedError('expired')"
    assert outcome(running.add.apply_async((1, 1), expires=60)) == 2


def test_what_is_rejected_comes_again(running: Any) -> None:
    assert outcome(running.reject_once.delay()) is True


def test_signals_are_sent_in_the_worker(running: Any) -> None:
    seen = outcome(running.seen.delay())
    assert seen[:2] == ["init", "process"]
    assert seen[-1] == "prerun celery_shop.seen"


def test_a_task_is_given_up_at_its_hard_limit(running: Any) -> None:
    assert repr(outcome(running.hang.delay())) == "TimeLimitExceeded(1)"
    assert outcome(running.add.delay(1, 1)) == 2


def test_a_task_is_told_of_its_soft_limit(running: Any) -> None:
    if running.profile in ("thread", "async"):
        pytest.skip("a thread that waits outside of Python is not interrupted there")
    assert outcome(running.sleep_softly.delay()) == "tidied up"


def test_a_task_whose_worker_ends_fails_unless_it_may_run_again(running: Any, tmp_path: Path) -> None:
    assert "WorkerLostError" in repr(outcome(running.end_worker.delay()))
    assert outcome(running.end_worker_once.delay(str(tmp_path / "ended"))) == "done"


def test_a_rate_holds_for_the_node(running: Any) -> None:
    began = sorted(outcome(celery.group(running.paced.s() for _ in range(5))()))
    # Four intervals of 0.2 s, of which the first task's late start takes a part where the machine is busy.
    assert began[-1] - began[0] >= 0.4


def test_an_app_is_found_as_celery_finds_it(redis: RedisServer, shop: ModuleType) -> None:
    with node(redis, "--workers", "1", target="celery_shop") as dispatcher:
        dispatcher.err.wait(r"celery: \d+ tasks: .*celery_shop\.add, ")
        assert outcome(shop.add.delay(1, 2)) == 3
        shop.fail.delay()
        # An error once: by Celery's log, with its traceback.
        dispatcher.err.wait(r"INFO .*ValueError: out of stock; it is dead: Celery runs it no more")
