"""Code that ends its worker, and values of every size around what fits into a frame."""

from __future__ import annotations

import os
from typing import Any

FRAME_BYTES_MAX = 4 << 20
INLINE_BYTES_MAX = 64 << 10


def die_on(value: int, deadly: int) -> int:
    """What it was given, or the end of its worker."""
    if value == deadly:
        os._exit(7)
    return value


async def die_on_async(value: int, deadly: int) -> int:
    return die_on(value, deadly)


def die_on_item(value: int) -> int:
    return die_on(value, 50)


async def die_on_item_async(value: int) -> int:
    return die_on(value, 50)


def large_or_die(value: int) -> bytes:
    """More than a frame holds, so that it comes by shared memory."""
    return bytes([die_on(value, 20)]) * (INLINE_BYTES_MAX + 1)


def make(kind: str, count: int) -> Any:
    """A value of so many items or bytes."""
    return {
        "tuple of numbers": lambda: tuple(range(count // 9)),
        "tuple of texts": lambda: ("é" * 20,) * (count // 45),
        "list": lambda: list(range(count // 5)),
        "dict": lambda: {f"{at:0100}": at for at in range(count // 110)},
        "text": lambda: "é" * (count // 2),
        "bytes": lambda: b"x" * count,
        "tuple of bytes": lambda: (b"x" * (count // 2), b"y" * (count // 2)),
    }[kind]()


KINDS = ["tuple of numbers", "tuple of texts", "list", "dict", "text", "bytes", "tuple of bytes"]


def is_made(value: Any, kind: str, count: int) -> bool:
    return bool(value == make(kind, count))


def stream(kind: str, count: int) -> Any:
    yield make(kind, count)
    yield 1
