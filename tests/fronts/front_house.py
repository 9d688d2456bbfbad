"""A dispatcher in the test's process with fronts of one kind, and what tells whether anything of it is left."""

from __future__ import annotations

import contextlib
import gc
import os
import socket
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from front_kinds import WAIT_SECONDS, Client, Kind

from clutch import Dispatcher

WORK = """
[pools.{pool}]
{target}
profile = "thread"
workers = 1
threads = 8
grace = "30s"
interrupt_grace = "100ms"
"""


class Gate:
    """Where a piece of work is held: it comes, and goes on when it is let go."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)
        self._listening = socket.socket(socket.AF_UNIX)
        self._listening.settimeout(WAIT_SECONDS)
        self._listening.bind(self.path)
        self._listening.listen()
        self._held: socket.socket | None = None

    def wait(self) -> None:
        """Until the work is there."""
        self._held, _ = self._listening.accept()

    def let_go(self) -> None:
        if self._held is not None:
            self._held.close()

    def close(self) -> None:
        self.let_go()
        self._listening.close()


class House:
    """A dispatcher with fronts of one kind."""

    def __init__(self, kind: Kind, folder: Path, stack: ExitStack) -> None:
        self.kind = kind
        self.folder = folder
        self.dispatcher: Dispatcher
        self._stack = stack

    def start(self, *lines: str, **fronts: str) -> House:
        """By name, what a front has beside the options of its kind; without any, one front with these lines."""
        self.dispatcher = Dispatcher(self.configure(fronts or {"front": "\n".join(lines)}))
        self._stack.callback(self._stop)
        self.dispatcher.__enter__()
        return self

    def _stop(self) -> None:
        self.dispatcher.stop(0)
        del self.dispatcher

    def configure(self, fronts: dict[str, str]) -> Path:
        """The file that says so."""
        pools, tables = [], []
        for name, lines in fronts.items():
            pool = f"work_{name}" if self.kind.has_app else "work"
            target = "" if self.kind.has_app else 'target = "front_targets"'
            pools.append(WORK.format(pool=pool, target=target))
            options = self.kind.options.format(pool=pool, folder=self.folder)
            bind = "" if "bind = " in lines else 'bind = "127.0.0.1:0"\n'
            tables.append(f'[fronts.{name}]\nkind = "{self.kind.kind}"\n{bind}{options}{lines}\n')
        file = self.folder / "clutch.toml"
        file.write_text("\n".join([*dict.fromkeys(pools), *tables]))
        return file

    def address(self, front: str = "front") -> str:
        return self.dispatcher.addresses[front][0]

    def connect(self, front: str = "front", receive_bytes: int | None = None) -> Client:
        """A client that is closed with the test."""
        return self._stack.enter_context(Client(self.kind, self.address(front), receive_bytes))

    def gate(self) -> Gate:
        gate = Gate(self.folder / f"gate{len(list(self.folder.glob('gate*')))}")
        self._stack.callback(gate.close)
        return gate

    def assert_serves(self, front: str = "front") -> None:
        with Client(self.kind, self.address(front)) as client:
            answer = client.ask(self.kind.request)
            assert answer.endswith(self.kind.answer), answer

    def wait_served(self, front: str = "front") -> None:
        """Until there is room again: no event tells, so it is tried again and again."""
        for _ in tries():
            with contextlib.suppress(OSError), Client(self.kind, self.address(front)) as client:
                if client.ask(self.kind.request).endswith(self.kind.answer):
                    return


def tries() -> Iterator[int]:
    """Without end for as long as a test may wait."""
    end = os.times().elapsed + WAIT_SECONDS
    number = 0
    while os.times().elapsed < end:
        yield number
        number += 1
        os.sched_yield()
    raise TimeoutError("it never became so")


def left_in_process() -> Counter[str]:
    """Open descriptors and threads of this process, as the kernel counts them, without what waits to be collected."""
    gc.collect()
    descriptors = []
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # that of the listing itself
            descriptors.append(os.readlink(f"/proc/self/fd/{number}").partition(":")[0])
    threads = []
    for thread in os.listdir("/proc/self/task"):
        with contextlib.suppress(OSError):
            threads.append(Path(f"/proc/self/task/{thread}/comm").read_text().strip())
    return Counter(descriptors + threads)


def wait_left(before: Counter[str]) -> None:
    """Until nothing is left that was not there before: a thread ends a moment after it has said so, and the descriptors
    of a closed pool go with its object."""
    try:
        for _ in tries():
            left = left_in_process() - before
            if not left:
                return
    except TimeoutError:
        raise AssertionError(f"left: {left}") from None


def listens(address: str) -> bool:
    host, _, rest = address.partition(":")
    with socket.socket(socket.AF_UNIX if host == "unix" else socket.AF_INET) as there:
        return there.connect_ex(rest if host == "unix" else (host, int(rest))) == 0
