"""Failure 36: another version of the code takes over from the one that runs, or does not, and nobody notices."""

from __future__ import annotations

import os
import signal
import threading

import pytest

from clutch import ConfigError, Pool, PoolClosed, WorkerLost
from clutch.testing import Processes, Watch
from support.changing_code import Code
from support.rendezvous import Rendezvous

pytestmark = pytest.mark.timeout(120)


def generations(pool: Pool) -> set[int]:
    return {worker["generation"] for worker in pool.stats()["workers"]}


SHAPES = [
    {"profile": "process", "workers": 3},
    {"profile": "thread", "workers": 2, "threads": 3},
    {"profile": "async", "workers": 1, "tasks": 4},
    {"profile": "process", "workers": 2, "start": "spawn"},
    {"profile": "process", "workers": 2, "preload": False},
    {"profile": "process", "workers": 4, "recycle": {"together": 4}},
]


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: "-".join(str(value) for value in shape.values()))
def test_failure_36_new_code_takes_over_under_load(code: Code, events: Watch, shape: dict[str, object]) -> None:
    failures: list[BaseException] = []
    seen: list[list[int]] = []
    stop = threading.Event()

    def load() -> None:
        mine = []
        try:
            while not stop.is_set():
                mine.append(pool.call("version"))
                mine += [future.result(30) for future in [pool.submit("version") for _ in range(10)]]
        except BaseException as error:
            failures.append(error)
        seen.append(mine)

    with Pool("written_code", **shape) as pool:  # type: ignore[arg-type]
        pool.wait_ready(timeout=60)
        callers = [threading.Thread(target=load) for _ in range(3)]
        for caller in callers:
            caller.start()
        for version in (2, 3):
            code.write(version)
            pool.reload(timeout=60)
            assert pool.call("version") == version
            assert generations(pool) == {version}
            events.wait("reload_finished", generation=version)
            assert pool.stats()["ready"] == pool.stats()["target"] == shape["workers"]
        stop.set()
        for caller in callers:
            caller.join(60)
        assert failures == [] and len(seen) == 3 and all(seen)
        assert pool.stats()["restarts"] == 0 and pool.stats()["failed"] == 0


def test_failure_36_never_fewer_than_there_should_be_and_one_at_a_time(code: Code, events: Watch) -> None:
    with Pool("written_code", name="rolled", workers=4) as pool:
        pool.wait_ready(timeout=60)
        for _ in range(4):
            events.wait("worker_ready")
        pool.reload(timeout=60)
        ready, out = 4, 0
        for event in events.seen[events.seen.index(events.wait("reload_started")) :]:
            ready += {"worker_ready": 1, "worker_draining": -1}.get(event["event"], 0)
            out += {"worker_draining": 1, "worker_gone": -1}.get(event["event"], 0)
            assert ready >= 4 and out <= 1, event
        assert len(events.all("worker_draining", reason="reload")) == 4


def test_failure_36_code_that_does_not_import_leaves_the_old_one_serving(code: Code, events: Watch) -> None:
    with Pool("written_code", workers=2) as pool:
        pool.wait_ready(timeout=60)
        before = pool.stats()
        code.break_()
        with pytest.raises(ConfigError, match="broken on purpose") as caught:
            pool.reload(timeout=60)
        assert "Traceback" in str(caught.value) and "in inner" in str(caught.value)
        assert "broken on purpose" in events.wait("reload_failed")["reason"]
        assert [pool.call("version") for _ in range(10)] == [1] * 10
        after = pool.stats()
        assert [worker["pid"] for worker in after["workers"]] == [worker["pid"] for worker in before["workers"]]
        assert (after["state"], after["generation"], after["zygote_pid"]) == ("ready", 1, before["zygote_pid"])
        # Also after a death: the replacement is of the old code, at once.
        os.kill(after["workers"][0]["pid"], signal.SIGKILL)
        events.wait("worker_gone", pid=after["workers"][0]["pid"])
        pool.wait_ready(timeout=30)
        assert generations(pool) == {1} and pool.call("version") == 1
        code.write(2)
        pool.reload(timeout=60)
        assert pool.call("version") == 2


def test_failure_36_workers_that_do_not_start_leave_the_old_ones_serving(code: Code, events: Watch) -> None:
    with Pool("written_code", workers=3) as pool:
        pool.wait_ready(timeout=60)
        code.write(2, "@clutch.on_start\ndef begin():\n    raise ValueError('no database')\n")
        with pytest.raises(ConfigError, match="no database") as caught:
            pool.reload(timeout=60)
        assert "in begin" in str(caught.value)
        assert pool.stats()["state"] == "ready" and pool.stats()["ready"] == 3
        assert [pool.call("version") for _ in range(10)] == [1] * 10
        assert events.all("worker_draining") == []
        assert generations(pool) == {1}


