"""What is submitted: the kinds of work, how often each comes, and what may become of it.

Pure: a source of random numbers in, a piece of work out; a piece of work and its outcome in, a verdict out.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

from clutch import ConfigError, DeadlineExceeded, Overloaded, Poisoned, WorkerLost
from soak import tools

DEADLINE_SHARE = 0.3
DEADLINE_SECONDS = (0.005, 2.0)
STOP_SECONDS = (0.05, 0.4)
"""Deadlines of work that does not end by itself."""
RETRY_SHARE = 0.3
PRIORITY_SHARE = 0.2
BLOCK_SHARE = 0.1
PAYLOAD_BYTES = [100, 5_000, 70_000, 300_000, 2_000_000]
EARLY_SECONDS = 0.001
"""So much before its deadline work may be said to be past it: clocks are read on two sides."""

Extra = Callable[[Random], tuple[Any, ...]]


def _nothing(_: Random) -> tuple[Any, ...]:
    return ()


def _with_number(number: int, _: tuple[Any, ...]) -> Any:
    return number


@dataclass(frozen=True)
class Kind:
    """A tool, and how it is called."""

    weight: float
    tool: Callable[..., Any]
    extra: Extra = _nothing
    """The arguments after the number."""
    answer: Callable[[int, tuple[Any, ...]], Any] = _with_number
    """What it answers; streams: each value with its place."""
    raises: bool = False
    ends: bool = True
    """By itself. What does not is given a deadline."""


def _payload(rng: Random) -> tuple[bytes]:
    return (rng.randbytes(64) * (rng.choice(PAYLOAD_BYTES) // 64 + 1),)


def _nap(rng: Random) -> tuple[float]:
    return (rng.uniform(0, 0.03),)


def _steps(rng: Random) -> tuple[int]:
    return (rng.randrange(10, 20_000),)


def _values(rng: Random) -> tuple[int]:
    return (rng.choice([0, 1, 5, 40]),)


CALLS = [
    Kind(30, tools.echo),
    Kind(15, tools.compute, _steps),
    Kind(8, tools.nap, _nap),
    Kind(8, tools.nap_async, _nap),
    Kind(4, tools.same, _payload, lambda number, extra: (number, *extra)),
    Kind(4, tools.fail, raises=True),
    Kind(2, tools.fail_async, raises=True),
    Kind(0.2, tools.loop, ends=False),
    Kind(0.1, tools.loop_async, ends=False),
    Kind(0.2, tools.nap_long, ends=False),
    Kind(0.2, tools.nap_long_async, ends=False),
    Kind(0.05, tools.hold_the_gil, lambda _: (700_000_000,), ends=False),
    Kind(0.05, tools.stay, lambda _: (3.0,), ends=False),
    Kind(0.1, tools.leave_a_child),
    Kind(0.15, tools.die, lambda rng: (rng.choice(["exit", "segfault", "kill"]),)),
]
STREAMS = [
    Kind(5, tools.count, _values),
    Kind(5, tools.count_async, _values),
    Kind(2, tools.count_then_fail, _values, raises=True),
]


@dataclass(eq=False)
class Work:
    """One submission, until it is answered."""

    number: int
    pool: str
    face: str
    kind: Kind
    extra: tuple[Any, ...]
    options: dict[str, Any]
    began: float = field(default_factory=time.monotonic)
    is_cancelled: bool = False
    """Somebody was about to cancel it, or to end its pool."""
    future: Any = None
    answers: int = 0

    @property
    def deadline(self) -> float | None:
        """As an instant."""
        seconds = self.options.get("deadline")
        return None if seconds is None else self.began + seconds

    @property
    def arguments(self) -> tuple[Any, ...]:
        return self.number, *self.extra

    def is_right(self, value: object) -> bool:
        return not self.kind.raises and value == self.kind.answer(self.number, self.extra)

    def __str__(self) -> str:
        extra = ", ".join(f"{len(each)} bytes" if isinstance(each, bytes) else repr(each) for each in self.extra)
        state = f"{self.future!r}, work {self.future.work_id}" if self.future is not None else self.face
        asked = " cancelled," if self.is_cancelled else ""
        age = time.monotonic() - self.began
        call = f"{self.kind.tool.__name__}({extra}) {self.options}"
        return f"#{self.number} {self.pool}: {call},{asked} {age:.1f} s: {state}"


def draw(rng: Random, kinds: list[Kind], number: int, pool: str, face: str) -> Work:
    kind = rng.choices(kinds, [kind.weight for kind in kinds])[0]
    return Work(number, pool, face, kind, kind.extra(rng), _options(rng, kind))


def _options(rng: Random, kind: Kind) -> dict[str, Any]:
    options: dict[str, Any] = {}
    if not kind.ends:
        options["deadline"] = rng.uniform(*STOP_SECONDS)
    elif rng.random() < DEADLINE_SHARE:
        options["deadline"] = rng.uniform(*DEADLINE_SECONDS)
    if rng.random() < RETRY_SHARE:
        options["retry"] = rng.randint(1, 4)
    if rng.random() < PRIORITY_SHARE:
        options["priority"] = rng.randint(-9, 9)
    if rng.random() < BLOCK_SHARE:
        options["block"] = True
    return options


@dataclass(frozen=True)
class Verdict:
    """A word for the table; and what is wrong, where something is."""

    word: str
    problem: str | None = None


def of_value(work: Work, value: object) -> Verdict:
    if work.is_right(value):
        return Verdict("value")
    return Verdict("value", f"answered {_short(value)}")


def of_error(work: Work, error: BaseException, now: float) -> Verdict:
    """Which end this is, and whether it may be that of this work."""
    match error:
        case Overloaded():
            return Verdict("refused")
        case DeadlineExceeded(where=where):
            return Verdict(f"late in {where}", _too_early(work, now))
        case WorkerLost(pid=0) | ConfigError():
            return Verdict("pool failing")  # none of its workers became ready, three times in a row
        case WorkerLost():
            return Verdict("worker lost")
        case Poisoned():
            return Verdict("poisoned", None if "retry" in work.options else "poisoned, though never retried")
        case concurrent.futures.CancelledError() | asyncio.CancelledError():
            return Verdict("cancelled", None if work.is_cancelled else "cancelled, though nobody did")
        case tools.Unlucky():
            is_right = work.kind.raises and error.args == (work.number,)
            return Verdict("raised", None if is_right else f"raised {error!r}")
    return Verdict("other", f"failed with {_short(error)}")


def _too_early(work: Work, now: float) -> str | None:
    if work.deadline is None:
        return "said to be late, without a deadline"
    early = work.deadline - now
    return f"said to be late {early:.3f} s before its deadline" if early > EARLY_SECONDS else None


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) < 300 else f"{text[:300]} … ({len(text):,} characters)"
