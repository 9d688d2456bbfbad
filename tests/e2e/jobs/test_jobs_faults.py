"""Jobs while time passes, and while connections to their store come to an end."""

from __future__ import annotations

from pathlib import Path

import clutch
from support.clutch_process import WAIT_SECONDS, soon
from support.clutch_process import clutch as command
from support.jobs_house import worker
from support.redis_server import RedisServer
from support.rendezvous import Rendezvous

LEASES = 3.5
"""Seconds: longer than three leases of a worker here."""


def test_failure_44_a_job_longer_than_its_lease_runs_once(tmp_path: Path, any_store: str) -> None:
    jobs, late = clutch.Jobs(any_store), tmp_path / "late"
    with worker(tmp_path, any_store) as one, worker(tmp_path, any_store) as other, Rendezvous() as place:
        one.wait_ready("work")
        other.wait_ready("work")
        jobs.enqueue("wait_at", place.port)
        guest = place.guest()
        jobs.enqueue("append", str(late), in_=LEASES)
        soon(late.exists)
        assert not guest.is_gone() and place.nobody_waits()
        guest.let_go()
        soon(lambda: is_done(jobs))
        assert place.nobody_waits(), "nobody else ran it"
        for server in (one, other):
            server.terminate()
            assert server.wait() == 0


def test_whoever_looks_sees_that_nobody_works_any_more(tmp_path: Path, any_store: str) -> None:
    jobs = clutch.Jobs(any_store)
    with worker(tmp_path, any_store, "--lease", "6s") as server, Rendezvous() as place:
        server.wait_ready("work")
        jobs.enqueue("wait_at", place.port)
        place.guest()
        soon(lambda: any(runner.leads for runner in jobs.runners(0)))
        told = jobs.runners()
        assert {runner.pid for runner in told} == {server.process.pid}
        assert all(runner.is_alive for runner in told) and sum(runner.running for runner in told) == 1
        server.process.kill()
        server.wait()
        told = jobs.runners()
        assert [runner.is_alive for runner in told] == [False, False] and sum(runner.running for runner in told) == 1
        shown = command("jobs", "runners", "--store", any_store, cwd=tmp_path).stdout
        assert "1 running" in shown and "still claimed by runners that are gone: 1" in shown


def is_done(jobs: clutch.Jobs) -> bool:
    queue = jobs.stats().get("default")
    return queue is None or queue.available + queue.running == 0


def test_failure_45_clients_that_are_killed_twice_go_on(tmp_path: Path, redis: RedisServer) -> None:
    with worker(tmp_path, redis.url) as server:
        server.wait_ready("work")
        jobs = clutch.Jobs(redis.url)
        for n in range(2):
            assert int(redis.ask("CLIENT", "KILL", "TYPE", "normal")) > 0
            assert result_of(jobs, n) == 2 * n
        server.terminate()
        assert server.wait() == 0


def test_failure_45_connections_that_the_server_closes_in_silence_are_made_again(
    tmp_path: Path, redis: RedisServer
) -> None:
    with worker(tmp_path, redis.url, "--lease", "1h") as server:
        server.wait_ready("work")
        jobs = clutch.Jobs(redis.url)
        assert result_of(jobs, 1) == 2
        before = clients(redis)
        redis.ask("CONFIG", "SET", "timeout", "1")
        soon(lambda: clients(redis) < before)
        assert result_of(jobs, 2) == 4
        server.terminate()
        assert server.wait() == 0


def clients(redis: RedisServer) -> int:
    return redis.ask("CLIENT", "LIST").count("\n")


def result_of(jobs: clutch.Jobs, n: int) -> int:
    """Of a job that doubles. Its enqueue may meet a connection that has just ended: what became of it is not known, so
    it is tried again."""
    try:
        job = jobs.options(result=60).enqueue("double", n)
    except clutch.StoreUnavailable:
        job = jobs.options(result=60).enqueue("double", n)
    result = jobs.result(job, WAIT_SECONDS)
    assert isinstance(result, int)
    return result
