"""For tests of code that runs on Clutch: without workers, and waiting for events rather than for time.

`InlinePool` runs everything in the caller's thread. `inline` and `drain` run jobs in the caller's process,
`assert_enqueued` looks for them in their store, and `clock` gives them a time that tests move. `watch()` sees every
event of this process's pools from then on (their names and fields are in docs/events.md).
`Processes` holds processes by pidfds, so that their numbers cannot become others' meanwhile. Every wait has a timeout
after which it raises, with what did happen.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import select
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self, TypeVar

from clutch import _core
from clutch._jobs.enqueued import Wanted, found
from clutch._jobs.inline import InlineRunner, Target
from clutch._jobs.opening import STORES_INSTEAD
from clutch._jobs.written import ENQUEUED_TOOLS, milliseconds
from clutch._pool.inline import InlinePool
from clutch.jobs import INLINE_RUNNERS, Job, Jobs
from clutch.tools import Seconds, seconds

T = TypeVar("T")

__all__ = [
    "Clock",
    "Drained",
    "Event",
    "InlinePool",
    "Processes",
    "Watch",
    "adrain",
    "assert_enqueued",
    "assert_not_enqueued",
    "children",
    "clock",
    "descendants",
    "describe",
    "drain",
    "inline",
    "temporary_store",
    "watch",
]

WAIT_SECONDS = 30.0
SEEN_MAX = 100_000
"""Maximum number of events in one watch; one more raises OverflowError."""
ATTEMPTS_MAX = 10_000

Event = dict[str, Any]


def watch(*, work: bool = False) -> Watch:
    """Record events of all pools of this process: `with watch() as events: ...; events.wait("worker_ready")`.

    With `work=True` also where each piece of work begins and finishes: `work_begun` and `work_finished`, with its id,
    kind and name, its worker, and how long it waited and ran. These are many. docs/events.md lists all events.
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


# ---- jobs


@contextlib.contextmanager
def inline(jobs: Jobs, *, target: Target | None = None, raises: bool = True) -> Iterator[None]:
    """Run each job at once, in the process of who enqueues it, before `enqueue` returns its id.

        with inline(jobs):
            job = jobs.enqueue(welcome, "ann@example.org")
        assert jobs.get(job).state == "completed"

    Holds for the store of `jobs`, whichever `Jobs` of this process is used. What becomes of a job is noted in the
    store, as by a worker. Jobs that are due later, or that a pause or a limit holds back, wait, as do those that are
    enqueued with `connection=`: `drain` runs them.

    `raises`: an exception of a job is also raised by `enqueue`, as it is. `target`: the module of the tools, as for
    `clutch work`, with its hooks; by default tools are the functions that this process has enqueued.
    """
    with InlineRunner(jobs, target, raises) as runner, replaced(INLINE_RUNNERS, jobs.url, runner):
        yield


@dataclass(frozen=True, slots=True)
class Drained:
    """Number of attempts of jobs by outcome."""

    completed: int = 0
    retried: int = 0
    """Failed, to run again."""
    postponed: int = 0
    """Snoozed."""
    cancelled: int = 0
    dead: int = 0


def drain(
    jobs: Jobs,
    *,
    queue: str | None = None,
    with_scheduled: bool = False,
    target: Target | None = None,
    raises: bool = True,
    attempts_max: int = ATTEMPTS_MAX,
) -> Drained:
    """Run the jobs that wait in the store, and those that they enqueue, in this process, until none can begin.

    `queue`: only of this one. `with_scheduled`: also those that are due later, each at its time: the clock of jobs
    moves on meanwhile, so a job that fails is retried until it completes or is dead. `raises`: the first exception of a
    job is raised, as it is, and what is left waits; otherwise it is only noted, and counted. `target`: as of `inline`.
    Raises `ClutchError` after `attempts_max` attempts.
    """
    with InlineRunner(jobs, target, raises) as runner:
        for claimed in runner.waiting(queue, with_scheduled, attempts_max):
            runner.run(claimed)
        return drained(runner)


async def adrain(
    jobs: Jobs,
    *,
    queue: str | None = None,
    with_scheduled: bool = False,
    target: Target | None = None,
    raises: bool = True,
    attempts_max: int = ATTEMPTS_MAX,
) -> Drained:
    """`drain` for asyncio: an `async def` tool runs in the loop of the caller."""
    with InlineRunner(jobs, target, raises) as runner:
        for claimed in runner.waiting(queue, with_scheduled, attempts_max):
            await runner.run_soon(claimed)
        return drained(runner)


