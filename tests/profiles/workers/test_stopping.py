"""What a deadline and a cancel do to code that runs, for each profile and each kind of code.

A tool of each kind holds a connection to the test while its code runs, so that its end, by an exception or with its
worker, is seen as the end of that connection.
"""

from __future__ import annotations

import concurrent.futures
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import profile_tools
import pytest

from clutch import DeadlineExceeded, Pool
from clutch.testing import Watch
from support.rendezvous import Guest, Rendezvous
from support.shapes import Shape

pytestmark = pytest.mark.per_profile

KINDS = {
    "spin": "a loop in Python",
    "spin_async": "a loop in an `async def`",
    "sleep": "`time.sleep`",
    "sleep_async": "`await asyncio.sleep`",
    "without_gil": "C code without the GIL",
    "with_gil": "C code holding the GIL",
}
STOPPED, REPLACED = "stopped", "worker replaced"
STACKS_ATTEMPTS = 10
# By profile, in the order of KINDS.
FATES = {
    "process": (STOPPED, STOPPED, STOPPED, STOPPED, REPLACED, REPLACED),
    "thread": (STOPPED, STOPPED, REPLACED, STOPPED, REPLACED, REPLACED),
    "async": (STOPPED, STOPPED, REPLACED, STOPPED, REPLACED, REPLACED),
    "greenlet": (STOPPED, REPLACED, STOPPED, STOPPED, REPLACED, REPLACED),
}
PAGE = Path(__file__).resolve().parents[3] / "docs/stopping.md"


def fate_of(shape: Shape, kind: str) -> str:
    profile = shape.options.get("profile", "process")
    return FATES[profile][list(KINDS).index(kind)]


@pytest.fixture
def one_worker(make_pool: Callable[..., Pool], shape: Shape, kind: str) -> Iterator[Pool]:
    """Where the code is to stop by itself, nothing else may end it within the time of a test."""
    grace = 300.0 if fate_of(shape, kind) == STOPPED else 0.2
    pool = make_pool(workers=1, interrupt_grace=grace, grace=0.1)
    pool.wait_ready(timeout=60)
    yield pool


def wait_inside(pool: Pool, kind: str, guest: Guest) -> None:
    """Until the code has come to where it stays, its last line."""
    code = getattr(profile_tools, kind).__code__
    last = max(line for *_, line in code.co_lines() if line is not None)
    # A loop of two lines may be seen in the upper one only: where it lets go of the GIL.
    is_loop = kind.startswith(("spin", "stubborn"))
    inside = {f"line {line} in {kind}\n" for line in ([last - 1, last] if is_loop else [last])}
    while not any(where in text for where in inside for text in pool.stacks().values()):
        assert not guest.is_gone(), "the code has ended by itself"


def check_fate(shape: Shape, kind: str, pool: Pool, guest: Guest, events: Watch) -> None:
    guest.wait_gone()
    if fate_of(shape, kind) == STOPPED:
        assert {pool.submit("pid").result(60) for _ in range(5)} == {guest.pid}
        assert events.all("worker_gone", pool="made") == []
    else:
        events.wait("worker_gone", pool="made", pid=guest.pid)
        assert pool.submit("pid").result(60) != guest.pid


@pytest.mark.parametrize("kind", KINDS)
def test_failure_28_a_deadline_stops(
    one_worker: Pool, shape: Shape, kind: str, rendezvous: Rendezvous, events: Watch
) -> None:
    """The stacks are those of some attempt: nobody waits for a worker that gets no time on a busy machine."""
    seen = []
    for _ in range(STACKS_ATTEMPTS):
        future = one_worker.options(deadline=0.6).submit(kind, rendezvous.port)
        guest = rendezvous.guest()
        with pytest.raises(DeadlineExceeded) as caught:
            future.result(30)
        assert caught.value.where == "running"
        check_fate(shape, kind, one_worker, guest, events)
        seen.append(caught.value.stacks or "")
        if f" in {kind}\n" in seen[-1]:
            return
    raise AssertionError(seen)


