"""Periodic jobs: each tick runs once, whoever runs the jobs of the store."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest
from job_tools import append, append_tick, double, wait_at

import clutch
from support.clutch_process import COMMAND, Dispatcher, soon
from support.clutch_process import clutch as command
from support.jobs_house import worker
from support.redis_server import RedisServer
from support.rendezvous import Rendezvous

TICKS = 4


@pytest.fixture(params=["sqlite", "redis"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The URL of an empty store."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/jobs.db"
    else:
        with RedisServer(tmp_path) as server:
            yield server.url


def config_of(store: str, entries: str) -> str:
    return f"""
    [pools.work]
    target = "job_tools"
    workers = 1
    [stores.main]
    url = "{store}"
    [fronts.jobs]
    {entries}
    """


def ticks_in(runs: Path) -> list[str]:
    return runs.read_text().split("\n")[:-1] if runs.exists() else []


def test_each_tick_runs_once_over_two_dispatchers_and_a_restart(tmp_path: Path, store: str) -> None:
    runs = tmp_path / "runs"
    each = f'[cron.each]\nschedule = "* * * * * *"\ntool = "append_tick"\nargs = ["{runs}"]\n'
    (tmp_path / "clutch.toml").write_text(config_of(store, each))
    run = [*COMMAND, "run", "--control", "off"]
    with Dispatcher(tmp_path, run) as one, Dispatcher(tmp_path, run) as other:
        one.err.wait("cron each: append_tick, .* UTC, next 20")
        other.wait_ready("work")
        soon(lambda: len(ticks_in(runs)) >= TICKS)
        one.terminate()
        assert one.wait() == 0
        told = len(ticks_in(runs))
        soon(lambda: len(ticks_in(runs)) >= told + 2)
        with Dispatcher(tmp_path, run) as third:
            third.wait_ready("work")
            told = len(ticks_in(runs))
            soon(lambda: len(ticks_in(runs)) >= told + 2)
            for server in (other, third):
                server.terminate()
                assert server.wait() == 0
    ticks = ticks_in(runs)
    assert len(set(ticks)) == len(ticks), "none twice"
    found = clutch.Jobs(store).list(tag="cron:each")
    assert {job.meta["tick"] for job in found} == set(ticks)
    assert all(job.meta["cron"] == "each" and job.state == "completed" for job in found)


def test_a_tool_that_its_pool_does_not_have_is_told_at_the_start(tmp_path: Path) -> None:
    entries = '[cron.wrong]\nevery = "1h"\ntool = "append_tik"\n[cron.right]\nevery = "1h"\ntool = "append_tick"\n'
    entries += '[cron.other]\nevery = "1h"\ntool = "of_others"\nqueue = "others"\n'
    (tmp_path / "clutch.toml").write_text(config_of(f"sqlite:///{tmp_path}/jobs.db", entries))
    with Dispatcher(tmp_path, [*COMMAND, "run", "--control", "off"]) as server:
        server.err.wait("cron.wrong.tool: pool work has no tool append_tik, .* did you mean append_tick?")
        server.terminate()
        assert server.wait() == 0
        assert not {"cron.right.tool", "cron.other.tool"} & set(server.err.text.replace(":", " ").split())


def test_a_target_without_tools_is_told_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "unmarked.py").write_text("def send() -> None: ...\n")
    work = ["work", "unmarked", "--store", f"sqlite:///{tmp_path}/jobs.db", "--control", "off"]
    with Dispatcher(tmp_path, [*COMMAND, *work]) as server:
        server.err.wait(
            "its pool work has no tool, so every job waits, for a day at most; mark functions with @clutch.tool"
        )
        server.terminate()
        assert server.wait() == 0


def test_a_runner_that_does_not_lead_enqueues_its_entries(tmp_path: Path) -> None:
    """The leader is another program, which knows of no entry."""
    store, runs = f"sqlite:///{tmp_path}/jobs.db", tmp_path / "runs"
    work = [*COMMAND, "work", "job_tools", "--store", store, "--workers", "1", "--control", "off"]
    settings = ("cron.x.every=1s", "cron.x.tool=append_tick", f'cron.x.args=["{runs}"]')
    with Dispatcher(tmp_path, work) as leader:
        leader.wait_ready("work")
        # It leads as soon as it stages what is due.
        jobs = clutch.Jobs(store)
        job = jobs.options(result=60, in_=0.01).enqueue("double", 5)
        assert jobs.result(job, 30) == 10
        with Dispatcher(tmp_path, [*work, *(word for one in settings for word in ("--set", one))]) as other:
            other.err.wait("cron x: append_tick, every 1 s")
            soon(lambda: len(ticks_in(runs)) >= 2)
            for server in (leader, other):
                server.terminate()
                assert server.wait() == 0


def test_a_tick_is_skipped_while_the_job_of_the_last_one_runs(tmp_path: Path) -> None:
    store, runs = f"sqlite:///{tmp_path}/jobs.db", tmp_path / "runs"
    short = f'[cron.short]\nevery = "1s"\ntool = "append_tick"\nargs = ["{runs}"]\n'
    with Rendezvous() as place:
        long = f'[cron.long]\nevery = "1s"\ntool = "wait_at"\nargs = [{place.port}]\n'
        config = config_of(store, short + long).replace("workers = 1", "workers = 3")
        (tmp_path / "clutch.toml").write_text(config)
        with Dispatcher(tmp_path, [*COMMAND, "run", "--control", "off"]) as server:
            guest = place.guest()
            told = len(ticks_in(runs))
            soon(lambda: len(ticks_in(runs)) >= told + 2)
            assert len(clutch.Jobs(store).list(tag="cron:long")) == 1
            guest.let_go()
            place.guest().let_go()
            server.terminate()
            assert server.wait() == 0


def test_what_is_wrong_is_found_before_anything_starts(tmp_path: Path) -> None:
    wrong = '[cron.x]\nschedule = "0 3 * *"\ntool = "double"\n'
    (tmp_path / "clutch.toml").write_text(config_of("sqlite:///jobs.db", wrong))
    for arguments in (("run", "--check"), ("run",), ("jobs", "cron")):
        done = command(*arguments, cwd=tmp_path)
        assert done.returncode != 0
        assert "cron.x.schedule: " in done.stderr
        assert "allowed: minute, hour" in done.stderr
    assert not (tmp_path / "jobs.db").exists()


def test_a_reload_names_what_only_a_restart_takes(tmp_path: Path) -> None:
    file = tmp_path / "clutch.toml"
    entry = '[cron.x]\nschedule = "0 3 * * *"\ntool = "double"\n'
    file.write_text(config_of("sqlite:///jobs.db", entry))
    with Dispatcher(tmp_path, [*COMMAND, "run"]) as server:
        server.wait_ready("work")
        assert command("reload", cwd=tmp_path).returncode == 0
        assert "restart to use it" not in server.err.text
        file.write_text(config_of("sqlite:///jobs.db", 'queues = "mail"\n' + entry.replace("0 3", "0 4")))
        assert command("reload", cwd=tmp_path).returncode == 0
        server.err.wait("changed since the start, and not taken by a reload: cron.x, fronts.jobs; restart to use it")


def test_clutch_jobs_cron_lists_the_entries(tmp_path: Path) -> None:
    entries = '[cron.nightly]\nschedule = "0 3 * * *"\nzone = "Asia/Tokyo"\ntool = "double"\nargs = [2]\n'
    (tmp_path / "clutch.toml").write_text(config_of("sqlite:///jobs.db", entries))
    done = command("jobs", "cron", cwd=tmp_path)
    assert "nightly  0 3 * * * Asia/Tokyo  double  default  main   config  20" in done.stdout, done.stderr
    assert "03:00:00+09:00" in done.stdout
    (entry,) = json.loads(command("jobs", "cron", "clutch.toml", "--json", cwd=tmp_path).stdout)
    assert (entry["name"], entry["args"], entry["next"][10:]) == ("nightly", [2], "T03:00:00+09:00")


# ---- schedules that the store keeps


def test_a_schedule_is_taken_up_and_changed_while_dispatchers_run(tmp_path: Path, store: str) -> None:
    runs, jobs = tmp_path / "runs", clutch.Jobs(store)
    with worker(tmp_path, store) as one, worker(tmp_path, store) as other:
        one.wait_ready("work")
        other.wait_ready("work")
        jobs.schedule("each", 1, partial(append_tick, str(runs)))
        soon(lambda: len(ticks_in(runs)) >= TICKS)
        assert jobs.pause_schedule("each")
        paused = jobs.schedules()[0]
        assert (paused.name, paused.when, paused.is_paused, paused.next_at) == ("each", "every 1 s", True, None)
        assert jobs.unschedule("each")
        assert jobs.schedules() == []
        jobs.schedule("daily", "0 3 * * *", partial(append, str(runs), "run\n"), zone="Europe/Berlin")
        job = jobs.run_schedule("daily")
        assert job is not None
        soon(lambda: "run" in ticks_in(runs))
        found = jobs.get(job)
        assert found is not None
        assert (found.tags, found.meta["cron"]) == (("cron:daily",), "daily")
    ticks = [tick for tick in ticks_in(runs) if tick != "run"]
    assert len(ticks) == len(set(ticks)), "each made one job"


def test_a_schedule_that_hangs_is_told_of(tmp_path: Path, store: str) -> None:
    jobs = clutch.Jobs(store)
    with Rendezvous() as rendezvous, worker(tmp_path, store) as server:
        jobs.schedule("hang", 1, partial(wait_at, rendezvous.port))
        guest = rendezvous.guest()
        server.err.wait("ticks of hang are skipped, since the job of an earlier one has not ended")
        guest.let_go()


def test_schedules_are_listed_beside_those_of_the_config(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/jobs.db"
    (tmp_path / "clutch.toml").write_text(config_of(store, '[cron.own]\nevery = "5m"\ntool = "double"\nargs = [1]\n'))
    jobs = clutch.Jobs(store)

    def said(*arguments: str) -> str:
        done = command("jobs", "cron", *arguments, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert "store" not in said().split("from", 1)[1], "to look creates no file"
    jobs.options(queue="mail").schedule("kept", "0 3 * * *", partial(double, 1), zone="Europe/Berlin")
    jobs.schedule("often", "5m", partial(double, 1))
    assert re.search(r"(?m)^own +every 300 s +double +default +main +config +20", said())
    assert re.search(r"(?m)^kept +0 3 \* \* \* Europe/Berlin +double +mail +main +store +20", said())
    assert said("--pause", "often") == "schedule often paused\n"
    assert re.search(r"(?m)^often .* store +- +paused", said())
    assert said("--resume", "often") == "schedule often resumed\n"
    assert re.fullmatch(r"schedule kept: job \d+ enqueued\n", said("--run", "kept"))
    again = json.loads(said("--run", "kept", "--json"))
    assert (again["changed"], again["is_new"], jobs.get(again["job"]) is not None) == ("run", False, True)
    assert (
        said("--run", "kept")
        == f"schedule kept: nothing enqueued, since its job {again['job']} has not ended (overlap)\n"
    )
    assert json.loads(said("--delete", "kept", "--json")) == {"name": "kept", "changed": "delete"}
    assert [(one["name"], one["from"]) for one in json.loads(said("--json"))] == [("own", "config"), ("often", "store")]
    refused = command("jobs", "cron", "--delete", "own", cwd=tmp_path)
    assert refused.returncode != 0
    assert "the store keeps no schedule of this name; it keeps often" in refused.stderr
    (tmp_path / "clutch.toml").unlink()
    assert [one["name"] for one in json.loads(said("--store", store, "--json"))] == ["often"]


def test_schedules_that_never_tick_are_refused(tmp_path: Path) -> None:
    jobs = clutch.Jobs(f"sqlite:///{tmp_path}/jobs.db")
    for when, options, why in [
        ("0 3 31 2 *", {}, "there is no such time"),
        ("0 3 * *", {}, "cannot be read"),
        (0.5, {}, "less than 1 s"),
        ("x", {}, "when 'x'"),
        ("0 3 * * *", {"zone": "Mars/Base"}, "there is no such time zone"),
        (60, {"zone": "UTC"}, "in no zone"),
        (60, {"misfire": "all"}, "allowed are last, skip"),
        (60, {"overlap": "all"}, "allowed are skip, wait, allow"),
    ]:
        with pytest.raises(ValueError, match=why):
            jobs.schedule("a", when, partial(double, 1), **options)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="a schedule has none"):
        jobs.options(unique=True).schedule("a", 60, partial(double, 1))
    with pytest.raises(ValueError, match="name"):
        jobs.schedule("", 60, partial(double, 1))
    with pytest.raises(ValueError, match="has no place for periodic jobs"):
        clutch.Jobs("sidekiq://127.0.0.1:1/0").schedule("a", 60, "double")
    assert jobs.schedules() == []


def test_asyncio_schedules(tmp_path: Path) -> None:
    jobs = clutch.Jobs(f"sqlite:///{tmp_path}/jobs.db")

    async def play() -> list[str]:
        await jobs.aschedule("a", timedelta(hours=1), partial(double, 1), overlap="allow")
        await jobs.apause_schedule("a")
        await jobs.aresume_schedule("a")
        assert await jobs.arun_schedule("a") is not None
        names = [one.name for one in await jobs.aschedules()]
        await jobs.aunschedule("a")
        return names

    assert asyncio.run(play()) == ["a"]
    assert jobs.run_schedule("a") is None
