"""`Pool.insights`: where the time of the workers went, and which calls and items ran longest."""

from __future__ import annotations

import asyncio
import dataclasses
import operator
import os
import signal
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from profile_tools import sleep_if_any

from clutch import DeadlineExceeded, Insights, Pool
from clutch.testing import InlinePool
from support.rendezvous import Rendezvous

MakePool = Callable[..., Pool]

# What runs so long is longer than all else that these tests run, but for a stall of the machine.
LONG, LONGER = 0.2, 0.4
# An event loop wakes early by its clock's resolution, and the clock among short items ticks every few milliseconds.
EARLY = 0.05


class Text:
    """What its repr raises or is, is the program's."""

    def __init__(self, text: str | None) -> None:
        self.text = text

    def __repr__(self) -> str:
        if self.text is None:
            raise ValueError("no repr")
        return self.text


def whats(pool: Pool) -> list[str]:
    return [call.what for call in pool.insights().slowest]


@pytest.mark.parametrize("function", [time.sleep, asyncio.sleep, partial(time.sleep)], ids=["def", "async", "by value"])
@pytest.mark.parametrize("chunksize", [1, 4])
def test_the_slowest_items_of_a_map_are_named_with_their_arguments(
    make_pool: MakePool, function: Any, chunksize: int
) -> None:
    pool = make_pool()
    list(pool.map(function, [0.0, LONG, 0.0, LONGER, 0.0], chunksize=chunksize))
    slowest = pool.insights().slowest
    name = "partial" if isinstance(function, partial) else "sleep"
    # All are among the five. Under load a short one may have taken long, too: which is longer is not asked.
    seconds = {call.what: call.seconds for call in slowest}
    assert set(seconds) == {f"{name}({slept})" for slept in (0.0, LONG, LONGER)}
    assert seconds[f"{name}({LONGER})"] >= LONGER - EARLY and seconds[f"{name}({LONG})"] >= LONG - EARLY
    assert str(slowest[0]) in str(pool.insights())


@pytest.mark.per_profile
def test_a_slow_item_is_found_among_many_short_ones(make_pool: MakePool) -> None:
    """Where the clock is not read for each, and again behind it."""
    pool = make_pool()
    items = [False] * 300 + [LONG] + [False] * 300 + [LONGER] + [False]
    list(pool.map(sleep_if_any, items, chunksize=len(items)))
    first, second = pool.insights().slowest[:2]
    assert (first.what, second.what) == (f"sleep_if_any({LONGER})", f"sleep_if_any({LONG})")
    assert first.seconds >= LONGER - EARLY and second.seconds >= LONG - EARLY


@pytest.mark.per_profile
def test_the_slowest_calls_are_named_however_they_were_made(make_pool: MakePool) -> None:
    pool = make_pool()
    pool.call("add", 1, b=2)
    pool.submit(operator.add, [3], [4]).result()
    pool.call(lambda value, *, word: None, 5, word="six")
    list(pool.stream("count", 2))
    list(pool.map(divmod, [7], [8]))
    wanted = {"add(1, b=2)", "add([3], [4])", "count(2)", "divmod(7, 8)"}
    assert wanted <= set(whats(pool)) and any(what.endswith("<lambda>(5, word='six')") for what in whats(pool))


def test_no_more_than_five_are_kept_and_those_are_the_longest(make_pool: MakePool) -> None:
    pool = make_pool()
    list(pool.map(time.sleep, [LONG] + [0.0] * 20 + [LONGER]))
    slowest = pool.insights().slowest
    assert len(slowest) == 5
    assert [call.what for call in slowest[:2]] == [f"sleep({LONGER})", f"sleep({LONG})"]
    assert [call.seconds for call in slowest] == sorted((call.seconds for call in slowest), reverse=True)


def test_what_is_shown_of_arguments_is_bounded_and_never_raises(make_pool: MakePool) -> None:
    pool = make_pool()
    calls: list[tuple[Any, ...]] = [
        ("x" * 9_000,),
        (b"y" * 200_000,),
        (Text("1\n2"),),
        (Text(None),),
        tuple(range(100)),
    ]
    for arguments in calls:
        pool.call("everything", *arguments)
    shown = whats(pool)
    assert all(len(what) <= 100 and "\n" not in what for what in shown)
    assert {"everything(…)", "everything(1 2)", "everything(0, 1, 2, 3, 4, 5, …)"} <= set(shown)
    assert any("Text instance" in what for what in shown) and any("..." in what for what in shown)


@pytest.mark.per_profile
def test_time_adds_up_and_what_runs_now_counts(make_pool: MakePool) -> None:
    pool = make_pool(workers=1)
    pool.wait_ready()
    pool.call(time.sleep, LONG)
    before = pool.insights()
    assert before.workers == 1 and before.start_seconds > 0 and before.run_seconds >= LONG - EARLY
    assert before.start + before.wait + before.run == pytest.approx(1)
    with Rendezvous() as meeting:
        running = pool.submit("visit", meeting.port)
        guest = meeting.guest()
        during = pool.insights()
        # Another look, later: the same call has run on.
        assert pool.insights().run_seconds > during.run_seconds > before.run_seconds
        assert during.start_seconds == before.start_seconds
        guest.let_go()
        running.result()
    pool.shutdown()
    after = pool.insights()
    # Of what has ended counts what its worker says, which does not see its way there.
    assert after.workers == 1 and after.run_seconds > before.run_seconds
    assert after.total_seconds > during.total_seconds


