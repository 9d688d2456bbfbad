"""Workers' lives: hooks, initializers, recycling, figures, and the end of a pool."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Callable
from concurrent.futures import BrokenExecutor
from pathlib import Path

import profile_tools
import pytest

from clutch import ClutchError, Pool, PoolClosed, WorkerLost
from clutch.testing import Processes, Watch
from support.rendezvous import Rendezvous
from support.shapes import Shape


@pytest.mark.per_profile
def test_on_start_runs_once_in_each_worker(make_pool: Callable[..., Pool]) -> None:
    pool = make_pool()
    for _ in range(10):
        pid, started, _ = pool.call("lives")
        assert started == [pid]


@pytest.mark.per_profile
def test_on_stop_runs_in_each_worker_that_ends_in_order(
    make_pool: Callable[..., Pool], shape: Shape, tmp_path: Path
) -> None:
    path = tmp_path / "stopped"
    pool = make_pool(env={"CLUTCH_TEST_STOPPED": str(path)})
    pool.wait_ready(timeout=60)
    pids = {worker["pid"] for worker in pool.stats()["workers"]}
    pool.shutdown()
    assert {int(line) for line in path.read_text().split()} == pids
    assert len(pids) == shape.options["workers"]


@pytest.mark.per_profile
def test_initializer(make_pool: Callable[..., Pool]) -> None:
    pool = make_pool(initializer=profile_tools.take, initargs=(1, "two"))
    for _ in range(5):
        assert pool.call("lives")[2] == [1, "two"]


def test_initializer_that_is_a_closure(make_pool: Callable[..., Pool]) -> None:
    word = "kept"

    def keep() -> None:
        profile_tools.given.append(word)

    pool = make_pool(None, initializer=keep)
    assert pool.call(profile_tools.lives)[2] == ["kept"]


@pytest.mark.per_profile
def test_initializer_that_raises(make_pool: Callable[..., Pool], events: Watch) -> None:
    pool = make_pool(initializer=profile_tools.fail_to_start, initargs=("no database",))
    with pytest.raises(BrokenExecutor, match="no database") as caught:
        pool.call("add", 1)
    assert "in fail_to_start" in str(caught.value) and isinstance(caught.value, WorkerLost)
    with pytest.raises(ClutchError, match="no database"):
        pool.wait_ready(timeout=60)
    with pytest.raises(BrokenExecutor, match="no database"):
        pool.submit("add", 1).result(30)
    assert "no database" in events.wait("pool_failing", pool="made")["reason"]
    assert pool.stats()["state"] == "failing"


@pytest.mark.per_profile
def test_max_tasks_per_child_really_replaces_workers(make_pool: Callable[..., Pool], events: Watch) -> None:
    pool = make_pool(workers=1, max_tasks_per_child=10)
    pids = [pool.submit("pid").result(30) for _ in range(100)]
    used = list(dict.fromkeys(pids))
    assert all(pids.count(pid) <= 10 for pid in used)
    assert len(used) >= 10
    for pid in used[:-1]:
        assert "exited with code 0" in events.wait("worker_gone", pool="made", pid=pid)["cause"]
    assert pool.stats()["restarts"] == 0, "a replacement by policy is no restart"


@pytest.mark.per_profile
def test_recycling_loses_nothing(make_pool: Callable[..., Pool], shape: Shape) -> None:
    pool = make_pool(max_tasks_per_child=7)
    count = 70 if shape.name == "spawn" else 300
    futures = [pool.submit("add", number) for number in range(count)]
    assert [future.result(60) for future in futures] == list(range(count))


@pytest.mark.per_profile
def test_wait_ready(make_pool: Callable[..., Pool], shape: Shape) -> None:
    pool = make_pool()
    pool.wait_ready(timeout=60)
    stats = pool.stats()
    assert stats["ready"] == stats["target"] == len(stats["workers"]) == shape.options["workers"]
    assert {worker["state"] for worker in stats["workers"]} == {"ready"}
    pool.wait_ready(1, timeout=0)
    with pytest.raises(TimeoutError, match=f"{stats['ready']} of 99"):
        pool.wait_ready(99, timeout=0.01)


def test_stats(make_pool: Callable[..., Pool], shape: Shape, rendezvous: Rendezvous) -> None:
    pool = make_pool()
    pool.wait_ready(timeout=60)
    stats = pool.stats()
    assert (stats["name"], stats["state"], stats["queued"], stats["sent"]) == ("made", "ready", 0, 0)
    assert (stats["done"], stats["failed"], stats["restarts"], stats["slots"]) == (0, 0, 0, shape.slots)

    held = [pool.submit("visit", rendezvous.port) for _ in range(shape.slots + 3)]
    guests = rendezvous.guests(shape.slots)
    stats = pool.stats()
    assert stats["queued"] == 3 and stats["sent"] == shape.slots
    assert sum(worker["sent"] for worker in stats["workers"]) == shape.slots
    for _ in range(3):
        guests.pop(0).let_go()
        guests.append(rendezvous.guest())
    for guest in guests:
        guest.let_go()
    for future in held:
        future.result(30)

    with pytest.raises(KeyError):
        pool.call(profile_tools.raise_it, KeyError())
    stats = pool.stats()
    assert stats["done"] == shape.slots + 4 and stats["failed"] == 1
    assert sum(worker["calls"] for worker in stats["workers"]) == shape.slots + 4
    assert {worker["nr"] for worker in stats["workers"]} == set(range(shape.options["workers"]))


@pytest.mark.per_profile
def test_shutdown_does_what_was_submitted(make_pool: Callable[..., Pool]) -> None:
    pool = make_pool()
    futures = [pool.submit("add", number) for number in range(200)]
    pool.shutdown()
    assert [future.result(0) for future in futures] == list(range(200))
    pool.shutdown()
    assert pool.stats()["state"] == "closed"


@pytest.mark.per_profile
def test_shutdown_ends_every_process(make_pool: Callable[..., Pool]) -> None:
    pool = make_pool()
    pool.wait_ready(timeout=60)
    stats = pool.stats()
    with Processes([stats["zygote_pid"], *(worker["pid"] for worker in stats["workers"])]) as processes:
        assert len(processes.pids) == len(stats["workers"]) + 1
        pool.shutdown()
        assert processes.alive() == []


def test_a_closed_pool_takes_nothing(make_pool: Callable[..., Pool]) -> None:
    pool = make_pool()
    pool.call("add", 1)
    pool.shutdown()
    for attempt in (
        lambda: pool.call("add", 1),
        lambda: pool.submit("add", 1),
        lambda: pool.stream("count", 1),
        lambda: pool.map(profile_tools.add, [1]),
        lambda: pool.options(deadline=1).call("add", 1),
        lambda: pool.wait_ready(timeout=1),
    ):
        with pytest.raises(PoolClosed, match="made") as caught:
            attempt()
        assert isinstance(caught.value, RuntimeError), "as of the standard library's executors"


def test_shutdown_without_waiting(make_pool: Callable[..., Pool], rendezvous: Rendezvous, events: Watch) -> None:
    pool = make_pool(name="unwaited")
    futures = [pool.submit("visit", rendezvous.port, str(number)) for number in range(10)]
    first = rendezvous.guest()
    pool.shutdown(wait=False)
    assert not futures[0].done()
    first.let_go()
    for _ in range(9):
        rendezvous.guest().let_go()
    for future in futures:
        future.result(30)
    events.wait("pool_closed", pool="unwaited")


@pytest.mark.per_profile
def test_shutdown_with_cancel_futures(make_pool: Callable[..., Pool], shape: Shape, rendezvous: Rendezvous) -> None:
    pool = make_pool()
    pool.wait_ready(timeout=60)
    futures = [pool.submit("visit", rendezvous.port) for _ in range(shape.slots + 5)]
    guests = rendezvous.guests(shape.slots)
    pool.shutdown(wait=False, cancel_futures=True)
    assert [future.cancelled() for future in futures] == [False] * shape.slots + [True] * 5
    for guest in guests:
        guest.let_go("kept")
    assert [future.result(30) for future in futures[: shape.slots]] == ["kept"] * shape.slots
    pool.shutdown()
    assert rendezvous.nobody_waits()


@pytest.mark.parametrize("how", ["terminate_workers", "kill_workers"])
def test_ending_the_workers_at_once(make_pool: Callable[..., Pool], rendezvous: Rendezvous, how: str) -> None:
    pool = make_pool()
    running, guest = pool.submit("visit", rendezvous.port), rendezvous.guest()
    queued = [pool.submit("visit", rendezvous.port) for _ in range(10)]
    getattr(pool, how)()
    with pytest.raises(WorkerLost):
        running.result(30)
    for future in queued:
        assert future.exception(30) is not None if not future.cancelled() else True
    guest.wait_gone()
    pool.shutdown()
    with pytest.raises(PoolClosed):
        pool.call("add", 1)


@pytest.mark.per_profile
def test_the_grace_bounds_a_stop(make_pool: Callable[..., Pool], rendezvous: Rendezvous) -> None:
    pool = make_pool(workers=1)
    held, guest = pool.submit("visit", rendezvous.port), rendezvous.guest()
    pool._stop(0.1)
    with pytest.raises(WorkerLost, match="grace"):
        held.result(30)
    guest.wait_gone()
    assert pool._wait_closed(30)


@pytest.mark.per_profile
def test_a_pool_that_nobody_holds_ends(shape: Shape, events: Watch) -> None:
    pool = Pool("profile_tools", name="forgotten", **shape.options)
    pool.wait_ready(timeout=60)
    pids = [worker["pid"] for worker in pool.stats()["workers"]]
    with Processes(pids) as processes:
        del pool
        gc.collect()
        events.wait("pool_closed", pool="forgotten")
        processes.wait_ended()


def test_with_waits_for_the_end(shape: Shape) -> None:
    with Pool("profile_tools", **shape.options) as pool:
        future = pool.submit("add", 1, 2)
    assert future.result(0) == 3


@pytest.mark.per_profile
def test_a_worker_that_dies_idle_is_replaced(make_pool: Callable[..., Pool], events: Watch) -> None:
    pool = make_pool()
    pool.wait_ready(timeout=60)
    for _ in range(3):
        victim = pool.stats()["workers"][0]
        os.kill(victim["pid"], signal.SIGKILL)
        events.wait("worker_gone", pool="made", pid=victim["pid"])
        ready = events.wait("worker_ready", pool="made", nr=victim["nr"])
        while ready["pid"] == victim["pid"]:
            ready = events.wait("worker_ready", pool="made", nr=victim["nr"])
        pool.wait_ready(timeout=30)
    assert pool.stats()["restarts"] == 3
    assert pool.submit("add", 1).result(30) == 1


def blocked_signals() -> set[int]:
    return set(signal.pthread_sigmask(signal.SIG_BLOCK, []))


def child_after_terminate() -> int:
    import subprocess

    child = subprocess.Popen(["sleep", "3600"])
    child.terminate()
    return child.wait(20)


@pytest.mark.per_profile
def test_signals_reach_workers_and_their_children(make_pool: Callable[..., Pool], rendezvous: Rendezvous) -> None:
    pool = make_pool(workers=1)
    assert pool.call(blocked_signals) == set()
    assert pool.call(child_after_terminate) == -signal.SIGTERM
    future = pool.submit("visit", rendezvous.port)
    os.kill(rendezvous.guest().pid, signal.SIGABRT)
    with pytest.raises(WorkerLost) as caught:
        future.result(30)
    assert caught.value.signal == signal.SIGABRT


@pytest.mark.per_profile
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT], ids=lambda number: number.name)
def test_the_end_signals_of_others_cut_nothing_off(
    make_pool: Callable[..., Pool], rendezvous: Rendezvous, events: Watch, number: signal.Signals
) -> None:
    """A service manager sends them to all processes; here, to one worker and its zygote. TERM asks it to leave."""
    pool = make_pool(workers=1, grace=600)
    future = pool.submit("visit", rendezvous.port)
    guest, zygote = rendezvous.guest(), pool.stats()["zygote_pid"]
    for pid in (guest.pid, zygote):
        os.kill(pid, number)
    if number == signal.SIGTERM:
        assert events.wait("worker_draining", pid=guest.pid)["reason"] == "term"
        assert pool.submit("pid").result(30) != guest.pid, "it is being replaced"
    guest.let_go("whole")
    assert future.result(30) == "whole"
    assert pool.stats()["zygote_pid"] == zygote


def note_term(path: str) -> None:
    def note(*_: object) -> None:
        with open(path, "a") as file:
            file.write("told\n")
        os._exit(0)

    signal.signal(signal.SIGTERM, note)


def test_a_handler_of_the_users_runs_at_the_real_end_alone(
    make_pool: Callable[..., Pool], rendezvous: Rendezvous, tmp_path: Path
) -> None:
    told = tmp_path / "told"
    pool = make_pool(workers=1, initializer=note_term, initargs=(str(told),), term_grace=600)
    future = pool.submit("visit", rendezvous.port)
    os.kill(rendezvous.guest().pid, signal.SIGTERM)
    assert not future.done() and pool.submit("pid").result(30), "another one serves"
    assert not told.exists()
    pool.terminate_workers()
    with pytest.raises(WorkerLost):
        future.result(30)
    assert "told" in told.read_text()


def take_no_notice_of_term() -> None:
    signal.signal(signal.SIGTERM, lambda *_: None)


@pytest.mark.per_profile
def test_idle_workers_end_whatever_their_handler_does(make_pool: Callable[..., Pool]) -> None:
    pool = make_pool(initializer=take_no_notice_of_term, term_grace=600)
    pool.wait_ready(timeout=60)
    pool.terminate_workers()
    pool.shutdown()


def test_a_copy_that_code_forks_is_ended_as_ever(make_pool: Callable[..., Pool]) -> None:
    assert make_pool(workers=1).call("terminate_fork") == -signal.SIGTERM


def test_two_pools_do_not_meet(make_pool: Callable[..., Pool]) -> None:
    first, second = make_pool(name="first"), make_pool(name="second")
    assert first.call("pid") != second.call("pid")
    first.shutdown()
    assert second.call("add", 1) == 1
    assert repr(second) == "<clutch.Pool 'second'>"
