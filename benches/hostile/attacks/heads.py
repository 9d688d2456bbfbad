"""Heads that are too large, too many, or no heads."""

from __future__ import annotations

import contextlib
import random
from collections import Counter

from benches.hostile.attack import Attack, Target
from benches.hostile.clients import answers, connect, get

_SEED = 8


def large(target: Target) -> str:
    """From within the limit to 20 MB."""
    found = [str(_status(target, get("/", "X: " + "y" * size))) for size in (50_000, 70_000, 1_000_000, 20_000_000)]
    found += [str(_status(target, get("/", *["X: y"] * count))) for count in (90, 101, 10_000)]
    return " ".join(found)


def _status(target: Target, data: bytes) -> int | str:
    with connect(target.port) as connection:
        with contextlib.suppress(OSError):
            connection.sendall(data)
        return (answers(connection, 1.0) or ["closed"])[0]


def arbitrary(target: Target) -> str:
    """Bytes by chance, some after what looks like a request."""
    chance = random.Random(_SEED)
    found: Counter[int | str] = Counter()
    for nr in range(500):
        data = chance.randbytes(chance.randrange(1, 500))
        found[_status(target, (b"GET /" if nr % 2 else b"") + data + b"\r\n\r\n")] += 1
    assert not found[500], found
    return ", ".join(f"{count} × {status}" for status, count in found.items())


def pipelined(target: Target) -> str:
    """Five thousand requests in one breath."""
    with connect(target.port) as connection:
        connection.sendall(get("/ping") * 5_000)
        return f"{len(answers(connection, 1.0))} answered"


ATTACKS = [
    Attack("large heads", large),
    Attack("heads by chance", arbitrary, quick=True),
    Attack("pipelined", pipelined),
]
