"""Failures 1 to 5, 51 and 53: whatever dies, nothing is left over and nobody else is harmed."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import threading
import time
import uuid
from collections import Counter
from pathlib import Path

import pytest

from clutch import ConfigError, Pool, WorkerLost, _core
from clutch.testing import Processes, Watch, children, watch
from support.rendezvous import Rendezvous
from support.script_process import Script

pytestmark = pytest.mark.timeout(120)
ORPHAN_SECONDS_MAX = 2.0
FORKS = int(os.environ.get("CLUTCH_TEST_FORKS", "10000"))
FORKS_MIN = 300
FORKS_SECONDS = float(os.environ.get("CLUTCH_TEST_FORKS_SECONDS", "10"))
"""As many of the 10,000 as the machine does in this time."""

DISPATCHER = """
import sys
from clutch import Pool

if __name__ == "__main__":
    profile, start, *calls = sys.argv[1:]
    with Pool("harmful_tools", profile=profile, workers=3, start=start) as pool:
        pool.wait_ready(timeout=60)
        futures = [pool.submit(name, int(port)) for name, port in zip(calls[::2], calls[1::2])]
        print("ready")
        for line in sys.stdin:
            print("answer", pool.call("pid"))
"""


def below_with(mark: str) -> list[int]:
    """Every process of this machine that has the mark in its environment, whoever its parent is."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdecimal() and mark.encode() in (entry / "environ").read_bytes():
                found.append(int(entry.name))
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
    return found


def wait_none_with(mark: str) -> None:
    """All that have the mark end in time, also those that the first look missed."""
    while found := below_with(mark):
        with Processes(found) as processes:
            processes.wait_ended(ORPHAN_SECONDS_MAX)


@pytest.mark.parametrize("start", ["fork", "spawn"])
@pytest.mark.parametrize("profile", ["process", "thread", "async"])
def test_failure_01_dispatcher_killed_while_idle(tmp_path: Path, profile: str, start: str) -> None:
    with Script(tmp_path, DISPATCHER, profile, start) as script:
        script.hear("ready")
        with script.below() as processes:
            assert len(processes.pids) >= 4
            script.kill()
            assert processes.alive(ORPHAN_SECONDS_MAX) == []


@pytest.mark.parametrize("profile", ["process", "thread"])
@pytest.mark.parametrize("busy", ["hold_the_gil", "sleep_long", "spin_long"])
def test_failure_01_dispatcher_killed_while_workers_are_busy(
    tmp_path: Path, rendezvous: Rendezvous, profile: str, busy: str
) -> None:
    calls = [busy, str(rendezvous.port)] * 3
    with Script(tmp_path, DISPATCHER, profile, "fork", *calls) as script:
        script.hear("ready")
        guests = rendezvous.guests(3)
        with script.below() as processes:
            assert {guest.pid for guest in guests} <= set(processes.pids)
            script.kill()
            assert processes.alive(ORPHAN_SECONDS_MAX) == []


def test_failure_01_dispatcher_killed_while_workers_are_stopped(tmp_path: Path, rendezvous: Rendezvous) -> None:
    with Script(tmp_path, DISPATCHER, "process", "fork", "visit", str(rendezvous.port)) as script:
        script.hear("ready")
        os.kill(rendezvous.guest().pid, signal.SIGSTOP)
        with script.below() as processes:
            script.kill()
            assert processes.alive(ORPHAN_SECONDS_MAX) == []


def test_failure_01_with_its_grandchildren(tmp_path: Path) -> None:
    text = DISPATCHER.replace('print("ready")', 'print("children", *pool.call("have_children", True))')
    with Script(tmp_path, text, "process", "fork") as script:
        grandchildren = [int(pid) for pid in script.hear("children (.*)").split()]
        with script.below() as processes, Processes(grandchildren) as theirs:
            assert len(theirs.pids) == 5
            script.kill()
            assert processes.alive(ORPHAN_SECONDS_MAX) == []
            assert theirs.alive(ORPHAN_SECONDS_MAX) == []


@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_failure_02_the_group_is_known_before_the_first_work(start: str) -> None:
    with Pool("harmful_tools", workers=2, start=start) as pool:
        assert pool.call("is_group_leader")


