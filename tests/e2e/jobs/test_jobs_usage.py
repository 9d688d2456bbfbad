"""What people who operate jobs are told: why a job is dead, and what is wrong with what they typed or wrote."""

from __future__ import annotations

import contextlib
import json
import re
import sqlite3
from pathlib import Path
from typing import Any

import pytest

import clutch
from support.clutch_process import COMMAND, WAIT_SECONDS, Dispatcher, soon
from support.clutch_process import clutch as command
from support.redis_server import RedisServer

TOOLS = """
import clutch
from clutch import tool

@tool(retry=3, give_up_on=("LookupError", "no_such_package.Error"))
def give_up(): raise KeyError("x")

@tool(retry=3, retry_on=(OSError,))
def other(): raise ValueError("y")

@tool(retry=3)
def kill(): raise clutch.Dead("no such address")

@tool(retry=0)
def once(): raise ValueError("z")

@tool(retry=3)
def needs(what: int): ...
"""


@pytest.mark.parametrize(
    ("tool", "why"),
    [
        ("give_up", "its tool gives up on LookupError (give_up_on)"),
        ("other", "its tool is not retried on ValueError (retry_on)"),
        ("kill", "clutch.Dead"),
        ("once", "that was its only attempt (retry=0)"),
        ("needs", "its arguments do not fit its tool"),
        ("late", "its deadline has passed"),
    ],
)
def test_a_dead_job_says_why_it_is_not_tried_again(tmp_path: Path, tool: str, why: str, any_store: str) -> None:
    (tmp_path / "shop.py").write_text(TOOLS)
    jobs = clutch.Jobs(any_store)
    if any_store.startswith("sidekiq") and tool == "late":
        pytest.skip("the format has no deadlines")
    deadline = 0 if tool == "late" else None
    job = jobs.options(retry=0 if tool == "once" else 3, deadline=deadline).enqueue(tool)
    with Dispatcher(tmp_path, [*COMMAND, "work", "shop", "--workers", "1", "--store", any_store]) as server:
        server.err.wait(rf"job {job} .*it is dead: {re.escape(why)}")
        server.err.wait("tool 'give_up': give_up_on 'no_such_package.Error': there is no module 'no_such_package'")
        if not any_store.startswith("sidekiq"):  # whose format has no place for it
            soon(lambda: (found := jobs.get(job)) is not None and found.state == "dead")
            shown = command("jobs", "show", job, "--store", any_store, cwd=tmp_path).stdout
            assert f"reason        {why}\n" in shown


def test_a_misspelt_name_of_an_exception_keeps_a_target_from_starting(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(
        "import configparser\nfrom clutch import tool\n\n"
        "@tool(retry_on=('configparser.NoSectionErorr',))\ndef f(): ...\n"
    )
    done = command("work", "shop", "--store", "sqlite:///jobs.db", cwd=tmp_path)
    said = (
        "tool 'f': retry_on 'configparser.NoSectionErorr': 'configparser' is imported, and has no 'NoSectionErorr'; "
        "did you mean configparser.NoSectionError?"
    )
    assert (done.returncode, said in done.stderr, "Traceback" in done.stderr) == (2, True, False), done.stderr


def test_queues_without_jobs_are_told(tmp_path: Path) -> None:
    store = ("--store", f"sqlite:///{tmp_path}/jobs.db")
    jobs = clutch.Jobs(store[1])
    jobs.enqueue("send", queue="mail")

    def said(*arguments: str) -> str:
        done = command("jobs", *arguments, *store, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        return (done.stdout + done.stderr).strip()

    assert said("pause", "mial") == "queue mial paused; it has no jobs; did you mean mail?"
    assert jobs.stats()["mial"].is_paused, "it may be to come"
    assert said("limit", "x", "3") == "queue x: at most 3 at a time; it has no jobs; queues with jobs: mail"
    assert said("limit", "x", "--none") == "queue x: no limit; it has no jobs; queues with jobs: mail"
    assert said("resume", "mial") == "queue mial resumed; it has no jobs; did you mean mail?"
    assert said("resume", "mail") == "queue mail was not paused"
    assert said("list", "--queue", "mial") == "no such jobs: queue mial has no jobs; did you mean mail?"
    assert said("retry", "--queue", "mial") == "0 jobs run again: queue mial has no jobs; did you mean mail?"
    assert list(jobs.stats()) == ["mail"], "no trace is left of names that were misspelt"


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (
            ("limit", "mul", "abc"),
            "MOST 'abc': allowed are whole numbers from 0 to 4,294,967,295; 0 runs nothing, --none",
        ),
        (("limit", "mul", "4294967296"), "MOST '4294967296': allowed are whole numbers"),
        (
            ("limit", "mul", "--rate", "0/s"),
            "rate '0/s': allowed are a number from 1 to 10,000 and a time of 1 ms to 49",
        ),
        (("limit", "mul", "--rate", "10001/m"), "rate '10001/m': allowed are a number from 1 to 10,000"),
        (("enqueue", "shop:"), "TOOL 'shop:': allowed is the name of a tool, such as send or mail.send"),
        (("enqueue", "a b"), "TOOL 'a b': allowed is"),
        (("enqueue", "send", "--args", "[NaN]"), "--args '[NaN]': allowed are a JSON list"),
        (("retry", "1", "--target", "shop"), "--target checks --args: give these, too"),
        (("retry", "1", "--args", "[1]", "--target", "shop"), "--target shop has no tool 'send'; it has give_up, kill"),
    ],
)
def test_what_is_wrong_is_told_with_what_is_allowed(tmp_path: Path, words: tuple[str, ...], what: str) -> None:
    (tmp_path / "shop.py").write_text(TOOLS)
    store = f"sqlite:///{tmp_path}/jobs.db"
    clutch.Jobs(store).enqueue("send")
    done = command("jobs", *words, "--store", store, cwd=tmp_path)
    assert (done.returncode, what in done.stderr, "Traceback" in done.stderr) == (2, True, False), done.stderr