def test_failure_36_workers_that_started_go_when_others_do_not(code: Code, events: Watch) -> None:
    """The first worker of the new code starts, the second one does not: all run the old code again."""
    with Pool("written_code", workers=2) as pool:
        pool.wait_ready(timeout=60)
        once = f"import os\n@clutch.on_start\ndef begin():\n    os.mkdir({str(code.folder / 'once')!r})\n"
        code.write(2, once)
        with pytest.raises(ConfigError, match="FileExistsError"):
            pool.reload(timeout=60)
        while generations(pool) != {1}:
            events.wait("worker_gone")
        pool.wait_ready(timeout=30)
        assert [pool.call("version") for _ in range(10)] == [1] * 10
        assert pool.stats()["generation"] == 1


def test_failure_36_running_work_has_the_grace(code: Code, rendezvous: Rendezvous, events: Watch) -> None:
    with Pool("written_code", workers=2, grace=0.5) as pool:
        kept, cut = (pool.submit("visit", rendezvous.port) for _ in range(2))
        first, second = rendezvous.guests(2)
        reload = threading.Thread(target=pool.reload, kwargs={"timeout": 60})
        reload.start()
        draining = {events.wait("worker_draining")["pid"]}
        ended, stuck = (first, second) if first.pid in draining else (second, first)
        ended.let_go("done")
        reload.join(60)
        results = {future.exception(30) is None: future for future in (kept, cut)}
        assert results[True].result() == "done"
        error = results[False].exception()
        assert isinstance(error, WorkerLost) and error.pid == stuck.pid and "grace" in (error.cause or "")
        assert generations(pool) == {2}


def test_failure_36_the_old_zygote_ends_with_its_last_worker(code: Code, rendezvous: Rendezvous, events: Watch) -> None:
    with Pool("written_code", workers=1) as pool:
        future = pool.submit("visit", rendezvous.port)
        guest = rendezvous.guest()
        with Processes([pool.stats()["zygote_pid"]]) as zygote:
            reload = threading.Thread(target=pool.reload, kwargs={"timeout": 60})
            reload.start()
            events.wait("worker_draining", pid=guest.pid)
            assert zygote.alive() == zygote.pids
            # A death in the old image is still told by its own zygote, with its signal.
            os.kill(guest.pid, signal.SIGABRT)
            error = future.exception(30)
            assert isinstance(error, WorkerLost) and error.signal == signal.SIGABRT
            reload.join(60)
            zygote.wait_ended()
        assert events.all("zygote_lost") == []


def test_a_reload_overtakes_the_one_before(code: Code, rendezvous: Rendezvous) -> None:
    with Pool("written_code", workers=2) as pool:
        pool.wait_ready(timeout=60)
        code.write(2, f"meet({rendezvous.port})\n")
        first = threading.Thread(target=pool.reload, kwargs={"timeout": 60})
        first.start()
        rendezvous.guest()  # it imports, and would for ever
        code.write(3)
        pool.reload(timeout=60)
        assert pool.call("version") == 3
        first.join(60)
        assert not first.is_alive()
        assert generations(pool) == {3}


def test_a_reload_that_takes_long_goes_on(code: Code, rendezvous: Rendezvous, events: Watch) -> None:
    with Pool("written_code", workers=1) as pool:
        pool.wait_ready(timeout=60)
        code.write(2, f"meet({rendezvous.port})\n")
        with pytest.raises(TimeoutError):
            pool.reload(timeout=0.1)
        rendezvous.guest().let_go()
        events.wait("reload_finished")
        assert pool.call("version") == 2


def test_a_failing_pool_is_mended_by_a_reload(code: Code) -> None:
    code.break_()
    with Pool("written_code", workers=1) as pool:
        with pytest.raises(ConfigError):
            pool.call("version")
        with pytest.raises(ConfigError, match="broken on purpose"):
            pool.reload(timeout=60)
        code.write(2)
        pool.reload(timeout=60)
        assert pool.call("version") == 2


def test_functions_given_before_are_known_to_new_workers(code: Code) -> None:
    with Pool("written_code", workers=1) as pool:
        assert pool.call(os.path.basename, "a/b") == "b"
        pool.reload(timeout=60)
        assert pool.call(os.path.basename, "a/b") == "b"


def test_a_stop_ends_a_reload(code: Code, rendezvous: Rendezvous) -> None:
    outcome: list[BaseException] = []

    def reload() -> None:
        try:
            pool.reload(timeout=60)
        except BaseException as error:
            outcome.append(error)

    with Pool("written_code", workers=1) as pool:
        pool.wait_ready(timeout=60)
        code.write(2, f"meet({rendezvous.port})\n")
        thread = threading.Thread(target=reload)
        thread.start()
        guest = rendezvous.guest()
        with Processes([guest.pid]) as loading:
            pool.shutdown()
            loading.wait_ended()
        thread.join(60)
        assert [type(error) for error in outcome] == [PoolClosed]
        with pytest.raises(PoolClosed):
            pool.reload()
