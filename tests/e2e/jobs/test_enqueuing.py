"""`clutch.Jobs` without anybody who runs them: what is checked, what is written, and transactions."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import clutch
from clutch import BadArguments, ConfigError, Jobs, StoreError, StoreUnavailable, _core, tool
from clutch.testing import Processes
from support.redis_server import RedisServer

FORKS = 20


@tool
def send(to: str, *, subject: str = "", at: datetime | None = None) -> None:
    """A tool, which is never run here."""


@tool(queue="mail", retry=3, priority=2, tags=["slow"])
def with_defaults(n: int = 0) -> None:
    """The same with options."""


@pytest.fixture
def jobs(tmp_path: Path) -> Iterator[Jobs]:
    yield Jobs(f"sqlite:///{tmp_path}/jobs.db")


def only(jobs: Jobs) -> Any:
    (found,) = jobs.list()
    return found


def test_nothing_is_opened_before_it_is_used(tmp_path: Path) -> None:
    Jobs(f"sqlite:///{tmp_path}/none.db")
    assert not list(tmp_path.iterdir())


def test_arguments_are_kept_by_name(jobs: Jobs) -> None:
    jobs.enqueue(send, "ann", subject="hi", at=datetime(2030, 1, 2, tzinfo=UTC))
    assert only(jobs).arguments == {
        "args": [],
        "kwargs": {"to": "ann", "subject": "hi", "at": "2030-01-02T00:00:00Z"},
    }


def test_options_beside_arguments(jobs: Jobs) -> None:
    with pytest.raises(BadArguments, match="at: Input should be a valid datetime"):
        jobs.enqueue(send, "ann", at="never")  # the tool's own, although it is an option, too
    job = jobs.enqueue(send, "ann", queue="mail", in_=60, retry=0, key="ann", tags=["a"], unique=True)
    found = jobs.get(job)
    assert found is not None
    assert (found.state, found.queue, found.attempts_max, found.key, found.tags) == (
        "scheduled",
        "mail",
        1,
        "ann",
        ("a",),
    )
    assert found.scheduled_at is not None
    assert timedelta(seconds=58) < found.scheduled_at - datetime.now(UTC) < timedelta(seconds=61)


def test_keys_and_queues_have_limits(jobs: Jobs) -> None:
    limited = jobs.options(key="ann", key_limit=2, key_rate="5/30s")
    limited.enqueue(send, "ann")
    jobs.limit("mail", 3, rate="100/m")
    mail = jobs.stats()["mail"]
    assert (mail.running_max, mail.rate) == (3, "100/60s")
    jobs.limit("mail")
    assert "mail" not in jobs.stats(), "it has neither jobs nor a limit"
    for wrong in ("5", "x/s", "5/x", "5/", "/s", 5, "5/50d", "0/s", "10001/s", "5/0s"):
        with pytest.raises(
            ValueError, match=r"key_rate .*: allowed are a number from 1 to 10,000 and a time of 1 ms to 49 days"
        ):
            jobs.enqueue(send, "ann", key="ann", key_rate=wrong)
    for wrong in ("0/s", "10001/s"):
        with pytest.raises(ValueError, match=r"rate .*: allowed are a number from 1 to 10,000"):
            jobs.limit("mail", rate=wrong)
    with pytest.raises(ValueError, match="key_limit 0: allowed are whole numbers from 1 to 4"):
        jobs.enqueue(send, "ann", key="ann", key_limit=0)


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("q" * 3000, "a queue's name of 3000 bytes: allowed are 1000"),
        ("a\x1b[2J", r'a queue\'s name of "a\\u\{1b\}\[2J": control characters are not allowed'),
        ("", "a queue's name is empty: give one"),
    ],
)
def test_what_is_no_name_of_a_queue_is_neither_paused_nor_limited(jobs: Jobs, name: str, problem: str) -> None:
    for change in (jobs.pause, jobs.resume, jobs.limit):
        with pytest.raises(ValueError, match=problem):
            change(name)
    assert jobs.stats() == {}


def test_times_may_be_text(jobs: Jobs) -> None:
    found = jobs.get(jobs.enqueue(send, "ann", in_="5m", backoff="10s"))
    assert found is not None and found.scheduled_at is not None
    assert timedelta(seconds=295) < found.scheduled_at - datetime.now(UTC) < timedelta(seconds=301)


def test_a_tool_has_defaults_which_options_override(jobs: Jobs) -> None:
    first, second = jobs.enqueue(with_defaults), jobs.options(queue="other", retry=0).enqueue(with_defaults, 1)
    one, two = jobs.get(first), jobs.get(second)
    assert one is not None and two is not None
    assert (one.queue, one.attempts_max, one.priority, one.tags) == ("mail", 4, 2, ("slow",))
    assert (two.queue, two.attempts_max, two.priority) == ("other", 1, 2)


@pytest.mark.parametrize(
    ("args", "kwargs", "problem"),
    [
        ((), {}, "missing a required argument: 'to'"),
        (("a", "b"), {}, "too many positional arguments"),
        (("a",), {"subjct": "x"}, "unexpected keyword argument 'subjct'"),
        ((1,), {}, "to: Input should be a valid string"),
    ],
)
def test_wrong_arguments_are_refused_at_enqueue(jobs: Jobs, args: Any, kwargs: Any, problem: str) -> None:
    with pytest.raises(BadArguments, match=problem):
        jobs.enqueue(send, *args, **kwargs)
    assert jobs.list() == []


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"priority": 10}, "priority 10: allowed are whole numbers from -9 to 9, larger first"),
        ({"priority": 300}, "priority 300: allowed are whole numbers"),
        ({"priority": "high"}, "priority 'high': allowed are whole numbers"),
        ({"priority": True}, "priority True: allowed are whole numbers"),
        ({"queue": 5}, "queue 5: allowed are a name, which is text"),
        ({"queue": ""}, "queue '': allowed are a name, which is text"),
        ({"key": 7}, "key 7: allowed are text that is not empty"),
        ({"key_limit": "2"}, "key_limit '2': allowed are whole numbers from 1 to 4,294,967,295"),
        ({"unique": 1}, "unique 1: allowed are True, or a key, which is text"),
        ({"at": 5}, "at 5: allowed are a datetime; in_= takes seconds from now"),
        ({"in_": datetime.now(UTC)}, "in_ datetime.*: allowed are seconds from now; at= takes a datetime"),
        ({"deadline": []}, r"deadline \[\]: allowed are a datetime, or seconds"),
        ({"deadline": "soon"}, "deadline 'soon': allowed are seconds from 0 up"),
        ({"tags": "invoice"}, "tags 'invoice': allowed are a list of texts"),
        ({"tags": [1]}, r"tags \[1\]: allowed are a list of texts"),
        ({"meta": "x"}, "meta 'x': allowed are a mapping of what JSON has"),
        ({"meta": {"user": object()}}, "meta {'user': .*: .*not JSON serializable; allowed is a mapping"),
        ({"meta": {"x": float("nan")}}, "meta {'x': nan}: .*; allowed is a mapping of what JSON has"),
        ({"retry": "2"}, "retry '2': allowed are whole numbers from 0 to 1,000,000"),
        ({"retry": 1.5}, "retry 1.5: allowed are whole numbers"),
        ({"in_": -1}, "in_ -1: allowed are seconds from 0 up"),
        ({"in_": float("nan")}, "in_ nan"),
        ({"in_": "soon"}, "in_ 'soon': allowed are seconds from 0 up, text such as"),
        ({"in_": 1, "at": datetime.now(UTC)}, "at and in_ are both given"),
        ({"retry": -2}, "retry -2: allowed are whole numbers from 0 to 1,000,000"),
        ({"backoff": "soon"}, "backoff 'soon': allowed are"),
        ({"queue": "q" * 1001}, "a queue's name of 1001 bytes: allowed are 1000"),
    ],
)
def test_wrong_options_are_refused(jobs: Jobs, options: Any, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        jobs.options(**options).enqueue("send")
    assert jobs.list() == []


def test_wrong_options_of_a_tool_are_refused_where_it_is_defined() -> None:
    with pytest.raises(ValueError, match="retry 'often': allowed are whole numbers"):
        tool(retry="often")  # type: ignore[call-overload]
    with pytest.raises(ValueError, match="queue b'mail': allowed are a name"):
        tool(queue=b"mail")  # type: ignore[call-overload]
    with pytest.raises(ValueError, match="serial 'no': allowed are True and False"):
        tool(serial="no")  # type: ignore[call-overload]


def test_large_arguments_are_refused_with_the_limit(jobs: Jobs) -> None:
    with pytest.raises(ValueError, match=r"arguments \(as JSON\) of 100000\d\d+ bytes: allowed are 8388608"):
        jobs.enqueue("send", "x" * 100_000_000)


def no_tool() -> None:
    """It has no mark."""


def test_functions_that_no_worker_finds_are_refused(jobs: Jobs) -> None:
    with pytest.raises(ValueError, match=r"no_tool is not a tool: decorate it with @clutch\.tool"):
        jobs.enqueue(no_tool)
    with pytest.raises(ValueError, match="workers find functions by name"):
        jobs.enqueue(lambda: None)


@tool
def generates() -> Iterator[int]:
    yield 1


@tool
async def generates_later() -> AsyncIterator[int]:
    yield 1


@pytest.mark.parametrize("function", [generates, generates_later])
def test_generators_are_refused(jobs: Jobs, function: Any) -> None:
    with pytest.raises(
        ValueError, match=f"{function.__name__} is a generator function, whose values nobody would read"
    ):
        jobs.enqueue(function)
    with pytest.raises(ValueError, match="is a generator function"):
        jobs.enqueue_many(function, [()])
    assert jobs.list() == []


@pytest.mark.parametrize(
    "url",
    ["jobs.db", "sqlite://jobs.db", "sqlite:///", "mysql://x/y", "sqlite:///a?b=c", "sqlite:///:memory:", None, 7],
)
def test_wrong_urls_are_told(url: Any) -> None:
    with pytest.raises(ConfigError, match=r"sqlite:///jobs\.db"):
        Jobs(url)


def test_a_unique_job_is_enqueued_once(jobs: Jobs) -> None:
    first, second = (jobs.enqueue(send, "ann", unique=True) for _ in range(2))
    assert (first.is_new, second.is_new, first == second) == (True, False, True)
    assert jobs.enqueue(send, "bob", unique=True).is_new


def test_equal_arguments_are_one_unique_job_in_every_process(jobs: Jobs) -> None:
    in_order = {"a": 1, "b": {"c": 2, "d": 3}}
    first = jobs.enqueue("note", in_order, unique=True, x=1, y=2)
    again = jobs.enqueue("note", {"b": {"d": 3, "c": 2}, "a": 1}, unique=True, y=2, x=1)
    assert (again, again.is_new) == (first, False)
    script = "import clutch, sys; print(clutch.Jobs(sys.argv[1]).enqueue('note', SETS, unique=True))"
    seeds = [os.environ | {"PYTHONHASHSEED": str(seed)} for seed in range(3)]
    for sets in ("{'a', 'b', 'c', 'd'}", "{frozenset('ab'), frozenset('cd'), frozenset('ef')}", "{'a', 1, None}"):
        command = [sys.executable, "-c", script.replace("SETS", sets), jobs.url]
        assert len({subprocess.check_output(command, env=seed) for seed in seeds}) == 1


def test_enqueue_many_takes_tuples_mappings_and_single_values(jobs: Jobs) -> None:
    ids = jobs.enqueue_many(send, [("a",), {"to": "b", "subject": "s"}, "c"], queue="mail")
    found = [jobs.get(job) for job in ids]
    assert [job and job.arguments["kwargs"]["to"] for job in found] == ["a", "b", "c"]
    assert jobs.enqueue_many(send, []) == []
    with pytest.raises(BadArguments, match=r"^arguments\[1\]: tool 'send': to: "):
        jobs.enqueue_many(send, ["d", 5])
    assert len(jobs.list()) == 3, "all of them or none"


# ---- jobs that come after others


def test_what_a_job_comes_after_is_told(jobs: Jobs) -> None:
    many = jobs.enqueue_many(send, ["a", "b"], then=partial(send, "all"), queue="mail", after_failure="run")
    assert many.then is not None
    then = jobs.get(many.then)
    assert then is not None
    assert (then.state, then.after, then.after_count, then.waits_for, then.queue) == (
        "waiting",
        tuple(many),
        2,
        2,
        "default",
    )
    first = jobs.get(many[0])
    assert first is not None
    assert (first.dependents, first.after, first.queue) == ((many.then,), (), "mail")
    assert [job.after for job in jobs.list()] == [None] * 3, "get has them"
    assert jobs.enqueue_many(send, []) == []
    alone = jobs.enqueue_many(send, [], then=partial(send, "none")).then
    assert jobs.get(alone).state == "available"  # type: ignore[arg-type, union-attr]
    assert jobs.chain() == []
    jobs.cancel(many[0])
    jobs.cancel(many[1])
    assert jobs.get(many.then).state == "available"  # type: ignore[union-attr]


def test_what_cannot_come_first_is_refused(jobs: Jobs) -> None:
    with pytest.raises(ValueError, match="there is no job 99"):
        jobs.enqueue(send, "a", after="99")
    with pytest.raises(ValueError, match=r"after 7: allowed are the id of a job, or a list of ids"):
        jobs.options(after=7)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match='after_failure \'ignore\': allowed are "cancel" and "run"'):
        jobs.options(after_failure="ignore")
    with pytest.raises(ValueError, match="allowed are 10000"):
        jobs.enqueue(send, "a", after=["1"] * 10_001)
    with pytest.raises(ValueError, match="all steps of a chain would be one job"):
        jobs.options(unique="x").chain(partial(send, "a"), partial(send, "b"))
    with pytest.raises(BadArguments, match="to"):
        jobs.enqueue_many(send, ["a"], then=send)
    first = jobs.enqueue(send, "a", unique="x")
    with pytest.raises(ValueError, match="would come after itself"):
        jobs.enqueue(send, "b", unique="x", after=first)
    with pytest.raises(TypeError, match="did you mean after"):
        jobs.options(depends_on=first)
    assert len(jobs.list()) == 1


def test_a_transaction_has_jobs_that_come_after_others(jobs: Jobs, tmp_path: Path) -> None:
    jobs.stats()
    connection = sqlite3.connect(tmp_path / "jobs.db")
    ended = jobs.enqueue(send, "ended")
    jobs.cancel(ended)
    with pytest.raises(ZeroDivisionError), connection:
        jobs.enqueue_many(send, ["a"], then=partial(send, "b"), connection=connection)
        raise ZeroDivisionError
    with connection:
        first = jobs.enqueue(send, "a", unique="a", connection=connection)
        many = jobs.enqueue_many(send, ["b", "c"], then=partial(send, "d"), after=first, connection=connection)
        late = jobs.enqueue(send, "e", after=[first, ended], connection=connection)
        anyway = jobs.enqueue(send, "f", after=[ended, ended], after_failure="run", connection=connection)
        for wrong, why in [("99", "there is no job 99"), ("x", "there is no job x"), (first, "come after itself")]:
            with pytest.raises(ValueError, match=why):
                jobs.enqueue(send, "g", unique="a", after=wrong, connection=connection)
        with pytest.raises(ValueError, match="come after itself"):
            there_and_back = [partial(send, to) for to in ("g", "j", "g")]
            jobs.options(unique=True).chain(*there_and_back, connection=connection)
        chain = jobs.chain(partial(send, "h"), partial(send, "i"), connection=connection)
    connection.close()
    states = {job.id: job.state for job in jobs.each()}
    assert many.then is not None
    waiting = [*many, many.then, chain[1]]
    assert [states[job] for job in waiting] == ["waiting"] * 4
    assert (states[late], states[anyway], states[chain[0]]) == ("cancelled", "available", "available")
    assert jobs.get(late).reason == f"job {ended}, which it comes after, did not complete"  # type: ignore[union-attr]
    assert jobs.get(many.then).after == tuple(many)  # type: ignore[union-attr]
    jobs.cancel(first)
    assert {job.state for job in jobs.each() if job.id in (*many, many.then)} == {"cancelled"}
    assert jobs.retry(first)
    assert {job.state for job in jobs.each() if job.id in (*many, many.then)} == {"waiting"}


# ---- transactions


def test_a_job_exists_if_and_only_if_the_transaction_commits(jobs: Jobs, tmp_path: Path) -> None:
    jobs.stats()
    connection = sqlite3.connect(tmp_path / "jobs.db")
    connection.execute("CREATE TABLE orders (n)")
    connection.execute("INSERT INTO orders VALUES (1)")
    jobs.enqueue(send, "ann", connection=connection)
    assert jobs.list() == []
    connection.rollback()
    assert jobs.list() == []
    connection.execute("INSERT INTO orders VALUES (2)")
    job = jobs.enqueue(send, "bob", unique="bob", connection=connection)
    again = jobs.enqueue(send, "bob", unique="bob", connection=connection)
    connection.commit()
    assert (only(jobs).id, again, again.is_new) == (job, job, False)
    assert connection.execute("SELECT n FROM orders").fetchall() == [(2,)]
    connection.close()


def test_many_jobs_exist_if_and_only_if_the_transaction_commits(jobs: Jobs, tmp_path: Path) -> None:
    jobs.stats()
    connection = sqlite3.connect(tmp_path / "jobs.db")
    with pytest.raises(ZeroDivisionError), connection:
        jobs.enqueue_many(send, ["a", "b"], connection=connection)
        raise ZeroDivisionError
    assert jobs.list() == []
    with pytest.raises(ValueError, match="arguments"), connection:
        jobs.enqueue_many("send", ["c", "x" * 9_000_000], connection=connection)
    with connection:
        ids = jobs.enqueue_many(send, ["a", "b"], queue="mail", unique=True, connection=connection)
        again = jobs.enqueue_many(send, ["b"], unique=True, connection=connection)
    assert [(job.id, job.queue) for job in reversed(jobs.list())] == [(ids[0], "mail"), (ids[1], "mail")]
    assert ([one.is_new for one in ids], again, again[0].is_new) == ([True, True], ids[1:], False)
    assert jobs.enqueue_many(send, [], connection=connection) == []
    connection.close()


def test_each_has_all_pages_of_what_matches_while_it_is_changed(jobs: Jobs) -> None:
    ids = jobs.enqueue_many("send", range(1100), queue="mail")
    jobs.enqueue("send", 0, queue="other")
    changed = [job.id for job in jobs.each(state="available", queue="mail") if jobs.cancel(job.id)]
    assert changed == ids[::-1]
    assert [job.queue for job in jobs.each(state="available")] == ["other"]


def test_tables_are_made_in_the_transaction_that_needs_them(tmp_path: Path) -> None:
    jobs = Jobs(f"sqlite:///{tmp_path}/fresh.db")
    connection = sqlite3.connect(tmp_path / "fresh.db")
    connection.execute("CREATE TABLE orders (item)")
    with contextlib.suppress(ZeroDivisionError), connection:
        connection.execute("INSERT INTO orders VALUES ('tea')")
        jobs.enqueue(send, "ann", connection=connection)
        raise ZeroDivisionError
    assert len(connection.execute("SELECT * FROM sqlite_schema").fetchall()) == 1, "all of it was rolled back"
    with connection:
        connection.execute("INSERT INTO orders VALUES ('tea')")
        job = jobs.enqueue(send, "ann", connection=connection)
    assert jobs.get(job) is not None


CONNECTIONS: list[dict[str, Any]] = [{}, {"isolation_level": "IMMEDIATE"}, {"isolation_level": None}]
if sys.version_info >= (3, 12):
    CONNECTIONS += [{"autocommit": False}, {"autocommit": True}]


@pytest.mark.parametrize("options", CONNECTIONS)
def test_tables_are_made_together_with_the_first_job(tmp_path: Path, options: dict[str, Any]) -> None:
    jobs = Jobs(f"sqlite:///{tmp_path}/fresh.db")
    with contextlib.closing(sqlite3.connect(tmp_path / "fresh.db", **options)) as connection:
        jobs.enqueue(send, "ann", connection=connection)
        is_in_transaction = connection.in_transaction
        connection.rollback()
        tables = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]
    assert is_in_transaction == (options not in ({"isolation_level": None}, {"autocommit": True}))
    assert (tables == 0) == is_in_transaction, "all of it, or none"
    assert len(jobs.list()) == (0 if is_in_transaction else 1)


@pytest.mark.parametrize("options", CONNECTIONS)
def test_many_jobs_of_which_one_cannot_be_written_are_none(jobs: Jobs, tmp_path: Path, options: dict[str, Any]) -> None:
    jobs.stats()
    with contextlib.closing(sqlite3.connect(tmp_path / "jobs.db", **options)) as connection:
        connection.execute(
            "CREATE TRIGGER no BEFORE INSERT ON clutch_jobs WHEN NEW.arguments LIKE '%bad%' "
            "BEGIN SELECT RAISE(ABORT, 'no'); END"
        )
        connection.commit()
        with pytest.raises(sqlite3.IntegrityError, match="no"):
            jobs.enqueue_many("send", ["a", "bad"], connection=connection)
        first = jobs.enqueue("send", "b", connection=connection)
        with pytest.raises(sqlite3.IntegrityError, match="no"):
            jobs.enqueue_many("send", ["c", "bad"], connection=connection)
        connection.commit()
    assert [job.id for job in jobs.list()] == [first]


def test_a_job_may_be_enqueued_for_each_row_that_is_changed(jobs: Jobs, tmp_path: Path) -> None:
    jobs.stats()
    with contextlib.closing(sqlite3.connect(tmp_path / "jobs.db")) as connection:
        connection.executescript("CREATE TABLE orders (n); INSERT INTO orders VALUES (1), (2)")
        for (n,) in connection.execute("UPDATE orders SET n = n + 1 RETURNING n"):
            jobs.enqueue("send", n, connection=connection)
        connection.commit()
    assert [job.arguments["args"] for job in jobs.list()] == [[3], [2]]


def test_a_commit_that_fails_leaves_no_transaction(tmp_path: Path) -> None:
    """Where the file is not in WAL mode yet, a reader is in the way."""
    jobs = Jobs(f"sqlite:///{tmp_path}/jobs.db")
    with (
        contextlib.closing(sqlite3.connect(tmp_path / "jobs.db", timeout=0, isolation_level=None)) as connection,
        contextlib.closing(sqlite3.connect(tmp_path / "jobs.db", isolation_level=None)) as reader,
    ):
        connection.execute("CREATE TABLE orders (n)")
        reader.execute("BEGIN")
        reader.execute("SELECT * FROM orders").fetchall()
        with pytest.raises(sqlite3.OperationalError, match="database is locked"):
            jobs.enqueue_many("send", [1, 2], connection=connection)
        assert not connection.in_transaction
        reader.execute("COMMIT")
        jobs.enqueue_many("send", [1, 2], connection=connection)
    assert len(jobs.list()) == 2


def test_a_file_whose_version_is_missing_gets_what_it_lacks(jobs: Jobs, tmp_path: Path) -> None:
    with contextlib.closing(sqlite3.connect(tmp_path / "jobs.db")) as connection:
        connection.executescript(f"{_core.JobStore.SCHEMA} DELETE FROM clutch_schema; DROP INDEX clutch_jobs_unique")
    first, again = (jobs.enqueue("send", 1, unique="one") for _ in range(2))
    assert (again, again.is_new) == (first, False)


def test_a_connection_may_read_text_as_it_likes(jobs: Jobs, tmp_path: Path) -> None:
    with contextlib.closing(sqlite3.connect(tmp_path / "jobs.db")) as connection:
        connection.text_factory = bytes
        jobs.enqueue("send", 1, unique="one", connection=connection)
        assert not jobs.enqueue("send", 1, unique="one", connection=connection).is_new
        assert connection.execute("SELECT 'a'").fetchone() == (b"a",)


def test_a_connection_that_is_none_of_sqlite3_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="allowed is a connection of the module sqlite3"):
        Jobs(f"sqlite:///{tmp_path}/a.db").enqueue(send, "ann", connection="app.db")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="only a store on SQLite can take part in a transaction"):
        Jobs("redis://localhost").enqueue(send, "ann", connection=sqlite3.connect(":memory:"))
    jobs = Jobs(f"sqlite:///{tmp_path}/a.db")
    in_memory = sqlite3.connect(":memory:")
    one = jobs.aenqueue(send, "a", connection=in_memory)  # pyright: ignore
    for wrong in (one, jobs.aenqueue_many(send, ["a"], connection=in_memory)):
        with pytest.raises(ConfigError, match=r"works with enqueue\(\) and enqueue_many\(\) only"):
            asyncio.run(wrong)


def test_limits_of_a_key_need_a_key(jobs: Jobs) -> None:
    for options in ({"key_limit": 3}, {"key_rate": "10/m"}):
        with pytest.raises(ValueError, match="this one has none: give key=, too"):
            jobs.options(**options).enqueue(send, "ann")


@pytest.mark.parametrize(
    "url",
    [
        "redis://me:s3cret@host/0",
        "redis+unix:///run/redis.sock?db=1&pass=s3cret",
        "redis+sentinel://host/name?sentinel_user=me&sentinel_password=s3cret",
        "redis:/me:s3cret@host",
    ],
)
def test_no_password_is_shown(url: str) -> None:
    try:
        shown = repr(Jobs(url))
    except ConfigError as error:
        shown = str(error)
    assert "s3cret" not in shown


def test_a_connection_that_would_write_to_another_file_is_refused(tmp_path: Path) -> None:
    jobs, other = Jobs(f"sqlite:///{tmp_path}/jobs.db"), Jobs(f"sqlite:///{tmp_path}/other.db")
    assert jobs.stats() == other.stats() == {}
    for main in (tmp_path / "other.db", tmp_path / "plain.db"):
        with contextlib.closing(sqlite3.connect(main)) as connection:
            connection.execute("ATTACH ? AS 'the jobs'", (f"{tmp_path}/jobs.db",))
            if main.name == "other.db":
                with pytest.raises(ConfigError, match=r"jobs\.db is attached as the jobs, but jobs would go to main"):
                    jobs.enqueue(send, "ann", connection=connection)
            else:
                jobs.enqueue(send, "ann", connection=connection)
                connection.commit()
    assert (len(jobs.list()), len(other.list())) == (1, 0)


def test_a_connection_to_another_file_is_refused(jobs: Jobs, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="they cannot share a transaction"):
        jobs.enqueue(send, "ann", connection=sqlite3.connect(tmp_path / "other.db"))


# ---- files that are none, or not now


def test_failure_48_a_file_that_is_no_database_is_told(tmp_path: Path) -> None:
    (tmp_path / "jobs.db").write_bytes(b"no database at all, but long enough to have a header" * 100)
    with pytest.raises(StoreError, match="file is not a database"):
        Jobs(f"sqlite:///{tmp_path}/jobs.db").enqueue("send")


def test_failure_48_a_locked_file_is_told_and_nothing_is_half_written(jobs: Jobs, tmp_path: Path) -> None:
    jobs.stats()
    other = sqlite3.connect(tmp_path / "jobs.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreUnavailable, match="found its file locked at each try"):
        jobs.enqueue_many("send", ["a", "b"])
    other.execute("ROLLBACK")
    assert jobs.list() == []
    jobs.enqueue("send", "a")


FULL_DISK = """
import resource, signal, sys
import clutch
jobs = clutch.Jobs(sys.argv[1])
jobs.enqueue("send", "a")
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (500_000, 500_000))
try:
    while True:
        jobs.enqueue_many("send", ["x" * 10_000] * 5)
