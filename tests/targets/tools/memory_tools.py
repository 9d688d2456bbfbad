"""Tools that take memory and keep it, beside a large image that all workers share."""

from __future__ import annotations

import os
import threading
from pathlib import Path

from clutch import tool
from support.rendezvous import meet

SHARED_BYTES = 64 << 20
image = b"i" * SHARED_BYTES
"""Loaded by the zygote: resident in every worker, private in none."""
kept: list[bytes] = []


def private_bytes(pid: int | str = "self") -> int:
    """As the kernel counts it now."""
    wanted = ("Private_Clean:", "Private_Dirty:", "Swap:")
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return 1024 * sum(int(line.split()[1]) for line in lines if line.startswith(wanted))


@tool
def visit(port: int) -> int:
    """Stays until it is let go, having read all that is shared."""
    assert image.count(b"i") == SHARED_BYTES
    meet(port)
    return os.getpid()


@tool
def leak(size: int) -> tuple[int, int]:
    """The worker and its private memory, after so many bytes more."""
    kept.append(b"x" * size)
    return os.getpid(), private_bytes()


@tool
def leak_together(size: int, port: int) -> tuple[int, int]:
    """The same, once the test has seen who else is there."""
    meet(port)
    return leak(size)


@tool
def leak_later(size: int, port: int) -> int:
    """Leaks in a thread, when the call is over and the test says so."""

    def grow() -> None:
        meet(port)
        kept.append(b"x" * size)

    threading.Thread(target=grow, daemon=True).start()
    return os.getpid()
