"""Pools from asyncio: awaiting futures, cancelling, `async with`; the event loop is never blocked."""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
from collections.abc import Callable, Coroutine
from typing import Any

import profile_tools
import pytest

from clutch import NoSuchTool, Overloaded, Pool, PoolClosed
from support.rendezvous import Rendezvous

WAIT_SECONDS = 30


def run(coroutine: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(asyncio.wait_for(coroutine, WAIT_SECONDS))


async def arrival(rendezvous: Rendezvous) -> Any:
    return await asyncio.to_thread(rendezvous.guest)


@pytest.mark.per_profile
def test_await(pool: Pool) -> None:
    async def main() -> None:
        assert await pool.submit("add", 1, 2) == 3
        assert await pool.submit(profile_tools.add_async, 1, b=2, c=3) == 6
        future = pool.submit("add", 4)
        assert await future == 4
        assert await future == 4, "again"
        assert await pool.options(deadline=30).submit("add", 5) == 5

    run(main())


def test_errors(pool: Pool) -> None:
    async def main() -> None:
        with pytest.raises(KeyError) as caught:
            await pool.submit(profile_tools.raise_it, KeyError("k"))
        assert "in raise_it" in str(caught.value.__cause__)
        with pytest.raises(NoSuchTool):
            await pool.submit("nope")

    run(main())


def test_gather_many(pool: Pool) -> None:
    async def main() -> list[int]:
        return await asyncio.gather(*(pool.submit("add", number) for number in range(1000)))

    assert run(main()) == list(range(1000))


def test_several_wait_for_one_future(pool: Pool, rendezvous: Rendezvous) -> None:
    async def main() -> list[str]:
        future = pool.submit("visit", rendezvous.port)

        async def wait() -> str:
            return await future

        waiting = [asyncio.create_task(wait()) for _ in range(5)]
        (await arrival(rendezvous)).let_go("all")
        return await asyncio.gather(*waiting)

    assert run(main()) == ["all"] * 5


@pytest.mark.per_profile
def test_the_loop_runs_on_while_calls_run(pool: Pool, rendezvous: Rendezvous) -> None:
    async def main() -> None:
        future = pool.submit("visit", rendezvous.port)
        guest = await arrival(rendezvous)
        for _ in range(100):
            await asyncio.sleep(0)
            assert not future.done()
        guest.let_go("end")
        assert await future == "end"

    run(main())


def test_loops_come_and_go(pool: Pool) -> None:
    async def main(number: int) -> int:
        return await pool.submit("add", number)

    before = len(os.listdir("/proc/self/fd"))
    assert [run(main(number)) for number in range(50)] == list(range(50))
    assert len(os.listdir("/proc/self/fd")) <= before + 10


def test_two_loops_at_once(pool: Pool) -> None:
    def loop(number: int) -> list[int]:
        async def main() -> list[int]:
            return await asyncio.gather(*(pool.submit("add", number, at) for at in range(100)))

        return run(main())

    with concurrent.futures.ThreadPoolExecutor(4) as threads:
        for number, results in enumerate(threads.map(loop, range(4))):
            assert results == [number + at for at in range(100)]


def test_wait_for_a_timeout(pool: Pool, rendezvous: Rendezvous) -> None:
    async def main() -> None:
        future = pool.submit("visit", rendezvous.port)
        guest = await arrival(rendezvous)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(future, 0.01)
        guest.let_go()

    run(main())


@pytest.mark.per_profile
def test_cancelling_a_task_removes_its_queued_call(pool: Pool, rendezvous: Rendezvous) -> None:
    async def main() -> None:
        held = [pool.submit("visit", rendezvous.port) for _ in range(pool.stats()["slots"])]
        guests = [await arrival(rendezvous) for _ in held]
        queued = pool.submit("visit", rendezvous.port, "never")

        async def wait() -> str:
            return await queued

        task = asyncio.create_task(wait())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert queued.cancelled() and queued.done()
        for guest in guests:
            guest.let_go()
        await asyncio.gather(*held)

    run(main())
    assert pool.submit("add", 1).result(30) == 1
    assert rendezvous.nobody_waits()


def test_awaiting_a_cancelled_future(pool: Pool, rendezvous: Rendezvous) -> None:
    async def main() -> None:
        held = [pool.submit("visit", rendezvous.port) for _ in range(pool.stats()["slots"])]
        guests = [await arrival(rendezvous) for _ in held]
        queued = pool.submit("visit", rendezvous.port, "never")
        assert queued.cancel()
        with pytest.raises(asyncio.CancelledError):
            await queued
        for guest in guests:
            guest.let_go()
        await asyncio.gather(*held)

    run(main())


def test_wrap_future_and_run_in_executor(pool: Pool) -> None:
    async def main() -> None:
        assert await asyncio.wrap_future(pool.submit("add", 1)) == 1
        loop = asyncio.get_running_loop()
        assert await loop.run_in_executor(pool, profile_tools.add, 1, 2) == 3
        with pytest.raises(KeyError):
            await loop.run_in_executor(pool, profile_tools.raise_it, KeyError("k"))
        results = await asyncio.gather(
            *(loop.run_in_executor(pool, profile_tools.add, number) for number in range(200))
        )
        assert results == list(range(200))

    run(main())


def test_cancelling_a_wrapped_future_cancels_the_queued_call(pool: Pool, rendezvous: Rendezvous) -> None:
    async def main() -> None:
        held = [pool.submit("visit", rendezvous.port) for _ in range(pool.stats()["slots"])]
        guests = [await arrival(rendezvous) for _ in held]
        queued = pool.submit("visit", rendezvous.port, "never")
        wrapped = asyncio.wrap_future(queued)
        wrapped.cancel()
        with pytest.raises(asyncio.CancelledError):
            await wrapped
        await asyncio.sleep(0)  # asyncio tells the future in its next turn
        assert queued.cancelled()
        for guest in guests:
            guest.let_go()
        await asyncio.gather(*held)

    run(main())
    assert rendezvous.nobody_waits()


def test_async_with(make_pool: Callable[..., Pool]) -> None:
    async def main() -> Pool:
        async with make_pool() as pool:
            futures = [pool.submit("add", number) for number in range(20)]
        assert [future.result(0) for future in futures] == list(range(20))
        return pool

    pool = run(main())
    with pytest.raises(PoolClosed):
        pool.submit("add", 1)


def test_a_full_pool_does_not_block_the_loop(make_pool: Callable[..., Pool], rendezvous: Rendezvous) -> None:
    pool = make_pool(queue={"limit": 1, "overflow": "block"})
    pool.wait_ready(timeout=60)

    async def main() -> None:
        held = [pool.submit("visit", rendezvous.port) for _ in range(pool.stats()["slots"])]
        guests = [await arrival(rendezvous) for _ in held]
        waiting = [pool.submit("add", number) for number in range(50)]
        assert not any(future.done() for future in waiting)
        for guest in guests:
            guest.let_go()
        assert await asyncio.gather(*waiting) == list(range(50))
        await asyncio.gather(*held)

    run(main())


def test_a_full_pool_that_rejects_says_so_at_the_await(make_pool: Callable[..., Pool], rendezvous: Rendezvous) -> None:
    pool = make_pool(queue={"limit": 1})
    pool.wait_ready(timeout=60)

    async def main() -> None:
        held = [pool.submit("visit", rendezvous.port) for _ in range(pool.stats()["slots"])]
        guests = [await arrival(rendezvous) for _ in held]
        queued = pool.submit("add", 1)
        with pytest.raises(Overloaded):
            await pool.submit("add", 2)
        for guest in guests:
            guest.let_go()
        assert await queued == 1
        await asyncio.gather(*held)

    run(main())