except clutch.StoreUnavailable as error:
    print(error)
resource.setrlimit(resource.RLIMIT_FSIZE, (500_000, 500_000))
print(len(jobs.list(limit=1000)) % 5)
"""


def test_failure_48_a_full_disk_is_told_and_nothing_is_half_written(tmp_path: Path) -> None:
    """Files may grow no more: to SQLite, a write fails as on a full disk."""
    command = [sys.executable, "-c", FULL_DISK, f"sqlite:///{tmp_path}/jobs.db"]
    told = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout.splitlines()
    assert "disk" in told[0]
    assert told[1] == "1", "batches are there whole or not at all"


def test_a_newer_schema_is_refused(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/jobs.db"
    subprocess.run([sys.executable, "-c", "import clutch, sys; clutch.Jobs(sys.argv[1]).stats()", url], check=True)
    with sqlite3.connect(tmp_path / "jobs.db") as connection:
        connection.execute("UPDATE clutch_schema SET version = 99")
    with pytest.raises(StoreError, match="version 99, and this Clutch knows them up to 4: install a newer one"):
        Jobs(url).stats()


@pytest.mark.parametrize(("version", "words"), [(3, "call jobs.stats\\(\\) once"), (99, "install a newer one")])
def test_a_transaction_writes_no_other_version(tmp_path: Path, version: int, words: str) -> None:
    jobs = Jobs(f"sqlite:///{tmp_path}/jobs.db")
    jobs.stats()
    with contextlib.closing(sqlite3.connect(tmp_path / "jobs.db")) as connection:
        connection.execute("UPDATE clutch_schema SET version = ?", [version])
        with pytest.raises(clutch.ClutchError, match=f"its tables are of version {version}, and .*{words}"):
            jobs.enqueue("send", 1, connection=connection)


def test_a_transaction_needs_an_sqlite_that_can_write_the_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 30, 1))
    with (
        contextlib.closing(sqlite3.connect(tmp_path / "jobs.db")) as connection,
        pytest.raises(
            clutch.ConfigError, match=r"3\.31 is the oldest that can write jobs: enqueue without connection="
        ),
    ):
        Jobs(f"sqlite:///{tmp_path}/jobs.db").enqueue("send", 1, connection=connection)


# ---- many callers


@pytest.mark.parametrize("strategy", ["single", "pool", "checkout", "pipelined"])
def test_threads_enqueue_side_by_side(tmp_path: Path, strategy: str) -> None:
    jobs = Jobs(f"sqlite:///{tmp_path}/jobs.db?synchronous=normal", strategy=strategy)
    ids: list[str] = []

    def run() -> None:
        ids.extend([jobs.enqueue("send", n) for n in range(25)])

    threads = [threading.Thread(target=run) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(ids)) == 200
    assert len(jobs.list(limit=1000)) == 200


def test_asyncio_enqueues_and_waits_for_nobody(jobs: Jobs) -> None:
    async def main() -> list[str]:
        return await asyncio.gather(*(jobs.aenqueue("send", n) for n in range(50)))

    assert len(set(asyncio.run(main()))) == 50
    assert len(jobs.list()) == 50


def test_asyncio_goes_on_while_a_store_is_opened(tmp_path: Path) -> None:
    with RedisServer(tmp_path) as redis:
        jobs = Jobs(redis.url)

        async def main() -> None:
            redis.stop_answering()
            threads = threading.active_count()
            enqueued = [asyncio.create_task(jobs.options(queue="mail").aenqueue("send", n)) for n in range(50)]
            await asyncio.sleep(0)
            assert jobs._lazy.opened is None, "it connects elsewhere"
            assert threading.active_count() == threads + 1, "all wait for one"
            enqueued[0].cancel()
            redis.answer_again()
            assert len(await asyncio.gather(*enqueued[1:])) == 49

        asyncio.run(main())
        assert jobs._lazy.opened is not None, "copies with other options share it"
        assert len(jobs.list()) == 49


def test_a_forked_process_opens_its_own(jobs: Jobs) -> None:
    jobs.enqueue("send", 1)
    pid = os.fork()
    if pid == 0:
        try:
            jobs.enqueue("send", 2)
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    jobs.enqueue("send", 3)
    assert len(jobs.list()) == 3


def test_failure_57_a_copy_is_made_while_other_threads_are_in_the_midst_of_it(jobs: Jobs) -> None:
    """Each opens its own, whatever those threads were doing."""
    jobs.enqueue(send, "ann")
    over = threading.Event()

    def enqueue() -> None:
        while not over.is_set():
            jobs.enqueue(send, "ann")

    def look() -> None:
        while not over.is_set():
            Jobs(jobs.url).stats()

    threads = [threading.Thread(target=run) for run in (enqueue, enqueue, look, look)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(FORKS):
            pid = os.fork()
            if pid == 0:
                try:
                    os._exit(0 if jobs.get(jobs.enqueue(send, "bob")) else 1)
                finally:
                    os._exit(2)
            try:
                Processes([pid]).wait_ended()
            except TimeoutError:
                os.kill(pid, signal.SIGKILL)
                raise
            finally:
                status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            assert status == 0
    finally:
        over.set()
        for thread in threads:
            thread.join()


def test_the_first_enqueue_imports_nothing(tmp_path: Path) -> None:
    """A copy that is forked meanwhile would have locks of modules that nobody opens any more."""
    script = """