@pytest.mark.parametrize("end", ["killed", "recycled", "stopped", "exits", "cancelled"])
def test_failure_02_grandchildren_go_with_their_worker(events: Watch, rendezvous: Rendezvous, end: str) -> None:
    with Pool("harmful_tools", workers=1, interrupt_grace=0.1, term_grace=0.2) as pool:
        # In one call: the next one may go to another worker.
        worker, children_of_it = pool.call("with_children")
        with Processes(children_of_it) as grandchildren:
            assert len(grandchildren.pids) == 4, "one of them ignores TERM"
            if end == "cancelled":
                future = pool.submit("ignore_term", rendezvous.port)
                rendezvous.guest()
                assert future.cancel()
            elif end == "exits":
                assert isinstance(pool.submit("exit_with", 3).exception(30), WorkerLost)
            elif end == "killed":
                os.kill(worker, signal.SIGKILL)
            elif end == "recycled":
                pool.recycle(timeout=30)
            elif end == "stopped":
                pool.shutdown()
            events.wait("worker_gone", pid=worker)
            assert grandchildren.alive(ORPHAN_SECONDS_MAX) == []


def test_failure_03_two_instances_never_touch_each_other(tmp_path: Path) -> None:
    folders = [tmp_path / "one", tmp_path / "two"]
    for folder in folders:
        folder.mkdir()
    alike = "process", "fork"
    with Script(folders[0], DISPATCHER, *alike) as one, Script(folders[1], DISPATCHER, *alike) as two:
        one.hear("ready"), two.hear("ready")
        with one.below() as ones, two.below() as twos:
            one.kill()
            assert ones.alive(ORPHAN_SECONDS_MAX) == []
            assert twos.alive() == twos.pids
            two.tell()
            assert int(two.hear("answer (.*)")) in twos.pids
        # A new instance in the place of the first leaves the second alone, too.
        with Script(folders[0], DISPATCHER, *alike) as again:
            again.hear("ready")
            two.tell()
            two.hear("answer")


STARTING = """
import sys
from clutch import Pool
from clutch.testing import watch

if __name__ == "__main__":
    mark, name, count = sys.argv[1:]
    with watch() as events, Pool("harmful_tools", workers=20, env={"CLUTCH_TEST_MARK": mark}) as pool:
        for _ in range(int(count)):
            event = events.wait(name)
        print("now", event["pid"])
        sys.stdin.readline()
"""
MOMENTS = [("zygote_started", 1), *(("worker_starting", count) for count in (1, 2, 7, 19)), ("worker_ready", 3)]


@pytest.mark.parametrize(("moment", "count"), MOMENTS)
def test_failure_04_dispatcher_killed_between_fork_and_registration(tmp_path: Path, moment: str, count: int) -> None:
    mark = uuid.uuid4().hex
    with Script(tmp_path, STARTING, mark, moment, str(count)) as script:
        script.hear("now")
        script.kill()
        wait_none_with(mark)


def wait_all_ready(pool: Pool, events: Watch) -> None:
    """While no worker is ready a pool without a zygote is failing; it recovers by itself."""
    try:
        pool.wait_ready(timeout=60)
    except ConfigError:
        events.wait("pool_recovered")
        pool.wait_ready(timeout=60)


@pytest.mark.parametrize(("moment", "count"), MOMENTS)
def test_failure_04_zygote_killed_between_fork_and_registration(moment: str, count: int) -> None:
    mark = uuid.uuid4().hex
    with watch() as events, Pool("harmful_tools", workers=20, env={"CLUTCH_TEST_MARK": mark}) as pool:
        zygote = events.wait("zygote_started")["pid"]
        for _ in range(count if moment != "zygote_started" else 0):
            events.wait(moment)
        os.kill(zygote, signal.SIGKILL)
        # All workers may be ready before the dispatcher has seen that the zygote is gone.
        events.wait("zygote_lost")
        successor = events.wait("zygote_started")["pid"]
        wait_all_ready(pool, events)
        known = {successor, *(worker["pid"] for worker in pool.stats()["workers"])}
        # Whatever the old zygote had forked and not told of must end by itself.
        with Processes(set(below_with(mark)) - known) as untracked:
            untracked.wait_ended(ORPHAN_SECONDS_MAX)
        assert set(below_with(mark)) <= known
    wait_none_with(mark)


def resident_bytes(pid: int | str) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def descriptors(pid: int | str) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


def zombies(zygote: int) -> list[int]:
    """Children of the zygote that have ended and are not reaped."""
    found = []
    for pid in children(zygote):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0]
            found += [pid] if state == "Z" else []
    return found


def wait_reaped(zygote: int) -> None:
    """One that has just ended is a zombie for a moment; no zombie stays."""
    deadline = time.monotonic() + 10
    while left := zombies(zygote):
        assert time.monotonic() < deadline, f"{left} stay"
        os.sched_yield()


