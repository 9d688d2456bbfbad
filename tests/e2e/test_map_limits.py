"""What the options of a pool promise for one call holds for each item of a map, though items travel in batches."""

from __future__ import annotations

import collections
import os
import time

import pytest

from clutch import DeadlineExceeded, Pool

pytestmark = pytest.mark.timeout(120)


def pid_of(_: int) -> int:
    return os.getpid()


@pytest.mark.parametrize("most", [1, 3, 10])
@pytest.mark.parametrize("chunksize", [None, 1, 4])
def test_no_worker_runs_more_items_than_its_calls(most: int, chunksize: int | None) -> None:
    """A chunk that somebody asked for stays whole: what is left of the calls may be less."""
    with Pool(2, max_tasks_per_child=most) as pool:
        pids = list(pool.map(pid_of, range(40 * most), chunksize=chunksize))
    assert max(collections.Counter(pids).values()) <= most + (chunksize or 1) - 1


def sleep_for(seconds: float) -> float:
    time.sleep(seconds)
    return seconds


@pytest.mark.parametrize("chunksize", [None, 5])
def test_items_that_keep_the_deadline_do_not_fail(chunksize: int | None) -> None:
    """Whatever stands before them, or beside them in their batch."""
    with Pool(1, deadline=1.0) as pool:
        pool.wait_ready()
        assert list(pool.map(sleep_for, [0.3] * 10, chunksize=chunksize)) == [0.3] * 10


def test_an_item_that_hangs_fails_by_the_deadline() -> None:
    with Pool(1, deadline=1.0) as pool:
        pool.wait_ready()
        results = pool.map(sleep_for, [0, 0, 600])
        assert [next(results), next(results)] == [0, 0]
        with pytest.raises(DeadlineExceeded):
            next(results)