@pytest.mark.parametrize("kind", KINDS)
def test_a_cancel_stops(one_worker: Pool, shape: Shape, kind: str, rendezvous: Rendezvous, events: Watch) -> None:
    future = one_worker.submit(kind, rendezvous.port)
    guest = rendezvous.guest()
    wait_inside(one_worker, kind, guest)
    assert future.running() and future.cancel()
    assert future.cancelled() and future.done() and not future.running()
    with pytest.raises(concurrent.futures.CancelledError):
        future.result(30)
    check_fate(shape, kind, one_worker, guest, events)


@pytest.mark.parametrize("kind", ["spin"])
def test_the_code_cleans_up_and_its_exception_reaches_nobody(
    one_worker: Pool, kind: str, rendezvous: Rendezvous
) -> None:
    future = one_worker.submit(kind, rendezvous.port)
    guest = rendezvous.guest()
    future.cancel()
    guest.wait_gone()  # its `with` was left
    assert [one_worker.submit("add", number, 1).result(30) for number in range(50)] == list(range(1, 51))


def test_code_that_takes_no_notice_is_ended_with_its_worker(
    make_pool: Callable[..., Pool], shape: Shape, rendezvous: Rendezvous, events: Watch
) -> None:
    pool = make_pool(workers=1, interrupt_grace=0.2, grace=0.1)
    pool.wait_ready(timeout=60)
    future = pool.submit("stubborn", rendezvous.port)
    guest = rendezvous.guest()
    wait_inside(pool, "stubborn", guest)
    future.cancel()
    guest.wait_gone()
    events.wait("worker_gone", pool="made", pid=guest.pid)
    assert pool.submit("add", 1).result(60) == 1


def shown(pool: Pool, **which: int) -> dict[str, str]:
    """Its stacks. A worker that takes longer than a second is left out, as one does on a busy machine."""
    while not (texts := pool.stacks(**which)):
        """Asks again."""
    return texts


def test_looking_at_a_worker_never_ends_it(make_pool: Callable[..., Pool], rendezvous: Rendezvous) -> None:
    """Also in the moment in which C code enters a Python function, or leaves it."""
    pool = make_pool(workers=1)
    pool.wait_ready(timeout=60)
    future = pool.submit("sort_by_python", rendezvous.port)
    guest = rendezvous.guest()
    for _ in range(100):
        shown(pool)
    assert future.cancel(), future.exception(0)
    guest.wait_gone()
    assert pool.submit("pid").result(30) == guest.pid


def test_an_interrupt_hits_nobody_else(make_pool: Callable[..., Pool], shape: Shape, rendezvous: Rendezvous) -> None:
    """Calls end and are cancelled at the same moments, over and over: what was not cancelled is answered."""
    pool = make_pool(workers=2)
    pool.wait_ready(timeout=60)
    kept: list[Any] = []
    for number in range(300):
        cancelled, other = pool.submit("spin_for", 0.001), pool.submit("count_to", 2000)
        if number % 3:
            pool.submit("echo", 1).result(30)
        cancelled.cancel()
        kept.append(other)
    assert [future.result(60) for future in kept] == [2000] * len(kept)


def test_cancelling_the_task_that_awaits_stops_the_code(one_process: Pool, rendezvous: Rendezvous) -> None:
    import asyncio

    async def main() -> None:
        task = asyncio.create_task(await_result(one_process.submit("spin", rendezvous.port)))
        await asyncio.sleep(0)  # from 3.14 on, to_thread may come back before the task has begun
        guest = await asyncio.to_thread(rendezvous.guest)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.to_thread(guest.wait_gone)

    async def await_result(future: Any) -> Any:
        return await future

    asyncio.run(main())
    assert one_process.submit("add", 1).result(30) == 1


@pytest.fixture
def one_process(make_pool: Callable[..., Pool]) -> Pool:
    pool = make_pool(workers=1, interrupt_grace=300.0)
    pool.wait_ready(timeout=60)
    return pool


def test_a_serial_tool_that_waits_for_its_turn_is_stopped(one_process: Pool, rendezvous: Rendezvous) -> None:
    if one_process.stats()["slots"] < 2:
        return  # nothing waits inside a worker of one slot
    first = one_process.submit("visit_alone", rendezvous.port)
    guest = rendezvous.guest()
    with pytest.raises(DeadlineExceeded):
        one_process.options(deadline=0.3).call("visit_alone", rendezvous.port)
    guest.let_go("done")
    assert first.result(30) == "done"
    assert rendezvous.nobody_waits()


