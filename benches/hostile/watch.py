"""What an attack costs: memory and descriptors of the dispatcher and its workers, and a normal client's luck."""

from __future__ import annotations

import contextlib
import http.client
import os
import re
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from clutch.lab import watching

_SAMPLE_SECONDS = 0.1
_ASK_SECONDS = 0.1
_PATIENCE_SECONDS = 10.0
_GONE = (FileNotFoundError, ProcessLookupError)


@dataclass(frozen=True)
class Weight:
    """Of one or more processes."""

    rss_mb: float = 0.0
    own_mb: float = 0.0
    """Anonymous and shared memory: RSS without the pages of files."""
    descriptors: int = 0

    def __add__(self, other: Weight) -> Weight:
        return Weight(self.rss_mb + other.rss_mb, self.own_mb + other.own_mb, self.descriptors + other.descriptors)

    def worst(self, other: Weight) -> Weight:
        """Each figure by itself."""
        pairs = zip(self.figures, other.figures, strict=True)
        return Weight(*(max(pair) for pair in pairs))

    @property
    def figures(self) -> tuple[float, float, int]:
        return self.rss_mb, self.own_mb, self.descriptors

    def __str__(self) -> str:
        return f"{self.rss_mb:.0f}/{self.own_mb:.0f} MB {self.descriptors}"


def weigh(pid: int) -> Weight:
    """A process that has ended weighs nothing."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
        descriptors = len(os.listdir(f"/proc/{pid}/fd"))
    except _GONE:
        return Weight()
    kb = {name: int(size) for name, size in re.findall(r"^(Vm\w+|Rss\w+):\s+(\d+) kB", status, re.MULTILINE)}
    own = kb.get("RssAnon", 0) + kb.get("RssShmem", 0)
    return Weight(kb.get("VmRSS", 0) / 1024, own / 1024, descriptors)


@dataclass(frozen=True)
class Both:
    """The dispatcher, and all processes below it."""

    dispatcher: Weight
    workers: Weight

    def worst(self, other: Both) -> Both:
        return Both(self.dispatcher.worst(other.dispatcher), self.workers.worst(other.workers))

    @property
    def own_mb(self) -> float:
        return self.dispatcher.own_mb + self.workers.own_mb


def weigh_both(pid: int) -> Both:
    _, *below = watching.below(pid)
    return Both(weigh(pid), sum(map(weigh, below), Weight()))


@dataclass
class Scales:
    """Looks ten times a second while it is open."""

    pid: int
    worst: Both = field(init=False)

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        self.worst = weigh_both(self.pid)
        over = threading.Event()
        thread = threading.Thread(target=self._watch, args=(over,))
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def _watch(self, over: threading.Event) -> None:
        while not over.wait(_SAMPLE_SECONDS):
            self.worst = self.worst.worst(weigh_both(self.pid))


@dataclass
class NormalClient:
    """Asks /ping on a new connection ten times a second, each answer awaited."""

    port: int
    ok: int = 0
    failed: int = 0
    slowest_seconds: float = 0.0

    @contextlib.contextmanager
    def asking(self) -> Iterator[None]:
        over = threading.Event()
        thread = threading.Thread(target=self._ask_on, args=(over,))
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def _ask_on(self, over: threading.Event) -> None:
        while not over.wait(_ASK_SECONDS):
            began = time.monotonic()
            if self.is_answered():
                self.ok += 1
            else:
                self.failed += 1
            self.slowest_seconds = max(self.slowest_seconds, time.monotonic() - began)

    def is_answered(self) -> bool:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=_PATIENCE_SECONDS)
        with contextlib.closing(connection):
            try:
                connection.request("GET", "/ping")
                return connection.getresponse().status == http.HTTPStatus.OK
            except (OSError, http.client.HTTPException):
                return False

    def __str__(self) -> str:
        return f"{self.ok}/{self.failed}, {self.slowest_seconds:.1f} s"
