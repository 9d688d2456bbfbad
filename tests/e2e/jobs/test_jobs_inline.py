"""`clutch.testing` for jobs: inline, drained, looked for, and at times that tests choose, on each store."""

from __future__ import annotations

import asyncio
import contextvars
import json
import os
import sqlite3
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import clutch
from clutch import BadArguments, ClutchError, ConfigError, Jobs, NoSuchTool, tool
from clutch.testing import (
    Drained,
    adrain,
    assert_enqueued,
    assert_not_enqueued,
    clock,
    drain,
    inline,
    temporary_store,
)
from support.redis_server import RedisServer

RAN: list[Any] = []
JOBS = Jobs("sqlite:///never-made.db")
HERE = contextvars.ContextVar("HERE", default="nowhere")


@pytest.fixture(scope="module")
def redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    with RedisServer(tmp_path_factory.mktemp("redis")) as server:
        yield server


@pytest.fixture(params=["sqlite", "redis"])
def jobs(request: pytest.FixtureRequest) -> Iterator[Jobs]:
    RAN.clear()
    if request.param == "sqlite":
        with temporary_store(JOBS):
            yield JOBS
    else:
        yield Jobs(f"{request.getfixturevalue('redis').url}?prefix=t{os.urandom(4).hex()}")


@tool
def note(what: Any, at: datetime | None = None) -> Any:
    RAN.append(what)
    return what


@tool
def leave(why: str) -> None:
    sys.exit(why)


@tool(retry=2, backoff=60)
def fail(message: str) -> None:
    RAN.append(message)
    raise ValueError(message)


@tool
async def wait(what: str) -> str:
    await asyncio.sleep(0)
    RAN.append((what, HERE.get(), id(asyncio.get_running_loop())))
    return what


@tool
def about() -> dict[str, Any]:
    job = clutch.current_job()
    assert job is not None
    RAN.append(job)
    job.progress("half")
    return {"id": job.id, "attempt": job.attempt, "meta": dict(job.meta), "last": job.last_checkpoint}


@tool(backoff=0)
def resume() -> Any:
    job = clutch.current_job()
    assert job is not None
    if job.last_checkpoint is None:
        job.checkpoint(41)
        raise RuntimeError("not yet")
    return job.last_checkpoint + 1


@tool
def end_as(how: str, raised: bool) -> object:
    ends = {
        "snooze": clutch.Snooze(30),
        "cancel": clutch.Cancel("why"),
        "retry": clutch.Retry(5, "busy"),
        "dead": clutch.Dead("no such order"),
    }
    if raised:
        raise ends[how]
    return ends[how]


@tool(name="Mail::WelcomeJob")
def welcome(user: int, language: str = "en") -> None:
    RAN.append((user, language))


@tool(give_up_on=("LookupError",))
def give_up() -> None:
    raise KeyError("gone")


@tool
def enqueue_more(count: int) -> None:
    RAN.append(count)
    if count:
        JOBS.enqueue(enqueue_more, count - 1)


@tool
def enqueue_itself() -> None:
    JOBS.enqueue(enqueue_itself, in_=60)


def test_no_file_is_made_where_the_store_of_the_module_would_be(tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path)
        with temporary_store(JOBS) as same:
            assert same is JOBS
            Jobs(JOBS.url).options(queue="mail").enqueue(note, 1)
            assert JOBS.stats()["mail"].available == 1
        with temporary_store(JOBS):
            assert JOBS.list() == []
    assert not list(tmp_path.iterdir())


def test_jobs_of_a_transaction_are_in_the_file_of_the_test(tmp_path: Path) -> None:
    real = Jobs(f"sqlite:///{tmp_path}/real.db")
    real.stats()
    for file in (None, tmp_path / "test.db"):
        connection = sqlite3.connect(tmp_path / "real.db")
        with temporary_store(real, file=file), pytest.raises(ConfigError, match="it is not a connection to"):
            real.enqueue(note, 1, connection=connection)
        connection.close()
    with temporary_store(real, file=tmp_path / "test.db"):
        with sqlite3.connect(tmp_path / "test.db") as connection:
            real.enqueue(note, 1, connection=connection)
        connection.close()
        assert drain(real).completed == 1
    assert (real.list(), (tmp_path / "test.db").exists()) == ([], True)


