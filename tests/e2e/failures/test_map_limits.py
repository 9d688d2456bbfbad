"""What the options of a pool promise for one call holds for each item of a map, though items travel in batches."""

from __future__ import annotations

import collections
import contextlib
import gc
import os
import pty
import subprocess
import sys
import time
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from clutch import BadArguments, DeadlineExceeded, Pool, WorkerLost
from clutch._pool.map import BATCH_BYTES_MAX, SLICE_ITEMS, Weights
from support.clutch_process import WAIT_SECONDS, environment
from support.rendezvous import Rendezvous, meet

pytestmark = pytest.mark.timeout(120)


def pid_of(_: int) -> int:
    return os.getpid()


@pytest.mark.parametrize(("most", "chunksize"), [(1, None), (3, None), (10, None), (3, 1), (3, 4)])
def test_no_worker_runs_more_items_than_its_calls(most: int, chunksize: int | None) -> None:
    """A chunk that somebody asked for stays whole: what is left of the calls may be less."""
    with Pool(2, max_tasks_per_child=most) as pool:
        pids = list(pool.map(pid_of, range(4 * most), chunksize=chunksize))
    assert max(collections.Counter(pids).values()) <= most + (chunksize or 1) - 1


def sleep_for(seconds: float) -> float:
    time.sleep(seconds)
    return seconds


DEADLINE_SECONDS = 2.0


def warmed(pool: Pool) -> Pool:
    """Its workers have imported this module, which takes long on a busy machine."""
    pool.options(deadline=WAIT_SECONDS).call(sleep_for, 0)
    return pool


@pytest.mark.parametrize("chunksize", [None, 5])
def test_items_that_keep_the_deadline_do_not_fail(chunksize: int | None) -> None:
    """Whatever stands before them, or beside them in their batch."""
    naps = [DEADLINE_SECONDS / 7] * 10
    with Pool(1, deadline=DEADLINE_SECONDS) as pool:
        assert list(warmed(pool).map(sleep_for, naps, chunksize=chunksize)) == naps


def test_an_item_that_hangs_fails_by_the_deadline() -> None:
    with Pool(1, deadline=DEADLINE_SECONDS) as pool:
        results = warmed(pool).map(sleep_for, [0, 0, 600])
        assert [next(results), next(results)] == [0, 0]
        with pytest.raises(DeadlineExceeded):
            next(results)


@pytest.mark.parametrize("of_the_pool", [None, 600.0])
def test_a_map_has_the_deadline_of_its_options(of_the_pool: float | None) -> None:
    with Pool(1, deadline=of_the_pool) as pool:
        results = warmed(pool).options(deadline=DEADLINE_SECONDS).map(sleep_for, [0, 600, 0])
        assert next(results) == 0
        with pytest.raises(DeadlineExceeded):
            next(results)
        assert next(results) == 0, "each item has its own"
        longer = DEADLINE_SECONDS + 0.1
        assert list(pool.map(sleep_for, [0, longer])) == [0, longer], "the pool has it not"


def die_once(trace: Path | None) -> str:
    """Or each time, without a trace."""
    if trace is None:
        os._exit(1)
    if not trace.exists():
        trace.touch()
        os._exit(1)
    return "there"


@pytest.mark.parametrize("chunksize", [None, 3])
def test_items_of_a_map_run_again_as_its_options_say(chunksize: int | None, tmp_path: Path) -> None:
    traces = [tmp_path / "one", tmp_path / "two", tmp_path / "three"]
    with Pool(1) as pool:
        with pytest.raises(WorkerLost):
            next(pool.map(die_once, traces[:1]))
        assert list(pool.options(retry=1).map(die_once, traces, chunksize=chunksize)) == ["there"] * 3


def test_an_item_without_tries_left_is_lost_alone(tmp_path: Path) -> None:
    with Pool(1) as pool:
        results = pool.options(retry=1).map(die_once, [tmp_path / "one", None, tmp_path / "two"], chunksize=3)
        assert next(results) == "there"
        with pytest.raises(WorkerLost):
            next(results)
        assert list(results) == ["there"]


