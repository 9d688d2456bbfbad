"""Jobs while everything that runs them is killed: none is lost, and each that has ended has run."""

from __future__ import annotations

import contextlib
import http.client
import itertools
import json
import os
import random
import re
import resource
import signal
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import job_tools
import pytest

import clutch
from clutch.control import client
from clutch.testing import children, clock, drain
from support.clutch_process import COMMAND, PYTHON_PATH, WAIT_SECONDS, Dispatcher, soon
from support.clutch_process import clutch as command
from support.jobs_house import worker
from support.redis_server import RedisServer
from support.rendezvous import Guest, Rendezvous

JOBS = int(os.environ.get("CLUTCH_TEST_JOBS", "1500"))
KILLS = 12
LEASES_SECONDS = 2.5
"""More than two leases of a worker here."""
BEEPS = json.dumps([{"at": 0, "attempt": 1, "kind": "raised", "message": "\x1b[2J", "traceback": "\x1b]0;x\x07"}])


@pytest.mark.parametrize("what", ["worker", "zygote", "dispatcher"])
def test_failure_43_kill_9_loses_no_job(tmp_path: Path, store: str, what: str) -> None:
    kill_loop(tmp_path, store, lambda pid: os.kill(random.choice(victims_of(pid, what)), signal.SIGKILL))


@pytest.mark.parametrize("what", ["worker", "zygote", "dispatcher"])
def test_failure_43_kill_9_loses_no_job_in_the_format_of_sidekiq(tmp_path: Path, redis: RedisServer, what: str) -> None:
    store = redis.url.replace("redis+unix", "sidekiq+unix")
    kill_loop(tmp_path, store, lambda pid: os.kill(random.choice(victims_of(pid, what)), signal.SIGKILL))


def test_failure_43_kill_9_of_everything_in_turn_loses_no_job(tmp_path: Path, redis: RedisServer) -> None:
    turns = itertools.cycle(["worker", "redis-server", "zygote", "dispatcher"])

    def kill_next(pid: int) -> None:
        what = next(turns)
        if what == "redis-server":
            redis.kill()
            redis.start()
        else:
            os.kill(random.choice(victims_of(pid, what)), signal.SIGKILL)

    kill_loop(tmp_path, redis.url, kill_next)


