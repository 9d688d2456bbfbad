"""A claim is a permit of the pool: what cannot begin here is left to others, and asks for more slots."""

from __future__ import annotations

from pathlib import Path

import job_tools

import clutch
from clutch.jobs import Job, Jobs
from support.clutch_process import PYTHON_PATH, WAIT_SECONDS, soon
from support.jobs_house import JobsHouse, worker
from support.rendezvous import Rendezvous, meet

TWO_FRONTS = f"""
[pools.work]
target = "job_tools"
workers = 2
env = {{ PYTHONPATH = "{PYTHON_PATH}" }}
[stores.main]
url = "URL"
[fronts.jobs]
queues = "first"
[fronts.other]
kind = "jobs"
pool = "work"
queues = "default"
"""


def completed(jobs: Jobs, ids: list[clutch.jobs.JobId]) -> bool:
    return all(found is not None and found.state == "completed" for found in map(jobs.get, ids))


def test_a_front_claims_nothing_for_slots_that_another_front_of_the_pool_has(tmp_path: Path, store: str) -> None:
    config = tmp_path / "clutch.toml"
    config.write_text(TWO_FRONTS.replace("URL", store))
    jobs = clutch.Jobs(store)
    with Rendezvous() as place, clutch.Dispatcher(config) as dispatcher:
        dispatcher.wait_ready()
        held = jobs.enqueue_many(job_tools.wait_at, [place.port] * 2, queue="first")
        guests = place.guests(2)
        others = jobs.enqueue_many(job_tools.append, [str(tmp_path / "runs")] * 5)
        with worker(tmp_path, store) as idle:
            idle.wait_ready("work")
            soon(lambda: completed(jobs, others))
        assert not completed(jobs, held)
        for guest in guests:
            guest.let_go()
        soon(lambda: completed(jobs, held))


def test_a_front_claims_again_when_calls_of_others_have_ended(tmp_path: Path) -> None:
    with Rendezvous() as place, JobsHouse(tmp_path, {"workers": 1}) as house:
        assert house.dispatcher is not None
        call = house.dispatcher.pools["work"].submit(meet, place.port)
        guest = place.guest()
        job = house.jobs.enqueue(job_tools.append, str(tmp_path / "runs"))
        guest.let_go()
        call.result(WAIT_SECONDS)
        assert house.ended(job).state == "completed"


def test_what_was_claimed_ahead_and_cannot_begin_is_put_back_for_others(tmp_path: Path, store: str) -> None:
    runs = str(tmp_path / "runs")
    with Rendezvous() as place, JobsHouse(tmp_path, {"workers": 1}, url=store) as house:
        short = house.jobs.enqueue_many(job_tools.append, [runs] * 500)
        soon(lambda: completed(house.jobs, short[-1:]))
        both = [(job_tools.wait_at, place.port), *[(job_tools.append, runs)] * 3]
        first, *others = [house.jobs.enqueue(tool, argument) for tool, argument in both]
        guest = place.guest()
        with worker(tmp_path, store) as idle:
            idle.wait_ready("work")
            soon(lambda: completed(house.jobs, others))
        assert [found.errors for found in map(house.jobs.get, others) if found is not None] == [()] * 3
        guest.let_go()
        assert house.ended(first).state == "completed"


def test_a_job_that_is_cut_off_and_put_back_is_no_failure_of_its_pool(tmp_path: Path) -> None:
    with Rendezvous() as place, JobsHouse(tmp_path, {"workers": 1, "grace": "100ms"}) as house:
        assert house.dispatcher is not None
        job = house.jobs.enqueue(job_tools.wait_at, place.port)
        place.guest()
        house.dispatcher.reload("work")
        place.guest().let_go()
        assert house.ended(job).state == "completed"
        stats = house.dispatcher.pools["work"].stats()
        assert (stats["done"], stats["failed"]) == (1, 0)


def test_the_deadline_of_an_attempt_begins_with_its_function(tmp_path: Path) -> None:
    pool = {"profile": "thread", "workers": 1, "threads": 2, "deadline": "1s"}
    with Rendezvous() as place, JobsHouse(tmp_path, pool) as house:
        ids = house.jobs.enqueue_many(job_tools.wait_in_turn, [place.port] * 2, retry=0)
        first = place.guest()
        soon(lambda: [found.state for found in map(house.jobs.get, ids) if found is not None].count("dead"))
        # The second has waited as long for its turn.
        first.let_go()
        place.guest().let_go()
        ends = {found.state: found for found in map(house.ended, ids)}
        assert sorted(ends) == ["completed", "dead"]
        assert [error.kind for error in ends["dead"].errors] == ["deadline"]


def test_jobs_that_wait_in_the_store_start_workers(tmp_path: Path, any_store: str) -> None:
    with Rendezvous() as place, JobsHouse(tmp_path, {"workers": "1-3"}, "", any_store) as house:
        house.jobs.enqueue_many(job_tools.wait_at, [place.port] * 3)
        guests = place.guests(3)
        assert len({guest.pid for guest in guests}) == 3
        for guest in guests:
            guest.let_go()


def test_a_neighbour_of_a_crash_that_tells_its_progress_runs_again(tmp_path: Path) -> None:
    pool = {"profile": "thread", "workers": 1, "threads": 2}
    with Rendezvous() as place, JobsHouse(tmp_path, pool) as house:
        job = house.jobs.enqueue(job_tools.wait_at, place.port, retry=1)
        place.guest()
        house.until(job, lambda found: found.progress is not None)
        house.jobs.enqueue(job_tools.kill_worker, retry=0)
        place.guest().let_go()
        ended: Job = house.ended(job)
        assert (ended.state, ended.errors) == ("completed", ())