@pytest.mark.parametrize("chunksize", [None, 7, 1000])
def test_the_limit_of_a_payload_is_for_each_item(chunksize: int | None) -> None:
    with Pool(2, payload_max="1MB") as pool:
        items = [bytes([number]) * 300_000 for number in range(100)]
        assert list(pool.map(bytes.upper, items, chunksize=chunksize)) == [item.upper() for item in items]


def test_an_item_over_the_limit_of_a_payload_fails_alone() -> None:
    with Pool(1, payload_max="1MB") as pool:
        results = pool.map(len, [b"12", bytes(2_000_000), b"1"], chunksize=3)
        assert next(results) == 2
        with pytest.raises(BadArguments, match="payload_max allows"):
            next(results)
        assert list(results) == [1]


def visit_unless_zero(port: int) -> str:
    return meet(port) if port else "none"


def test_without_order_results_come_as_they_are_done(rendezvous: Rendezvous) -> None:
    with Pool(2) as pool:
        results = pool.map(visit_unless_zero, [rendezvous.port, *[0] * 20], ordered=False, chunksize=1)
        guest = rendezvous.guest()
        assert [next(results) for _ in range(20)] == ["none"] * 20
        guest.let_go("met")
        assert list(results) == ["met"]


def test_without_order_the_timeout_is_that_of_all(rendezvous: Rendezvous) -> None:
    with Pool(2) as pool:
        results = pool.map(visit_unless_zero, [rendezvous.port], ordered=False, timeout=0.01)
        with pytest.raises(TimeoutError):
            next(results)
        assert list(results) == []


BAR = """
import sys
from clutch import Pool
if __name__ == "__main__":
    with Pool(2) as pool:
        assert list(pool.map(abs, range(30), progress=True)) == list(range(30))
"""


INTERRUPTED = """
import os, signal, sys
from clutch import Pool

def interrupt(pid):
    os.kill(pid, signal.SIGINT)
    signal.pause()

if __name__ == "__main__":
    stdout = sys.stdout
    with Pool(1) as pool:
        results = pool.map(interrupt, [os.getpid()], progress=True)
        try:
            list(results)
        except KeyboardInterrupt as error:
            kept = error
            print("given back" if sys.stdout is stdout else "taken", file=sys.stderr)
        pool.terminate_workers()
"""


def all_that_comes(ours: int) -> bytes:
    """Until nobody has the other end any more, which a terminal tells by an error. Closes this one."""
    shown = b""
    with contextlib.suppress(OSError):
        while piece := os.read(ours, 1 << 16):
            shown += piece
    os.close(ours)
    return shown


def test_an_interrupted_bar_is_gone_while_its_traceback_lives(tmp_path: Path) -> None:
    script = tmp_path / "interrupted.py"
    script.write_text(INTERRUPTED)
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm"}
    with subprocess.Popen([sys.executable, script], stderr=theirs, stdout=subprocess.DEVNULL, env=environment):
        os.close(theirs)
        shown = all_that_comes(ours)
    assert b"given back" in shown, shown
    assert shown.index(b"\x1b[?25h") < shown.index(b"given back"), "the cursor is shown again"


@pytest.mark.parametrize("on_terminal", [True, False])
def test_progress_is_shown_on_a_terminal(on_terminal: bool, tmp_path: Path) -> None:
    script = tmp_path / "bar.py"
    script.write_text(BAR)
    ours, theirs = pty.openpty() if on_terminal else os.pipe()
    command = [sys.executable, script]
    done = subprocess.Popen(command, stderr=theirs, stdout=subprocess.DEVNULL, env={**os.environ, "TERM": "xterm"})
    os.close(theirs)
    shown = all_that_comes(ours)
    assert done.wait(30) == 0
    assert (b"30/30" in shown) == on_terminal
    assert on_terminal or shown == b""


