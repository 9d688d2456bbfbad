"""Failures 19 to 24: the waiting line under load, and who gets nothing from it."""

from __future__ import annotations

import gc
import os
import signal
import statistics
import threading
import time
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path

import pytest

from clutch import Overloaded, Pool
from clutch.testing import Watch
from support.changing_code import Code
from support.rendezvous import Rendezvous

pytestmark = pytest.mark.timeout(120)
REFUSAL_SECONDS_MAX = 0.005
SLOWER_MAX = 3
KNOWN_DEAD_SECONDS_MAX = 0.05
ROUNDS = 5
CANCELS = int(os.environ.get("CLUTCH_TEST_CANCELS", "100000"))


def test_failure_19_refused_at_once_and_all_accepted_work_ends(rendezvous: Rendezvous) -> None:
    with Pool("harmful_tools", workers=2, queue={"limit": 1000}) as pool:
        pool.wait_ready(timeout=60)
        held = [pool.submit("visit", rendezvous.port) for _ in range(2)]
        guests = rendezvous.guests(2)
        accepted = [pool.submit("echo", number) for number in range(1000)]
        took = []
        for _ in range(500):
            started = time.perf_counter()
            with pytest.raises(Overloaded):
                pool.call("echo", 1)
            took.append(time.perf_counter() - started)
        assert statistics.median(took) < REFUSAL_SECONDS_MAX
        for guest in guests:
            guest.let_go()
        assert [future.result(30) for future in accepted] == list(range(1000))
        assert not wait(held, 30).not_done


def test_failure_20_first_in_first_out() -> None:
    with Pool("harmful_tools", workers=1) as pool:
        pool.call("note_call", -1)
        futures = [pool.submit("note_call", number) for number in range(5000)]
        assert [future.result(30) for future in futures] == [[number] for number in range(5000)]
        assert pool.call("noted_calls") == list(range(-1, 5000))


@pytest.mark.parametrize(
    "options", [{"workers": 3}, {"profile": "thread", "workers": 1, "threads": 3}], ids=["process", "thread"]
)
def test_failure_20_no_slot_idles_while_work_waits(rendezvous: Rendezvous, options: dict[str, object]) -> None:
    """Whatever slot is held, and whatever was sent ahead to it: the rest runs in the others."""
    with Pool("harmful_tools", **options) as pool:  # type: ignore[arg-type]
        pool.wait_ready(timeout=60)
        for _ in range(200):
            pool.call("visit_or_not", None)  # measured as short
        for held in (1, 2):
            blocking = [pool.submit("visit_or_not", rendezvous.port) for _ in range(held)]
            guests = rendezvous.guests(held)
            quick = [pool.submit("visit_or_not", None) for _ in range(500)]
            assert not wait(quick, 30).not_done
            # The last free slot is really used: as many as there are get in at the same time.
            more = [pool.submit("visit_or_not", rendezvous.port) for _ in range(3 - held)]
            for guest in [*guests, *rendezvous.guests(3 - held)]:
                guest.let_go()
            assert not wait([*blocking, *more], 30).not_done


def test_failure_20_begun_never_exceeds_the_slots(rendezvous: Rendezvous) -> None:
    with Pool("harmful_tools", profile="thread", workers=2, threads=2) as pool:
        pool.wait_ready(timeout=60)
        for _ in range(100):
            pool.call("visit_or_not", None)
        futures = [pool.submit("visit_or_not", rendezvous.port) for _ in range(40)]
        inside = rendezvous.guests(4)
        for _ in range(36):
            assert rendezvous.nobody_waits()
            inside.pop(0).let_go()
            inside.append(rendezvous.guest())
        for guest in inside:
            guest.let_go()
        assert not wait(futures, 30).not_done


def cost_of_a_submit(pool: Pool) -> float:
    took = []
    for _ in range(300):
        started = time.perf_counter()
        future = pool.submit("echo", 1)
        took.append(time.perf_counter() - started)
        future.cancel()
    return statistics.median(took)