class Ends:
    """Counts how workers end, and keeps nothing else: what this test measures is memory."""

    def __init__(self) -> None:
        self._events = _core.Events()
        self.how: Counter[str] = Counter()

    def wait(self, count: int) -> None:
        while self.how.total() < count:
            text = self._events.next(30.0)
            assert text, f"{self.how} of {count}"
            event = json.loads(text)
            if event["event"] == "worker_gone" and event["pool"] == "forks":
                self.how[event["cause"].partition(") ")[2]] += 1


def end_a_worker(pool: Pool, nr: int) -> int:
    """Of its only call, most by order, some with a code of their own."""
    code = 0 if nr % 10 else 1 + nr // 10 % 200
    if code:
        error = pool.submit("exit_with", code).exception(30)
        assert isinstance(error, WorkerLost) and error.exit_code == code
    else:
        assert pool.call("echo", nr) == nr
    return code


def test_failure_05_many_forks_and_exits() -> None:
    ends, codes, sizes = Ends(), Counter[int](), []
    options = {"max_tasks_per_child": 1, "restarts_max": FORKS}
    with Pool("harmful_tools", name="forks", workers=2, **options) as pool:  # type: ignore[arg-type]
        pool.wait_ready(timeout=60)
        zygote = pool.stats()["zygote_pid"]
        until = time.monotonic() + FORKS_SECONDS
        while codes.total() < FORKS_MIN or (codes.total() < FORKS and time.monotonic() < until):
            codes[end_a_worker(pool, codes.total())] += 1
            if codes.total() % (FORKS_MIN // 10) == 0:
                ends.wait(codes.total())
                sizes.append([(descriptors(pid), resident_bytes(pid)) for pid in ("self", zygote)])
        by_order = codes.pop(0)
        died = {f"exited with code {code}": count for code, count in codes.items()}
        # More may end by order: what was to replace a worker that died of its call.
        while ends.how["exited with code 0"] < by_order or sum(ends.how[how] for how in died) < codes.total():
            ends.wait(ends.how.total() + 1)
        del ends.how["exited with code 0"]
        assert ends.how == died, "each code is known"
        pool.wait_ready(timeout=60)
        wait_reaped(zygote)
        assert pool.stats()["zygote_pid"] == zygote
    for (fds, memory), (fds_last, memory_last) in zip(sizes[1], sizes[-1], strict=True):
        assert fds_last <= fds + 40, "a few workers come and go at any time"
        assert memory_last <= memory + (4 << 20)


def test_failure_51_zygote_killed_while_its_workers_run(rendezvous: Rendezvous, events: Watch) -> None:
    with Pool("harmful_tools", workers=3) as pool:
        pool.wait_ready(timeout=60)
        futures = [pool.submit("visit", rendezvous.port) for _ in range(3)]
        guests = rendezvous.guests(3)
        queued = [pool.submit("echo", number) for number in range(50)]
        first = pool.stats()["zygote_pid"]
        os.kill(first, signal.SIGKILL)
        events.wait("zygote_lost", pool="pool")
        second = events.wait("zygote_ready", pool="pool", generation=2)
        assert pool.stats()["zygote_pid"] != first, second
        # The next worker comes from the new zygote; the death of an old one is still seen, and fails its own work only.
        os.kill(guests[0].pid, signal.SIGKILL)
        ready = events.wait("worker_ready", pool="pool", generation=2)
        assert ready["pid"] != guests[0].pid
        for guest in guests[1:]:
            guest.let_go("done")
        outcomes = [future.exception(30) for future in futures]
        assert sorted(type(outcome) for outcome in outcomes if outcome) == [WorkerLost]
        assert [future.result(30) for future in queued] == list(range(50))


@pytest.mark.parametrize("calls_meanwhile", [True, False], ids=["during a call", "before a call"])
def test_failure_51_the_end_of_an_orphan_is_seen_after_a_blocking_call(
    rendezvous: Rendezvous, events: Watch, calls_meanwhile: bool
) -> None:
    """The caller takes the reading side of the link for itself, and has to give it back to be watched."""
    with Pool("harmful_tools", workers=1) as pool:
        pool.wait_ready(timeout=60)
        caller = threading.Thread(target=pool.call, args=("visit", rendezvous.port))
        if calls_meanwhile:
            caller.start()
            guest = rendezvous.guest()
        os.kill(pool.stats()["zygote_pid"], signal.SIGKILL)
        events.wait("zygote_ready", pool="pool", generation=2)
        if not calls_meanwhile:
            caller.start()
            guest = rendezvous.guest()
        guest.let_go()
        caller.join()
        os.kill(guest.pid, signal.SIGKILL)
        events.wait("worker_gone", pool="pool", pid=guest.pid)
        events.wait("worker_ready", pool="pool", generation=2)


def test_failure_51_dispatcher_killed_right_after_its_zygote(tmp_path: Path, rendezvous: Rendezvous) -> None:
    calls = ["hold_the_gil", str(rendezvous.port)] * 2
    with Script(tmp_path, DISPATCHER, "process", "fork", *calls) as script:
        script.hear("ready")
        rendezvous.guests(2)
        with script.below() as processes:
            (zygote,) = children(script.process.pid)
            os.kill(zygote, signal.SIGKILL)
            script.kill()
            assert processes.alive(ORPHAN_SECONDS_MAX) == []


FORKING = """
import os, stat, sys
from clutch import Pool, PoolClosed
from clutch.testing import Processes

def is_socket(fd):
    try:
        return stat.S_ISSOCK(os.fstat(fd).st_mode)
    except OSError:
        return False

if __name__ == "__main__":
    pool = Pool("harmful_tools", workers=2)
    pool.wait_ready(timeout=60)
    workers = Processes([worker["pid"] for worker in pool.stats()["workers"]])
    sockets = lambda: {os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd") if is_socket(int(fd))}
    links = sockets()
    inner, outer = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        print("links of", len(links), "left:", len(links & sockets()))
        for use in (
            lambda: pool.call("echo", 1),
            lambda: pool.submit("echo", 1),
            lambda: pool.stream("echo", 1),
            lambda: list(pool.map("echo", [1])),
            lambda: pool.stats(),
            lambda: pool.wait_ready(),
        ):
            try:
                use()
                print("no PoolClosed")
            except PoolClosed as error:
                print("in the child:", error)
        own = Pool("harmful_tools", workers=1)
        print("own pool:", own.call("echo", "works"))
        own.shutdown()
        os.write(outer[1], b"x")
        os.read(inner[0], 1)  # lives on while the parent ends its pool
        os._exit(0)
    os.read(outer[0], 1)
    print("parent:", pool.call("echo", "still works"))
    pool.shutdown()
    print("workers left:", workers.alive(2.0))
    os.write(inner[1], b"x")
    print("child:", os.waitpid(child, 0)[1])
"""


def test_failure_53_a_fork_of_the_dispatcher_does_not_hold_the_pool(tmp_path: Path) -> None:
    with Script(tmp_path, FORKING) as script:
        assert script.process.wait(60) == 0, script.err.text
        text = script.out.wait_end()
    assert re.search(r"links of ([4-9]|\d\d) left: 0", text), text
    assert text.count("in the child:") == 6 and "no PoolClosed" not in text
    assert "own pool: works" in text and "parent: still works" in text
    assert "workers left: []" in text and "child: 0" in text
    assert script.err.wait_end() == ""


ENDING_IN_A_CHILD = """
import os, sys
from clutch import Pool

if __name__ == "__main__":
    pool = Pool("harmful_tools", workers=1)
    print(pool.call("echo", 1))
    child = os.fork()
    if child == 0:
        sys.exit(0)  # runs atexit and the pool's own end, in the child
    print("child", os.waitpid(child, 0)[1])
    print(pool.call("echo", 2))
    pool.shutdown()
"""


def test_failure_53_a_forked_child_may_end_in_the_ordinary_way(tmp_path: Path) -> None:
    with Script(tmp_path, ENDING_IN_A_CHILD) as script:
        assert script.process.wait(60) == 0, script.err.text
        assert script.out.wait_end().splitlines() == ["1", "child 0", "2"]
        assert script.err.wait_end() == ""


ENDING_INSIDE_WITH = ENDING_IN_A_CHILD.replace("pool = Pool", "with Pool").replace("workers=1)", "workers=1) as pool:")


def test_failure_53_a_forked_child_may_leave_the_with_block(tmp_path: Path) -> None:
    head, with_line, body = ENDING_INSIDE_WITH.partition("as pool:\n")
    text = head + with_line + "".join(f"    {line}\n" for line in body.splitlines())
    with Script(tmp_path, text) as script:
        assert script.process.wait(60) == 0, script.err.text
        assert script.out.wait_end().splitlines() == ["1", "child 0", "2"]
        assert script.err.wait_end() == ""