def first_of(array: Any) -> float:
    return float(array[0])


def test_the_look_ahead_is_bounded_in_bytes() -> None:
    """Of arrays, which take no time in a worker, too. 32 MB for each slot."""
    pulled = 0

    def arrays() -> Iterator[Any]:
        nonlocal pulled
        for number in range(100):
            pulled += 1
            yield np.full(1 << 20, float(number))

    with Pool(1) as pool:
        for read, first in enumerate(pool.map(first_of, arrays())):
            assert first == read
            assert pulled - read <= 2 + 32 // 8
    assert pulled == 100


MEGABYTE = 1 << 20


def sizes(weights: Weights, own: int, shared: int) -> list[int]:
    """Of the first batches of items that weigh so much by themselves, and so much together."""
    made = [1]
    for _ in range(20):
        weights.learn(made[-1], made[-1] * own + shared)
        made.append(weights.items_max)
    return made


@pytest.mark.parametrize("own", [100, 10_000, 300_000, MEGABYTE, 20 * MEGABYTE])
def test_batches_of_heavy_items_are_small(own: int) -> None:
    made = sizes(Weights(BATCH_BYTES_MAX), own, 0)
    assert max(made[3:]) <= max(1, BATCH_BYTES_MAX // own)
    assert made[-1] >= min(1000, max(1, BATCH_BYTES_MAX // own))


def test_what_all_items_share_does_not_make_batches_small() -> None:
    """As the data of a partial, which comes once with each batch."""
    assert sizes(Weights(BATCH_BYTES_MAX), 100, 8 * MEGABYTE)[-1] >= 1000


def test_batches_become_small_with_the_first_heavy_one() -> None:
    weights = Weights(BATCH_BYTES_MAX)
    assert sizes(weights, 10, 0)[-1] >= 1000
    weights.learn(1000, 1000 * MEGABYTE)
    assert weights.items_max <= 2
    weights.learn(1, 10)
    assert weights.items_max <= 4, "they may come again"


BROKEN_OFF = """
import signal, sys
from clutch._pool.map import Batches, Reading

def stop(*_):
    raise KeyboardInterrupt

class Limits:
    def batch_bytes(self):
        signal.raise_signal(signal.SIGUSR1)
        return 1

signal.signal(signal.SIGUSR1, stop)
try:
    Batches(None, None, False, iter(()), 1, Limits(), Reading())
except KeyboardInterrupt:
    print("told")
"""


def test_large_items_behind_small_ones_are_not_pulled_by_thousands() -> None:
    """A batch has thousands of small ones by then."""
    pulled = 0

    def items() -> Iterator[int | bytes]:
        nonlocal pulled
        yield from range(200_000)
        while True:
            pulled += 1
            yield bytes(MEGABYTE)

    with Pool(1) as pool:
        results = pool.map(type, items())
        assert next(result for result in results if result is bytes)
        assert pulled <= 4 * SLICE_ITEMS


class Unsendable:
    alive: ClassVar[weakref.WeakSet[Unsendable]] = weakref.WeakSet()

    def __init__(self) -> None:
        self.alive.add(self)

    def __reduce__(self) -> str:
        raise ValueError("not this one")


def test_items_that_cannot_be_sent_live_no_longer_than_their_errors() -> None:
    gc.disable()
    try:
        with Pool(1) as pool:
            results, most = pool.map(type, (Unsendable() for _ in range(300))), 0
            for _ in range(300):
                with pytest.raises(BadArguments):
                    next(results)
                most = max(most, len(Unsendable.alive))
        assert most < 50
    finally:
        gc.enable()


def test_what_breaks_off_the_beginning_of_a_map_is_all_that_is_told() -> None:
    command = [sys.executable, "-c", BROKEN_OFF]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=WAIT_SECONDS)
    assert (done.stdout, done.stderr) == ("told\n", "")
