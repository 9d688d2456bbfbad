"""Code that a task has others run: threads of executors and tasks of its groups are in the stack of its call."""

from __future__ import annotations

from pathlib import Path

import pytest

from clutch import DeadlineExceeded, Pool
from support.rendezvous import Rendezvous

TOOLS = """
import asyncio, functools
import anyio, anyio.to_thread
from clutch import tool
from support.rendezvous import meet, meet_async

def wait_in_thread(port):
    meet(port)

async def wait_in_task(port):
    await meet_async(port)

@tool
async def by_asyncio(port):
    await asyncio.to_thread(wait_in_thread, port)

@tool
async def by_executor(port):
    await asyncio.shield(asyncio.get_running_loop().run_in_executor(None, wait_in_thread, port))

@tool
async def by_anyio(port):
    await anyio.to_thread.run_sync(wait_in_thread, port)

@tool
async def by_group(port):
    async with asyncio.TaskGroup() as group:
        group.create_task(wait_in_task(port))

@tool
async def by_group_of_anyio(port):
    async with anyio.create_task_group() as group:
        group.start_soon(wait_in_task, port)

@tool
async def by_gather(port):
    await asyncio.gather(asyncio.sleep(0), wait_in_task(port))

@tool
async def by_thread_of_a_task(port):
    async with anyio.create_task_group() as group:
        group.start_soon(functools.partial(anyio.to_thread.run_sync, wait_in_thread, port))
"""
NAMES = [
    "by_asyncio",
    "by_executor",
    "by_anyio",
    "by_group",
    "by_group_of_anyio",
    "by_gather",
    "by_thread_of_a_task",
]


@pytest.mark.parametrize("name", NAMES)
def test_the_line_that_hangs_is_told(folder: Path, rendezvous: Rendezvous, name: str) -> None:
    (folder / "written_delegates.py").write_text(TOOLS)
    with Pool("written_delegates", profile="async", workers=1) as pool:
        future = pool.submit(name, rendezvous.port)
        guest = rendezvous.guest()
        (text,) = pool.stacks().values()
        assert "written_delegates.py" in text and (" in wait_in_thread" in text or " in wait_in_task" in text), text
        assert f"in {name}" in text or name == "by_thread_of_a_task", text
        guest.let_go()
        future.result(30)


def test_the_error_of_a_deadline_has_it(folder: Path, rendezvous: Rendezvous) -> None:
    (folder / "written_delegates.py").write_text(TOOLS)
    with Pool("written_delegates", profile="async", workers=1) as pool:
        pool.wait_ready(timeout=60)
        future = pool.options(deadline=2.0).submit("by_anyio", rendezvous.port)
        guest = rendezvous.guest()
        error = future.exception(30)
        assert isinstance(error, DeadlineExceeded) and " in wait_in_thread" in str(error.stacks), error
        guest.let_go()