def kill_loop(tmp_path: Path, store: str, kill_one: Callable[[int], None]) -> None:
    """Every job is enqueued once and appends its number. A number may come twice: a kill came between its end and the
    settlement. None may be missing."""
    jobs, runs = clutch.Jobs(store), tmp_path / "runs"
    runs.touch()
    jobs.enqueue_many("append", [(str(runs), f"{n}\n") for n in range(JOBS)])
    dice = random.Random(43)
    for kill in range(KILLS + 1):
        with worker(tmp_path, store) as server:
            server.wait_ready("work")
            last = kill == KILLS
            enough = JOBS if last else min(JOBS, len(set(numbers(runs))) + dice.randrange(1, JOBS // KILLS))
            soon(lambda enough=enough: len(set(numbers(runs))) >= enough)
            if last:
                soon(lambda: is_empty(jobs))
                server.terminate()
                assert server.wait() == 0
            else:
                kill_one(server.process.pid)
                if server.process.poll() is None:
                    soon(lambda enough=enough: went_on(server, runs, min(JOBS, enough + 10)))
    counts = Counter(numbers(runs))
    assert set(counts) == set(range(JOBS))
    print(f"{store}: {KILLS} kills; jobs by number of runs: {sorted(Counter(counts.values()).items())}")
    twice = sum(count - 1 for count in counts.values())
    assert twice <= KILLS * 2, "no more than ran at the time of a kill, on 2 workers"


def is_empty(jobs: clutch.Jobs) -> bool:
    """Sidekiq's format forgets jobs that have completed."""
    queue = jobs.stats().get("default")
    return queue is None or queue.scheduled + queue.available + queue.running == 0


def went_on(server: Dispatcher, runs: Path, enough: int) -> bool:
    """Whether so many have run, or the dispatcher was the one that was killed."""
    return server.process.poll() is not None or len(set(numbers(runs))) >= enough


def numbers(runs: Path) -> list[int]:
    return [int(line) for line in runs.read_text().split("\n")[:-1]]


def victims_of(pid: int, what: str) -> list[int]:
    zygotes = children(pid)
    match what:
        case "dispatcher":
            return [pid]
        case "zygote":
            return zygotes
    return [worker for zygote in zygotes for worker in children(zygote)] or zygotes


def test_failure_45_a_redis_that_is_killed_and_started_again_loses_nothing(tmp_path: Path) -> None:
    with RedisServer(tmp_path) as redis:
        jobs, runs = clutch.Jobs(redis.url), tmp_path / "runs"
        runs.touch()
        jobs.enqueue_many("append", [(str(runs), f"{n}\n") for n in range(JOBS)])
        with worker(tmp_path, redis.url) as server:
            server.wait_ready("work")
            for kill in range(3):
                soon(lambda kill=kill: len(set(numbers(runs))) >= JOBS * (kill + 1) // 5)
                redis.kill()
                server.err.wait("its jobs wait until that is over")
                with pytest.raises(clutch.StoreUnavailable):
                    jobs.enqueue("append", str(runs), "lost\n")
                redis.start()
            soon(lambda: jobs.stats()["default"].completed == JOBS)
            server.err.wait("works again")
            server.terminate()
            assert server.wait() == 0
    assert set(numbers(runs)) == set(range(JOBS))


def test_failure_45_a_redis_that_stands_still_is_noticed(tmp_path: Path) -> None:
    with RedisServer(tmp_path) as redis:
        jobs = clutch.Jobs(redis.url)
        with worker(tmp_path, redis.url, "--lease", "3s") as server:
            server.wait_ready("work")
            redis.stop_answering()
            server.err.wait("its jobs wait until that is over")
            redis.answer_again()
            server.err.wait("works again")
            job = jobs.options(result=60).enqueue("double", 5)
            assert jobs.result(job, WAIT_SECONDS) == 10


def test_a_redis_that_stands_still_delays_no_stop(tmp_path: Path) -> None:
    """Also with an end that it cannot be told: a stop takes the grace, and at most some two seconds."""
    with RedisServer(tmp_path) as redis, Rendezvous() as place:
        clutch.Jobs(redis.url).enqueue("wait_at", place.port)
        with worker(tmp_path, redis.url, "--grace", "1s") as server:
            guest = place.guest()
            redis.stop_answering()
            guest.let_go()
            since = time.monotonic()
            server.terminate()
            assert server.wait() == 0
            assert time.monotonic() - since < 5
            server.err.wait("stopped before its store could be told what became of 1 job; they run again")


def test_a_dispatcher_that_was_stopped_past_its_lease_keeps_its_jobs(tmp_path: Path) -> None:
    """If there is no other, which would have taken them."""
    jobs = clutch.Jobs(f"sqlite:///{tmp_path}/jobs.db")
    with Rendezvous() as place, worker(tmp_path, jobs.url) as server:
        job = jobs.enqueue("wait_at", place.port)
        guest = place.guest()
        os.kill(server.process.pid, signal.SIGSTOP)
        let_leases_pass()
        os.kill(server.process.pid, signal.SIGCONT)
        guest.let_go()
        soon(lambda: jobs.stats()["default"].completed)
        has_run_once(jobs, job)


def test_a_dispatcher_without_its_store_past_its_lease_keeps_its_jobs(tmp_path: Path) -> None:
    """Its own upkeep does not take them, whichever has the store first."""
    jobs = clutch.Jobs(f"sqlite:///{tmp_path}/jobs.db")
    with Rendezvous() as place, worker(tmp_path, jobs.url) as server:
        for turn in range(3):
            job = jobs.enqueue("wait_at", place.port)
            guest = place.guest()
            limit = resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
            guest.let_go()
            server.err.wait("its jobs wait until that is over")
            let_leases_pass()
            resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, limit)
            soon(lambda turn=turn: jobs.stats()["default"].completed == turn + 1)
            has_run_once(jobs, job)


@pytest.mark.parametrize("dispatchers", [1, 2])
def test_a_file_that_is_locked_past_the_lease_makes_no_job_run_twice(tmp_path: Path, dispatchers: int) -> None:
    jobs = clutch.Jobs(f"sqlite:///{tmp_path}/jobs.db")
    with running_jobs(tmp_path, jobs, dispatchers) as (place, guests, ids):
        with contextlib.closing(sqlite3.connect(tmp_path / "jobs.db", isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            let_leases_pass()
            other.execute("ROLLBACK")
        finish(jobs, place, guests, ids)


@pytest.mark.parametrize("scheme", ["redis", "sidekiq"])
@pytest.mark.parametrize("dispatchers", [1, 2])
def test_a_redis_that_stands_still_past_the_lease_makes_no_job_run_twice(
    tmp_path: Path, redis: RedisServer, scheme: str, dispatchers: int
) -> None:
    jobs = clutch.Jobs(redis.url.replace("redis+unix", f"{scheme}+unix"))
    with running_jobs(tmp_path, jobs, dispatchers) as (place, guests, ids):
        for _ in range(2):
            redis.stop_answering()
            let_leases_pass()
            redis.answer_again()
            redis.ask("PING")
        finish(jobs, place, guests, ids)


@contextlib.contextmanager
def running_jobs(
    folder: Path, jobs: clutch.Jobs, dispatchers: int
) -> Iterator[tuple[Rendezvous, list[Guest], list[str]]]:
    """Each dispatcher runs as many jobs as it can, and none ends before it is let go."""
    with Rendezvous() as place, contextlib.ExitStack() as stack:
        for _ in range(dispatchers):
            stack.enter_context(worker(folder, jobs.url)).wait_ready("work")
        ids = [str(job) for job in jobs.enqueue_many("wait_at", [place.port] * 2 * dispatchers)]
        yield place, [place.guest() for _ in ids], ids


def finish(jobs: clutch.Jobs, place: Rendezvous, guests: list[Guest], ids: list[str]) -> None:
    """Whoever looks after the store has time to do it wrong."""
    let_leases_pass()
    assert place.nobody_waits() and not any(guest.is_gone() for guest in guests)
    for guest in guests:
        guest.let_go()
    soon(lambda: not any(queue.running for queue in jobs.stats().values()))
    assert place.nobody_waits()
    for job in ids if not jobs.url.startswith("sidekiq") else []:  # which keeps no completed jobs
        has_run_once(jobs, job)


def let_leases_pass() -> None:
    """Nothing tells when one would have lapsed by somebody's clock."""
    until = time.monotonic() + LEASES_SECONDS
    soon(lambda: time.monotonic() >= until)


def has_run_once(jobs: clutch.Jobs, job: str) -> None:
    found = jobs.get(job)
    assert found is not None
    assert (found.state, found.attempt, found.errors, found.reason) == ("completed", 1, (), None)


def test_callers_wait_side_by_side_for_a_redis_that_stands_still(tmp_path: Path) -> None:
    with RedisServer(tmp_path) as redis:
        jobs = clutch.Jobs(redis.url)
        jobs.stats()
        redis.stop_answering()
        since = time.monotonic()
        with ThreadPoolExecutor(12) as callers:
            for failed in [callers.submit(jobs.enqueue, "double", n) for n in range(12)]:
                assert isinstance(failed.exception(60), clutch.StoreUnavailable)
        assert time.monotonic() - since < 12, "not one after the other"


@pytest.mark.parametrize("leads", [True, False])
def test_a_second_signal_leaves_running_jobs_to_others(tmp_path: Path, store: str, leads: bool) -> None:
    """At once, whether it is the one that looks after the store or not: no lease ends in the time of this test."""
    jobs = clutch.Jobs(store)
    with Rendezvous() as place, worker(tmp_path, store, "--lease", "1h") as first:
        first.wait_ready("work")
        # It leads, and either has the job itself or no slot left for it.
        early = [jobs.enqueue("wait_at", place.port) for _ in range(1 if leads else 2)]
        guests = place.guests(len(early))
        with worker(tmp_path, store, "--lease", "1h") as second:
            second.wait_ready("work")
            job = early[0] if leads else jobs.enqueue("wait_at", place.port)
            victim = first if leads else second
            if not leads:
                place.guest()
                for guest in guests:
                    guest.let_go()
            victim.terminate()
            victim.err.wait("send another signal")
            victim.interrupt()
            again = place.guest()
            assert again.word == job
            again.let_go()
            soon(lambda: jobs.stats()["default"].completed == len({*early, job}))


def test_two_dispatchers_share_a_store(tmp_path: Path, store: str) -> None:
    jobs, runs = clutch.Jobs(store), tmp_path / "runs"
    with worker(tmp_path, store) as one, worker(tmp_path, store) as other:
        one.wait_ready("work")
        other.wait_ready("work")
        jobs.enqueue_many("append", [(str(runs), f"{n}\n") for n in range(500)])
        soon(lambda: jobs.stats()["default"].completed == 500)
        for server in (one, other):
            server.terminate()
            assert server.wait() == 0
    assert sorted(numbers(runs)) == list(range(500)), "each ran once"


def test_failure_45_a_file_that_is_locked_for_long_is_waited_for(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/jobs.db"
    jobs = clutch.Jobs(store)
    job = jobs.options(result=60).enqueue("double", 4)
    other = sqlite3.connect(tmp_path / "jobs.db", isolation_level=None)
    with worker(tmp_path, store) as server:
        server.wait_ready("work")
        assert jobs.result(job, WAIT_SECONDS) == 8
        other.execute("BEGIN IMMEDIATE")
        server.err.wait("found its file locked at each try: .*; its jobs wait until that is over")
        other.execute("ROLLBACK")
        server.err.wait("jobs.db works again")
        assert jobs.result(jobs.options(result=60).enqueue("double", 5), WAIT_SECONDS) == 10


def test_failure_45_a_file_that_is_removed_under_a_worker_is_made_anew(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/jobs.db"
    jobs = clutch.Jobs(store)
    with running_job(tmp_path, jobs) as (server, _):
        for file in tmp_path.glob("jobs.db*"):
            file.unlink()
        assert jobs.result(jobs.options(result=60).enqueue("double", 5), WAIT_SECONDS) == 10
        server.err.wait("its file was removed or replaced, and the one that is there now is used")


# ---- what operators see


CONFIG = """
[stores.main]
url = "{store}"
[pools.work]
target = "job_tools"
workers = 1
env = {{ PYTHONPATH = "{path}" }}
[fronts.jobs]
[fronts.admin]
bind = "127.0.0.1:0"
token = "secret"
"""


@pytest.mark.parametrize("way", ["socket", "header", "cookie"])
def test_operators_act_on_queues_and_jobs_of_a_running_server(tmp_path: Path, way: str) -> None:
    store = f"sqlite:///{tmp_path}/jobs.db"
    jobs = clutch.Jobs(store)
    (tmp_path / "clutch.toml").write_text(CONFIG.format(store=store, path=PYTHON_PATH))
    with Dispatcher(tmp_path, [*COMMAND, "run"]) as server:
        server.wait_ready("work")
        address = server.err.wait(r"admin: http://(\S+)")[1]
        shown = json.loads(command("ps", "--json", "--pid", str(server.process.pid), cwd=tmp_path).stdout)
        headers = {"header": {"Authorization": "Bearer secret"}, "cookie": {"Origin": f"http://{address}"}}.get(way, {})
        with contextlib.closing(http.client.HTTPConnection(address, timeout=WAIT_SECONDS)) as connection:
            if way == "cookie":
                connection.request("POST", "/sign-in", json.dumps({"token": "secret"}), headers)
                signed_in = connection.getresponse()
                assert (signed_in.status, signed_in.read()) == (200, b'{"expires_in_s":43200}')
                headers["Cookie"] = str(signed_in.headers["Set-Cookie"]).partition(";")[0]

            def act(target: str) -> tuple[int, str]:
                path = f"/fronts/jobs/{target}"
                if way == "socket":
                    return asked(Path(shown["control"]), path)
                connection.request("POST", path, headers=headers)
                response = connection.getresponse()
                answer = json.loads(response.read())
                return response.status, answer.get("done", answer.get("type"))

            assert act("queues/default/pause") == (200, "queue default paused")
            job = jobs.options(result=60).enqueue("double", 4)
            assert jobs.stats()["default"].is_paused
            assert act(f"jobs/{job}/cancel") == (200, f"job {job} cancelled")
            assert act(f"jobs/{job}/cancel") == (409, "urn:clutch:refused")
            assert act(f"jobs/{job}/retry") == (200, f"job {job} retried")
            assert act("queues/default/resume") == (200, "queue default resumed")
            assert jobs.result(job, WAIT_SECONDS) == 8
            assert act(f"queues/{'q' * 1001}/pause") == (400, "urn:clutch:bad-request")
            assert act("queues/a%0Ab/pause") == (400, "urn:clutch:bad-request")
            assert act("jobs/999/retry") == (404, "urn:clutch:no-such-job")
            assert act("jobs/999/forget") == (404, "urn:clutch:no-such-path")
        server.err.wait("job 1 cancelled")


def asked(control: Path, target: str) -> tuple[int, str]:
    """What the control socket answers to an action."""
    with client.connected(control, WAIT_SECONDS) as connection:
        connection.request("POST", target)
        response = connection.getresponse()
        answer = json.loads(response.read())
        return response.status, answer.get("done", answer.get("type"))


def test_operators_see_queues_and_a_store_that_is_out_of_reach(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/jobs.db"
    jobs = clutch.Jobs(store)
    jobs.enqueue("double", 1, in_=3600)
    with worker(tmp_path, store, "--admin", "127.0.0.1:0") as server:
        server.wait_ready("work")
        address = server.err.wait(r"admin: http://(\S+)")[1]

        def get(path: str) -> tuple[int, str]:
            connection = http.client.HTTPConnection(address, timeout=WAIT_SECONDS)
            with contextlib.closing(connection):
                connection.request("GET", path)
                response = connection.getresponse()
                return response.status, response.read().decode()

        (front,) = json.loads(get("/pools")[1])["jobs"]
        assert (front["front"], front["queues"][0]["scheduled"], front["reason"]) == ("jobs", 1, None)
        assert 'clutch_jobs_scheduled{front="jobs",pool="work",queue="default"} 1' in get("/metrics")[1]
        jobs.options(retry=0).enqueue("fail", "no")
        labels = 'front="jobs",pool="work",tool="fail"'
        soon(lambda: f'clutch_jobs_failures_total{{{labels},kind="raised"}} 1' in get("/metrics")[1])
        assert f'clutch_jobs_attempts_total{{{labels},outcome="dead"}} 1' in get("/metrics")[1]
        assert f"clutch_jobs_run_seconds_count{{{labels}}} 1" in get("/metrics")[1]
        assert 'clutch_jobs_wait_seconds_count{front="jobs",pool="work",queue="default"} 1' in get("/metrics")[1]
        assert get("/readyz")[0] == 200
        line = "default: 0 available, 1 scheduled, 0 running, 1 dead"
        soon(lambda: line in command("ps", "--pid", str(server.process.pid), cwd=tmp_path).stdout)
        top = command("top", "-n1", "--interval", "100ms", "--pid", str(server.process.pid), cwd=tmp_path)
        assert line in top.stdout, top.stdout
        late = datetime.now(UTC) - timedelta(seconds=1)
        jobs.enqueue_many("of_nobody", [()] * 3, deadline=late)
        jobs.options(tags=["last"], deadline=late).enqueue("nobodys")
        soon(lambda: 'tool="other",outcome="dead"} 4' in get("/metrics")[1])
        other = sqlite3.connect(tmp_path / "jobs.db", isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        server.err.wait("found its file locked at each try")
        status, body = get("/readyz")
        assert (status, "found its file locked at each try" in body) == (503, True)
        other.execute("ROLLBACK")
        soon(lambda: get("/readyz")[0] == 200)


def test_operators_watch_a_stop_to_its_end(tmp_path: Path, store: str) -> None:
    jobs = clutch.Jobs(store)
    with Rendezvous() as place, worker(tmp_path, store, "--admin", "127.0.0.1:0") as server:
        job = jobs.enqueue("wait_at", place.port)
        guest = place.guest()
        address = server.err.wait(r"admin: http://(\S+)")[1]
        server.process.send_signal(signal.SIGTERM)
        server.err.wait("SIGTERM: stopping")

        def status(path: str) -> int:
            with contextlib.closing(http.client.HTTPConnection(address, timeout=WAIT_SECONDS)) as connection:
                connection.request("GET", path)
                return connection.getresponse().status

        soon(lambda: status("/readyz") == 503)
        assert status("/metrics") == 200
        guest.let_go()
        assert server.wait() == 0
    found = jobs.get(job)
    assert found is not None and found.state == "completed"


def test_the_log_tells_of_failures_of_what_was_rescued_and_of_queues_that_nobody_serves(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/jobs.db"
    jobs = clutch.Jobs(store)
    with running_job(tmp_path, jobs) as (server, _):
        server.process.kill()
        server.wait()
    with clock(datetime.now(UTC) - timedelta(seconds=90)):
        jobs.enqueue("double", 1, queue="mial")
    with worker(tmp_path, store, "--log-format", "json") as server:
        jobs.enqueue("fail", "no", retry=0)

        def told(event: str, more: str = "") -> dict[str, Any]:
            return json.loads(server.err.wait(f'.*"event": "{event}".*{more}.*')[0])

        failed = told("job_failed", '"tool": "fail"')
        said = "attempt 1 of 1: ValueError: no; it is dead: that was its only attempt (retry=0)"
        assert failed["message"].endswith(f"(fail, queue default), {said}")
        assert failed["error"] == "ValueError: no"
        assert (told("jobs_rescued")["jobs"], told("jobs_rescued")["dead"]) == (1, 0)
        unserved = told("queue_unserved")
        assert (unserved["queue"], unserved["available"], unserved["waited_s"] >= 90) == ("mial", 1, True)
        assert "nobody runs the 1 job of queue mial" in unserved["message"]
        shown = command("ps", "--pid", str(server.process.pid), cwd=tmp_path)
        assert "mial: 1 available, 0 scheduled, 0 running, 0 dead, not taken from here" in shown.stdout
    stats = command("jobs", "stats", "--store", store, cwd=tmp_path).stdout
    assert [line.split()[0] for line in stats.splitlines() if "none runs: is it in the --queues" in line] == ["mial"]


def test_what_runs_is_named_by_its_job(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/jobs.db"
    jobs = clutch.Jobs(store)
    with worker(tmp_path, store, "--log-format", "json") as server, Rendezvous() as place:
        server.wait_ready("work")
        job = jobs.enqueue("wait_at", place.port)
        guest = place.guest()
        (call,) = running(server, tmp_path)
        assert (call["what"], call["job"]) == ("wait_at", job)
        shown = command("ps", "--pid", str(server.process.pid), cwd=tmp_path).stdout
        assert f"(job {job}, call {call['id']})" in shown
        os.kill(guest.pid, signal.SIGKILL)
        gone = json.loads(server.err.wait('.*"event": "worker_gone".*')[0])
        assert gone["running"][0]["job"] == job
        assert f"it was running wait_at (job {job}, call {call['id']}, " in gone["message"]
        place.guest().let_go()


def test_a_call_that_is_a_job_is_cancelled_with_it(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/jobs.db"
    jobs = clutch.Jobs(store)
    with running_job(tmp_path, jobs) as (server, job):
        (call,) = running(server, tmp_path)
        pid = str(server.process.pid)
        assert command("cancel", str(call["id"]), "--pid", pid, cwd=tmp_path).returncode == 0
        with pytest.raises(clutch.JobFailed, match="is cancelled"):
            jobs.result(job, WAIT_SECONDS)


def test_a_job_that_runs_is_told_to_stop(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/jobs.db"
    jobs = clutch.Jobs(store)
    with running_job(tmp_path, jobs) as (_, job):
        said = command("jobs", "cancel", job, "--store", store, cwd=tmp_path).stdout
        assert said == f"job {job} is told to stop\n"


@contextlib.contextmanager
def running_job(folder: Path, jobs: clutch.Jobs) -> Iterator[tuple[Dispatcher, str]]:
    """A worker, and the job that runs there until the end."""
    with worker(folder, jobs.url) as server, Rendezvous() as place:
        server.wait_ready("work")
        job = jobs.enqueue("wait_at", place.port)
        place.guest()
        yield server, job


def running(server: Dispatcher, folder: Path) -> list[dict[str, Any]]:
    shown = json.loads(command("ps", "--json", "--pid", str(server.process.pid), cwd=folder).stdout)
    return [call for pool in shown["pools"] for one in pool["workers"] for call in one["running"]]


# ---- the command line


def test_clutch_jobs_looks_and_changes(tmp_path: Path) -> None:
    store = ("--store", f"sqlite:///{tmp_path}/jobs.db")
    jobs = clutch.Jobs(store[1])
    first, second = jobs.enqueue("send", "ann", tags=["a"]), jobs.enqueue("send", "bob", in_=60)

    def said(*arguments: str) -> str:
        done = command("jobs", *arguments, *store, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert "default  0        1          1          0" in said("stats")
    assert [job["id"] for job in json.loads(said("list", "--json"))] == [second, first]
    assert f"{second}    scheduled" in said("list", "--state", "scheduled")
    assert '"ann"' in said("show", first)
    assert said("retry", second) == f"job {second} runs again\n"
    assert said("cancel", first) == f"job {first} cancelled\n"
    with contextlib.closing(sqlite3.connect(tmp_path / "jobs.db", isolation_level=None)) as other:
        other.execute("UPDATE clutch_jobs SET reason = char(27) || '[2J', errors = ?", [BEEPS])
    for shown in (said("list"), said("show", first)):
        assert "\x1b" not in shown and "\\x1b[2J" in shown, "nobody gives orders to a terminal"
    assert said("pause", "default") == "queue default paused\n"
    assert "paused" in said("stats")
    assert said("resume", "default") == "queue default resumed\n"
    assert said("limit", "default", "2") == "queue default: at most 2 at a time\n"
    none = command("jobs", "limit", "default", *store, cwd=tmp_path)
    assert (none.returncode, "or --none to remove the limits" in none.stderr) == (2, True)
    assert jobs.stats()["default"].running_max == 2
    assert said("limit", "default", "--none") == "queue default: no limit\n"
    assert jobs.stats()["default"].running_max is None
    assert said("delete", first) == f"job {first} deleted\n"
    for words in (["pause", "a\x1bb"], ["resume", "q" * 1001], ["limit", "", "2"]):
        wrong = command("jobs", *words, *store, cwd=tmp_path)
        assert (wrong.returncode, "Error: a queue's name" in wrong.stderr) == (2, True), wrong.stderr
    wrong = command("jobs", "retry", "99", *store, cwd=tmp_path)
    assert (wrong.returncode, "nothing to retry: there is no job 99" in wrong.stderr) == (1, True)
    unknown = command("jobs", "list", "--store", "nope", cwd=tmp_path)
    assert (unknown.returncode, "sqlite:///jobs.db" in unknown.stderr) == (2, True)


def test_a_job_is_retried_with_other_arguments(tmp_path: Path, any_store: str) -> None:
    jobs = clutch.Jobs(any_store)
    by_name = not any_store.startswith("sidekiq")
    job = jobs.options(in_=3600).enqueue("send", "an")
    if not by_name:
        jobs.options(queue="other").enqueue("send")

    def retry(*arguments: str) -> Any:
        return command("jobs", "retry", *arguments, "--store", any_store, cwd=tmp_path)

    assert retry(job, "--args", '["ann", 1.5]').stdout == f"job {job} runs again\n"
    found = jobs.get(job)
    assert found is not None and (found.state, found.arguments["args"]) == ("available", ["ann", 1.5])
    again = retry(job, "--args", "[]")
    assert (again.returncode, f"nothing to retry: job {job} is available" in again.stderr) == (1, True), again.stderr
    for wrong, what in (
        ((job, "--args", "ann"), "allowed are a JSON list"),
        ((job, "9", "--args", "[]"), "--args belong to one job"),
        (("--state", "dead", "--args", "[]"), "--args belong to one job"),
    ):
        said = retry(*wrong)
        assert (said.returncode, what in said.stderr) == (2, True), said.stderr
    if by_name:
        jobs.cancel(job)
        assert jobs.retry(job, arguments={"to": "bob"})
        found = jobs.get(job)
        assert found is not None and found.arguments == {"args": [], "kwargs": {"to": "bob"}}


def test_a_tool_is_tried_from_the_shell(tmp_path: Path) -> None:
    jobs = clutch.Jobs(f"sqlite:///{tmp_path}/jobs.db")
    jobs.stats()
    (tmp_path / "mail.py").write_text(
        "from clutch import tool\n\n@tool(queue='mail')\ndef send(to: str, count: int = 1) -> None: ...\n"
    )

    def enqueue(*arguments: str) -> Any:
        return command("jobs", "enqueue", *arguments, "--store", "sqlite:///jobs.db", cwd=tmp_path)

    assert enqueue("send", "a=b@c", "n=7", 'tags=["x"]', "--queue", "low", "--in", "1h").stdout == "job 1 enqueued\n"
    found = jobs.get("1")
    assert found is not None and (found.queue, found.state) == ("low", "scheduled")
    assert found.arguments == {"args": [], "kwargs": {"a": "b@c", "n": 7, "tags": ["x"]}}
    assert json.loads(enqueue("mail:send", "ann@b.c", "--json").stdout) == {"job": "2", "is_new": True}
    found = jobs.get("2")
    assert found is not None and (found.queue, found.arguments["kwargs"]) == ("mail", {"to": "ann@b.c"})
    assert enqueue("mail:send", "--args", '{"to": "ann", "count": 2}').returncode == 0
    for wrong, what in (
        (("mail:send", "ann", "many"), "count: Input should be a valid integer"),
        (("mail:sent", "ann"), "did you mean 'send'?"),
        (("mailer:send",), "target 'mailer:send' does not import"),
        (("send", "7", "--args", "[]"), "either VALUEs or --args"),
        (("send", "7", "to=ann"), "by position or by name, not both"),
        (("send", "--in", "soon"), "in_ 'soon': allowed are seconds"),
    ):
        said = enqueue(*wrong)
        assert (said.returncode != 0, what in said.stderr, "Traceback" in said.stderr) == (True, True, False), (
            said.stderr
        )


def test_one_pool_runs_the_tools_of_several_modules(tmp_path: Path) -> None:
    for name in ("mail", "images"):
        code = f"from clutch import tool\n\ndef helper(): return {name!r}\n\n@tool\ndef of_{name}(): return helper()\n"
        (tmp_path / f"{name}.py").write_text(code)
    store = f"sqlite:///{tmp_path}/jobs.db"
    jobs = clutch.Jobs(store)
    ids = [jobs.options(result=60).enqueue(f"of_{name}") for name in ("mail", "images")]
    with Dispatcher(tmp_path, [*COMMAND, "work", "mail", "images", "--store", store]):
        assert [jobs.result(job, WAIT_SECONDS) for job in ids] == ["mail", "images"]
    (tmp_path / "more.py").write_text("from clutch import tool\n\n@tool\ndef of_mail(): ...\n")
    two = command("work", "mail", "more", "--store", store, cwd=tmp_path)
    assert (two.returncode, "two tools named 'of_mail'" in two.stderr) == (2, True), two.stderr


def test_a_retry_says_who_has_the_unique_key(tmp_path: Path) -> None:
    store = ("--store", f"sqlite:///{tmp_path}/jobs.db")
    jobs = clutch.Jobs(store[1])
    ended = jobs.options(unique="x").enqueue("send")
    assert jobs.cancel(ended)
    waits = jobs.options(unique="x", in_=3600).enqueue("send")
    why = f"job {ended} is cancelled, and its unique key belongs to job {waits}, which is scheduled"
    wrong = command("jobs", "retry", ended, *store, cwd=tmp_path)
    assert (wrong.returncode, f"nothing to retry: {why}" in wrong.stderr) == (1, True), wrong.stderr
    chosen = command("jobs", "retry", "--state", "cancelled", "--yes", *store, cwd=tmp_path)
    assert f"0 jobs run again; nothing to retry of 1: {why}" in chosen.stdout, chosen.stdout


def test_changes_are_told_as_json(tmp_path: Path) -> None:
    store = ("--store", f"sqlite:///{tmp_path}/jobs.db")
    first, second = clutch.Jobs(store[1]).enqueue_many("send", range(2), queue="mail")

    def told(*arguments: str, code: int = 0) -> Any:
        done = command("jobs", *arguments, "--json", *store, cwd=tmp_path)
        assert done.returncode == code, done.stderr
        return json.loads(done.stdout)

    assert told("cancel", first) == {"changed": [first], "unchanged": []}
    assert told("cancel", first, second, code=1) == {"changed": [second], "unchanged": [first]}
    assert told("retry", "--queue", "mail", "--yes") == {"changed": [], "unchanged": []}, "none has failed"
    assert told("retry", "--state", "cancelled", "--yes") == {"changed": [second, first], "unchanged": []}
    assert told("pause", "mail") == {"name": "mail", "is_paused": True}
    assert told("resume", "mail") == {"name": "mail", "is_paused": False}
    assert told("limit", "mail", "5", "--rate", "100/m") == {"name": "mail", "running_max": 5, "rate": "100/m"}
    assert told("delete", "--all", "--yes") == {"changed": [second, first], "unchanged": []}


def test_the_help_of_clutch_work_speaks_of_jobs(tmp_path: Path) -> None:
    shown = command("work", "--help", cwd=tmp_path).stdout
    assert "Replace a worker after this many jobs." in " ".join(shown.split())
    assert re.findall(r"\b(?:call|request)s?\b", shown.replace("--recycle-calls", "")) == []


@pytest.mark.parametrize("words", [["jobs", "stats"], ["work", "job_tools"]])
def test_a_store_that_is_missing_is_told_with_its_variable(tmp_path: Path, words: list[str]) -> None:
    done = command(*words, cwd=tmp_path)
    assert (done.returncode, "--store" in done.stderr, "CLUTCH_STORE" in done.stderr) == (2, True, True)


def test_clutch_jobs_takes_the_store_of_the_nearest_config(tmp_path: Path) -> None:
    inner = tmp_path / "inner"
    inner.mkdir()
    main = '[pools.work]\ntarget = "job_tools"\n[stores.main]\nurl = "sqlite:///main.db"\n'
    (tmp_path / "clutch.toml").write_text(main)
    clutch.Jobs(f"sqlite:///{tmp_path}/main.db").enqueue("call", 1, queue="here")

    def said(*arguments: str) -> tuple[int, str]:
        done = command("jobs", "stats", *arguments, cwd=inner)
        return done.returncode, done.stdout + done.stderr

    assert "here " in said()[1]
    assert "here " in said("--store", "main")[1]
    code, text = said("--store", "mian")
    assert (code, "--store mian: there is no such store" in text, "clutch.toml: main" in text) == (
        2,
        True,
        True,
    )
    (tmp_path / "clutch.toml").write_text(main + '[stores.other]\nurl = "sqlite:///other.db"\n')
    code, text = said()
    assert (code, "--store is missing" in text, "clutch.toml: main, other" in text) == (2, True, True)


def test_clutch_work_takes_the_store_of_the_nearest_config(tmp_path: Path) -> None:
    (tmp_path / "clutch.toml").write_text('[stores.main]\nurl = "sqlite:///main.db"\n')
    jobs = clutch.Jobs(f"sqlite:///{tmp_path}/main.db")
    with worker(tmp_path, "main"):
        assert jobs.result(jobs.options(result=60).enqueue("double", 5), WAIT_SECONDS) == 10
    said = command("work", "job_tools", "--store", "jobs.db", cwd=tmp_path).stderr
    assert "--store jobs.db: there is no such store; give a URL, such as sqlite:///jobs.db, or one of" in said


def test_clutch_jobs_takes_a_redis_with_a_prefix_and_shows_no_password(tmp_path: Path, redis: RedisServer) -> None:
    url = f"{redis.url}?prefix=shop"
    clutch.Jobs(url).enqueue("call", 1, queue="here")
    assert "here " in command("jobs", "stats", "--store", url, cwd=tmp_path).stdout
    for wrong in ("redis://:hunter2@127.0.0.1:1/0?prefix=shop", "redis:hunter2@host", "u:hunter2@host"):
        for folder in (tmp_path, Path("/")):
            done = command("jobs", "stats", "--store", wrong, cwd=folder)
            assert (done.returncode == 0, "hunter2" in done.stdout + done.stderr) == (False, False), wrong
        (tmp_path / "clutch.toml").write_text('[pools.work]\ntarget = "job_tools"\n')


def test_clutch_jobs_changes_all_that_match_and_asks_before(tmp_path: Path) -> None:
    store = ("--store", f"sqlite:///{tmp_path}/jobs.db")
    jobs = clutch.Jobs(store[1])
    jobs.enqueue_many("send", range(3), queue="mail", tags=["a"])
    jobs.enqueue("call", 1, queue="other")

    def said(*arguments: str, answer: str = "") -> tuple[int, str, str]:
        done = command("jobs", *arguments, *store, cwd=tmp_path, input=answer)
        return done.returncode, done.stdout, done.stderr

    for wrong in (("delete",), ("delete", "1", "--all"), ("retry", "1", "--state", "dead"), ("cancel", "--yes")):
        code, _, err = said(*wrong)
        assert (code, "by their ids, or choose them by --state" in err) == (2, True), wrong
    code, _, err = said("cancel", "--queue", "mail", "--tag", "a")
    assert (code, "nobody answered, and nothing was changed; --yes" in err) == (2, True)
    assert jobs.stats()["mail"].available == 3
    code, out, err = said("cancel", "--queue", "mail", "--tag", "a", answer="y\n")
    assert (code, out, "cancel 3 jobs (queue mail, tag a): 3 available?" in err) == (0, "3 jobs cancelled\n", True)
    assert said("cancel", "--queue", "mail", "--yes")[1] == "0 jobs cancelled\n"
    assert said("retry", "--state", "cancelled", "--yes")[1] == "3 jobs run again\n"
    assert said("delete", "--tool", "call", "--yes")[1] == "1 jobs deleted\n"
    assert said("delete", "--all", answer="n\n")[0] == 1
    assert len(jobs.list()) == 3
    assert said("delete", "--all", "--yes")[1] == "3 jobs deleted\n"
    assert said("delete", "--state", "dead", "--yes")[1] == "0 jobs deleted\n"


def test_clutch_jobs_retries_what_has_failed_and_nothing_that_has_completed(tmp_path: Path) -> None:
    jobs = clutch.Jobs(f"sqlite:///{tmp_path}/jobs.db")
    jobs.enqueue(job_tools.double, 1)
    dead = jobs.options(retry=0).enqueue(job_tools.fail, "no")
    waits = jobs.options(backoff=60).enqueue(job_tools.fail, "no")
    later = jobs.options(in_=60).enqueue(job_tools.double, 1)
    drain(jobs, raises=False)
    done = command("jobs", "retry", "--queue", "default", "--yes", "--json", "--store", jobs.url, cwd=tmp_path)
    assert json.loads(done.stdout) == {"changed": [waits, dead], "unchanged": []}
    found = jobs.get(later)
    assert found is not None
    assert found.state == "scheduled"


@pytest.mark.parametrize("words", [["stats"], ["list"], ["dead"], ["show", "1"], ["delete", "1"], ["pause", "mail"]])
def test_clutch_jobs_makes_no_file(tmp_path: Path, words: list[str]) -> None:
    done = command("jobs", *words, "--store", "sqlite:///typo.db?synchronous=extra", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert f"there is no file {tmp_path}/typo.db; a path after three slashes is relative" in done.stderr
    assert not list(tmp_path.iterdir())
