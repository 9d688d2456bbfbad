"""Streams: generators of workers, value by value; failures 39 and 40."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import profile_tools
import pytest

from clutch import BadArguments, Pool, RemoteError, WorkerLost
from clutch.testing import Watch
from support.rendezvous import Rendezvous

BOTH_KINDS = pytest.mark.parametrize("suffix", ["", "_async"])
# What a producer may be ahead of its consumer: the window of the wire and what the consumer has not yet acknowledged.
AHEAD_MAX = 40


def named(name: str, suffix: str) -> str:
    return name + suffix


@pytest.fixture(autouse=True)
def every_slot_is_free_again(pool: Pool, rendezvous: Rendezvous) -> Iterator[None]:
    yield
    futures = [pool.submit("visit", rendezvous.port, "free") for _ in range(pool.stats()["slots"])]
    for guest in rendezvous.guests(len(futures)):
        assert guest.word == "free"
        guest.let_go()
    for future in futures:
        future.result(30)


@pytest.mark.per_profile
@BOTH_KINDS
def test_stream_by_name_and_by_function(pool: Pool, suffix: str) -> None:
    name = named("count", suffix)
    assert list(pool.stream(name, 5)) == [0, 1, 2, 3, 4]
    assert list(pool.stream(getattr(profile_tools, name), n=3)) == [0, 1, 2]
    assert list(pool.stream(name, 0)) == []
    assert list(pool.options(priority=1).stream(name, 2)) == [0, 1]


@BOTH_KINDS
def test_a_long_stream_is_complete_and_in_order(pool: Pool, suffix: str) -> None:
    assert list(pool.stream(named("count", suffix), 3000)) == list(range(3000))


def test_a_generator_that_was_passed(pool: Pool) -> None:
    def squares(n: int) -> Iterator[int]:
        yield from (number * number for number in range(n))

    assert list(pool.stream(squares, 4)) == [0, 1, 4, 9]
    assert list(pool.stream(lambda: (number for number in "abc"))) == ["a", "b", "c"]


@pytest.mark.per_profile
def test_large_values_in_a_stream(pool: Pool) -> None:
    def large() -> Iterator[bytes]:
        for number in range(30):
            yield bytes([number]) * 300_000

    for number, value in enumerate(pool.stream(large)):
        assert value == bytes([number]) * 300_000


@pytest.mark.per_profile
def test_several_streams_at_once(pool: Pool) -> None:
    # As many as there are slots: one that waits in the queue would be waited for by those that run.
    slots = pool.stats()["slots"]
    streams = [pool.stream("count_async" if number % 2 else "count", 200) for number in range(slots)]
    rows = list(zip(*streams, strict=True))
    assert rows == [(number,) * slots for number in range(200)]


@pytest.mark.per_profile
@BOTH_KINDS
def test_failure_40_the_first_value_is_seen_before_the_second_is_produced(
    pool: Pool, rendezvous: Rendezvous, suffix: str
) -> None:
    stream = pool.stream(named("visits", suffix), rendezvous.port, 2)
    for number in range(2):
        guest = rendezvous.guest()
        assert guest.word == f"before {number}"
        guest.let_go()
        assert next(stream) == number
    last = rendezvous.guest()
    assert last.word == "closed"
    last.let_go()
    assert list(stream) == []


@pytest.mark.per_profile
@BOTH_KINDS
@pytest.mark.parametrize("after", [0, 1, 20, 100])
def test_failure_40_values_then_the_error_once(pool: Pool, suffix: str, after: int) -> None:
    stream = pool.stream(named("count", suffix), 200, fail_after=after)
    for number in range(after):
        assert next(stream) == number
    with pytest.raises(LookupError) as caught:
        next(stream)
    assert caught.value.args == (after,)
    text = str(caught.value.__cause__)
    assert f"in count{suffix}" in text and "/clutch/_worker/" not in text and "/asyncio/" not in text
    assert list(stream) == [], "the error comes once"


@pytest.mark.per_profile
@BOTH_KINDS
def test_failure_39_a_slow_consumer_holds_the_producer(pool: Pool, tmp_path: Path, suffix: str) -> None:
    progress = tmp_path / "progress"
    flood = getattr(profile_tools, named("flood", suffix))
    stream = pool.stream(flood, str(progress), 1_000_000)
    for taken in range(1, 401):
        assert next(stream) == taken - 1
        assert progress.stat().st_size <= taken + AHEAD_MAX
    stream.close()


def let_close(rendezvous: Rendezvous) -> None:
    """Until the generator's `finally` has come. What it did when it was interrupted may have come before, and gone."""
    word = ""
    while word != "closed":
        with contextlib.suppress(ConnectionError):
            guest = rendezvous.guest()
            word = guest.word
            guest.let_go()


