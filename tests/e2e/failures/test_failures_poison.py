"""Failure 32: work that kills its workers, and who else is suspected of it."""

from __future__ import annotations

import os
import signal

import pytest
from harmful_tools import die_by_segfault

from clutch import Poisoned, Pool, WorkerLost
from clutch.testing import Watch
from support.rendezvous import Rendezvous

pytestmark = pytest.mark.timeout(120)


@pytest.mark.parametrize("kills", [1, 2, 3, 5])
def test_failure_32_poison_is_quarantined_after_so_many_kills(kills: int, events: Watch) -> None:
    name = f"poisoned-{kills}"
    with Pool("harmful_tools", name=name, workers=2, deaths_max=kills) as pool:
        pool.wait_ready(timeout=60)
        with pytest.raises(Poisoned, match=f"killed {kills} of its workers .*SIGSEGV") as caught:
            pool.options(retry=100).call(die_by_segfault)
        assert caught.value.deaths == kills
        for _ in range(kills):
            events.wait("worker_gone", pool=name)
        assert events.wait("work_poisoned", pool=name)["deaths"] == kills
        assert pool.call("echo", 1) == 1
        assert len(events.all("worker_gone", pool=name)) == kills


def test_failure_32_fewer_retries_than_kills_are_lost() -> None:
    with Pool("harmful_tools", workers=1) as pool, pytest.raises(WorkerLost):
        pool.options(retry=1).call(die_by_segfault)


def test_failure_32_the_same_tool_may_be_submitted_again() -> None:
    """A submission is quarantined, not a tool: the next one may have other arguments."""
    with Pool("harmful_tools", workers=1, deaths_max=2) as pool:
        for _ in range(2):
            with pytest.raises(Poisoned):
                pool.options(retry=9).call(die_by_segfault)
        assert pool.call("echo", 1) == 1


def test_failure_32_suspects_run_alone_and_the_innocent_are_cleared(rendezvous: Rendezvous, events: Watch) -> None:
    """Four begin in one worker, which dies: nobody knows of which. Each runs alone next; one dies of it again."""
    with Pool("harmful_tools", name="suspects", profile="thread", workers=1, threads=4) as pool:
        pool.wait_ready(timeout=60)
        retried = pool.options(retry=5)
        innocent = [retried.submit("visit", rendezvous.port) for _ in range(3)]
        guests = rendezvous.guests(3)
        guilty = retried.submit(die_by_segfault)
        for guest in guests:
            guest.wait_gone()
        # They come one at a time now, each let go before the next can be there.
        for _ in range(3):
            guest = rendezvous.guest()
            assert rendezvous.nobody_waits(), "another ran beside a suspect"
            guest.let_go("free")
        assert [future.result(60) for future in innocent] == ["free"] * 3
        with pytest.raises(Poisoned):
            guilty.result(60)
        for _ in range(3):
            events.wait("worker_gone", pool="suspects")


def test_failure_32_a_worker_that_clutch_ends_counts_against_nobody(rendezvous: Rendezvous) -> None:
    """One call is stuck; its worker is ended. Its neighbour did nothing, and may run again as often as before."""
    with Pool(
        "harmful_tools", profile="thread", workers=1, threads=2, interrupt_grace=0.1, grace=0.2, deaths_max=1
    ) as pool:
        pool.wait_ready(timeout=60)
        neighbour = pool.options(retry=1).submit("visit", rendezvous.port, "neighbour")
        first = rendezvous.guest()
        stuck = pool.submit("hold_the_gil", rendezvous.port)
        rendezvous.guest()
        assert stuck.cancel()
        first.wait_gone()
        rendezvous.guest().let_go("again")
        assert neighbour.result(60) == "again"


def test_failure_32_work_beside_suspects_goes_on(rendezvous: Rendezvous) -> None:
    """One worker is kept free for the suspects; the others take what comes."""
    with Pool("harmful_tools", profile="thread", workers=2, threads=2) as pool:
        pool.wait_ready(timeout=60)
        suspects = [pool.options(retry=3).submit("visit", rendezvous.port, "suspect") for _ in range(4)]
        guests = rendezvous.guests(4)
        os.kill(guests[0].pid, signal.SIGKILL)
        for guest in guests:
            guest.let_go("first")
        again = rendezvous.guest()
        plain = [pool.submit("echo", number) for number in range(200)]
        assert [future.result(60) for future in plain] == list(range(200))
        again.let_go("second")
        rendezvous.guest().let_go("second")
        assert sorted(future.result(60) for future in suspects) == ["first", "first", "second", "second"]
