"""Profile `async` with several loops in a worker: what a tool asks for holds over all of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from clutch import Pool
from support.rendezvous import Rendezvous


@pytest.fixture
def pool() -> Iterator[Pool]:
    with Pool("http_tools", profile="async", workers=1, threads=3, tasks=4) as pool:
        yield pool


@pytest.mark.parametrize("name", ["in_main_thread", "in_main_thread_async"])
def test_main_thread_tools_run_there_whichever_loop_took_them(pool: Pool, name: str) -> None:
    futures = [pool.submit(name) for _ in range(60)]
    assert all(future.result(30) for future in futures)


def test_serial_tools_run_one_at_a_time_over_all_loops(pool: Pool, rendezvous: Rendezvous) -> None:
    futures = [pool.submit("meet_alone", rendezvous.port) for _ in range(6)]
    for future in [pool.submit("pid") for _ in range(6)]:
        future.result(30)  # the loops have taken what came before
    for _ in futures:
        rendezvous.guest().let_go()
    assert [future.result(30) for future in futures] == [1] * 6