def test_temporary_stores_leave_no_descriptors() -> None:
    counts = []
    for _ in range(4):
        with temporary_store(JOBS):
            JOBS.enqueue(note, 1)
            drain(JOBS)
        counts.append(len(os.listdir("/proc/self/fd")))
    assert counts[1] == counts[3]


def test_temporary_stores_that_overlap_never_let_the_real_one_be_used(tmp_path: Path) -> None:
    """As those of tests in threads, or in tasks, which end in any order."""
    real = Jobs(f"sqlite:///{tmp_path}/real.db")
    first, second = temporary_store(real), temporary_store(real)
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    real.enqueue(note, 1)
    assert real.stats()["default"].available == 1
    second.__exit__(None, None, None)
    assert not list(tmp_path.iterdir())
    assert real.list() == []


# ---- inline


def test_a_job_has_run_when_enqueue_returns(jobs: Jobs) -> None:
    with inline(jobs):
        job = jobs.options(result=60).enqueue(note, "a")
    assert RAN == ["a"]
    found = jobs.get(job)
    assert found is not None
    assert (found.state, found.attempt, found.result) == ("completed", 1, "a")
    jobs.enqueue(note, "b")
    assert RAN == ["a"], "the block is over"


def test_it_knows_itself_and_tells_its_progress(jobs: Jobs) -> None:
    with inline(jobs):
        job = jobs.options(result=60, meta={"user": 7}).enqueue(about)
    assert jobs.result(job) == {"id": job, "attempt": 1, "meta": {"user": 7}, "last": None}
    found = jobs.get(job)
    assert found is not None
    assert found.progress == "half"
    assert clutch.current_job() is None


def test_arguments_are_checked_and_come_as_json(jobs: Jobs) -> None:
    with inline(jobs), pytest.raises(BadArguments, match="at: Input should be a valid datetime"):
        jobs.enqueue(note, 1, at="never")
    with inline(jobs):
        jobs.enqueue(note, (1, 2), at=datetime.now(UTC))
    assert RAN == [[1, 2]]


def test_an_exception_is_raised_as_it_is_and_noted(jobs: Jobs) -> None:
    with inline(jobs), pytest.raises(ValueError, match=r"^no$"):
        jobs.enqueue(fail, "no")
    (found,) = assert_enqueued(jobs, fail, state="scheduled")
    assert [(error.kind, error.message) for error in found.errors] == [("raised", "ValueError: no")]
    assert found.errors[0].traceback.splitlines()[1].endswith("in fail"), "it begins with the user's own code"


def test_an_exception_may_be_kept(jobs: Jobs) -> None:
    with inline(jobs, raises=False):
        job = jobs.options(retry=0).enqueue(fail, "no")
    with pytest.raises(clutch.JobFailed, match="ValueError: no"):
        jobs.result(job)


@pytest.mark.parametrize("raised", [False, True])
def test_a_job_that_is_dead_by_its_own_word_is_an_error(jobs: Jobs, raised: bool) -> None:
    with inline(jobs), pytest.raises(clutch.Dead, match="no such order"):
        jobs.enqueue(end_as, "dead", raised)
    (found,) = jobs.list()
    assert (found.state, [(error.kind, error.message) for error in found.errors]) == (
        "dead",
        [("dead", "no such order")],
    )
    assert ("in end_as" in found.errors[0].traceback) == raised


def test_sys_exit_in_a_job_is_a_failure(jobs: Jobs) -> None:
    job = jobs.enqueue(leave, "bye")
    assert drain(jobs, raises=False) == Drained(retried=1)
    found = jobs.get(job)
    assert found is not None and "bye" in found.errors[-1].message
    with pytest.raises(SystemExit), inline(jobs):
        jobs.enqueue(leave, "now")
    assert [one.state for one in jobs.list()] == ["scheduled", "scheduled"]


def test_what_a_tool_gives_up_on_is_dead_and_raised(jobs: Jobs) -> None:
    with inline(jobs), pytest.raises(KeyError):
        jobs.enqueue(give_up)
    (found,) = jobs.list()
    assert (found.state, found.errors[0].message) == ("dead", "KeyError: 'gone'")