def test_failure_21_a_long_queue_costs_a_submit_nothing(rendezvous: Rendezvous) -> None:
    with Pool("harmful_tools", workers=1) as pool:
        held = pool.submit("visit", rendezvous.port)
        guest = rendezvous.guest()
        queued = [pool.submit("echo", number) for number in range(10)]
        short = cost_of_a_submit(pool)
        queued += [pool.submit("echo", number) for number in range(10_000)]
        long = cost_of_a_submit(pool)
        assert pool.stats()["queued"] == 10_010
        assert long < 3 * short
        guest.let_go()
        assert not wait([held, *queued], 60).not_done


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_failure_21_memory_is_flat_after_many_cancels(rendezvous: Rendezvous) -> None:
    with Pool("harmful_tools", workers=1) as pool:
        held = pool.submit("visit", rendezvous.port)
        guest = rendezvous.guest()

        def cancel_many(count: int) -> None:
            for _ in range(count):
                assert pool.submit("echo", b"x" * 100).cancel()

        cancel_many(CANCELS // 5)
        gc.collect()
        before = resident_bytes()
        cancel_many(CANCELS)
        gc.collect()
        assert resident_bytes() - before < 8 << 20
        assert pool.stats()["queued"] == 0
        guest.let_go()
        held.result(30)


def p99_of_calls(pool: Pool) -> float:
    took = []
    for number in range(500):
        started = time.perf_counter()
        assert pool.call("echo", number) == number
        took.append(time.perf_counter() - started)
    return statistics.quantiles(took, n=100)[-1]


def test_failure_22_a_saturated_pool_leaves_the_p99_of_another_alone(rendezvous: Rendezvous) -> None:
    """Every slot of the one is held, its line is full, callers wait: calls of the other take as long as before.

    The best round beside it is compared with the worst alone: what the machine does meanwhile, and on which CPU it puts
    whom (which alone makes a factor of ten), is not what this is about.
    """
    alone, beside = [], []
    with (
        Pool("harmful_tools", name="other", workers=1) as other,
        Pool("harmful_tools", name="full", workers=2, queue={"limit": 1000}) as full,
        ThreadPoolExecutor(8) as callers,
    ):
        other.wait_ready(timeout=60), full.wait_ready(timeout=60)
        for _ in range(ROUNDS):
            alone.append(p99_of_calls(other))
            work = [full.submit("visit", rendezvous.port) for _ in range(2)]
            guests = rendezvous.guests(2)
            work += [full.submit("echo", number) for number in range(1000)]
            waiting = [callers.submit(full.options(block=True).call, "echo", number) for number in range(8)]
            with pytest.raises(Overloaded):
                full.call("echo", 1)
            beside.append(p99_of_calls(other))
            for guest in guests:
                guest.let_go()
            assert not wait([*work, *waiting], 60).not_done
    assert min(beside) < SLOWER_MAX * max(alone), (alone, beside)


def test_failure_23_a_draining_worker_gets_nothing(rendezvous: Rendezvous, events: Watch) -> None:
    with Pool("harmful_tools", workers=2) as pool:
        pool.wait_ready(timeout=60)
        for future in [pool.submit("visit_or_not", None) for _ in range(500)]:
            future.result(30)
        running = pool.submit("visit", rendezvous.port)
        guest = rendezvous.guest()
        nr = next(worker["nr"] for worker in pool.stats()["workers"] if worker["pid"] == guest.pid)
        command = threading.Thread(target=pool.recycle, args=(nr,))
        command.start()
        events.wait("worker_draining", pid=guest.pid)
        work = [pool.submit("visit_or_not", None) for _ in range(500)]
        seen = [worker["sent"] for worker in pool.stats()["workers"] if worker["pid"] == guest.pid]
        assert seen == [1], "what runs, and nothing behind it"
        assert guest.pid not in {future.result(30) for future in work}
        guest.let_go()
        running.result(30)
        command.join(30)


def test_failure_23_a_booting_worker_gets_nothing(code: Code, rendezvous: Rendezvous) -> None:
    code.write(1, f"@clutch.on_start\ndef begin():\n    meet({rendezvous.port})\n")
    with Pool("written_code", workers=2) as pool:
        first, second = rendezvous.guests(2)
        work = [pool.submit("version") for _ in range(50)]
        assert (pool.stats()["queued"], pool.stats()["sent"]) == (50, 0)
        first.let_go()
        assert [future.result(30) for future in work] == [1] * 50
        assert {pool.submit(os.getpid).result(30) for _ in range(50)} == {first.pid}
        second.let_go()


def test_failure_23_a_dead_worker_is_known_at_once(events: Watch) -> None:
    """The best of some attempts: what a busy machine adds is not the pool's."""
    took = []
    with Pool("harmful_tools", workers=2) as pool:
        for _ in range(ROUNDS):
            pool.wait_ready(timeout=60)
            pid = pool.call("pid")
            killed_at = time.monotonic()
            os.kill(pid, signal.SIGKILL)
            events.wait("worker_gone", pid=pid)
            took.append(time.monotonic() - killed_at)
            assert pid not in {worker["pid"] for worker in pool.stats()["workers"]}
            assert pid not in {pool.submit("pid").result(30) for _ in range(20)}
        assert events.all("work_lost") == []
    assert min(took) < KNOWN_DEAD_SECONDS_MAX, took


def test_failure_24_what_was_sent_ahead_to_a_stuck_worker_runs_elsewhere(rendezvous: Rendezvous, events: Watch) -> None:
    with Pool("harmful_tools", name="ahead", workers=2) as pool:
        pool.wait_ready(timeout=60)
        for future in [pool.submit("visit_or_not", None) for _ in range(2000)]:
            future.result(30)
        # All are of one function, known as short: some are sent to both workers, behind the one that gets stuck.
        ports = [None] * 300
        ports[50] = rendezvous.port
        futures = [pool.submit("visit_or_not", port) for port in ports]
        stuck = rendezvous.guest()
        others = [future for number, future in enumerate(futures) if number != 50]
        assert not wait(others, 30).not_done
        assert not futures[50].done()
        assert events.all("work_lost", pool="ahead") == []
        stuck.let_go()
        assert futures[50].result(30) == stuck.pid


def test_failure_24_with_both_workers_stuck_nothing_is_lost(rendezvous: Rendezvous) -> None:
    with Pool("harmful_tools", workers=2) as pool:
        pool.wait_ready(timeout=60)
        for future in [pool.submit("visit_or_not", None) for _ in range(1000)]:
            future.result(30)
        ports = [rendezvous.port if number in (20, 40) else None for number in range(200)]
        futures = [pool.submit("visit_or_not", port) for port in ports]
        for guest in rendezvous.guests(2):
            guest.let_go()
        assert not wait(futures, 30).not_done
        assert all(future.exception() is None for future in futures)
