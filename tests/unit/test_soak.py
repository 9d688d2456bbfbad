"""The soak's own eyes: what is lost, answered twice or answered wrongly is seen. (The soak itself is `make soak`.)"""

from __future__ import annotations

import concurrent.futures
import time
from random import Random

import pytest
from soak import ledger, tools, work
from soak.ledger import Ledger
from soak.seen import Holdings
from soak.work import CALLS, STREAMS, Kind, Work

from clutch import DeadlineExceeded, Overloaded, Poisoned, RemoteError, WorkerLost

ECHO = Kind(1, tools.echo)
FAIL = Kind(1, tools.fail, raises=True)


def a_work(kind: Kind = ECHO, **options: object) -> Work:
    return Work(7, "pool", "futures", kind, (), dict(options))


def test_the_same_seed_draws_the_same_work() -> None:
    first, second = (
        [str(work.draw(rng, CALLS, 1, "p", "f").kind) for _ in range(50)] for rng in (Random(5), Random(5))
    )
    assert first == second


@pytest.mark.parametrize("kind", CALLS + STREAMS, ids=lambda kind: kind.tool.__name__)
def test_what_does_not_end_has_a_deadline(kind: Kind) -> None:
    drawn = [work.draw(Random(seed), [kind], 1, "p", "f") for seed in range(20)]
    assert kind.ends or all(each.deadline is not None for each in drawn)


def test_an_answer_ends_it_and_a_second_one_is_a_fault() -> None:
    book = Ledger()
    drawn = book.draw(Random(1), [ECHO], "pool", "futures")
    assert book.still_open() == [drawn]
    book.value(drawn, drawn.number)
    assert (book.still_open(), book.twice, book.wrong) == ([], 0, 0)
    book.value(drawn, drawn.number)
    assert book.twice == 1 and "answered 2 times" in book.problems[0]


def test_the_answer_of_another_is_wrong() -> None:
    book = Ledger()
    drawn = book.draw(Random(1), [ECHO], "pool", "futures")
    book.value(drawn, drawn.number + 1)
    assert book.wrong == 1 and "answered 1" in book.problems[0]


def test_what_is_not_answered_in_time_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    book = Ledger()
    drawn = book.draw(Random(1), [ECHO], "pool", "futures")
    assert book.overdue() == []
    monkeypatch.setattr(ledger, "WITHOUT_DEADLINE_SECONDS_MAX", -1.0)
    monkeypatch.setattr(ledger, "AFTER_DEADLINE_SECONDS_MAX", -1e6)
    assert book.overdue() == [drawn]


@pytest.mark.parametrize(
    ("given", "error", "word", "is_right"),
    [
        (a_work(), Overloaded(), "refused", True),
        (a_work(), WorkerLost(), "worker lost", True),
        (a_work(), WorkerLost(pid=0), "pool failing", True),
        (a_work(deadline=1e-9), DeadlineExceeded(where="queue"), "late in queue", True),
        (a_work(deadline=1e6), DeadlineExceeded(where="running"), "late in running", False),
        (a_work(), DeadlineExceeded(where="queue"), "late in queue", False),
        (a_work(retry=1), Poisoned(), "poisoned", True),
        (a_work(), Poisoned(), "poisoned", False),
        (a_work(), concurrent.futures.CancelledError(), "cancelled", False),
        (a_work(FAIL), tools.Unlucky(7), "raised", True),
        (a_work(FAIL), tools.Unlucky(8), "raised", False),
        (a_work(), tools.Unlucky(7), "raised", False),
        (a_work(), RemoteError("?"), "other", False),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_each_error_is_known_for_what_it_is(given: Work, error: BaseException, word: str, is_right: bool) -> None:
    verdict = work.of_error(given, error, time.monotonic())
    assert (verdict.word, verdict.problem is None) == (word, is_right)


def test_what_somebody_cancelled_may_be_cancelled() -> None:
    given = a_work()
    given.is_cancelled = True
    assert work.of_error(given, concurrent.futures.CancelledError(), time.monotonic()).problem is None


def test_a_descriptor_too_many_is_seen() -> None:
    before = Holdings.now()
    with open("/dev/null") as _:
        assert Holdings.now().more_than(before) == ["1 more descriptor(s) /dev/null"]
    assert Holdings.now().more_than(before) == []