@pytest.mark.per_profile
@BOTH_KINDS
def test_failure_39_closing_runs_the_generators_finally(pool: Pool, rendezvous: Rendezvous, suffix: str) -> None:
    stream = pool.stream(named("visits", suffix), rendezvous.port, 1_000_000)
    rendezvous.guest().let_go()
    assert next(stream) == 0
    stream.close()
    let_close(rendezvous)
    stream.close()


@pytest.mark.per_profile
@BOTH_KINDS
def test_failure_39_closing_while_the_producer_waits_for_room(pool: Pool, rendezvous: Rendezvous, suffix: str) -> None:
    with pool.stream(named("visits", suffix), rendezvous.port, 1_000_000):
        for _ in range(16):
            rendezvous.guest().let_go()
        # Its window is full now, and nothing was taken: it waits for credit, in no rendezvous.
    let_close(rendezvous)


@pytest.mark.per_profile
@BOTH_KINDS
def test_failure_39_closing_between_steps_that_compute(pool: Pool, rendezvous: Rendezvous, suffix: str) -> None:
    """What stops a step comes too late for it, often: the clean-up is left alone."""
    for _ in range(20):
        stream = pool.stream(named("computes", suffix), rendezvous.port, 1_000_000)
        assert [next(stream) for _ in range(20)] == list(range(20))
        stream.close()
        let_close(rendezvous)


@pytest.mark.per_profile
@BOTH_KINDS
def test_failure_39_a_forgotten_stream_is_closed(pool: Pool, rendezvous: Rendezvous, suffix: str) -> None:
    stream = pool.stream(named("visits", suffix), rendezvous.port, 1_000_000)
    rendezvous.guest().let_go()
    assert next(stream) == 0
    del stream
    let_close(rendezvous)


def test_after_close_there_is_nothing_more(pool: Pool) -> None:
    stream = pool.stream("count", 100)
    assert next(stream) == 0
    stream.close()
    stream.close()
    with pytest.raises(StopIteration):
        while True:
            next(stream)


@pytest.mark.per_profile
def test_a_stream_that_is_closed_in_the_queue_never_starts(pool: Pool, rendezvous: Rendezvous) -> None:
    held = [pool.submit("visit", rendezvous.port) for _ in range(pool.stats()["slots"])]
    guests = rendezvous.guests(len(held))
    pool.stream("visits", rendezvous.port, 3).close()
    for guest in guests:
        guest.let_go()
    for future in held:
        future.result(30)
    assert rendezvous.nobody_waits()


@pytest.mark.per_profile
@BOTH_KINDS
def test_async_for(pool: Pool, suffix: str) -> None:
    async def take() -> list[int]:
        return [value async for value in pool.stream(named("count", suffix), 300)]

    assert asyncio.run(take()) == list(range(300))


@BOTH_KINDS
def test_async_for_sees_the_error(pool: Pool, suffix: str) -> None:
    async def take() -> list[int]:
        taken = []
        with pytest.raises(LookupError, match="3"):
            async for value in pool.stream(named("count", suffix), 5, fail_after=3):
                taken += [value]
        return taken

    assert asyncio.run(take()) == [0, 1, 2]