def drained(runner: InlineRunner) -> Drained:
    stats = json.loads(runner.stats())
    return Drained(**{one.name: stats[one.name] for one in fields(Drained)})


def assert_enqueued(
    jobs: Jobs,
    tool: Callable[..., Any] | str | None = None,
    arguments: Mapping[str, Any] | Sequence[Any] | None = None,
    *,
    queue: str | None = None,
    priority: int | None = None,
    key: str | None = None,
    tag: str | None = None,
    state: str | None = None,
    at: datetime | None = None,
    in_: Seconds | None = None,
    within: Seconds = 1.0,
    count: int | None = None,
) -> list[Job]:
    """Return the jobs of the store that are as said, the oldest first. Raise AssertionError, with a list of the jobs
    that there are, if there is none.

    `arguments`: named ones, of which the job may have more; or a tuple of all. `at`, `in_`: when it is due, give or
    take `within`. `count`: how many such jobs there have to be; by default one or more. Jobs that have run count, too:
    `state` says which.
    """
    __tracebackhide__ = True
    exact = {"priority": priority, "key": key, "state": state}
    return found(jobs, Wanted(tool, arguments, queue, at, in_, within, exact, tag), count)


def assert_not_enqueued(
    jobs: Jobs,
    tool: Callable[..., Any] | str | None = None,
    arguments: Mapping[str, Any] | Sequence[Any] | None = None,
    **wanted: Any,
) -> None:
    """Raise AssertionError if there is such a job. Takes what `assert_enqueued` takes."""
    __tracebackhide__ = True
    assert_enqueued(jobs, tool, arguments, **wanted, count=0)


@contextlib.contextmanager
def temporary_store(jobs: Jobs, *, file: str | os.PathLike[str] | None = None) -> Iterator[Jobs]:
    """Keep the jobs of `jobs` in an empty SQLite file meanwhile, which is deleted at the end.

    Holds for each `Jobs` of this process with the same URL, so that a test may use the one of the module that it tests.
    `file`: the test's own database, which is kept, for applications whose transactions enqueue jobs (`connection=`).
    """
    with tempfile.TemporaryDirectory(prefix="clutch-") as folder:
        url = f"sqlite:///{Path(folder, 'jobs.db') if file is None else Path(file).absolute()}?synchronous=normal"
        try:
            with replaced(STORES_INSTEAD, jobs.url, url):
                yield jobs
        finally:
            _core.close_jobs_store(url)
            ENQUEUED_TOOLS.pop(url, None)


REPLACED: dict[tuple[int, str], list[Any]] = {}
"""By dict and name, what takes the place of another now. Of several that overlap, the newest is used."""
REPLACING = threading.Lock()


@contextlib.contextmanager
def replaced(known: dict[str, T], name: str, value: T) -> Iterator[None]:
    with REPLACING:
        stack = REPLACED.setdefault((id(known), name), [])
        stack.append(value)
        known[name] = value
    try:
        yield
    finally:
        with REPLACING:
            stack.remove(value)
            if stack:
                known[name] = stack[-1]
            else:
                del known[name]


def clock(at: datetime | None = None) -> Clock:
    """Let the clock of jobs stand still, at a time or now, until the end of the block; tests move it:

        with clock() as time:
            jobs.enqueue(remind, "ann", in_="1h")
            time.advance("1h")
            assert drain(jobs).completed == 1

    All times of jobs in this process come from it; those of other programs, `time.time()` and timeouts do not.
    """
    return Clock(at)


class Clock:
    """The clock of jobs, which stands still."""

    def __init__(self, at: datetime | None) -> None:
        self._at = at
        self._before: int | None = None

    def __enter__(self) -> Self:
        at = _core.jobs_now() if self._at is None else milliseconds(self._at)
        self._before = _core.stop_jobs_clock(at)
        return self

    def __exit__(self, *_: object) -> None:
        _core.stop_jobs_clock(self._before)

    def now(self) -> datetime:
        """In UTC."""
        return datetime.fromtimestamp(_core.jobs_now() / 1000, UTC)

    def advance(self, time: Seconds) -> None:
        """Move it on: by seconds, a text such as `"5m"`, or a timedelta."""
        _core.stop_jobs_clock(_core.jobs_now() + round(seconds(time, "time") * 1000))


# ---- processes


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
