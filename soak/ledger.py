"""Who was submitted and who was answered. Keeps the open ones whole and the others as counts, so that it does not grow.

For any thread.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections import Counter
from random import Random

from soak import work
from soak.work import Kind, Verdict, Work

AFTER_DEADLINE_SECONDS_MAX = 20.0
WITHOUT_DEADLINE_SECONDS_MAX = 60.0
PROBLEMS_SHOWN_MAX = 20


class Ledger:
    """`lost`, `twice` and `wrong` must be 0."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._numbers = itertools.count()
        self._open: dict[int, Work] = {}
        self.submitted: Counter[str] = Counter()
        """By pool."""
        self.answered: Counter[tuple[str, str]] = Counter()
        """By pool and word."""
        self.twice = 0
        self.wrong = 0
        self.latest: dict[str, float] = {}
        """By pool: the most seconds after its deadline at which somebody was told of it."""
        self.problems: list[str] = []

    def draw(self, rng: Random, kinds: list[Kind], pool: str, face: str) -> Work:
        """A new piece of work, which has to be answered from now on."""
        drawn = work.draw(rng, kinds, next(self._numbers), pool, face)
        with self._lock:
            self._open[drawn.number] = drawn
            self.submitted[pool] += 1
        return drawn

    def value(self, work_: Work, value: object) -> None:
        self.end(work_, work.of_value(work_, value))

    def error(self, work_: Work, error: BaseException) -> None:
        now = time.monotonic()
        verdict = work.of_error(work_, error, now)
        if verdict.word.startswith("late") and work_.deadline is not None:
            self._note_lateness(work_, now - work_.deadline)
        self.end(work_, verdict)

    def end(self, work_: Work, verdict: Verdict) -> None:
        """It was answered; each call of this is one answer."""
        with self._lock:
            work_.answers += 1
            self._open.pop(work_.number, None)
            self.answered[work_.pool, verdict.word] += 1
            self.twice += work_.answers > 1
            self.wrong += verdict.problem is not None
        if work_.answers > 1:
            self._note(f"answered {work_.answers} times, now: {verdict.word}", work_)
        if verdict.problem is not None:
            self._note(verdict.problem, work_)

    def protest(self, problem: str, work_: Work) -> None:
        """Something else is wrong with it."""
        with self._lock:
            self.wrong += 1
        self._note(problem, work_)

    def still_open(self, pool: str | None = None) -> list[Work]:
        with self._lock:
            return [each for each in self._open.values() if pool in (None, each.pool)]

    def overdue(self) -> list[Work]:
        """Those that nobody can still be expected to answer: they are lost."""
        now = time.monotonic()
        return [each for each in self.still_open() if now > _last_moment(each)]

    def _note(self, problem: str, work_: Work) -> None:
        with self._lock:
            if len(self.problems) < PROBLEMS_SHOWN_MAX:
                self.problems.append(f"{problem}: {work_}")

    def _note_lateness(self, work_: Work, seconds: float) -> None:
        with self._lock:
            self.latest[work_.pool] = max(seconds, self.latest.get(work_.pool, 0.0))


def _last_moment(work_: Work) -> float:
    if work_.deadline is not None:
        return work_.deadline + AFTER_DEADLINE_SECONDS_MAX
    return work_.began + WITHOUT_DEADLINE_SECONDS_MAX
