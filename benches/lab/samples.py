"""Work of six kinds whose best setting is looked for."""

from __future__ import annotations

import asyncio
import time

from fastapi import FastAPI

app = FastAPI()


def spin(n: int = 20_000) -> int:
    """Pure Python, under a millisecond or two."""
    total = 0
    for i in range(n):
        total += i * i
    return total


def product(size: int = 300) -> float:
    """Numpy, which lets the GIL go while it computes."""
    import numpy

    matrix = numpy.ones((size, size))
    return float((matrix @ matrix).sum())


def blocking(seconds: float = 0.01) -> None:
    time.sleep(seconds)


async def awaiting(seconds: float = 0.01) -> None:
    await asyncio.sleep(seconds)


def mixed(seconds: float = 0.005, n: int = 10_000) -> int:
    time.sleep(seconds)
    return spin(n)


@app.get("/sync")
def sync() -> dict[str, int]:
    return {"total": spin(2_000)}


def digest(rounds: int = 3_000) -> bytes:
    """C code that lets the GIL go."""
    import hashlib

    return hashlib.pbkdf2_hmac("sha256", b"x" * 64, b"salt", rounds)


def loads(n: int = 2_000) -> int:
    """C code that keeps the GIL."""
    import json

    return len(json.loads(json.dumps(list(range(n)))))
