"""One soak: start, load and chaos, recovery, end, and the judgement."""

from __future__ import annotations

import asyncio
import faulthandler
import gc
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from random import Random

from clutch import Pool
from clutch.testing import Processes, describe
from soak import pools, table, tools
from soak.chaos import ORDER_SECONDS, ORDERS, SIGNAL_SECONDS, SIGNALS, Chaos, left_over
from soak.faces import Caller
from soak.ledger import WITHOUT_DEADLINE_SECONDS_MAX, Ledger
from soak.seen import Events, Holdings, Memory

LOOK_SECONDS = 1.0
PROGRESS_SECONDS = 15.0
CURVE_SECONDS = 60.0
"""One figure of the memory curve for each."""
WARM_UP_FIGURES = 5
"""After so many of them memory stays as it is, but for GROWTH_MAX."""
GROWTH_MAX = 1.15
RECOVERY_SECONDS_MAX = 60.0
END_SECONDS_MAX = 30.0
GONE_SECONDS_MAX = 5.0
STEADY_SECONDS = 0.3
LAST_WORK = 40
SHOWN_MAX = 10
ENDS: dict[str, Callable[[Pool], None]] = {
    "shutdown": Pool.shutdown,
    "shutdown, cancelled": lambda pool: pool.shutdown(cancel_futures=True),
    "terminated": lambda pool: (pool.terminate_workers(), pool.shutdown())[1],
    "killed": lambda pool: (pool.kill_workers(), pool.shutdown())[1],
}


