"""Result of `Pool.insights`: the time of a pool's workers, and the slowest calls."""

from __future__ import annotations

import array
import collections
import dataclasses
import itertools
import reprlib
from typing import Any

WHAT_CHARACTERS_MAX = 100
ARGUMENTS_MAX = 6

Arguments = tuple[tuple[Any, ...], dict[str, Any] | None]


class Shortened(reprlib.Repr):
    """A repr of any value that survives whatever the value's own code does."""

    def repr1(self, x: object, level: int) -> str:
        try:
            # reprlib goes by the names of types, which classes of users may have, too.
            if type(x) not in SHORTENED:
                return self.repr_instance(x, level)
            return super().repr1(x, level)
        except (Exception, SystemExit) as error:
            return f"<{type(x).__name__}, whose repr raises {type(error).__name__}>"


SHORTENED = {tuple, list, array.array, set, frozenset, collections.deque, dict, str, int}
REPR = Shortened()
REPR.maxstring = REPR.maxother = 60


@dataclasses.dataclass(frozen=True, slots=True)
class SlowCall:
    """A call, or an item of a map, that ran long."""

    what: str
    """Function and arguments of the call, cut to 100 characters: `resize('a.png', width=80)`. `(…)`: unknown arguments,
    over 64 KiB or from a network."""
    seconds: float
    """Run time of its code."""

    def __str__(self) -> str:
        return f"{self.seconds:9.3f} s  {self.what}"


@dataclasses.dataclass(frozen=True, slots=True)
class Insights:
    """Time of a pool's workers since the pool was made. `print` shows a table.

    Each worker counts from when it was wanted to its end, or to now, and as often as it has slots: of a worker with two
    threads, two seconds pass in each second.
    """

    pool: str
    workers: int
    """Number of workers so far, including replaced ones."""
    start_seconds: float
    """Until workers were ready: imports, initializers, start hooks. The first ones wait for the zygote, too."""
    wait_seconds: float
    """Time without work."""
    run_seconds: float
    """Time spent on calls, requests and map items, including running ones."""
    slowest: tuple[SlowCall, ...]
    """The calls and items that ran longest of all that have ended, at most five, the longest first. Those that a
    deadline, a cancel or the death of their worker ended count, but not items of a map whose worker died."""
    cpu_seconds: float | None = None
    """CPU time of the workers, as the kernel counts it; workers and threads that have ended are included. None: not
    known, in a pool without workers."""

    @property
    def total_seconds(self) -> float:
        return self.start_seconds + self.wait_seconds + self.run_seconds

    @property
    def start(self) -> float:
        """The share of `start_seconds`, from 0 to 1."""
        return self._share(self.start_seconds)

    @property
    def wait(self) -> float:
        """The share of `wait_seconds`."""
        return self._share(self.wait_seconds)

    @property
    def run(self) -> float:
        """The share of `run_seconds`."""
        return self._share(self.run_seconds)

    @property
    def waiting_seconds(self) -> float | None:
        """The part of `run_seconds` in which code used no CPU: it waited for the network, a lock, the GIL, a CPU."""
        return None if self.cpu_seconds is None else max(0.0, self.run_seconds - self.cpu_seconds)

    def _of_run(self) -> dict[str, float]:
        """What `run_seconds` consist of, where that is known."""
        if self.cpu_seconds is None or self.waiting_seconds is None:
            return {}
        return {"CPU": self.cpu_seconds, "waiting": self.waiting_seconds}

    def _share(self, seconds: float) -> float:
        total = self.total_seconds
        return seconds / total if total > 0 else 0.0

    def _repr_html_(self) -> str:
        """The same as a table, which notebooks show."""
        from clutch._pool.notebook import table

        seconds = {"start": self.start_seconds, "wait": self.wait_seconds, "run": self.run_seconds}
        shares = [(name, f"{self._share(spent):.1%}", f"{spent:.3f} s") for name, spent in seconds.items()]
        shares += [(f"{name} (of run)", "", f"{spent:.3f} s") for name, spent in self._of_run().items()]
        slowest = [("slow call", call.what, f"{call.seconds:.3f} s") for call in self.slowest]
        return table(f"pool {self.pool}: {self.workers} workers", ("", "", "time"), [*shares, *slowest])

    def __str__(self) -> str:
        workers = "1 worker" if self.workers == 1 else f"{self.workers} workers"
        seconds = {"start": self.start_seconds, "wait": self.wait_seconds, "run": self.run_seconds}
        shares = (f"  {name:5} {self._share(spent):6.1%} {spent:11.3f} s" for name, spent in seconds.items())
        of_run = (f"    {name:9} {spent:12.3f} s" for name, spent in self._of_run().items())
        slowest = ["slowest:", *map(str, self.slowest)] if self.slowest else []
        return "\n".join([f"pool {self.pool!r}, {workers}:", *shares, *of_run, *slowest])


def described(function: str, arguments: Arguments | None) -> str:
    """The call as source code, bounded."""
    if arguments is None:
        return cut(f"{function}(…)")
    args, kwargs = arguments
    named = (f"{name}={REPR.repr(value)}" for name, value in (kwargs or {}).items())
    texts = list(itertools.islice(itertools.chain(map(REPR.repr, args), named), ARGUMENTS_MAX + 1))
    if len(texts) > ARGUMENTS_MAX:
        texts[-1] = "…"
    return cut(f"{function}({', '.join(texts)})")


def cut(text: str) -> str:
    """The text in one line, cut."""
    text = " ".join(text.split())
    return text if len(text) <= WHAT_CHARACTERS_MAX else f"{text[: WHAT_CHARACTERS_MAX - 1]}…"