@pytest.mark.parametrize("raised", [False, True])
@pytest.mark.parametrize(
    ("how", "state", "attempt"), [("snooze", "scheduled", 0), ("cancel", "cancelled", 1), ("retry", "scheduled", 1)]
)
def test_what_a_job_asks_for_is_done(jobs: Jobs, how: str, state: str, attempt: int, raised: bool) -> None:
    with inline(jobs):
        found = jobs.get(jobs.enqueue(end_as, how, raised))
    assert found is not None
    assert (found.state, found.attempt) == (state, attempt)


def test_a_result_that_is_not_json_is_an_error(jobs: Jobs) -> None:
    with inline(jobs, target=sys.modules[__name__], raises=False):
        found = jobs.get(jobs.options(result=60).enqueue(odd))
    assert found is not None
    assert (found.state, found.errors[0].kind) == ("dead", "encode")


@tool
def odd() -> object:
    return object()


def test_other_jobs_of_the_queue_are_left_as_they_are(jobs: Jobs) -> None:
    first, second = jobs.enqueue(note, "first", priority=9), jobs.enqueue(note, "second")
    with inline(jobs):
        jobs.enqueue(note, "now")
    assert RAN == ["now"]
    found = [jobs.get(job) for job in (first, second)]
    assert [job and (job.state, job.attempt) for job in found] == [("available", 0)] * 2


def test_what_is_to_wait_waits(jobs: Jobs) -> None:
    jobs.pause("paused")
    with inline(jobs):
        later, held = jobs.enqueue(note, 1, in_=60), jobs.enqueue(note, 2, queue="paused")
        first, second = (jobs.enqueue(note, 3, unique="x", in_=60) for _ in range(2))
    assert RAN == []
    assert first == second
    assert [job.state for job in (jobs.get(later), jobs.get(held)) if job] == ["scheduled", "available"]


def test_enqueue_many_runs_all(jobs: Jobs) -> None:
    with inline(jobs):
        jobs.enqueue_many(note, ["a", "b"])
    assert RAN == ["a", "b"]


def test_async_tools_run_from_threads_loops_and_other_jobs(jobs: Jobs) -> None:
    async def main() -> int:
        HERE.set("in the test")
        await jobs.aenqueue(wait, "async")
        jobs.enqueue(wait, "beside the loop")
        await jobs.aenqueue_many(note, ["sync"])
        return id(asyncio.get_running_loop())

    with inline(jobs):
        jobs.enqueue(wait, "sync")
        loop = asyncio.run(main())
    assert [what if isinstance(what, str) else what[:2] for what in RAN] == [
        ("sync", "nowhere"),
        ("async", "in the test"),
        ("beside the loop", "in the test"),
        "sync",
    ]
    assert (RAN[1][2], RAN[2][2] != loop) == (loop, True)


def test_async_tools_run_where_the_test_itself_is_in_a_loop(jobs: Jobs) -> None:
    async def main() -> None:
        with inline(jobs):
            jobs.enqueue(wait, "inline")
        jobs.enqueue(wait, "drained")
        assert drain(jobs).completed == 1

    asyncio.run(main())
    assert [what[0] for what in RAN] == ["inline", "drained"]


def test_ctrl_c_puts_the_job_back(jobs: Jobs) -> None:
    with inline(jobs), pytest.raises(KeyboardInterrupt):
        jobs.enqueue(interrupt)
    (found,) = jobs.list()
    assert (found.state, found.attempt, found.errors) == ("available", 0, ())


@tool
def interrupt() -> None:
    raise KeyboardInterrupt


def test_a_job_of_a_transaction_waits_for_its_commit(tmp_path: Path) -> None:
    RAN.clear()
    jobs = Jobs(f"sqlite:///{tmp_path}/jobs.db")
    jobs.stats()
    connection = sqlite3.connect(tmp_path / "jobs.db")
    with inline(jobs), connection:
        jobs.enqueue(note, 1, connection=connection)
    connection.close()
    assert RAN == []
    assert drain(jobs) == Drained(completed=1)