import sys
import clutch

@clutch.tool
def send(to: str, count: int | None = None) -> None: ...

jobs = clutch.Jobs(sys.argv[1])
known = set(sys.modules)
jobs.enqueue(send, "ann", in_="5m", unique=True)
print(sorted(set(sys.modules) - known))
"""
    done = subprocess.check_output([sys.executable, "-c", script, f"sqlite:///{tmp_path}/jobs.db"], text=True)
    assert done == "[]\n"


def test_a_fork_after_use_writes_beside_nobody(jobs: Jobs, tmp_path: Path) -> None:
    """SQLite in a copy would take the original's locks for its own, and destroy the file."""
    jobs.enqueue("send", "before")

    def work() -> None:
        for n in range(50):
            jobs.enqueue("send", n)

    children = []
    for _ in range(3):
        if (pid := os.fork()) == 0:
            try:
                work()
                os._exit(0)
            finally:
                os._exit(1)
        children.append(pid)
    work()
    assert [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children] == [0, 0, 0]
    assert len(jobs.list(limit=1000)) == 201
    with sqlite3.connect(tmp_path / "jobs.db") as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def test_the_first_use_may_be_within_a_transaction(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/jobs.db"
    subprocess.run([sys.executable, "-c", "import clutch, sys; clutch.Jobs(sys.argv[1]).stats()", url], check=True)
    connection = sqlite3.connect(tmp_path / "jobs.db")
    connection.row_factory = lambda _cursor, row: {"row": row}
    connection.execute("CREATE TABLE orders (n)")
    connection.execute("INSERT INTO orders VALUES (1)")
    jobs = Jobs(url)
    jobs.options(queue="mail").enqueue(send, "ann", connection=connection)
    assert jobs.list() == []
    connection.commit()
    assert only(jobs).queue == "mail"


IN_GREENLETS = """
from gevent import monkey
monkey.patch_all()
import gevent, sys
import clutch
jobs = clutch.Jobs(sys.argv[1])
ticks = []
def tick():
    while len(ticks) < 10_000_000:
        ticks.append(1)
        gevent.sleep(0)
ticker = gevent.spawn(tick)
greenlets = [gevent.spawn(jobs.enqueue, "send", n) for n in range(20)]
gevent.joinall(greenlets, raise_error=True)
ticker.kill()
print(len(jobs.list()), len(ticks) > 0)
"""


def test_greenlets_enqueue_while_others_run(tmp_path: Path) -> None:
    pytest.importorskip("gevent")
    command = [sys.executable, "-c", IN_GREENLETS, f"sqlite:///{tmp_path}/jobs.db"]
    told = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert told.stdout.split() == ["20", "True"]


WHILE_REDIS_HANGS = """
from gevent import monkey
monkey.patch_all()
import gevent, os, signal, sys
import clutch
url, pid = sys.argv[1], int(sys.argv[2])
jobs = clutch.Jobs(url)
job = jobs.enqueue("send", 1)
cold = clutch.Jobs(url + "?prefix=cold")
steps = [lambda: jobs.get(job), lambda: jobs.stats(), lambda: jobs.cancel(job), lambda: cold.enqueue("send", 1),
         lambda: print(jobs.wait(job, 60).state)]
for step in steps:
    os.kill(pid, signal.SIGSTOP)
    asks = gevent.spawn(step)
    gevent.sleep(0)
    # Another greenlet, which could not run if the one that asks held the thread.
    gevent.spawn(os.kill, pid, signal.SIGCONT)
    asks.get()
"""


def test_greenlets_run_while_redis_hangs(redis: RedisServer) -> None:
    pytest.importorskip("gevent")
    assert redis.process is not None
    command = [sys.executable, "-c", WHILE_REDIS_HANGS, redis.url, str(redis.process.pid)]
    told = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (told.stdout, told.stderr) == ("cancelled\n", "")


@pytest.mark.parametrize("text", ["abc", b"abc", bytearray(b"abc")])
def test_letters_are_no_arguments(jobs: Jobs, text: Any) -> None:
    with pytest.raises(TypeError, match="each letter of which would be a job: give a"):
        jobs.enqueue_many("send", text)
    assert jobs.stats() == {}


# ---- waiting for results


def test_the_end_of_a_job_is_waited_for_whatever_it_is(jobs: Jobs) -> None:
    job = jobs.enqueue("send", 1)
    with pytest.raises(TimeoutError, match=f"job {job} has not ended within 0 s"):
        jobs.wait(job, 0)
    jobs.cancel(job)
    assert jobs.wait(job).state == "cancelled"
    assert asyncio.run(jobs.await_end(job)).state == "cancelled"
    with pytest.raises(clutch.ClutchError, match="there is no job 99"):
        jobs.wait("99")


def test_a_result_is_waited_for_while_the_store_cannot_be_reached(tmp_path: Path) -> None:
    with RedisServer(tmp_path) as server:
        jobs = Jobs(server.url)
        job = jobs.enqueue("send", 1)
        server.kill()
        with pytest.raises(StoreError):
            jobs.result(job, 0.01)
        with ThreadPoolExecutor() as aside:
            waits = aside.submit(jobs.result, job, 30)
            server.start()
            jobs.cancel(job)
            with pytest.raises(clutch.JobFailed, match="is cancelled"):
                waits.result(30)


def test_waiting_for_a_result_has_an_end(jobs: Jobs) -> None:
    job = jobs.enqueue("send", 1)
    with pytest.raises(TimeoutError, match=f"job {job} has not ended within 0.01 s"):
        jobs.result(job, 0.01)
    jobs.cancel(job)
    with pytest.raises(clutch.JobFailed, match="is cancelled: cancelled") as failed:
        jobs.result(job)
    assert (failed.value.job, failed.value.state) == (job, "cancelled")
    with pytest.raises(clutch.ClutchError, match="there is no job 99"):
        jobs.result("99")


@pytest.mark.parametrize("time", [5, 0.5, "5m", timedelta(hours=1)])
def test_a_job_names_a_time_as_everywhere(time: float | str | timedelta) -> None:
    assert (clutch.Snooze(time).seconds, clutch.Retry(time).in_) == (time, time)


@pytest.mark.parametrize("time", [-1, float("nan"), "soon", None, True, 1e12])
def test_a_wrong_time_is_refused_where_the_job_names_it(time: Any) -> None:
    for make, name in ((clutch.Snooze, "Snooze"), (clutch.Retry, "Retry in_")):
        with pytest.raises(ValueError, match=f"^{name} .*: allowed are seconds from 0 up, text such as"):
            make(time)


def test_an_option_that_is_misspelt_is_told_with_the_one_that_was_meant(jobs: Jobs) -> None:
    with pytest.raises(BadArguments, match="'prioritty'; did you mean priority\\?"):
        jobs.enqueue(send, "ann", prioritty=5)  # pyright: ignore
    for of_peers in ("delay", "countdown", "dealy"):
        with pytest.raises(BadArguments, match=f"'{of_peers}'; did you mean in_\\?"):
            jobs.enqueue(send, "ann", **{of_peers: 5})
    for wrong in (lambda: jobs.options(retrys=3), lambda: jobs.enqueue_many(send, ["ann"], retrys=3)):  # pyright: ignore
        with pytest.raises(TypeError, match=r"^jobs.options\(\) has no option 'retrys'; did you mean retry\?"):
            wrong()
    with pytest.raises(TypeError, match=r"^@tool has no option 'retrys'; did you mean retry\?"):
        tool(retrys=3)  # pyright: ignore
    with pytest.raises(TypeError, match=r"^@tool has no option 'x'; options are queue, .* attempt_deadline, raises$"):
        tool(x=3)  # pyright: ignore
    assert jobs.list() == []


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("job_timeout", "attempt_deadline"),
        ("time_limit", "attempt_deadline"),
        ("soft_time_limit", "attempt_deadline"),
        ("atempt_deadline", "attempt_deadline"),
        ("autoretry_for", "retry_on"),
        ("retry_onn", "retry_on"),
        ("throws", "give_up_on"),
        ("give_up_for", "give_up_on"),
        ("giveup_on", "give_up_on"),
    ],
)
def test_an_option_of_all_jobs_of_a_tool_is_told_wherever_it_is_given(jobs: Jobs, given: str, meant: str) -> None:
    told = rf"'{given}'; did you mean @tool\({meant}=…\)\?"
    with pytest.raises(TypeError, match=f"@tool has no option {told}"):
        tool(**{given: 3})  # pyright: ignore
    with pytest.raises(TypeError, match=rf"^jobs.options\(\) has no option {told}"):
        jobs.options(**{given: 3})  # pyright: ignore
    with pytest.raises(BadArguments, match=told):
        jobs.enqueue(send, "ann", **{given: 3})
    assert jobs.list() == []


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"result": True}, "result True"),
        ({"backoff": "slow"}, "backoff 'slow'"),
        ({"key_rate": "fast"}, "key_rate 'fast'"),
        ({"key_rate": "-5/s"}, "key_rate '-5/s'"),
        ({"key_rate": b"5/s"}, "key_rate b'5/s'"),
        ({"deadline": "soon"}, "deadline 'soon'"),
    ],
)
def test_a_wrong_time_or_rate_is_refused_where_the_tool_is_marked(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=f"^{said}: allowed are "):
        tool(**options)