@pytest.mark.per_profile
def test_what_a_deadline_ended_is_among_the_slowest(make_pool: MakePool) -> None:
    pool = make_pool(workers=1)
    pool.wait_ready()
    limited = pool.options(deadline=LONG)
    with pytest.raises(DeadlineExceeded):
        limited.call(time.sleep, 600)
    list(limited.map(time.sleep, [0, 601, 0], chunksize=3, return_exceptions=True))
    slowest = {call.what: call.seconds for call in pool.insights().slowest}
    assert min(slowest["sleep(600)"], slowest["sleep(601)"]) >= LONG - EARLY, slowest


def test_workers_that_were_replaced_count(make_pool: MakePool) -> None:
    pool = make_pool(workers=1)
    pool.call(time.sleep, LONG)
    started = pool.insights().start_seconds
    pool.recycle()
    insights = pool.insights()
    assert insights.workers == 2 and insights.run_seconds >= LONG and insights.start_seconds > started


@pytest.mark.per_profile
def test_cpu_time_is_apart_from_waiting_and_outlives_its_worker(make_pool: MakePool) -> None:
    pool = make_pool(workers=1)
    pool.call(time.sleep, LONG)
    slept = pool.insights()
    assert slept.cpu_seconds is not None and slept.waiting_seconds is not None
    assert slept.run_seconds - slept.cpu_seconds == pytest.approx(slept.waiting_seconds)
    used = pool.call("compute", 0.2)
    during = pool.insights().cpu_seconds
    assert during is not None and during >= slept.cpu_seconds + used
    pool.recycle()
    assert (replaced := pool.insights().cpu_seconds) is not None and replaced >= during
    (worker,) = pool.stats()["workers"]
    os.kill(worker["pid"], signal.SIGKILL)
    pool.shutdown()
    assert (after := pool.insights().cpu_seconds) is not None and after >= replaced
    assert pool.stats()["cpu_s"] == after


@pytest.mark.per_profile
def test_what_runs_alone_and_beside_others_is_told_apart(make_pool: MakePool, rendezvous: Rendezvous) -> None:
    pool = make_pool(workers=1)
    pool.wait_ready()
    slots = pool.stats()["slots"]
    alone = pool.submit("visit", rendezvous.port)
    rendezvous.guest().let_go()
    alone.result()

    def together() -> list[dict[str, Any]]:
        futures = [pool.submit("visit", rendezvous.port) for _ in range(slots)]
        for guest in rendezvous.guests(slots):
            guest.let_go()
        for future in futures:
            future.result()
        return pool.stats()["company"]

    if slots == 1:
        assert together() == []
        return
    # What ends within a millisecond of another is not looked at.
    (pace,) = next(found for found in iter(together, None) if found and found[0]["beside"])
    assert pace["what"] == "visit" and pace["alone"] >= 1 and pace["alone_s"] > 0
    assert pace["beside_s"] > 0 and 0 < pace["others"] < slots


def test_it_is_frozen_and_a_table(make_pool: MakePool) -> None:
    insights = Insights("shop", 2, 1.0, 1.0, 2.0, ())
    with pytest.raises(dataclasses.FrozenInstanceError):
        insights.workers = 3  # type: ignore[misc]
    assert str(insights).splitlines() == [
        "pool 'shop', 2 workers:",
        "  start  25.0%       1.000 s",
        "  wait   25.0%       1.000 s",
        "  run    50.0%       2.000 s",
    ]
    assert str(dataclasses.replace(insights, cpu_seconds=0.5)).splitlines()[3:] == [
        "  run    50.0%       2.000 s",
        "    CPU              0.500 s",
        "    waiting          1.500 s",
    ]
    assert Insights("shop", 0, 0.0, 0.0, 0.0, ()).run == 0.0
    assert dataclasses.replace(insights, cpu_seconds=9.0).waiting_seconds == 0.0, "threads of a library compute, too"


def test_a_pool_without_workers_has_them_too() -> None:
    with InlinePool() as pool:
        pool.call(time.sleep, LONG)
        insights = pool.insights()
    assert insights.run_seconds >= LONG and insights.workers == 1 and not insights.slowest
    assert insights.cpu_seconds is None and "CPU" not in str(insights)


class Exits:
    def __repr__(self) -> str:
        raise SystemExit("no repr")


# reprlib would take it for the array of the standard library.
Named = type("array", (), {"__module__": __name__})


@pytest.mark.parametrize(
    "odd", [10**5000, Exits(), Named(), {"a": Exits()}, {1, 2}, [0] * 1000], ids=lambda odd: type(odd).__name__
)
def test_any_argument_is_described(odd: object) -> None:
    from clutch.insights import WHAT_CHARACTERS_MAX, described

    text = described("work", ((odd,), None))
    assert text.startswith("work(") and text.endswith((")", "…")) and len(text) <= WHAT_CHARACTERS_MAX
