"""What `clutch.testing.watch` sees of single pieces of work."""

from __future__ import annotations

import pytest

from clutch import Pool
from clutch.testing import watch


def test_begin_and_finish_of_work_are_seen_where_they_are_asked_for() -> None:
    with Pool(workers=1) as pool, watch(work=True) as events:
        pool.wait_ready()
        future = pool.submit(abs, -1)
        assert future.result(30) == 1
        begun = events.wait("work_begun", id=future.work_id)
        finished = events.wait("work_finished", id=future.work_id)
        assert (begun["kind"], begun["trace"], finished["failed"]) == ("call", None, False)
        assert 0 <= finished["queued_s"] < 30 and 0 <= finished["run_s"] < 30
        (worker,) = pool.stats()["workers"]
        assert (finished["what"], finished["nr"], finished["pid"]) == ("abs", 0, worker["pid"])
        assert finished["error"] is None and begun["time"] <= finished["time"]
        with pytest.raises(ZeroDivisionError):
            pool.call(divmod, 1, 0)
        assert events.wait("work_finished", error="raised")["what"] == "divmod"
        list(pool.map(abs, [1, 2, 3], chunksize=3))
        assert events.wait("work_finished", kind="batch")["failed"] is False


def test_by_default_only_what_is_rare_is_seen() -> None:
    with Pool(workers=1) as pool, watch() as events:
        assert pool.submit(abs, -1).result(30) == 1
        with pytest.raises(ZeroDivisionError):
            pool.call(divmod, 1, 0)
        events.wait("worker_ready")
        assert not events.all("work_begun") and not events.all("work_finished")
