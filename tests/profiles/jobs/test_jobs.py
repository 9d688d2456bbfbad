"""Jobs under every profile: their ends, what they know of themselves, and what becomes of those that fail."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import job_tools
import pytest

import clutch
from clutch.testing import children, watch
from support.clutch_process import WAIT_SECONDS
from support.jobs_house import JobsHouse
from support.rendezvous import Rendezvous
from support.shapes import Shape


@pytest.fixture(scope="module")
def house(shape: Shape, tmp_path_factory: pytest.TempPathFactory) -> Iterator[JobsHouse]:
    with JobsHouse(tmp_path_factory.mktemp("jobs"), shape.options) as house:
        yield house


@pytest.mark.per_profile
def test_a_job_returns_its_result(house: JobsHouse) -> None:
    assert house.run(job_tools.double, 21) == 42
    assert house.run("double", n=4) == 8


def test_arguments_by_position_reach_every_kind_of_parameter(house: JobsHouse) -> None:
    assert house.run(job_tools.many, 1, 2, 3, last="x") == [1, 2, 3, "x"]
    assert house.run("many", 1, 2, 3) == [1, 2, 3, "end"]
    assert house.run("many", 1, last="z") == [1, "z"]


@pytest.mark.per_profile
@pytest.mark.parametrize("tool", ["about", "about_later"])
def test_a_job_knows_itself(house: JobsHouse, tool: str) -> None:
    job = house.jobs.options(result=60, tags=["a"], meta={"user": 7}).enqueue(tool)
    expected = {"id": job, "queue": "default", "attempt": 1, "tags": ["a"], "meta": {"user": 7}}
    assert house.jobs.result(job, WAIT_SECONDS) == expected


def test_a_result_that_nobody_wants_need_not_be_json(house: JobsHouse) -> None:
    assert house.ended(house.jobs.enqueue(job_tools.odd)).state == "completed"
    ended = house.ended(house.jobs.enqueue(job_tools.odd, result=60))
    assert (ended.state, ended.errors[0].kind) == ("dead", "encode")


@pytest.mark.per_profile
def test_a_job_that_fails_is_dead_after_its_last_attempt(house: JobsHouse) -> None:
    ended = house.ended(house.jobs.enqueue(job_tools.fail, "no"))
    assert (ended.state, ended.attempt, [error.message for error in ended.errors]) == (
        "dead",
        3,
        ["ValueError: no"] * 3,
    )
    assert "in fail\n" in ended.errors[0].traceback
    with pytest.raises(clutch.JobFailed, match="ValueError: no") as failed:
        house.jobs.result(ended.id)
    assert "in fail\n" in failed.value.remote_traceback


@pytest.mark.per_profile
def test_an_attempt_gets_what_the_one_before_it_kept(house: JobsHouse) -> None:
    assert house.run(job_tools.fail_until, 3) == {"seen": 2}


@pytest.mark.per_profile
def test_a_snooze_is_no_attempt(house: JobsHouse, tmp_path: Path) -> None:
    assert house.run(job_tools.snooze_once, str(tmp_path / "snoozed")) == 1


@pytest.mark.per_profile
def test_a_job_that_comes_after_others_has_their_results(house: JobsHouse) -> None:
    many = house.jobs.enqueue_many(job_tools.double, range(20), then=job_tools.results, result=60)
    assert many.then is not None
    last = house.jobs.options(result=60).enqueue(job_tools.results, after=[many.then, many[1]])
    assert house.jobs.result(last, WAIT_SECONDS) == [[2 * n for n in range(20)], 2]


def test_results_may_be_large(house: JobsHouse) -> None:
    many = house.jobs.enqueue_many(job_tools.text_of, [100_000] * 3, then=job_tools.sizes, result=60)
    assert many.then is not None
    assert house.jobs.result(many.then, WAIT_SECONDS) == [100_000] * 3


def test_a_job_may_cancel_itself(house: JobsHouse) -> None:
    ended = house.ended(house.jobs.enqueue(job_tools.cancel_itself))
    assert (ended.state, ended.reason) == ("cancelled", "the order is gone")


def test_a_retry_that_is_asked_for_is_an_attempt(house: JobsHouse) -> None:
    ended = house.ended(house.jobs.enqueue(job_tools.ask_for_retry))
    assert (ended.state, [error.message for error in ended.errors]) == ("dead", ["busy", "busy"])


@pytest.mark.parametrize("tool", [job_tools.raise_directive, job_tools.raise_directive_soon])
def test_what_a_job_raises_may_be_what_others_return(house: JobsHouse, tool: Any) -> None:
    retried = house.ended(house.jobs.enqueue(tool, "Retry", 0, "busy"))
    assert (retried.state, [error.message for error in retried.errors]) == ("dead", ["busy", "busy"])
    cancelled = house.ended(house.jobs.enqueue(tool, "Cancel", "gone"))
    assert (cancelled.state, cancelled.reason, cancelled.errors) == ("cancelled", "gone", ())


@pytest.mark.per_profile
@pytest.mark.parametrize("tool", [job_tools.raise_directive, job_tools.raise_directive_soon])
def test_a_job_that_says_so_is_dead_at_once(house: JobsHouse, tool: Any) -> None:
    ended = house.ended(house.jobs.enqueue(tool, "Dead", "no such address"))
    (error,) = ended.errors
    assert (ended.state, ended.attempt, error.kind, error.message) == ("dead", 1, "dead", "no such address")
    assert f"in {tool.__name__}\n" in error.traceback
    with pytest.raises(clutch.JobFailed, match="no such address"):
        house.jobs.result(ended.id)


@pytest.mark.per_profile
@pytest.mark.parametrize(
    ("tool", "error", "attempts"),
    [
        (job_tools.raise_of, "builtins.ValueError", 2),
        (job_tools.raise_of, "builtins.KeyError", 1),
        (job_tools.raise_of, "configparser.ParsingError", 1),
        (job_tools.raise_of_soon, "builtins.ValueError", 1),
        (job_tools.raise_of_soon, "builtins.ConnectionError", 2),
        (job_tools.raise_of_soon, "builtins.TimeoutError", 1),
        (job_tools.raise_of_soon, "configparser.ParsingError", 2),
    ],
)
def test_a_tool_says_what_is_tried_again(house: JobsHouse, tool: Any, error: str, attempts: int) -> None:
    ended = house.ended(house.jobs.enqueue(tool, *error.split(".")))
    assert (ended.state, len(ended.errors)) == ("dead", attempts)
    name = error.removeprefix("builtins.")
    assert [(one.kind, one.message.partition(":")[0]) for one in ended.errors] == [("raised", name)] * attempts
    assert "in raise_of\n" in ended.errors[0].traceback


@pytest.mark.per_profile
@pytest.mark.parametrize("tool", [job_tools.wait_too_long, job_tools.wait_too_long_soon])
def test_each_attempt_of_a_tool_has_its_own_deadline(house: JobsHouse, tool: Any) -> None:
    with Rendezvous() as place:
        job = house.jobs.enqueue(tool, place.port)
        for guest in place.guests(2):
            guest.wait_gone()
        ended = house.ended(job)
    assert (ended.state, [error.kind for error in ended.errors]) == ("dead", ["deadline"] * 2)
    assert f"while {tool.__name__} ran in worker" in ended.errors[0].message


def test_a_directive_that_a_call_raises_is_an_error(shape: Shape) -> None:
    with clutch.Pool("job_tools", **shape.options) as pool, pytest.raises(clutch.Dead, match="no such address"):
        pool.call("raise_directive", "Dead", "no such address")


def test_a_reason_may_be_of_any_size_and_have_any_letters(house: JobsHouse) -> None:
    """JSON has no single surrogates, as names of files may have."""
    ended = house.ended(house.jobs.enqueue(job_tools.cancel_for_file))
    assert ended.reason is not None
    assert ended.reason.startswith("\\udcff is gone")
    assert len(ended.reason) < 100_000


def test_failure_46_arguments_that_do_not_fit_are_dead_with_the_reason(house: JobsHouse) -> None:
    ended = house.ended(house.jobs.enqueue("double", "x"))
    assert (ended.state, ended.attempt, ended.errors[0].kind) == ("dead", 1, "bad_arguments")
    assert "n: Input should be a valid integer" in ended.errors[0].message


def test_failure_46_a_tool_that_workers_do_not_know_yet_waits_for_those_that_do(house: JobsHouse) -> None:
    job = house.jobs.options(retry=0).enqueue("dubble", 1)
    found = house.until(job, lambda found: found.state == "scheduled")
    assert (found.attempt, found.errors) == (0, ()), "it was no attempt"
    assert found.reason is not None and "nearest: double; do all workers have the code" in found.reason


@pytest.mark.per_profile
def test_a_running_job_tells_its_progress_and_stops_when_cancelled(house: JobsHouse) -> None:
    with Rendezvous() as place:
        job = house.jobs.enqueue(job_tools.wait_at, place.port)
        guest = place.guest()
        assert guest.word == job
        while (found := house.jobs.get(job)) is None or found.progress is None:
            """It is written within a tenth of a second; nothing tells when."""
        assert (found.state, found.progress) == ("running", {"at": "gate"})
        guest.let_go("done")
    assert house.ended(job).state == "completed"


@pytest.mark.per_profile
def test_failure_43_a_job_whose_worker_is_killed_runs_again_and_one_that_kills_is_dead(
    house: JobsHouse, tmp_path: Path
) -> None:
    assert house.run(job_tools.kill_worker_once, str(tmp_path / "killed")) == "alive"
    ended = house.ended(house.jobs.enqueue(job_tools.kill_worker))
    assert (ended.state, ended.errors[0].kind) == ("dead", "poisoned")
    assert signal.SIGKILL.name in ended.errors[0].message
    ended = house.ended(house.jobs.options(retry=0).enqueue(job_tools.kill_worker_once, str(tmp_path / "final")))
    assert (ended.state, ended.errors[0].kind) == ("dead", "worker_lost"), "it had no attempt left"


@pytest.mark.per_profile
def test_a_stop_waits_for_jobs_and_puts_back_what_it_cuts_off(shape: Shape, tmp_path: Path) -> None:
    with Rendezvous() as place, JobsHouse(tmp_path, shape.options) as house:
        job = house.jobs.enqueue(job_tools.wait_at, place.port)
        place.guest()
        house.stop(0)
        found = house.jobs.get(job)
        assert found is not None
        assert (found.state, found.attempt) == ("available", 0)
        house.start()
        place.guest().let_go()
        assert house.ended(job).state == "completed"


@pytest.mark.per_profile
def test_jobs_that_wait_are_taken_by_free_slots_only(shape: Shape, tmp_path: Path) -> None:
    with Rendezvous() as place, JobsHouse(tmp_path, shape.options) as house:
        jobs = house.jobs.enqueue_many(job_tools.wait_at, [place.port] * (shape.slots + 3))
        guests = place.guests(shape.slots)
        stats = house.jobs.stats()["default"]
        assert (stats.running, stats.available) == (shape.slots, 3)
        for guest in guests:
            guest.let_go()
        for _ in range(3):
            place.guest().let_go()
        assert {house.ended(job).state for job in jobs} == {"completed"}


def test_failures_are_told_by_events(house: JobsHouse) -> None:
    with watch() as events:
        job = house.jobs.enqueue(job_tools.fail, "no")
        told = events.wait("job_failed", job=job, attempt=3)
    assert (told["tool"], told["queue"], told["next_s"], told["kind"]) == ("fail", "default", None, "raised")
    assert told["reason"] == "that was its last attempt (retry=2)"
    assert told["error"] == "ValueError: no"


@pytest.mark.per_profile
def test_nothing_is_left_of_it(shape: Shape, tmp_path: Path) -> None:
    before = children(os.getpid())
    with JobsHouse(tmp_path, shape.options) as house:
        house.run(job_tools.double, 1)
    assert children(os.getpid()) == before