def test_other_arguments_are_checked_where_the_tool_is_known(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(TOOLS)
    store = f"sqlite:///{tmp_path}/jobs.db"
    jobs = clutch.Jobs(store)
    job = jobs.enqueue("needs", "much", in_=3600)

    def retry(arguments: str, *more: str) -> tuple[int, str]:
        done = command("jobs", "retry", job, "--args", arguments, *more, "--store", store, cwd=tmp_path)
        return done.returncode, done.stderr

    code, said = retry('["x"]', "--target", "shop")
    assert (code, "tool 'needs': what: Input should be a valid integer" in said) == (1, True), said
    (tmp_path / "clutch.toml").write_text('[pools.work]\ntarget = "shop"\n')
    code, said = retry('{"waht": 1}')
    assert (code, "got an unexpected keyword argument 'waht'" in said or "missing a required" in said) == (1, True), (
        said
    )
    found = jobs.get(job)
    assert found is not None and found.state == "scheduled", "nothing was changed"
    assert retry("[7]") == (0, "")
    (tmp_path / "clutch.toml").unlink()
    other = jobs.enqueue("elsewhere", in_=3600)
    done = command("jobs", "retry", other, "--args", "[]", "--store", store, cwd=tmp_path)
    assert (done.returncode, "the arguments are not checked: `--target MODULE`" in done.stderr) == (0, True), (
        done.stderr
    )


@pytest.mark.parametrize(
    ("target", "raised"),
    [
        ("import os\nos.environ['NO_SUCH']", "KeyError: 'NO_SUCH' ("),
        ("raise SystemExit(3)", "SystemExit: 3 ("),
        ("def f(:", "SyntaxError: "),
    ],
)
def test_a_target_that_does_not_import_is_told_in_a_line(tmp_path: Path, target: str, raised: str) -> None:
    (tmp_path / "shop.py").write_text(target)
    store = f"sqlite:///{tmp_path}/jobs.db"
    job = clutch.Jobs(store).enqueue("send", in_=3600)
    said = f"does not import: {raised}"
    retry = ("jobs", "retry", job, "--args", "[]", "--store", store)
    for words in ((*retry, "--target", "shop"), ("jobs", "enqueue", "shop:send", "--store", store)):
        done = command(*words, cwd=tmp_path)
        assert (done.returncode, said in done.stderr, "Traceback" in done.stderr) == (2, True, False), done.stderr
    (tmp_path / "clutch.toml").write_text('[pools.work]\ntarget = "shop"\n')
    done = command(*retry, cwd=tmp_path)
    assert (done.returncode, f"the arguments are not checked: target 'shop' {said}" in done.stderr) == (0, True), (
        done.stderr
    )


def test_what_a_target_prints_is_not_part_of_an_answer(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(f"print('of the import')\n{TOOLS}")
    store = f"sqlite:///{tmp_path}/jobs.db"
    clutch.Jobs(store).enqueue("send")
    done = command("jobs", "enqueue", "shop:needs", "7", "--json", "--store", store, cwd=tmp_path)
    assert (json.loads(done.stdout)["is_new"], "of the import" in done.stderr) == (True, True), done.stderr


@pytest.mark.parametrize("value", [float("nan"), object(), {(1, 2): 3}])
def test_arguments_that_cannot_be_json_are_wrong_arguments(tmp_path: Path, value: object) -> None:
    jobs = clutch.Jobs(f"sqlite:///{tmp_path}/jobs.db")
    with pytest.raises(clutch.BadArguments, match="the arguments cannot be JSON"):
        jobs.enqueue("send", value)
    with pytest.raises(clutch.BadArguments, match="the arguments cannot be JSON"):
        jobs.retry("1", arguments=(value,))


def test_lists_show_arguments_as_a_call_and_mark_what_is_cut(tmp_path: Path) -> None:
    jobs = clutch.Jobs(f"sqlite:///{tmp_path}/jobs.db")
    jobs.enqueue("send", "ann", 7, text="x" * 100)
    shown = command("jobs", "list", "--store", jobs.url, cwd=tmp_path).stdout
    assert shown.splitlines()[1].endswith(f'  "ann", 7, text="{"x" * 43}…'), shown


QUEUES = """
from clutch import tool

@tool(queue="images")
def shrink(): ...

@tool(queue="mail")
def send(): ...
"""


@pytest.mark.parametrize(("taken", "is_told"), [("default", True), ("default,mail", False)])
def test_a_worker_that_takes_from_no_queue_of_its_tools_says_so(tmp_path: Path, taken: str, is_told: bool) -> None:
    (tmp_path / "shop.py").write_text(QUEUES)
    store = f"sqlite:///{tmp_path}/jobs.db"
    with Dispatcher(tmp_path, [*COMMAND, "work", "shop", "--store", store, "--queues", taken]) as server:
        server.wait_ready("work")
        said = "since their queues are not taken from: images (shrink); mail (send); taken from: default; "
        assert (f"{said}add --queues default,images,mail" in server.err.text) == is_told


def test_times_are_shown_with_how_far_they_are(tmp_path: Path) -> None:
    jobs = clutch.Jobs(f"sqlite:///{tmp_path}/jobs.db")
    job = jobs.enqueue("send", "ann", in_=7200)
    shown = command("jobs", "show", job, "--store", jobs.url, cwd=tmp_path).stdout
    assert re.search(r"^created_at    \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC \(\d+s ago\)$", shown, re.MULTILINE), shown
    assert re.search(r"^scheduled_at  .* UTC \(in 2h\)$", shown, re.MULTILINE), shown
    jobs.enqueue("sweep", in_=7200)
    listed = command("jobs", "list", "--store", jobs.url, cwd=tmp_path).stdout
    assert listed.splitlines()[1].rstrip().endswith("  in 2h"), listed
    assert listed.splitlines()[2].endswith('  in 2h: "ann"'), listed


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("sqlite:///folder", "it is a folder: name a file in it, such as jobs.db"),
        ("sqlite:///jobs.db ", "has a space at its beginning or end: remove it"),
        ("", "it is empty: is the variable set that it comes from?"),
        ("sqlite:jobs.db", "did you mean sqlite:///jobs.db?"),
    ],
)
def test_a_url_that_is_nearly_right_is_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str, words: str
) -> None:
    (tmp_path / "folder").mkdir()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(clutch.ClutchError, match=re.escape(words)):
        clutch.Jobs(url).enqueue("send")