class Soak:
    """`run` says whether all held; what did not is printed."""

    def __init__(self, names: list[str], seed: str) -> None:
        self._names = names
        self._seed = seed
        self._ledger = Ledger()
        self._faults: list[str] = []
        self._chaos: list[Chaos] = []
        self._callers: list[Caller] = []
        self._curve: list[Memory] = []

    def run(self, seconds: float) -> bool:
        print(f"soak: seed {self._seed}, {seconds:.0f} s, pools {' '.join(self._names)}", flush=True)
        _warm_up()
        self._events = Events()
        before = _steady_holdings()
        self._start()
        self._watch(seconds)
        self._calm_down()
        if not self._faults:
            self._recover()
            self._end()
        after = self._settled(before)
        self._events.close()
        self._report(before, after)
        return not self._faults

    # ---- the phases

    def _start(self) -> None:
        for name in self._names:
            pool = pools.make(name)
            self._callers.append(Caller(pool, self._ledger, self._seed, pools.by_name_only(name)))
        for caller in self._callers:
            caller.pool.wait_ready(timeout=RECOVERY_SECONDS_MAX)
        self._chaos = [
            Chaos(self._callers, SIGNALS, SIGNAL_SECONDS, f"{self._seed}/signals"),
            Chaos(self._callers, ORDERS, ORDER_SECONDS, f"{self._seed}/orders"),
        ]
        for each in (*self._callers, *self._chaos):
            each.start()

    def _watch(self, seconds: float) -> None:
        """Until the time is over, or something is lost."""
        end = time.monotonic() + seconds
        next_words = time.monotonic() + PROGRESS_SECONDS
        next_figure = time.monotonic() + CURVE_SECONDS
        while (now := time.monotonic()) < end and not self._find_lost():
            if now >= next_figure:
                next_figure += CURVE_SECONDS
                self._take_figure()
            if now >= next_words:
                next_words += PROGRESS_SECONDS
                submitted, left = sum(self._ledger.submitted.values()), len(self._ledger.still_open())
                words = f"{end - now:.0f} s to go, {submitted:,} submitted, {left} open"
                print(f"soak: {words}", file=sys.stderr, flush=True)
            time.sleep(LOOK_SECONDS)

    def _take_figure(self) -> None:
        """At rest: what is queued, runs or waits to be read is work, not growth."""
        for caller in self._callers:
            caller.rests.set()
        while self._ledger.still_open() and not self._find_lost():
            time.sleep(0.05)
        gc.collect()
        self._curve.append(Memory.now())
        for caller in self._callers:
            caller.rests.clear()

    def _calm_down(self) -> None:
        for caller in self._callers:
            caller.stopped.set()
        for chaos in self._chaos:
            if not chaos.stop():
                self._faults.append(f"an act does not end; the last that did:\n  {_lines(list(chaos.last)[-3:])}")
        by = time.monotonic() + WITHOUT_DEADLINE_SECONDS_MAX
        for thread in [thread for caller in self._callers for thread in caller.threads]:
            thread.join(max(0.0, by - time.monotonic()))
            if thread.is_alive():
                self._faults.append(f"the caller {thread.name} does not end")
        while self._ledger.still_open() and not self._find_lost() and time.monotonic() < by:
            time.sleep(0.05)
        self._find_lost()

    def _recover(self) -> None:
        """All slots of each pool are there and free, and the pool serves."""
        for caller in self._callers:
            pool, end = caller.pool, time.monotonic() + RECOVERY_SECONDS_MAX
            while not _is_whole(pool.stats()) and time.monotonic() < end:
                time.sleep(0.02)
            if not _is_whole(stats := pool.stats()):
                self._faults.append(f"{pool.name} has not recovered")
                self._explain(pool)
                continue
            echoes = [pool.submit("echo", number) for number in range(2 * stats["slots"])]
            answers = [echo.result(RECOVERY_SECONDS_MAX) for echo in echoes]
            if answers != list(range(len(answers))):
                self._faults.append(f"{pool.name} answers {answers} after the soak")

    def _end(self) -> None:
        """Each pool is ended in one of the ways, with work under way."""
        rng = Random(f"{self._seed}/end")
        for caller in self._callers:
            way = rng.choice(list(ENDS))
            for _ in range(LAST_WORK):
                work = caller.draw(rng, f"end by {way}")
                work.is_cancelled = True
                future = caller.submitted(work)
                if future is not None:
                    future.add_done_callback(lambda done, work=work, caller=caller: caller.finish(work, done.result))
            thread = threading.Thread(target=ENDS[way], args=(caller.pool,), daemon=True)
            thread.start()
            thread.join(END_SECONDS_MAX)
            if thread.is_alive():
                self._faults.append(f"{caller.pool.name}: the end by {way} takes more than {END_SECONDS_MAX} s")
        time.sleep(LOOK_SECONDS)
        for work in self._ledger.still_open():
            self._faults.append(f"lost at the end: {work}")

    def _settled(self, before: Holdings) -> Holdings:
        """What is held once all has ended, or does not end."""
        if self._faults:
            return Holdings.now()
        self._callers.clear()  # a pool that is closed keeps its free regions for as long as it is an object
        for chaos in self._chaos:
            chaos.forget()
        gc.collect()
        with Processes([*left_over(), *Processes.below(os.getpid()).pids]) as left:
            self._faults += [f"left over: {describe(pid)}" for pid in left.alive(GONE_SECONDS_MAX)]
        end = time.monotonic() + GONE_SECONDS_MAX
        while (after := Holdings.now()).more_than(before) and time.monotonic() < end:
            time.sleep(0.05)
        self._faults += after.more_than(before)
        return after

    # ---- the judgement

    def _judge_curve(self) -> None:
        """Of what the dispatcher uses: the mean of its last figures against that of the first after the warm-up."""
        figures = [memory.in_use for memory in self._curve[WARM_UP_FIGURES:]]
        part = len(figures) // 3
        if part < WARM_UP_FIGURES:
            return
        first, last = sum(figures[:part]) / part, sum(figures[-part:]) / part
        if last > GROWTH_MAX * first:
            self._faults.append(f"memory grows: {last / 1e6:.0f} MB at the end, {first / 1e6:.0f} MB before")

    def _find_lost(self) -> bool:
        lost = self._ledger.overdue()
        if lost and not self._faults:
            self._faults += [f"lost: {work}" for work in lost]
            for caller in self._callers:
                if caller.pool.name in {work.pool for work in lost}:
                    self._explain(caller.pool)
            faulthandler.dump_traceback(all_threads=True)
        return bool(lost)

    def _explain(self, pool: Pool) -> None:
        """While it is still so: what the pool and its workers are at."""
        stats = pool.stats()
        print(f"\n{pool.name}: {stats}")
        print(*(f"  {worker['state']}: {describe(worker['pid'])}" for worker in stats["workers"]), sep="\n")
        print(*(f"\n{worker}:\n{text}" for worker, text in pool.stacks().items()))
        print(f"the last events:\n  {_lines(self._events.last.get(pool.name, []))}", flush=True)

    def _report(self, before: Holdings, after: Holdings) -> None:
        ledger, events = self._ledger, self._events
        lost = Counter(work.pool for work in ledger.still_open())
        self._faults += [f"ended twice: {text}" for text in events.twice]
        self._faults += ledger.problems
        self._faults += [failure for chaos in self._chaos for failure in chaos.failures]
        print(f"\n{table.rendered(ledger, lost)}\n")
        print("done to them:", table.counts(sum((chaos.done for chaos in self._chaos), Counter())))
        print("seen:", table.counts(events.counts))
        print(f"lost {sum(lost.values())}, answered twice {ledger.twice + len(events.twice)}, wrong {ledger.wrong}")
        for what, first, last in [
            ("descriptors", before.descriptors.total(), after.descriptors.total()),
            ("threads", before.threads.total(), after.threads.total()),
            ("memory, MB", before.rss_bytes // 1_000_000, after.rss_bytes // 1_000_000),
        ]:
            print(f"{what}: {first} before, {last} after")
        self._judge_curve()
        print("its own memory (in use) and what it shares, MB, each minute:", *self._curve)
        if self._faults:
            self._report_faults()
        print("soak:", f"FAILED with seed {self._seed}" if self._faults else f"all held, seed {self._seed}", flush=True)

    def _report_faults(self) -> None:
        print(f"\n{len(self._faults)} fault(s):\n  {_lines(self._faults[:SHOWN_MAX])}")
        for chaos in self._chaos:
            print(f"the last acts:\n  {_lines(chaos.last)}")


def _warm_up() -> None:
    """What a process has from its first pool on is there before anything is counted."""

    async def wait() -> None:
        await pool.submit(tools.echo, 1)

    with Pool("soak.tools", name="warm-up", workers=1) as pool:
        done = threading.Event()
        pool.submit(tools.echo, 0).add_done_callback(lambda _: done.set())
        done.wait(RECOVERY_SECONDS_MAX)
        asyncio.run(wait())


def _steady_holdings() -> Holdings:
    """Once the first pool has let go of all."""
    gc.collect()
    found, end = Holdings.now(), time.monotonic() + GONE_SECONDS_MAX
    while time.monotonic() < end:
        time.sleep(STEADY_SECONDS)
        found, last = Holdings.now(), found
        if not (found.more_than(last) or last.more_than(found)):
            break
    return found


def _is_whole(stats: dict) -> bool:
    is_idle = stats["queued"] == stats["blocked"] == stats["sent"] == 0
    states = Counter(worker["state"] for worker in stats["workers"])
    return is_idle and stats["state"] == "ready" and states == {"ready": stats["target"]} and _has_slots(stats)


def _has_slots(stats: dict) -> bool:
    return stats["slots"] > 0 and stats["slots"] % stats["target"] == 0


def _lines(texts) -> str:
    return "\n  ".join(texts)
