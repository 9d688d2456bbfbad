"""Locks of multiprocessing on their way to workers, and tqdm, which sends one."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from typing import Any

import pytest
import tqdm
from tqdm.contrib import concurrent as tqdm_concurrent

from clutch import BadArguments, Pool

pytestmark = pytest.mark.timeout(120)
FORK, SPAWN = multiprocessing.get_context("fork"), multiprocessing.get_context("spawn")


@pytest.fixture
def tqdm_on_pools(monkeypatch: pytest.MonkeyPatch) -> type[tqdm.tqdm]:
    monkeypatch.setattr("concurrent.futures.ProcessPoolExecutor", Pool)
    return type("OwnLock", (tqdm.tqdm,), {})


def test_tqdm_says_what_to_write_instead(tqdm_on_pools: type[tqdm.tqdm]) -> None:
    tqdm_on_pools.set_lock(FORK.RLock())
    with pytest.raises(BadArguments, match=r"RLock .* process_map: tqdm\(pool.map\(fn, items\), total=len\(items\)\)"):
        tqdm_concurrent.process_map(abs, range(3), tqdm_class=tqdm_on_pools, max_workers=1)


def test_tqdm_with_a_lock_that_can_be_sent(tqdm_on_pools: type[tqdm.tqdm]) -> None:
    tqdm_on_pools.set_lock(SPAWN.RLock())
    assert tqdm_concurrent.process_map(abs, range(-3, 0), tqdm_class=tqdm_on_pools, max_workers=2) == [3, 2, 1]


def test_tqdm_around_a_map() -> None:
    with Pool(2) as pool:
        assert list(tqdm.tqdm(pool.map(abs, range(-3, 0)), total=3)) == [3, 2, 1]


@pytest.mark.parametrize("make", ["Lock", "RLock", "Semaphore", "BoundedSemaphore"])
def test_a_lock_with_a_name_is_the_same_one_over_there(make: str) -> None:
    lock = getattr(SPAWN, make)()
    with Pool(1) as pool:
        assert pool.call(try_lock, lock) is True
        with lock:
            assert pool.call(try_lock, lock) is False
            assert pool.call(try_lock, [lock][0]) is False
    with Pool(1, initializer=keep, initargs=(lock,)) as pool:
        with lock:
            assert pool.call(try_kept) is False
        del lock
        pool.recycle(timeout=60)  # the next worker opens it anew
        assert pool.call(try_kept) is True


@pytest.mark.parametrize("make", [FORK.Lock, FORK.Queue, SPAWN.Queue, SPAWN.Event, FORK.JoinableQueue])
def test_others_are_refused_by_name(make: Callable[[], Any]) -> None:
    with Pool(1) as pool, pytest.raises(BadArguments, match=r"only be shared .*: use one of a multiprocessing.Manager"):
        pool.submit(try_lock, make())


def try_lock(lock: Any) -> bool:
    got = lock.acquire(timeout=0)
    if got:
        lock.release()
    return got


kept: list[Any] = []


def keep(lock: Any) -> None:
    kept.append(lock)


def try_kept() -> bool:
    return try_lock(kept[0])