def test_a_name_where_a_function_belongs_is_told_how_it_is_given() -> None:
    with pytest.raises(TypeError, match=r"write @tool\(name='mail'\)"):
        tool("mail")  # type: ignore[call-overload]  # pyright: ignore


def test_a_function_that_keeps_no_mark_is_told_to_be_wrapped() -> None:
    with pytest.raises(TypeError, match="@tool cannot mark <built-in function len>: write a function that calls it"):
        tool(len)


def test_a_relative_path_is_meant_where_the_jobs_were_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    jobs = Jobs("sqlite:///jobs.db?synchronous=normal")
    inner = tmp_path / "inner"
    inner.mkdir()
    monkeypatch.chdir(inner)
    jobs.enqueue("send")
    with sqlite3.connect(tmp_path / "jobs.db") as connection:
        jobs.enqueue("send", connection=connection)
    connection.close()
    assert (len(jobs.list()), list(inner.iterdir())) == (2, [])
    inner.rmdir()
    assert len(Jobs(jobs.url).list()) == 2
    with pytest.raises(ConfigError, match="the working folder is gone; give an absolute path"):
        Jobs("sqlite:///jobs.db")
    (odd := tmp_path / "who?").mkdir()
    monkeypatch.chdir(odd)
    Jobs("sqlite:///jobs.db").enqueue("send")
    assert (odd / "jobs.db").exists()


def test_each_program_that_looks_at_a_replaced_file_opens_it_once(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/jobs.db"
    counts = []
    for turn in range(4):
        Jobs(url).enqueue("send", turn)
        assert [job.arguments["args"] for job in Jobs(url).list()] == [[turn]]
        counts.append(len(os.listdir("/proc/self/fd")))
        for file in tmp_path.iterdir():
            file.unlink()
    assert counts[1] == counts[3]
