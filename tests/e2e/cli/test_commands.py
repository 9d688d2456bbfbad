"""Commands to a running pool: its size, and whether it takes work. Reload and recycle are with their failures."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from clutch import Draining, Overloaded, Pool, PoolClosed
from clutch.testing import Watch
from support.rendezvous import Rendezvous

pytestmark = pytest.mark.timeout(120)


def test_scaling_up_and_down(rendezvous: Rendezvous, events: Watch) -> None:
    with Pool("harmful_tools", workers=1) as pool:
        pool.scale(4)
        pool.wait_ready(timeout=60)
        assert (pool.stats()["ready"], pool.stats()["target"]) == (4, 4)
        held = [pool.submit("visit", rendezvous.port) for _ in range(2)]
        busy = rendezvous.guests(2)
        pool.scale(2)
        stats = pool.stats()
        assert (stats["ready"], stats["target"], stats["min"], stats["max"]) == (2, 2, 2, 2)
        for _ in range(2):
            gone = events.wait("worker_gone")
            assert gone["pid"] not in {guest.pid for guest in busy}, "the idle ones go"
        pool.scale(1)
        third = [events.wait("worker_draining", reason="surplus")["pid"] for _ in range(3)][-1]
        assert third in {guest.pid for guest in busy}
        for guest in busy:
            guest.let_go("kept")
        assert [future.result(30) for future in held] == ["kept"] * 2
        events.wait("worker_gone", pid=third)
        assert pool.stats()["ready"] == len(pool.stats()["workers"]) == 1
        assert pool.stats()["restarts"] == 0 and pool.call("echo", 1) == 1


def test_scaling_within_bounds() -> None:
    with Pool("harmful_tools", workers=2) as pool:
        pool.scale(min=1, max=4)
        stats = pool.stats()
        assert (stats["target"], stats["min"], stats["max"]) == (2, 1, 4)
        pool.scale(min=3)
        pool.wait_ready(timeout=60)
        assert pool.stats()["ready"] == 3
        pool.scale(min=1, max=1)
        assert pool.stats()["target"] == 1
        for wrong in ({}, {"workers": 2, "min": 1}, {"workers": 0}, {"min": 3, "max": 2}, {"workers": 5000}):
            with pytest.raises(ValueError, match=r"scale\(\)|allowed"):
                pool.scale(**wrong)


def test_draining_and_resuming(rendezvous: Rendezvous) -> None:
    with Pool("harmful_tools", workers=1) as pool:
        running = pool.submit("visit", rendezvous.port)
        guest = rendezvous.guest()
        queued = [pool.submit("echo", number) for number in range(5)]
        pool.drain()
        assert pool.stats()["state"] == "draining"
        for attempt in (
            lambda: pool.call("echo", 1),
            pool.submit("echo", 1).result,
            lambda: list(pool.map("echo", [1])),
            lambda: pool.options(block=True).call("echo", 1),
        ):
            with pytest.raises(Draining, match="takes no more work") as caught:
                attempt()
            assert isinstance(caught.value, Overloaded) and caught.value.pool == "pool"
        guest.let_go("kept")
        assert running.result(30) == "kept", "what it had is finished"
        assert [future.result(30) for future in queued] == list(range(5))
        pool.wait_ready(timeout=0)
        assert [worker["pid"] for worker in pool.stats()["workers"]] == [guest.pid], "its workers stay"
        pool.resume()
        assert pool.stats()["state"] == "ready"
        assert pool.call("echo", 1) == 1


def test_a_drained_pool_ends_in_order() -> None:
    with Pool("harmful_tools", workers=1) as pool:
        future = pool.submit("echo", 1)
        pool.drain()
    assert future.result(0) == 1


COMMANDS: list[Callable[[Pool], object]] = [
    lambda pool: pool.reload(),
    lambda pool: pool.recycle(),
    lambda pool: pool.scale(2),
    lambda pool: pool.drain(),
    lambda pool: pool.resume(),
]


@pytest.mark.parametrize("command", COMMANDS, ids=["reload", "recycle", "scale", "drain", "resume"])
def test_a_closed_pool_takes_no_commands(command: Callable[[Pool], object]) -> None:
    with Pool("harmful_tools", workers=1) as pool:
        pool.wait_ready(timeout=60)
    with pytest.raises(PoolClosed, match="closed"):
        command(pool)
