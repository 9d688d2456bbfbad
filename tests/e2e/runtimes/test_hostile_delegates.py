"""What a task holds is the user's: whatever its classes answer or raise, the task is cancelled and its slot free."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import importlib.util
import socket
import sys
import threading
import types
from pathlib import Path
from typing import Any

import pytest

from clutch import DeadlineExceeded, Pool
from clutch._worker import delegates
from support.rendezvous import Rendezvous

TOOLS = """
import _socket, asyncio, concurrent.futures, socket
from clutch import tool
from support.rendezvous import meet, meet_async

class Odd:
    def odd(self, *_):
        raise RuntimeError("asked")
    __hash__ = __eq__ = __bool__ = odd
    __class__ = property(odd)

class OddFuture(Odd, concurrent.futures.Future):
    pass

class OddWaiter(Odd, asyncio.Future):
    done = cancelled = _state = _callbacks = _children = property(Odd.odd)

class Group(Odd):
    _tasks = property(Odd.odd)

Group.__module__ = "asyncio.taskgroups"

class Callback(Odd):
    __closure__ = property(Odd.odd)
    def __call__(self, future):
        pass

class Job:
    __hash__ = None
    __eq__ = __bool__ = Odd.odd
    def __init__(self, port):
        self.port = port
    def __call__(self):
        meet(self.port)

class Steps:
    def __init__(self, awaitable):
        self.steps = awaitable.__await__()
    def __await__(self):
        return self
    def __next__(self):
        return self.steps.send(None)
    def throw(self, *error):
        return self.steps.throw(*error)
    def __getattr__(self, name):
        raise RuntimeError(name)

class Endless(Steps):
    def __getattr__(self, name):
        return self

async def hold(port, held):
    await meet_async(port)

async def with_callback(port):
    called = asyncio.get_running_loop().create_future()
    called.add_done_callback(Callback())
    await hold(port, called)

HELD = {
    "job": lambda port: asyncio.get_running_loop().run_in_executor(None, Job(port)),
    "future": lambda port: hold(port, OddFuture()),
    "waiter": lambda port: hold(port, OddWaiter()),
    "group": lambda port: hold(port, Group()),
    "callback": with_callback,
    "steps": lambda port: Steps(hold(port, None)),
    "endless": lambda port: Endless(hold(port, None)),
}

@tool
async def hang(name, port):
    try:
        await HELD[name](port)
    except asyncio.CancelledError:
        await meet_async(port, "cancelled")
        raise

@tool
async def resolve(port):
    of_socket = _socket.getaddrinfo
    def getaddrinfo(*address):
        _socket.getaddrinfo = of_socket
        meet(port)
        return []
    _socket.getaddrinfo = getaddrinfo
    await asyncio.get_running_loop().run_in_executor(None, socket.getaddrinfo, "host.invalid", 80)

@tool
async def add(a, b):
    return a + b
"""
NAMES = ["job", "future", "waiter", "group", "callback", "steps", "endless"]
SHAPES = [
    {"profile": "async", "tasks": 1},
    {"profile": "thread", "threads": 1},
    pytest.param(
        {"profile": "greenlet", "tasks": 1},
        marks=pytest.mark.skipif(importlib.util.find_spec("gevent") is None, reason="gevent is not installed"),
    ),
]


def make(folder: Path, shape: dict[str, Any]) -> Pool:
    (folder / "written_hostile.py").write_text(TOOLS)
    pool = Pool("written_hostile", workers=1, interrupt_grace="300s", **shape)
    pool.wait_ready(timeout=60)
    return pool


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape["profile"])
def test_a_task_is_cancelled_whatever_it_holds(
    folder: Path, rendezvous: Rendezvous, shape: dict[str, Any], name: str
) -> None:
    with make(folder, shape) as pool, contextlib.ExitStack() as stack:
        late = pool.options(deadline=0.5).submit("hang", name, rendezvous.port)
        guest = rendezvous.guest()
        stack.callback(guest.let_go)
        error = late.exception(30)
        assert isinstance(error, DeadlineExceeded)
        # A worker that gets no CPU in the time that the caller waits for them sends none.
        if stacks := str(error.stacks):
            assert " in hang" in stacks
            assert " in __call__" in stacks or name != "job" or shape["profile"] == "greenlet"
        cancelled = rendezvous.guest()
        assert cancelled.word == "cancelled"
        cancelled.let_go()
        guest.let_go()
        assert pool.submit("add", 2, 3).result(30) == 5
        assert pool.stats()["restarts"] == 0


def test_a_name_that_is_looked_up_has_no_slot(folder: Path, rendezvous: Rendezvous) -> None:
    with make(folder, {"profile": "async", "tasks": 1}) as pool, contextlib.ExitStack() as stack:
        late = pool.options(deadline=0.5).submit("resolve", rendezvous.port)
        guest = rendezvous.guest()
        stack.callback(guest.let_go)
        assert isinstance(late.exception(30), DeadlineExceeded)
        assert pool.submit("add", 2, 3).result(30) == 5


@pytest.mark.parametrize("kept", [{"fn": socket.getaddrinfo}, {"task": (socket.getaddrinfo, ("host.invalid", 80), {})}])
def test_the_function_of_an_executor_is_known_on_each_python(kept: dict[str, Any]) -> None:
    assert delegates.function_of(types.SimpleNamespace(**kept)) is socket.getaddrinfo


@pytest.mark.parametrize("seen", ["call", "line"])
def test_a_thread_that_is_traced_keeps_its_variables(seen: str) -> None:
    came, goes_on = threading.Event(), threading.Event()

    def trace(frame: types.FrameType, event: str, _: object) -> Any:
        if frame.f_code.co_name != "run" or not frame.f_code.co_filename.endswith(delegates.RUNNERS):
            return None
        if event == seen and not came.is_set():
            came.set()
            goes_on.wait(30)
        return trace

    before = threading.gettrace()
    threading.settrace(trace)
    try:
        with concurrent.futures.ThreadPoolExecutor(1) as executor:
            future = executor.submit(int, "5")
            assert came.wait(30)
            if seen == "line":  # by one that was set in the thread itself
                threading.settrace(None)  # type: ignore[arg-type]
            settled = [found for frame in sys._current_frames().values() for found in delegates.settled_by(frame)]
            goes_on.set()
            assert future in [one for one, _ in settled] and future.result(10) == 5
    finally:
        threading.settrace(before)  # type: ignore[arg-type]


def test_a_look_that_fails_keeps_no_call(monkeypatch: pytest.MonkeyPatch) -> None:
    came, goes_on = threading.Event(), threading.Event()

    def hold() -> None:
        came.set()
        goes_on.wait(30)

    def fail(*_: object, **__: object) -> Any:
        raise RuntimeError("looked")

    async def look() -> None:
        task = asyncio.create_task(asyncio.to_thread(hold))
        while not came.is_set():
            await asyncio.sleep(0)
        left = delegates.LeftBehind(task)
        task.cancel()
        await asyncio.wait([task])
        assert left and " in hold" in left.stacks()
        monkeypatch.setattr(delegates, "threads_for", fail)
        try:
            await asyncio.wait_for(left.end(), 10)
            assert (left.stacks(), delegates.stack_of_task(task)) == ("", "")
        finally:
            goes_on.set()

    asyncio.run(look())