@BOTH_KINDS
def test_async_with_closes(pool: Pool, rendezvous: Rendezvous, suffix: str) -> None:
    async def take() -> None:
        async with pool.stream(named("visits", suffix), rendezvous.port, 100) as stream:
            rendezvous.guest().let_go()
            assert await anext(stream) == 0

    asyncio.run(take())
    let_close(rendezvous)


def test_streams_of_one_loop_run_side_by_side(pool: Pool) -> None:
    async def take(n: int) -> int:
        return sum([value async for value in pool.stream("count_async", n)])

    async def main() -> list[int]:
        return await asyncio.gather(*(take(100) for _ in range(8)))

    assert asyncio.run(main()) == [4950] * 8


def test_a_stream_is_read_from_several_threads(pool: Pool) -> None:
    stream = pool.stream("count", 1000)
    taken: list[int] = []
    threads = [threading.Thread(target=lambda: taken.extend(stream)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert sorted(taken) == list(range(1000))


@pytest.mark.per_profile
def test_a_value_that_cannot_be_encoded_ends_the_stream(pool: Pool) -> None:
    stream = pool.stream(profile_tools.lock_in_stream)
    assert next(stream) == 1
    with pytest.raises(RemoteError, match=r"[lL]ock") as caught:
        next(stream)
    assert caught.value.kind == "encode"
    assert list(stream) == []


@pytest.mark.parametrize("name", ["add", "add_async"])
def test_a_stream_of_what_is_no_generator(pool: Pool, name: str) -> None:
    with pytest.raises(BadArguments, match="generator"):
        list(pool.stream(name, 1))
    with pytest.raises(BadArguments, match="generator"):
        list(pool.stream(lambda: None))


@pytest.mark.per_profile
def test_base_exceptions_in_a_generator(pool: Pool) -> None:
    def quitting(error: BaseException) -> Iterator[int]:
        yield 1
        raise error

    for error in (profile_tools.Quit("q"), SystemExit(2), KeyboardInterrupt()):
        stream = pool.stream(quitting, error)
        assert next(stream) == 1
        with pytest.raises(type(error)):
            next(stream)


@pytest.mark.per_profile
def test_generators_keep_their_worker(pool: Pool) -> None:
    def where(n: int) -> Iterator[int]:
        for _ in range(n):
            yield profile_tools.pid()

    assert len(set(pool.stream(where, 100))) == 1


@pytest.mark.per_profile
def test_a_lost_worker_ends_its_streams(make_pool: Callable[..., Pool], rendezvous: Rendezvous) -> None:
    import os
    import signal

    from clutch import WorkerLost

    pool = make_pool(workers=1)
    stream: Any = pool.stream("visits", rendezvous.port, 5)
    rendezvous.guest().let_go()
    assert next(stream) == 0
    os.kill(rendezvous.guest().pid, signal.SIGKILL)
    with pytest.raises(WorkerLost):
        next(stream)
    assert list(stream) == []


def test_a_stream_runs_again_only_before_its_first_value(
    make_pool: Callable[..., Pool], rendezvous: Rendezvous, events: Watch
) -> None:
    """After that its values would come twice."""
    pool = make_pool()
    stream = pool.options(retry=5).stream("visits", rendezvous.port, 3)
    guest = rendezvous.guest()
    os.kill(guest.pid, signal.SIGKILL)
    events.wait("worker_gone", pid=guest.pid)
    guest = rendezvous.guest()
    guest.let_go()
    assert next(stream) == 0
    guest = rendezvous.guest()
    os.kill(guest.pid, signal.SIGKILL)
    with pytest.raises(WorkerLost):
        next(stream)
    assert list(stream) == []


def test_failure_64_threads_on_one_stream(pool: Pool) -> None:
    def where(n: int) -> Iterator[int]:
        yield from range(n)

    stream = pool.stream(where, 1_000)
    with ThreadPoolExecutor(4) as threads:
        taken = [value for mine in threads.map(list, [stream] * 4) for value in mine]
    assert sorted(taken) == list(range(1_000))
