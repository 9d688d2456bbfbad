"""The target of the servers in these tests."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from clutch import tool
from support.rendezvous import meet as come


@dataclass
class Line:
    name: str
    price: float


@tool
def echo(value: Any) -> Any:
    return value


@tool
def add(a: int, b: int = 1) -> int:
    return a + b


@tool
def bill(lines: list[Line], *, tax: float = 0.0) -> dict[str, Any]:
    return {"total": sum(line.price for line in lines) * (1 + tax), "first": lines[0] if lines else None}


@tool
def meet(port: int, word: str = "") -> str:
    return come(port, word)


@tool
def pid() -> int:
    return os.getpid()


@tool
def not_a_number() -> dict[str, Any]:
    return {"items": [{"price": 1.0}, {"price": float("nan")}]}


@tool
def raw_bytes() -> Any:
    return {"data": b"\x00\xff"}


@tool
def turned(data: bytes) -> bytes:
    return data[::-1]


@tool
def lock() -> Any:
    return [threading.Lock()]


@tool
def bottomless() -> list[Any]:
    value: list[Any] = []
    value.append(value)
    return value


@tool
def fail(text: str) -> None:
    raise ValueError(text)


class OddError(Exception):
    def __init__(self, first: str, second: threading.Thread) -> None:
        super().__init__(f"odd: {first}")
        self.second = second


@tool
def fail_oddly() -> None:
    raise OddError("one", threading.current_thread())


@tool
def countdown(n: int, fail_at: int | None = None) -> Iterator[int]:
    for number in range(n, 0, -1):
        if number == fail_at:
            raise ValueError(f"no {number}")
        yield number


@tool
def waits_between(port: int) -> Iterator[str]:
    yield "first"
    come(port)
    yield "second"


@tool
def like_an_error() -> Iterator[dict[str, Any]]:
    yield {"error": {"detail": "a value"}}


@tool
def numbers_then_nan() -> Iterator[float]:
    yield 1.5
    yield float("nan")


@tool
def endless(port: int) -> Iterator[int]:
    number = 0
    try:
        while True:
            yield number
            number += 1
    finally:
        come(port, "closed")


@tool
def say(text: str) -> None:
    print(text)
    print(text, file=sys.stderr)


@tool
def kill_yourself(port: int) -> None:
    print("last words")
    come(port)
    os.kill(os.getpid(), signal.SIGKILL)


def no_tool() -> str:
    return "not for callers from outside"


@tool(main_thread=True)
def in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


@tool(main_thread=True)
async def in_main_thread_async() -> bool:
    return threading.current_thread() is threading.main_thread()


inside: list[int] = []


@tool(serial=True)
def meet_alone(port: int) -> int:
    inside.append(1)
    come(port)
    count = len(inside)
    inside.pop()
    return count
