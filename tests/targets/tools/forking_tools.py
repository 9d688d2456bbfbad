"""Code that forks the worker it runs in."""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import os
import posix
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

from clutch import tool

PARENT, CHILD = "parent", "child"


def note_end(folder: str) -> None:
    """What the child says of itself last."""
    Path(folder, "child").write_text(str(os.getpid()))


def forked(folder: str, fork: Callable[[], int] = os.fork) -> str:
    """Returns twice. The parent waits for nothing."""
    pid = fork()
    if pid == 0:
        note_end(folder)
        return CHILD
    Path(folder, "pid").write_text(str(pid))
    return PARENT


def code_of(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@tool
def returns(folder: str) -> str:
    return forked(folder)


@tool
async def returns_async(folder: str) -> str:
    # gevent's own only works in greenlets, and these are none.
    return forked(folder, posix.fork)


@tool
async def returns_after_wait(folder: str) -> str:
    await asyncio.sleep(0.01)
    who = forked(folder, posix.fork)
    await asyncio.sleep(0.01)
    return who


@tool
async def waits_often() -> int:
    """For the clock, and for another thread."""
    for _ in range(20):
        await asyncio.sleep(0)
        await asyncio.to_thread(os.getpid)
    return os.getpid()


@tool
def values(folder: str) -> Iterator[str]:
    who = forked(folder)
    for _ in range(30):
        yield who


@tool
async def values_async(folder: str) -> AsyncIterator[str]:
    who = forked(folder, posix.fork)
    for _ in range(30):
        yield who


@tool
def end_of_child(how: str) -> int:
    """The exit code of a child that ends so."""
    pid = os.fork()
    if pid == 0:
        if how == "raises":
            raise ValueError("in the child")
        if how == "_exit":
            os._exit(7)
        if how != "returns":
            sys.exit({"exit": 0, "exit 5": 5, "exit None": None, "exit text": "a last word"}[how])
    return code_of(pid) if pid else 0


@tool
def item(number: int) -> tuple[int, int]:
    """Of a map; each third item forks, and its child would run those behind it."""
    if number % 3 == 0 and (pid := os.fork()):
        assert code_of(pid) == 0
    return number, os.getpid()


@tool
async def item_async(number: int) -> tuple[int, int]:
    if number % 3 == 0 and (pid := posix.fork()):
        with contextlib.suppress(ChildProcessError):  # gevent has reaped it
            assert posix.waitpid(pid, 0)[1] == 0
    return number, os.getpid()


@tool
def uses_children() -> list[object]:
    """Those that libraries start go on as ever."""
    echo = subprocess.run([sys.executable, "-c", "print(1)"], capture_output=True, text=True, check=True).stdout
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    process = context.Process(target=theirs.send, args=("here",))
    process.start()
    process.join()
    return [echo, ours.recv()]


@tool
def uses_a_pool() -> list[int]:
    with multiprocessing.get_context("fork").Pool(2) as pool:
        return pool.map(abs, [-1, -2, -3])


@tool
def pid() -> int:
    return os.getpid()


@tool
def add(one: int, other: int) -> int:
    return one + other
