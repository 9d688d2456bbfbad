"""Code that hangs in a thread of a library's executor keeps its slot, and in the end costs its worker."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import pytest

from clutch import DeadlineExceeded, Pool
from clutch.testing import watch
from support.rendezvous import Rendezvous

TOOLS = """
import asyncio, concurrent.futures, contextlib
import anyio, anyio.to_thread
from clutch import tool
from support.rendezvous import meet

def wait_in_thread(port):
    meet(port)

@tool
async def by_asyncio(port):
    await asyncio.to_thread(wait_in_thread, port)

@tool
async def by_anyio(port):
    await anyio.to_thread.run_sync(wait_in_thread, port)

@tool
async def by_abandoned(port):
    await anyio.to_thread.run_sync(wait_in_thread, port, abandon_on_cancel=True)

@tool
async def by_own_executor(port):
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.get_running_loop().run_in_executor(EXECUTOR, wait_in_thread, port)

@tool
async def by_group(port):
    async with anyio.create_task_group() as group:
        group.start_soon(anyio.to_thread.run_sync, wait_in_thread, port)

@tool
async def by_stream(port):
    yield 1
    await asyncio.to_thread(wait_in_thread, port)

@tool
async def beside_a_service(port):
    global service
    service = knows_of_it = asyncio.create_task(asyncio.to_thread(wait_in_thread, port))
    await asyncio.Event().wait()

@tool
async def with_a_shield(port):
    global service
    service = asyncio.create_task(asyncio.to_thread(wait_in_thread, port))
    await asyncio.shield(service)

@tool
async def gives_up_itself(port):
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(0.05):
            await asyncio.to_thread(wait_in_thread, port)

@tool
async def add(a, b):
    return a + b

@tool
async def many(port):
    await asyncio.gather(*(asyncio.sleep(100) for _ in range(40)), asyncio.to_thread(wait_in_thread, port))

@tool
async def with_a_proxy(port):
    class Proxy:
        def __getattr__(self, name):
            raise RuntimeError(name)
        __class__ = property(lambda self: Proxy.__getattr__(self, "__class__"))
    proxy = Proxy()
    await asyncio.to_thread(wait_in_thread, port)

@tool
async def hang():
    await asyncio.Event().wait()

EXECUTOR = concurrent.futures.ThreadPoolExecutor()
"""
NAMES = ["by_asyncio", "by_anyio", "by_abandoned", "by_own_executor", "by_group", "many", "with_a_proxy"]
SHAPES = [{"profile": "async", "tasks": 1}, {"profile": "process"}, {"profile": "thread", "threads": 1}]


def make(folder: Path, **options: Any) -> Pool:
    (folder / "written_hung.py").write_text(TOOLS)
    pool = Pool("written_hung", workers=1, **options)
    pool.wait_ready(timeout=60)
    return pool


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape["profile"])
def test_a_slot_is_taken_until_the_thread_has_ended(
    folder: Path, rendezvous: Rendezvous, shape: dict[str, Any], name: str
) -> None:
    with make(folder, interrupt_grace="300s", **shape) as pool, contextlib.ExitStack() as stack:
        late = pool.options(deadline=1).submit(name, rendezvous.port)
        guest = rendezvous.guest()
        stack.callback(guest.let_go)
        assert isinstance(late.exception(30), DeadlineExceeded)
        waiting = pool.submit("add", 2, 3)
        while not any(" in wait_in_thread" in text for text in pool.stacks().values()):
            assert not waiting.done(), "it is shown still"
        ((running,),) = pool.running().values()
        assert (running["what"], running["abandoned"], waiting.done()) == (name, True, False)
        guest.let_go()
        assert waiting.result(30) == 5 and pool.stats()["restarts"] == 0


@pytest.mark.parametrize("name", ["by_anyio", "by_stream"])
def test_it_costs_the_worker_in_the_end(folder: Path, rendezvous: Rendezvous, name: str) -> None:
    with watch() as events, make(folder, profile="async", tasks=2, interrupt_grace=0.1, grace="300s") as pool:
        if name == "by_stream":
            values = pool.options(deadline=0.5).stream(name, rendezvous.port)
            assert next(values) == 1
            rendezvous.guest()
            values.close()
        else:
            late = pool.options(deadline=0.5).submit(name, rendezvous.port)
            rendezvous.guest()
            assert isinstance(late.exception(30), DeadlineExceeded)
        assert events.wait("worker_draining")["reason"] == "stuck"
        assert pool.submit("add", 2, 3).result(30) == 5


@pytest.mark.parametrize("name", ["beside_a_service", "with_a_shield", "gives_up_itself"])
def test_threads_that_go_on_by_the_will_of_the_code_have_no_slot(
    folder: Path, rendezvous: Rendezvous, name: str
) -> None:
    with make(folder, profile="async", tasks=1, interrupt_grace="300s") as pool, contextlib.ExitStack() as stack:
        ended = pool.options(deadline=0.5).submit(name, rendezvous.port)
        stack.callback(rendezvous.guest().let_go)
        assert isinstance(ended.exception(30), DeadlineExceeded) == (name != "gives_up_itself")
        assert pool.submit("add", 2, 3).result(30) == 5


def test_a_cancelled_call_is_cancelled_at_once(folder: Path, rendezvous: Rendezvous) -> None:
    with make(folder, profile="async", tasks=1, interrupt_grace="300s") as pool:
        given_up = pool.submit("by_asyncio", rendezvous.port)
        guest = rendezvous.guest()
        assert given_up.cancel() and given_up.cancelled()
        waiting = pool.submit("add", 2, 3)
        guest.let_go()
        assert waiting.result(30) == 5


def test_work_that_is_always_too_late_costs_the_worker(folder: Path) -> None:
    """What holds it up may be the worker's own: a lock that was held at the fork, a connection that died."""
    with watch() as events, make(folder, profile="async", interrupt_grace="300s") as pool:
        first = events.wait("worker_ready")
        late, too_short = pool.options(deadline=0.5), pool.options(deadline=0.02)
        for _ in range(4):
            assert isinstance(late.submit("hang").exception(30), DeadlineExceeded)
        assert pool.submit("add", 2, 3).result(30) == 5, "one that is in time, and the count begins anew"
        for _ in range(4):
            assert isinstance(late.submit("hang").exception(30), DeadlineExceeded)
        assert pool.submit("add", 2, 3).result(30) == 5
        for _ in range(10):
            assert isinstance(too_short.submit("hang").exception(30), DeadlineExceeded)
        assert [view["pid"] for view in pool.stats()["workers"]] == [first["pid"]]
        for _ in range(5):
            assert isinstance(late.submit("hang").exception(30), DeadlineExceeded)
        gone = events.wait("worker_gone", pid=first["pid"])
        assert (gone["left"], gone["running"]) == ("deadlines", [])
        assert pool.submit("add", 2, 3).result(30) == 5
