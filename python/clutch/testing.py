"""For tests of code that runs on Clutch: a pool without workers, and waiting for events rather than for time.

`InlinePool` runs everything in the caller's thread. `watch()` sees every event of this process's pools from then on
(their names and fields: `Event` in crates/clutch-pool/src/telemetry.rs). `Processes` holds processes by pidfds, so
that their numbers cannot become others' meanwhile. Every wait has a timeout after which it raises, with what did
happen.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import select
import signal
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Self

from clutch import _core
from clutch._pool.inline import InlinePool

__all__ = ["Event", "InlinePool", "Processes", "Watch", "children", "descendants", "describe", "watch"]

WAIT_SECONDS = 30.0
SEEN_MAX = 100_000
"""Maximum number of events in one watch; one more raises OverflowError."""

Event = dict[str, Any]


def watch(*, work: bool = False) -> Watch:
    """Record events of all pools of this process: `with watch() as events: ...; events.wait("worker_ready")`.

    With `work=True` also where each piece of work begins and finishes: `work_begun` and `work_finished`, with its id,
    kind and how long it waited and ran. These are many.
    """
    return Watch(work)


class Watch:
    """Events in the order in which they happened. Use it in one thread only."""

    def __init__(self, work: bool = False) -> None:
        self._events = _core.Events("all" if work else "incidents")
        self.seen: list[Event] = []
        """All events read so far."""
        self._waited_for: set[int] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        del self._events

    def wait(self, name: str, *, timeout: float = WAIT_SECONDS, **fields: Any) -> Event:
        """Return the first event with this name and these fields that no `wait` has returned. Raise TimeoutError."""
        deadline = time.monotonic() + timeout
        at = 0
        while at < len(self.seen) or self._read(deadline):
            if at not in self._waited_for and _fits(self.seen[at], name, fields):
                self._waited_for.add(at)
                return self.seen[at]
            at += 1
        raise TimeoutError(f"no event {name} {fields} in {timeout} s; seen:\n{self._text()}")

    def until(self, condition: Callable[[], object], *, timeout: float = WAIT_SECONDS) -> None:
        """Wait until `condition()` is true; it is evaluated now and after each event. Raise TimeoutError."""
        deadline = time.monotonic() + timeout
        while not condition():
            if not self._read(deadline) and not condition():
                raise TimeoutError(f"the condition was still false after {timeout} s; seen:\n{self._text()}")

    def all(self, name: str, **fields: Any) -> list[Event]:
        """Return all events so far with this name and these fields."""
        while self._read(0.0):
            pass
        return [event for event in self.seen if _fits(event, name, fields)]

    def _read(self, deadline: float) -> bool:
        text = self._events.next(max(0.0, deadline - time.monotonic()))
        if text is None:
            return False
        if len(self.seen) >= SEEN_MAX:
            raise OverflowError(f"more than {SEEN_MAX} events in one watch")
        self.seen.append(json.loads(text))
        return True

    def _text(self) -> str:
        return "\n".join(f"  {event}" for event in self.seen) or "  none"


def _fits(event: Event, name: str, fields: Event) -> bool:
    return event["event"] == name and all(event.get(key) == value for key, value in fields.items())


class Processes:
    """Some processes, held by pidfds.

    Ignores processes that have already ended, and None (a worker that is not forked yet).
    """

    def __init__(self, pids: Iterable[int | None]) -> None:
        self._pidfds: dict[int, int] = {}
        for pid in pids:
            if pid is None:
                continue
            try:
                self._pidfds[pid] = os.pidfd_open(pid)
            except OSError as error:
                if error.errno not in (errno.ESRCH, errno.EINVAL):
                    self.close()
                    raise

    @classmethod
    def below(cls, pid: int) -> Self:
        """Return all present descendants of a process."""
        return cls(descendants(pid))

    @property
    def pids(self) -> list[int]:
        return list(self._pidfds)

    def alive(self, timeout: float = 0.0) -> list[int]:
        """Wait up to `timeout` seconds and return the pids that have not ended."""
        deadline = time.monotonic() + timeout
        left = {fd: pid for pid, fd in self._pidfds.items()}
        poll = select.poll()
        for fd in left:
            poll.register(fd, select.POLLIN)
        while left:
            ended = poll.poll(max(0, round(1000 * (deadline - time.monotonic()))))
            if not ended:
                break
            for fd, _ in ended:
                poll.unregister(fd)
                del left[fd]
        return list(left.values())

    def wait_ended(self, timeout: float = WAIT_SECONDS) -> None:
        """Wait until all have ended. Raise TimeoutError with the remaining ones."""
        alive = self.alive(timeout)
        if alive:
            raise TimeoutError(f"alive after {timeout} s: " + ", ".join(map(describe, alive)))

    def send(self, number: signal.Signals) -> None:
        """Send a signal to each remaining process."""
        for fd in self._pidfds.values():
            try:
                signal.pidfd_send_signal(fd, number)
            except ProcessLookupError:
                continue

    def close(self) -> None:
        while self._pidfds:
            os.close(self._pidfds.popitem()[1])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def children(pid: int) -> list[int]:
    """Return the pids of a process's children, from all of its threads."""
    found = []
    tasks = Path(f"/proc/{pid}/task")
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has ended
        for task in os.listdir(tasks):
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                found += map(int, (tasks / task / "children").read_text().split())
    return found


def descendants(pid: int) -> list[int]:
    """Return the pids of all children of a process, of their children, and so on, at this instant."""
    found = []
    for child in children(pid):
        found += [child, *descendants(child)]
    return found


def describe(pid: int) -> str:
    """A process in a few words: pid, state, command line."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][:1]
        command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except (FileNotFoundError, ProcessLookupError):
        return f"pid {pid} (gone)"
    return f"pid {pid} ({state}, {command or 'no command line'})"
