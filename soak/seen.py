"""What the soak sees beside the answers: the events of the pools, and what this process holds before and after."""

from __future__ import annotations

import ctypes
import json
import os
import threading
from collections import Counter, OrderedDict, deque
from dataclasses import dataclass
from pathlib import Path

from clutch import _core

ENDS = {"work_expired", "work_cancelled", "work_poisoned", "work_lost"}
"""Events that say that one piece of work has ended; there may be one of them for each."""
ENDED_KEPT_MAX = 5_000
"""There in the first minutes: what they take may not look like growth afterwards."""
LAST_KEPT_MAX = 60


class Events:
    """Counts events by name, and work that ended by two of them."""

    def __init__(self) -> None:
        self._events = _core.Events("incidents")
        self._end = threading.Event()
        self._ended: OrderedDict[tuple[str, int], str] = OrderedDict()
        self._thread = threading.Thread(target=self._run, name="events", daemon=True)
        self.counts: Counter[str] = Counter()
        self.twice: list[str] = []
        self.last: dict[str, deque[str]] = {}
        self._thread.start()

    def close(self) -> None:
        self._end.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._end.is_set():
            text = self._events.next(0.2)
            if text is not None:
                self._take(text)

    def _take(self, text: str) -> None:
        event = json.loads(text)
        self.counts[event["event"]] += 1
        self.last.setdefault(event["pool"], deque(maxlen=LAST_KEPT_MAX)).append(text)
        if event["event"] in ENDS:
            key = event["pool"], event["id"]
            if key in self._ended:
                self.twice.append(f"{event['pool']}: work {event['id']}: {self._ended[key]}, then {event['event']}")
            self._ended[key] = event["event"]
            if len(self._ended) > ENDED_KEPT_MAX:
                self._ended.popitem(last=False)


@dataclass(frozen=True)
class Holdings:
    """What this process holds at one moment."""

    descriptors: Counter[str]
    """By what they are: `socket`, `anon_inode:[eventfd]`, a path."""
    threads: Counter[str]
    """By name."""
    rss_bytes: int

    @classmethod
    def now(cls) -> Holdings:
        return cls(Counter(_descriptors()), Counter(_threads()), _rss_bytes())

    def more_than(self, before: Holdings) -> list[str]:
        """What there is more of, in words."""
        more = [("descriptor", self.descriptors - before.descriptors), ("thread", self.threads - before.threads)]
        return [f"{count} more {what}(s) {name}" for what, counts in more for name, count in counts.items()]


def _descriptors() -> list[str]:
    found = []
    for name in os.listdir("/proc/self/fd"):
        try:
            found.append(os.readlink(f"/proc/self/fd/{name}").partition(":[")[0])
        except FileNotFoundError:
            continue  # that of the listing itself
    return found


def _threads() -> list[str]:
    return [file.read_text().strip() for file in Path("/proc/self/task").glob("*/comm")]


def _rss_bytes() -> int:
    """Memory of this process that is in RAM."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class Heap(ctypes.Structure):
    """glibc's `struct mallinfo2`, over all of its arenas."""

    NAMES = ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost")
    _fields_ = tuple((name, ctypes.c_size_t) for name in NAMES)


@dataclass(frozen=True)
class Memory:
    """Of this process, in bytes."""

    own: int
    in_use: int
    """Of its own, without what the allocator keeps free since an earlier peak; where it does not say, all."""
    shared: int
    """With workers."""

    @classmethod
    def now(cls) -> Memory:
        status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
        own, shared = (int(status[name].split()[0]) * 1024 for name in ("RssAnon", "RssShmem"))
        return cls(own, own - _free_bytes(), shared)

    def __str__(self) -> str:
        return f"{self.own // 10**6}({self.in_use // 10**6})+{self.shared // 10**6}"


def _free_bytes() -> int:
    tell = getattr(ctypes.CDLL(None), "mallinfo2", None)
    if tell is None:
        return 0
    tell.restype = Heap
    return tell().fordblks