def test_a_server_that_is_nearly_named_is_answered_with_its_url(tmp_path: Path) -> None:
    done = command("jobs", "stats", "--store", "redis:/localhost", cwd=tmp_path)
    assert (done.returncode, "give one, such as redis://localhost:6379/0" in done.stderr) == (2, True), done.stderr


@pytest.mark.parametrize("queues", ["", "mail images", "mail,,images"])
def test_queues_that_are_not_separated_by_commas_are_refused(tmp_path: Path, queues: str) -> None:
    done = command("work", "job_tools", "--store", "sqlite:///jobs.db", "--queues", queues, cwd=tmp_path)
    assert (done.returncode, '"critical:3,default:1" with commas' in done.stderr) == (2, True), done.stderr


def test_what_a_store_refuses_is_told_in_a_line(tmp_path: Path, redis: RedisServer) -> None:
    store = redis.url.replace("redis+unix", "sidekiq+unix")
    job = clutch.Jobs(store).enqueue("send", 1, in_=3600)
    done = command("jobs", "retry", job, "--args", '{"a": 1}', "--store", store, cwd=tmp_path)
    said = "the format of Sidekiq has no keyword arguments"
    assert (done.returncode, said in done.stderr, "Traceback" in done.stderr) == (2, True, False), done.stderr


