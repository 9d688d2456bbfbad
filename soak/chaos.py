"""What is done to the pools, at random times drawn from the seed: signals by one thread, orders by another."""

from __future__ import annotations

import contextlib
import heapq
import itertools
import os
import signal
import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from pathlib import Path
from random import Random

from clutch import ClutchError, Pool
from clutch.testing import Processes
from soak import pools
from soak.faces import Caller

SIGNAL_SECONDS = 0.35
"""Mean time between two acts."""
ORDER_SECONDS = 1.0
ORDER_SECONDS_MAX = 20.0
STOP_SECONDS = (0.01, 1.0)
LONG_STOP_SECONDS = 4.0
"""Beyond `stopped_limit`."""
KEPT_MAX = 60

Act = Callable[["Chaos", Random, Caller], str | None]
"""Does something and says what, or None where there was nothing to do it to."""


class Chaos:
    """One thread that does such acts. Owns the processes that it has stopped, and continues them."""

    def __init__(self, callers: list[Caller], acts: dict[str, tuple[float, Act]], pause: float, seed: str) -> None:
        self._callers = callers
        self._acts = acts
        self._pause = pause
        self._rng = Random(seed)
        self._stopped: list[tuple[float, int, Processes]] = []
        self._order = itertools.count()
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"chaos-{seed}", daemon=True)
        self.done: Counter[str] = Counter()
        self.last: deque[str] = deque(maxlen=KEPT_MAX)
        self.failures: list[str] = []

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> bool:
        """Whether it came to its end. What it had stopped goes on."""
        self._end.set()
        self._thread.join(ORDER_SECONDS_MAX + 10)
        self._continue(float("inf"))
        return not self._thread.is_alive()

    def forget(self) -> None:
        """Lets go of the pools."""
        self._callers = []

    def _run(self) -> None:
        while not self._end.wait(self._rng.expovariate(1 / self._pause)):
            self._continue(time.monotonic())
            name = self._rng.choices(list(self._acts), [weight for weight, _ in self._acts.values()])[0]
            caller = self._rng.choice(self._callers)
            self._do(name, caller)

    def _do(self, name: str, caller: Caller) -> None:
        began = time.time()
        try:
            said = self._acts[name][1](self, self._rng, caller)
        except (ClutchError, TimeoutError) as error:
            # It met another act: a reload whose zygote is killed, say. The pool has to stay whole all the same.
            said = f"{type(error).__name__}: {str(error)[:200]}"
            name += f", {type(error).__name__}"
        except Exception as error:
            said = f"failed: {error!r}"
            self.failures.append(f"{name} of {caller.pool.name}: {error!r}")
        if said is not None:
            self.done[name] += 1
            self.last.append(f"{_clock(began)} {caller.pool.name}: {name}: {said}")

    def signal(self, pid: int | None, number: signal.Signals, continues_after: float | None = None) -> str | None:
        held = Processes([pid] if pid else [])
        if not held.pids or not is_ours(held.pids[0]):
            held.close()
            return None
        held.send(number)
        if continues_after is None:
            held.close()
            return f"pid {pid}"
        heapq.heappush(self._stopped, (time.monotonic() + continues_after, next(self._order), held))
        return f"pid {pid} for {continues_after:.2f} s"

    def _continue(self, now: float) -> None:
        while self._stopped and self._stopped[0][0] <= now:
            with heapq.heappop(self._stopped)[2] as held:
                held.send(signal.SIGCONT)


def _clock(at: float) -> str:
    return time.strftime("%H:%M:%S", time.localtime(at)) + f".{int(at * 1000) % 1000:03}"


def is_ours(pid: int) -> bool:
    """Something that the pools of this soak started: told by the environment that it was started with."""
    with contextlib.suppress(OSError):
        return f"{pools.MARK}={os.getpid()}".encode() in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    return False


def left_over() -> list[int]:
    """All that is ours and lives, whoever its parent is by now."""
    return [pid for name in os.listdir("/proc") if name.isdigit() and (pid := int(name)) and is_ours(pid)]


# ---- signals


def _worker(rng: Random, pool: Pool) -> int | None:
    workers = pool.stats()["workers"]
    return rng.choice(workers)["pid"] if workers else None


def _kill_worker(chaos: Chaos, rng: Random, caller: Caller) -> str | None:
    return chaos.signal(_worker(rng, caller.pool), signal.SIGKILL)


def _end_worker(chaos: Chaos, rng: Random, caller: Caller) -> str | None:
    return chaos.signal(_worker(rng, caller.pool), signal.SIGTERM)


def _kill_all_workers(chaos: Chaos, rng: Random, caller: Caller) -> str | None:
    pids = [worker["pid"] for worker in caller.pool.stats()["workers"]]
    return ", ".join(filter(None, [chaos.signal(pid, signal.SIGKILL) for pid in pids])) or None


def _stop_worker(chaos: Chaos, rng: Random, caller: Caller) -> str | None:
    return chaos.signal(_worker(rng, caller.pool), signal.SIGSTOP, rng.uniform(*STOP_SECONDS))


def _stop_worker_for_long(chaos: Chaos, rng: Random, caller: Caller) -> str | None:
    return chaos.signal(_worker(rng, caller.pool), signal.SIGSTOP, LONG_STOP_SECONDS)


def _kill_zygote(chaos: Chaos, rng: Random, caller: Caller) -> str | None:
    return chaos.signal(caller.pool.stats()["zygote_pid"], signal.SIGKILL)


def _stop_zygote(chaos: Chaos, rng: Random, caller: Caller) -> str | None:
    return chaos.signal(caller.pool.stats()["zygote_pid"], signal.SIGSTOP, rng.uniform(*STOP_SECONDS))


def _fill_queue(chaos: Chaos, rng: Random, caller: Caller) -> str:
    caller.bursts.release()
    return "a burst"


SIGNALS: dict[str, tuple[float, Act]] = {
    "kill a worker": (6, _kill_worker),
    "end a worker": (1, _end_worker),
    "kill all workers": (1, _kill_all_workers),
    "stop a worker": (4, _stop_worker),
    "stop a worker for long": (1, _stop_worker_for_long),
    "kill the zygote": (2, _kill_zygote),
    "stop the zygote": (1, _stop_zygote),
    "fill the queue": (4, _fill_queue),
}


# ---- orders: methods of the pool


def _recycle(chaos: Chaos, rng: Random, caller: Caller) -> str:
    caller.pool.recycle(timeout=ORDER_SECONDS_MAX)
    return "all workers"


def _reload(chaos: Chaos, rng: Random, caller: Caller) -> str:
    caller.pool.reload(timeout=ORDER_SECONDS_MAX)
    return "all workers"


def _scale(chaos: Chaos, rng: Random, caller: Caller) -> str:
    count = rng.randint(1, 4)
    caller.pool.scale(count)
    return f"to {count}"


def _stacks(chaos: Chaos, rng: Random, caller: Caller) -> str:
    return f"{len(caller.pool.stacks())} workers"


def _drain(chaos: Chaos, rng: Random, caller: Caller) -> str:
    caller.pool.drain()
    time.sleep(rng.uniform(0, 0.2))
    caller.pool.resume()
    return "and resume"


ORDERS: dict[str, tuple[float, Act]] = {
    name: (weight, act)
    for name, weight, act in [
        ("recycle", 2, _recycle),
        ("reload", 2, _reload),
        ("scale", 2, _scale),
        ("drain", 1, _drain),
        ("stacks", 2, _stacks),
    ]
    if hasattr(Pool, name)
}
