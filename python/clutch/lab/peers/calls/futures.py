"""`concurrent.futures`: processes, threads, and interpreters where Python has them."""

from __future__ import annotations

import concurrent.futures
import multiprocessing
from typing import TYPE_CHECKING, Any

from clutch.lab.peers.calls.pool import Futures, PoolPeer

KINDS = {
    "process": "ProcessPoolExecutor",
    "thread": "ThreadPoolExecutor",
    "interpreter": "InterpreterPoolExecutor",
}

if TYPE_CHECKING:
    from clutch.lab.drivers.calls import Executor


class FuturesPeer(PoolPeer):
    """Has no setting that makes a call faster: a chunk size is for maps."""


class Interpreters(FuturesPeer):
    needs_python = (3, 14)


PEERS = (
    FuturesPeer(
        "futures process",
        f"ProcessPoolExecutor, as Python has it; start method {multiprocessing.get_all_start_methods()[0]}",
        kind="process",
    ),
    FuturesPeer("futures thread", "ThreadPoolExecutor: threads of the program that calls", kind="thread"),
    Interpreters("futures interpreter", "InterpreterPoolExecutor: threads, each with a GIL", kind="interpreter"),
)


def start(order: dict[str, Any]) -> Executor:
    workers, kind = order["options"]["workers"], order["options"]["kind"]
    return Futures(getattr(concurrent.futures, KINDS[kind])(workers), workers)