def test_a_job_whose_dispatchers_were_lost_too_often_says_so(tmp_path: Path) -> None:
    jobs = clutch.Jobs(f"sqlite:///{tmp_path}/jobs.db")
    job = jobs.enqueue("send")
    lapsed = '[{"at": 0, "attempt": 1, "kind": "lease_lapsed", "message": "runner x has not renewed its lease"}]'
    with contextlib.closing(sqlite3.connect(tmp_path / "jobs.db", isolation_level=None)) as other:
        other.execute("UPDATE clutch_jobs SET state = 5, errors = ?, reason = 'snoozed'", [lapsed])
    found = jobs.get(job)
    assert found is not None
    assert (found.state, found.reason) == ("dead", "its dispatchers were lost too often in a row (lease_lapsed)")


def test_queues_in_place_of_modules_are_answered(tmp_path: Path) -> None:
    done = command("work", "job_tools", "high", "--store", "sqlite:///jobs.db", cwd=tmp_path)
    assert done.returncode == 2
    assert f"target 'high' does not import: No module named 'high' in {tmp_path} or among" in done.stderr
    assert "each name here is a module, and queues are named by --queues" in done.stderr


class Mailer:
    @clutch.tool
    def deliver(self, to: str) -> str:
        return f"delivered to {to}"


@clutch.tool
def greet(to: str) -> str:
    return f"hello {to}"


@clutch.tool
async def greet_soon(to: str) -> str:
    return f"hello {to}"


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (lambda jobs: jobs.enqueue(greet("ann")), "no tool has the name 'hello ann'; a tool is given itself"),
        (lambda jobs: jobs.enqueue(greet_soon("ann")), "and not called, as in enqueue(send(1))"),
        (lambda jobs: jobs.enqueue(None), "None cannot be a job"),
        (lambda jobs: jobs.enqueue(greet, args=("ann",)), "give the arguments themselves, as in enqueue(f, 1, name=2)"),
        (lambda jobs: jobs.enqueue(greet, xyz="ann"), "missing a required argument: 'to'; 'xyz' was given"),
        (lambda jobs: jobs.enqueue_many(greet, {"to": "ann"}), "are dict, each key of which would be a job"),
        (lambda jobs: jobs.get(1), "job 1: ids are text, also where they are numbers"),
        (lambda jobs: jobs.cancel(1), "job 1: ids are text"),
        (lambda jobs: jobs.limit("mail", "3"), "running_max '3': allowed are whole numbers"),
        (lambda jobs: jobs.limit("mail", 1.5), "running_max 1.5: allowed are whole numbers"),
        (
            lambda jobs: jobs.schedule("n", "0 3 * * *", "f", zone="Berlin"),
            "schedule 'n': zone 'Berlin': there is no such",
        ),
        (lambda jobs: jobs.schedule("", "5m", "f"), "schedule '': a schedule's name is empty"),
        (lambda jobs: jobs.schedule("n", "5m", "f", queue="mail"), "jobs.options(queue=…).schedule(…)"),
        (lambda jobs: jobs.schedule("n", "5m", "f", tz="Asia/Tokyo"), "has no option 'tz'; did you mean zone?"),
        (
            lambda jobs: jobs.schedule("n", "5m", greet, to="ann"),
            "arguments of the tool are given by functools.partial",
        ),
        (lambda jobs: jobs.list(tag=["a"]), "tag ['a']: allowed is text, one tag"),
        (lambda jobs: list(jobs.each(tool=greet)), ">: allowed is text, the name of a tool"),
    ],
)
def test_calls_that_mean_something_else_are_answered(tmp_path: Path, wrong: Any, words: str) -> None:
    jobs = clutch.Jobs(f"sqlite:///{tmp_path}/jobs.db")
    with pytest.raises((ValueError, TypeError, clutch.BadArguments), match=re.escape(words)):
        wrong(jobs)
    assert jobs.list() == []


def test_a_method_is_enqueued_under_the_name_that_workers_of_its_class_know(tmp_path: Path) -> None:
    jobs = clutch.Jobs(f"sqlite:///{tmp_path}/jobs.db")
    job = jobs.options(result=60).enqueue(Mailer().deliver, "ann")
    found = jobs.get(job)
    assert found is not None and found.tool == "deliver"
    (tmp_path / "shop.py").write_text(
        "import clutch\n\nclass Mailer:\n    @clutch.tool\n    def deliver(self, to: str) -> str:\n        return to\n"
    )
    with Dispatcher(tmp_path, [*COMMAND, "work", "shop:Mailer", "--store", jobs.url]):
        assert jobs.result(job, WAIT_SECONDS) == "ann"