def test_neighbours_go_on_while_one_is_stopped(one_process: Pool, rendezvous: Rendezvous) -> None:
    if one_process.stats()["slots"] < 2:
        return
    neighbours = [one_process.submit("visit", rendezvous.port) for _ in range(2)]
    guests = rendezvous.guests(2)
    victim = one_process.submit("spin", rendezvous.port)
    guest = rendezvous.guest()
    assert victim.cancel()
    guest.wait_gone()
    for guest in guests:
        guest.let_go("stayed")
    assert [future.result(30) for future in neighbours] == ["stayed"] * 2


def test_a_batch_stops_as_a_whole(one_process: Pool, rendezvous: Rendezvous) -> None:
    with pytest.raises(TimeoutError):
        list(one_process.map(profile_tools.spin, [rendezvous.port] * 3, timeout=0.5, chunksize=3))
    rendezvous.guest().wait_gone()
    assert one_process.submit("add", 1).result(30) == 1
    assert rendezvous.nobody_waits(), "the second item was never begun"


def test_stacks_show_what_waits_and_stop_nothing(one_process: Pool, shape: Shape, rendezvous: Rendezvous) -> None:
    futures = [one_process.submit("visit", rendezvous.port) for _ in range(shape.slots_of_worker)]
    guests = rendezvous.guests(len(futures))
    (text,) = shown(one_process).values()
    # A greenlet that has said who it is and not begun to wait yet is on two of them.
    assert text.count(" in visit\n") >= shape.slots_of_worker, text
    for worker in (99, -1, 1 << 40):
        assert one_process.stacks(worker=worker) == {}
    for call in (-1, 1 << 70):
        assert one_process.stacks(call=call) == {}
        assert not one_process.cancel(call)
        assert not one_process._is_awaited(call)
    assert list(shown(one_process, call=futures[0].work_id)) == ["made/0"]
    for guest in guests:
        guest.let_go("on")
    assert [future.result(30) for future in futures] == ["on"] * len(futures)


def test_stacks_show_tasks_that_wait(one_process: Pool, rendezvous: Rendezvous) -> None:
    future = one_process.submit("visit_async", rendezvous.port)
    guest = rendezvous.guest()
    while " in readline\n" not in (text := shown(one_process)["made/0"]):
        assert not guest.is_gone()
    task = text.partition("\n\n")[0].splitlines()
    assert task[0] == "Task (most recent call first):", text
    assert task[-1].endswith(" in visit_async") and task[-2].endswith(" in meet_async"), text
    guest.let_go("on")
    assert future.result(30) == "on"


def test_stacks_show_async_generators_that_wait(one_process: Pool, rendezvous: Rendezvous) -> None:
    with one_process.stream("sleep_in_stream", rendezvous.port) as stream:
        assert next(stream) == 1
        guest = rendezvous.guest()
        while " in sleep\n" not in (text := shown(one_process)["made/0"]):
            assert not guest.is_gone()
        assert text.splitlines()[2].endswith(" in sleep_in_stream"), text


def test_stacks_show_the_users_code_alone(one_process: Pool, rendezvous: Rendezvous) -> None:
    for name in ("visit", "visit_async"):
        future = one_process.submit(name, rendezvous.port)
        guest = rendezvous.guest()
        while " in meet" not in (text := shown(one_process)["made/0"]):
            assert not guest.is_gone()
        assert "/clutch/_worker/" not in text and "<string>" not in text, text
        guest.let_go()
        future.result(30)


def test_the_page_says_the_same() -> None:
    """docs/stopping.md has the table of this file."""
    head = "| code | " + " | ".join(FATES) + " |"
    rows = [
        f"| {text} | " + " | ".join(fates[at] for fates in FATES.values()) + " |"
        for at, text in enumerate(KINDS.values())
    ]
    page = PAGE.read_text()
    for row in (head, *rows):
        assert row in page, row
