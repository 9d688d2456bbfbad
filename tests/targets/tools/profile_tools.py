"""What the pools of this suite run."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import contextvars
import hashlib
import itertools
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

from clutch import on_start, on_stop, tool
from support.rendezvous import meet, meet_async

visitor: contextvars.ContextVar[str] = contextvars.ContextVar("visitor", default="nobody")
started: list[int] = []
given: list[object] = []


# Plain calls.


@tool
def add(a: Any, b: Any = 0, *, c: Any = 0) -> Any:
    return a + b + c


@tool
async def add_async(a: Any, b: Any = 0, *, c: Any = 0) -> Any:
    return a + b + c


@tool
def everything(*args: Any, **kwargs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    return args, kwargs


@tool
def echo(value: Any) -> Any:
    return value


@tool
async def echo_async(value: Any) -> Any:
    return value


@tool
def terminate_fork() -> int:
    """How a process that was forked here ends by SIGTERM."""
    if (child := os.fork()) == 0:
        time.sleep(3600)
        os._exit(0)
    os.kill(child, signal.SIGTERM)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@tool
def kind_of(value: Any) -> str:
    return type(value).__name__


@tool
def apply(function: Callable[..., Any], *args: Any) -> Any:
    return function(*args)


def sleep_if_any(seconds: float) -> None:
    if seconds:
        time.sleep(seconds)


@tool
def compute(seconds: float) -> float:
    """Uses so much CPU time, and returns how much."""
    before = time.process_time()
    while time.process_time() < before + seconds:
        pass
    return time.process_time() - before


@tool
def pid() -> int:
    return os.getpid()


def not_a_tool() -> None:
    """Cannot be called by name."""


class Made:
    """May be referred to weakly."""


@tool
def make_made(_: int) -> Made:
    return Made()


class Lonely:
    """Unpickles only where it was made: its class cannot be imported in a worker."""


# Rendezvous: a tool that a test holds and lets go.


@tool
def visit(port: int, word: str = "") -> str:
    return meet(port, word)


@tool
async def visit_async(port: int, word: str = "") -> str:
    return await meet_async(port, word)


def note_and_visit_late(number: int, late: tuple[int, ...], port: int, notes: str) -> int:
    """Notes that it has begun; does not return where it is late."""
    note_line(notes, number)
    if number in late:
        meet(port)
    return number


async def note_and_visit_late_async(number: int, late: tuple[int, ...], port: int, notes: str) -> int:
    note_line(notes, number)
    if number in late:
        await meet_async(port)
    return number


def note_line(notes: str, number: int) -> None:
    with open(notes, "a", encoding="ascii") as file:
        file.write(f"{number}\n")


@tool(serial=True)
def visit_alone(port: int, word: str = "") -> str:
    return meet(port, word)


@tool(serial=True)
async def visit_alone_async(port: int, word: str = "") -> str:
    return await meet_async(port, word)


def native_main_thread() -> bool:
    """Whatever gevent's patched `threading` says."""
    return threading.get_native_id() == os.getpid()


@tool(main_thread=True)
def in_main_thread() -> bool:
    return native_main_thread()


@tool(main_thread=True)
def visit_main(port: int) -> tuple[bool, str]:
    return native_main_thread(), meet(port)


# Streams.


@tool
def count(n: int, fail_after: int | None = None) -> Iterator[int]:
    for number in range(n):
        if number == fail_after:
            raise LookupError(number)
        yield number


@tool
async def count_async(n: int, fail_after: int | None = None) -> AsyncIterator[int]:
    for number in range(n):
        if number == fail_after:
            raise LookupError(number)
        yield number


@tool
def visits(port: int, n: int) -> Iterator[int]:
    """Meets before it produces each value, and once more when it is closed."""
    try:
        for number in range(n):
            meet(port, f"before {number}")
            yield number
    finally:
        meet(port, "closed")


@tool
async def visits_async(port: int, n: int) -> AsyncIterator[int]:
    try:
        for number in range(n):
            await meet_async(port, f"before {number}")
            yield number
    finally:
        await meet_async(port, "closed")


@tool
def computes(port: int, n: int) -> Iterator[int]:
    """Its steps take time and wait for nothing; meets when it is closed."""
    try:
        for number in range(n):
            sum(range(50_000))
            yield number
    finally:
        meet(port, "closed")


@tool
async def computes_async(port: int, n: int) -> AsyncIterator[int]:
    try:
        for number in range(n):
            sum(range(50_000))
            yield number
    finally:
        await meet_async(port, "closed")


def flood(path: str, n: int) -> Iterator[int]:
    """Writes down how far it has come."""
    with open(path, "wb", buffering=0) as file:
        for number in range(n):
            file.write(b".")
            yield number


async def flood_async(path: str, n: int) -> AsyncIterator[int]:
    for number in flood(path, n):
        yield number


def lock_in_stream() -> Iterator[object]:
    yield 1
    yield threading.Lock()
    yield 3


# Failures.


class OddInit(Exception):
    """Its pickle cannot be read: its constructor wants more than `args` has."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(f"{code}: {text}")
        self.code = code


class Cyclic(Exception):
    """Refers to itself, twice over."""


class HeldLock(Exception):
    """Cannot be pickled."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.lock = threading.Lock()


class NoText(Exception):
    """Cannot be printed either."""

    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __str__


class Quit(BaseException):
    """Not an Exception."""


class Detailed(Exception):
    def __init__(self, text: str, *, detail: object = None) -> None:
        super().__init__(text)
        self.detail = detail


def raise_it(error: BaseException) -> None:
    raise error


async def raise_it_async(error: BaseException) -> None:
    raise error


def raise_in_stream(error: BaseException) -> Iterator[int]:
    yield 1
    raise error


