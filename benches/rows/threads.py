"""The thread profile on a free-threaded interpreter: pure-Python CPU work on two threads against one."""

from __future__ import annotations

import os
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from benches import contestants
from benches.harness import Contestant, Report, Scale, Skipped, interleave, more

if TYPE_CHECKING:
    import clutch

_CALLS = 8
_LIMIT = 40_000
_PRIMES_BELOW_LIMIT = 4_203
_ENVIRONMENT = "CLUTCH_TEST_FT_PYTHON"
_USUAL = Path(__file__).resolve().parents[2] / ".venv-ft"


def run(scale: Scale) -> Report:
    """Calls a second of one worker with two threads over those of one worker with one."""
    python = _free_threaded_python()
    with ExitStack() as stack:
        one, two = (
            stack.enter_context(contestants.clutch_pool(1, profile="thread", threads=threads, python=python))
            for threads in (1, 2)
        )
        field = [
            Contestant("2 threads", lambda: _calls_per_second(two)),
            Contestant("1 thread", lambda: _calls_per_second(one)),
        ]
        interleave(field, 1)
        samples = interleave(field, scale.rounds)
    report = Report(notes=[f"thread: one worker of a free-threaded interpreter, count_primes({_LIMIT})"])
    report.compare("thread profile, free-threaded, CPU work", "/s", samples, {"1 thread": more(1.8)})
    return report


def _free_threaded_python() -> str:
    """What the environment names, or what `make free-threaded` has finished."""
    named = os.environ.get(_ENVIRONMENT)
    if named is None and not (_USUAL / ".released").exists():
        raise Skipped(f"no free-threaded interpreter: `make free-threaded` sets one up, or set {_ENVIRONMENT}")
    return named or str(_USUAL / "bin" / "python")


def _calls_per_second(pool: clutch.Pool) -> float:
    """All calls at once, by name: code does not travel between Python versions."""
    began = time.perf_counter()
    futures = [pool.submit("count_primes", limit=_LIMIT) for _ in range(_CALLS)]
    assert all(future.result() == _PRIMES_BELOW_LIMIT for future in futures)
    return _CALLS / (time.perf_counter() - began)