# ---- tools


def test_tools_of_a_target_are_found_with_its_hooks(jobs: Jobs, tmp_path: Path, monkeypatch: Any) -> None:
    name = f"shop_{os.urandom(4).hex()}"
    (tmp_path / f"{name}.py").write_text(
        "import clutch\nSEEN = []\n"
        "@clutch.tool\ndef sell(what: str) -> None: SEEN.append(what)\n"
        "@clutch.on_start\ndef start(): SEEN.append('start')\n"
        "@clutch.on_stop\ndef stop(): SEEN.append('stop')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    jobs.enqueue("sell", "tea")
    assert drain(jobs, target=name) == Drained(completed=1)
    module = sys.modules[name]
    assert module.SEEN == ["start", "tea", "stop"]
    with inline(jobs, target=module), pytest.raises(NoSuchTool, match="nearest: sell"):
        jobs.enqueue("sel", "tea")
    (found,) = assert_enqueued(jobs, "sel", state="scheduled")
    assert found.errors[0].kind == "no_such_tool"
    with pytest.raises(ConfigError, match="target 'shop_taks' does not import"):
        drain(jobs, target="shop_taks")


@pytest.mark.parametrize("raises", [True, False])
def test_a_tool_that_was_never_enqueued_as_a_function_is_told(jobs: Jobs, raises: bool) -> None:
    with (
        inline(jobs, raises=raises),
        pytest.raises(ClutchError, match=r"no function 'nobody' was enqueued here.*target="),
    ):
        jobs.enqueue("nobody")
    (found,) = jobs.list()
    assert (found.state, found.attempt) == ("available", 0)


@tool
def same_name(what: str) -> None:
    RAN.append(what)


def other_module(mark: str) -> Any:
    names: dict[str, Any] = {"__name__": "other_module", "RAN": RAN}
    exec(f"from clutch import tool\n{mark}\ndef same_name(what: str) -> None: RAN.append(('other', what))", names)
    return names["same_name"]


def test_two_tools_of_one_name_are_not_enqueued_to_one_store(jobs: Jobs) -> None:
    jobs.enqueue(same_name, "here")
    with pytest.raises(ValueError, match=rf"'same_name' .*of other_module and {__name__}.*@tool\(name="):
        jobs.enqueue(other_module("@tool"), "there")
    jobs.enqueue(other_module("@tool(name='other.same')"), "there")
    assert drain(jobs) == Drained(completed=2)
    assert RAN == ["here", ("other", "there")]


def test_stores_know_tools_of_one_name_each_its_own(jobs: Jobs) -> None:
    jobs.enqueue(same_name, "here")
    with temporary_store(Jobs("sqlite:///never-made-either.db")) as others:
        others.enqueue(other_module("@tool"), "there")
        drain(others)
    drain(jobs)
    assert RAN == [("other", "there"), "here"]


def test_the_name_of_a_tool_is_its_jobs(jobs: Jobs) -> None:
    job = jobs.enqueue(other_module("@tool(name='mail.send-1')"), "there")
    found = jobs.get(job)
    assert found is not None and found.tool == "mail.send-1"


def test_a_tool_may_have_the_name_of_a_class_of_ruby(redis: RedisServer) -> None:
    """Rails enqueues it, in a wrapper of ActiveJob."""
    store = Jobs(redis.url.replace("redis+unix", "sidekiq+unix"))
    inner = {"job_class": "Mail::WelcomeJob", "arguments": [7, {"language": "de", "_aj_ruby2_keywords": ["language"]}]}
    job = {"class": "Sidekiq::ActiveJob::Wrapper", "wrapped": "Mail::WelcomeJob", "args": [inner]}
    redis.ask("SADD", "queues", "default")
    redis.ask("LPUSH", "queue:default", json.dumps({**job, "jid": "a" * 24, "queue": "default", "retry": 3}))
    assert drain(store, target=sys.modules[__name__]).completed == 1
    assert RAN == [(7, "de")]


@pytest.mark.parametrize("name", ["", ".a", "a.", "a b", "a/b", "é", "x" * 201, 7, "a\n"])
def test_names_that_tools_may_not_have(name: Any) -> None:
    with pytest.raises(ValueError, match="allowed are up to 200 letters, digits"):
        tool(name=name)


# ---- drain


def test_drain_runs_what_waits_and_what_that_enqueues() -> None:
    RAN.clear()
    with temporary_store(JOBS):
        JOBS.enqueue(enqueue_more, 2)
        JOBS.enqueue(note, "later", in_=60)
        JOBS.enqueue(note, "other", queue="other")
        assert drain(JOBS, queue="default") == Drained(completed=3)
        assert drain(JOBS) == Drained(completed=1)
    assert RAN == [2, 1, 0, "other"]


def test_drain_counts_by_outcome(jobs: Jobs) -> None:
    for how in ("snooze", "cancel", "retry"):
        jobs.enqueue(end_as, how, False)
    jobs.enqueue(fail, "a")
    jobs.options(retry=0).enqueue(fail, "b")
    jobs.enqueue(note, 1)
    assert drain(jobs, raises=False) == Drained(completed=1, retried=2, postponed=1, cancelled=1, dead=1)
    assert drain(jobs) == Drained()


def test_drain_raises_the_first_exception_and_leaves_the_rest(jobs: Jobs) -> None:
    jobs.enqueue(fail, "first")
    jobs.enqueue(note, "rest")
    with pytest.raises(ValueError, match="first"):
        drain(jobs)
    assert drain(jobs) == Drained(completed=1)


def test_drain_with_what_is_scheduled_goes_through_time(jobs: Jobs) -> None:
    before = datetime.now(UTC)
    jobs.enqueue(note, "in an hour", in_="1h")
    jobs.enqueue(fail, "now")  # and again after 60 s, twice
    jobs.enqueue(note, "too late", deadline=30, in_=90)
    assert drain(jobs, with_scheduled=True, raises=False) == Drained(completed=2, retried=2, dead=1)
    assert RAN == ["now", "now", "too late", "now", "in an hour"]
    dead = assert_enqueued(jobs, fail, state="dead", count=1)[0]
    assert dead.finished_at is not None
    assert dead.finished_at - dead.created_at >= timedelta(seconds=120)
    with clock() as now:
        assert now.now() - before < timedelta(seconds=30), "the clock goes as before"


def test_the_next_attempt_has_the_checkpoint(jobs: Jobs) -> None:
    job = jobs.options(result=60).enqueue(resume)
    assert drain(jobs, with_scheduled=True, raises=False) == Drained(completed=1, retried=1)
    assert jobs.result(job) == 42


def test_a_result_that_is_not_kept_or_no_more_says_so(jobs: Jobs) -> None:
    forgotten, kept = jobs.enqueue(note, 1), jobs.options(result="1h").enqueue(note, 2)
    drain(jobs)
    with pytest.raises(ClutchError, match=r"is completed, and its result was not kept: enqueue it with jobs\.options"):
        jobs.result(forgotten)
    assert jobs.result(kept) == 2
    with clock(datetime.now(UTC) - timedelta(days=1)):
        old = jobs.options(result=0.05).enqueue(note, 3)
        drain(jobs)
        assert jobs.result(old) == 3, "it is kept for a second at least"
    with pytest.raises(ClutchError, match="is completed, and its result has expired: it was kept until "):
        jobs.result(old)
    assert jobs.get(old) is not None


def test_a_job_that_enqueues_itself_for_ever_has_an_end() -> None:
    with temporary_store(JOBS):
        JOBS.enqueue(enqueue_itself)
        with pytest.raises(ClutchError, match="jobs are still waiting after 7 attempts: does a job enqueue itself"):
            drain(JOBS, with_scheduled=True, attempts_max=7)
        assert (JOBS.stats()["default"].completed, JOBS.stats()["default"].available) == (7, 1)


def test_limits_of_rate_hold(jobs: Jobs) -> None:
    jobs.limit("default", rate="2/m")
    jobs.enqueue_many(note, range(5))
    with clock():
        assert drain(jobs).completed == 2
        assert drain(jobs, with_scheduled=True).completed == 3
    jobs.enqueue_many(note, range(3), queue="keyed", key="k", key_limit=9, key_rate="1/m")
    with clock():
        assert drain(jobs, queue="keyed", with_scheduled=True).completed == 3


def test_drain_in_a_loop(jobs: Jobs) -> None:
    async def main() -> tuple[Drained, int]:
        await jobs.aenqueue(wait, "a")
        return await adrain(jobs), id(asyncio.get_running_loop())

    done, loop = asyncio.run(main())
    assert done == Drained(completed=1)
    assert RAN[0][2] == loop


def test_jobs_in_the_format_of_sidekiq_run_as_well(redis: RedisServer) -> None:
    RAN.clear()
    jobs = Jobs(f"{redis.url.replace('redis+unix', 'sidekiq+unix')}?namespace=t{os.urandom(4).hex()}")
    with inline(jobs):
        jobs.enqueue(note, "inline")
    jobs.enqueue(note, "later", in_=3600)
    jobs.options(retry=1).enqueue(fail, "no")
    assert_enqueued(jobs, note, {"what": "later"}, in_=3600)
    assert drain(jobs, with_scheduled=True, raises=False) == Drained(completed=1, retried=1, dead=1)
    with temporary_store(jobs):
        jobs.enqueue(note, "in SQLite")
        assert drain(jobs) == Drained(completed=1)
    assert RAN == ["inline", "no", "no", "later", "in SQLite"]


# ---- the clock


def test_times_of_jobs_come_from_the_clock(jobs: Jobs) -> None:
    start = datetime(2030, 1, 2, 3, 4, tzinfo=UTC)
    with clock(start) as time:
        job = jobs.enqueue(note, 1, in_=3600, deadline="5m")
        found = jobs.get(job)
        assert found is not None
        assert (found.created_at, found.scheduled_at) == (start, start + timedelta(hours=1))
        assert found.deadline_at == start + timedelta(hours=1, minutes=5)
        time.advance("59m")
        assert drain(jobs) == Drained()
        time.advance(timedelta(minutes=1))
        assert (time.now(), drain(jobs)) == (start + timedelta(hours=1), Drained(completed=1))
        late = jobs.enqueue(note, 2, deadline=10)
        time.advance(11)
        assert drain(jobs) == Drained(dead=1)
        found = jobs.get(late)
        assert found is not None
        assert (found.errors[0].kind, found.finished_at) == ("deadline", time.now())
    assert RAN == [1]


def test_clocks_nest() -> None:
    with clock(datetime(2030, 1, 1, tzinfo=UTC)) as outer:
        with clock(datetime(2031, 1, 1, tzinfo=UTC)) as inner:
            inner.advance("1d")
            assert inner.now() == datetime(2031, 1, 2, tzinfo=UTC)
        assert outer.now() == datetime(2030, 1, 1, tzinfo=UTC)
        with pytest.raises(ValueError, match="time -1: allowed are seconds from 0 up"):
            outer.advance(-1)
    with clock() as now:
        assert abs(now.now() - datetime.now(UTC)) < timedelta(seconds=30)


# ---- what is in the store


def test_jobs_are_found_by_what_is_said_of_them(jobs: Jobs) -> None:
    ann = jobs.enqueue(note, "ann", queue="mail", priority=2, key="k", tags=["slow"])
    bob = jobs.enqueue(note, "bob", in_=3600)
    jobs.enqueue("send", "ann", subject="hi")
    assert [job.id for job in assert_enqueued(jobs, note)] == [ann, bob]
    for wanted in (
        {"arguments": {"what": "ann"}},
        {"arguments": ("ann",)},
        {"queue": "mail"},
        {"priority": 2},
        {"key": "k"},
        {"tag": "slow"},
        {"state": "available"},
    ):
        assert [job.id for job in assert_enqueued(jobs, "note", **wanted, count=1)] == [ann], wanted
    assert_enqueued(jobs, note, {"what": "bob"}, in_="1h")
    assert_enqueued(jobs, note, at=datetime.now(UTC) + timedelta(hours=1, seconds=20), within="30s")
    assert_not_enqueued(jobs, note, in_="2h")
    assert_not_enqueued(jobs, note, {"what": "ann"}, in_=0)
    assert_enqueued(jobs, "send", ("ann", "hi"))
    assert_enqueued(jobs, "send", {"subject": "hi"})
    assert_enqueued(jobs, count=3)


def test_values_are_compared_as_json(jobs: Jobs) -> None:
    at = datetime(2030, 1, 2, tzinfo=UTC)
    jobs.enqueue(note, (1, 2), at)
    assert_enqueued(jobs, note, {"what": (1, 2), "at": at})
    assert_enqueued(jobs, note, ((1, 2), at))
    assert_not_enqueued(jobs, note, {"what": (1, 3)})


def test_a_failed_assertion_lists_what_is_there(jobs: Jobs) -> None:
    with pytest.raises(AssertionError) as failed:
        assert_enqueued(jobs, note, queue="mail")
    assert str(failed.value) == "no job in the store: note, queue='mail'\nthe store has no jobs"
    with clock():
        job = jobs.enqueue(note, "ann", in_=3600)
        with pytest.raises(AssertionError) as failed:
            assert_enqueued(jobs, note, {"what": "bob"}, in_=60)
    assert str(failed.value) == (
        "no job in the store: note, arguments={'what': 'bob'}, in_=60\nthe store has:\n"
        f'  job {job}: note(what="ann"), queue default, scheduled, due in 3600 s'
    )
    with pytest.raises(AssertionError, match=r"1 instead of 0 jobs in the store: note\nthe store has:\n  job"):
        assert_not_enqueued(jobs, note)
    with pytest.raises(AssertionError, match="1 instead of 2 jobs in the store: any"):
        assert_enqueued(jobs, count=2)
    jobs.enqueue_many("send", ["x" * 1000] * 30)
    with pytest.raises(AssertionError, match=r'send\("x{195,}…\), queue default, available\n  and 11 older ones$'):
        assert_enqueued(jobs, queue="none")


# ---- jobs that come after others


@tool
def gather(*names: str) -> Any:
    job = clutch.current_job()
    assert job is not None
    RAN.append((names, job.results))
    return len(job.results)


def test_inline_runs_what_comes_after(jobs: Jobs) -> None:
    with inline(jobs):
        many = jobs.enqueue_many(note, ["a", "b"], then=partial(gather, "x"), result=60)
        assert isinstance(many.then, str)
        jobs.options(result=60).chain(partial(note, 1), gather, gather)
        jobs.enqueue(gather, after=jobs.options(result=60).enqueue(note, None))
    assert RAN == ["a", "b", (("x",), ("a", "b")), 1, ((), (1,)), ((), (1,)), None, ((), (None,))]
    assert [jobs.get(job).state for job in [*many, many.then]] == ["completed"] * 3  # type: ignore[union-attr]


def test_inline_leaves_what_waits(jobs: Jobs) -> None:
    with inline(jobs):
        first = jobs.enqueue(note, 1, in_=60)
        last = jobs.enqueue(gather, after=first, after_failure="run")
        assert (RAN, jobs.get(last).state) == ([], "waiting")  # type: ignore[union-attr]
    jobs.cancel(first)
    drain(jobs)
    assert RAN == [((), (None,))]


def test_results_that_were_not_kept_are_no_none(jobs: Jobs) -> None:
    jobs.enqueue(gather, after=jobs.enqueue(note, 1), retry=0)
    with pytest.raises(ClutchError, match="whose result was not kept"):
        drain(jobs)


def test_asyncio_enqueues_what_comes_after(jobs: Jobs) -> None:
    async def enqueue() -> tuple[str | None, list[str]]:
        many = await jobs.aenqueue_many(note, [1, 2], then=gather, result=60)
        await jobs.aenqueue(note, 3, after=many.then)
        return many.then, await jobs.achain(partial(note, 4), partial(note, 5))

    then, chained = asyncio.run(enqueue())
    assert jobs.get(chained[1]).after == (chained[0],)  # type: ignore[union-attr]
    assert then is not None
    drain(jobs)
    assert sorted(map(str, RAN)) == sorted(map(str, [1, 2, 3, 4, 5, ((), (1, 2))]))