async def raise_in_stream_async(error: BaseException) -> AsyncIterator[int]:
    yield 1
    raise error


def raise_odd() -> None:
    raise OddInit(7, "seven")


def raise_held() -> None:
    raise HeldLock("held")


def raise_cyclic() -> None:
    error = Cyclic("round")
    error.self = error  # type: ignore[attr-defined]
    error.__cause__ = error.__context__ = None
    error.args = (*error.args, [error])
    raise error


def raise_huge() -> None:
    raise ValueError("x" * 10_000_000)


def raise_with_half_a_character() -> None:
    """As Python has bytes of a file's name that are no UTF-8."""
    raise ValueError("no file b\udcfcro")


def raise_no_text() -> None:
    raise NoText


def raise_from() -> None:
    try:
        raise KeyError("first")
    except KeyError as error:
        raise ValueError("second") from error


def exit_with(code: object) -> None:
    raise SystemExit(code)


def interrupt() -> None:
    raise KeyboardInterrupt


async def cancel_itself() -> None:
    import asyncio

    raise asyncio.CancelledError


def make_lock() -> object:
    return threading.Lock()


def make_deep(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


class Unreadable:
    """Its pickle can be written and not be read."""

    def __reduce__(self) -> tuple[Any, ...]:
        return raise_it, (ImportError("not here"),)


def has_module(name: str) -> bool:
    return name in sys.modules


def fail_on(value: int, bad: int) -> int:
    if value == bad:
        raise ArithmeticError(value)
    return value


# Lives.


@on_start
def note_start() -> None:
    started.append(os.getpid())


@on_stop
def note_stop() -> None:
    """Tells a test that asked for it, through a variable of the environment, that the worker ends in order."""
    path = os.environ.get("CLUTCH_TEST_STOPPED")
    if path:
        with open(path, "a") as file:
            file.write(f"{os.getpid()}\n")


@tool
def lives() -> tuple[int, list[int], list[object]]:
    return os.getpid(), started, given


def take(*values: object) -> None:
    """An initializer."""
    given.extend(values)


def fail_to_start(text: str) -> None:
    raise RuntimeError(text)


@tool
def set_visitor(name: str) -> str:
    """Returns the visitor before."""
    before = visitor.get()
    visitor.set(name)
    return before


@tool
async def set_visitor_async(name: str) -> str:
    before = visitor.get()
    visitor.set(name)
    return before


class Counter:
    """A target with state in each worker."""

    made_in = 0

    def __init__(self) -> None:
        self.made_in = os.getpid()
        self.lock = threading.Lock()
        self.count = 0

    @tool
    def increment(self, by: int = 1) -> tuple[int, int]:
        with self.lock:
            self.count += by
            return os.getpid(), self.count

    @tool
    async def increment_async(self, by: int = 1) -> tuple[int, int]:
        return self.increment(by)

    @tool
    def numbers(self, n: int) -> Iterator[int]:
        yield from range(n)

    @tool
    def where_made(self) -> tuple[int, int]:
        return self.made_in, os.getpid()

    @on_start
    def ready(self) -> None:
        self.count = 100


# Code of each kind that a deadline or a cancel has to stop. Each holds a connection while it runs.


@contextlib.contextmanager
def staying(port: int) -> Iterator[None]:
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(f"{os.getpid()} \n".encode())
        yield


@tool
def spin(port: int) -> None:
    with staying(port):
        while True:
            pass


@tool
async def spin_async(port: int) -> None:
    with staying(port):
        while True:
            pass


@tool
def sleep(port: int) -> None:
    with staying(port):
        time.sleep(300)


@tool
async def sleep_async(port: int) -> None:
    with staying(port):
        await asyncio.sleep(300)


@tool
def without_gil(port: int) -> None:
    with staying(port):
        hashlib.pbkdf2_hmac("sha256", b"word", b"salt", 2_000_000_000)


@tool
def with_gil(port: int) -> None:
    with staying(port):
        collections.deque(itertools.repeat(0), maxlen=0)


@tool
def stubborn(port: int) -> None:
    with staying(port):
        while True:
            with contextlib.suppress(BaseException):
                while True:
                    pass


class Ordered:
    def __init__(self, number: int) -> None:
        self.number = number

    def __lt__(self, other: Ordered) -> bool:
        return self.number < other.number


@tool
def sort_by_python(port: int) -> None:
    with staying(port):
        while True:
            sorted(Ordered(number * 7919 % 1000) for number in range(1000))


@tool
def spin_for(seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass


@tool
def count_to(number: int) -> int:
    count = 0
    while count < number:
        count += 1
    return count


@tool
def kinds_of(values: list[Any]) -> list[str]:
    return [type(value).__name__ for value in values]


# What is read where the answer is: each reading takes one.
broken_off: list[type[BaseException]] = []


def read_it(value: Any) -> Any:
    if broken_off:
        raise broken_off.pop()
    return value


class Reading:
    """Comes back as `value`, unless its reading is broken off."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __reduce__(self) -> tuple[Any, ...]:
        return read_it, (self.value,)


class ReadingError(Exception):
    def __reduce__(self) -> tuple[Any, ...]:
        return read_error, ()


def read_error() -> ReadingError:
    return read_it(ReadingError())


def reading(value: Any) -> Reading:
    return Reading(value)


def raise_reading() -> None:
    raise ReadingError


# The loop of a slot.


@tool
async def loop_id() -> int:
    return id(asyncio.get_running_loop())


@tool
async def wait_long() -> None:
    await asyncio.sleep(300)


@tool
def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


@tool
async def sleep_in_stream(port: int) -> AsyncIterator[int]:
    yield 1
    with staying(port):
        await asyncio.sleep(300)
