"""Durable jobs: `Jobs` puts them into a store and looks after them there; workers run them (`clutch work`).

Importing or making a `Jobs` opens nothing: the store is opened on first use, in each process anew, so that a module
may have one at its top and be forked afterwards.
"""

from __future__ import annotations

import asyncio
import builtins
import functools
import json
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, ParamSpec, Protocol, TypeVar, overload

from clutch import _core
from clutch._jobs.opening import LazyStore, offers_of
from clutch._jobs.records import ENDS, STATES, Job, JobError, JobId, JobIds, Queue, queue_of
from clutch._jobs.runners import LOOK_INTERVAL, Runner, Watch
from clutch._jobs.schedules import Schedule, entry_of
from clutch._jobs.transaction import Row, insert
from clutch._jobs.written import Called, arguments_of, called_of, note_tool, step_of, written
from clutch._pool.caller import is_patched
from clutch._worker.handlers.job import Cancel, CurrentJob, Dead, Retry, Snooze, current_job
from clutch.config.values import under_folder, without_password
from clutch.errors import BadArguments, ClutchError, ConfigError, JobFailed, StoreUnavailable
from clutch.tools import (
    NO_JOB_OPTIONS,
    U32_MAX,
    JobOptions,
    Seconds,
    is_whole,
    rate_of,
    refuse_unknown,
    seconds,
    shortened,
)

__all__ = [
    "Cancel",
    "CurrentJob",
    "Dead",
    "Job",
    "JobError",
    "JobId",
    "JobIds",
    "JobOptions",
    "Jobs",
    "Queue",
    "Retry",
    "Runner",
    "Schedule",
    "Snooze",
    "current_job",
]

P = ParamSpec("P")
T = TypeVar("T")

STRATEGIES = ("pipelined", "single", "pool", "checkout")
LIST_MAX = 10_000
PAGE = 500
"""Number of jobs that `each` reads at a time."""
LOOK_SECONDS = (0.005, 0.25)
"""Shortest and longest interval between two looks of a waiting `result`."""


def naming_options(method: Callable[P, T]) -> Callable[P, T]:
    """Refuses an unknown option with the nearest known one."""

    @functools.wraps(method)
    def refuse_or_call(*args: P.args, **kwargs: P.kwargs) -> T:
        refuse_unknown("jobs.options()", kwargs)
        return method(*args, **kwargs)

    return refuse_or_call


def naming_what_schedules_take(method: Callable[P, T]) -> Callable[P, T]:
    """Refuses what `schedule` does not take, with where it is given."""

    @functools.wraps(method)
    def refuse_or_call(*args: P.args, **kwargs: P.kwargs) -> T:
        for name in kwargs.keys() - {"zone", "misfire", "overlap"}:
            if name in JobOptions.__dataclass_fields__:
                where = f"it is an option of its jobs: jobs.options({name}=…).schedule(…)"
            elif name in ("tz", "timezone"):
                where = "did you mean zone?"
            else:
                where = "allowed are zone, misfire and overlap; arguments of the tool are given by functools.partial"
            raise TypeError(f"jobs.schedule() has no option {name!r}; {where}")
        return method(*args, **kwargs)

    return refuse_or_call


def refuse_connection(keywords: Mapping[str, Any]) -> None:
    """Refuses a connection. A tool's own argument of that name is JSON."""
    if isinstance(keywords.get("connection"), sqlite3.Connection):
        raise ConfigError(
            "connection= works with enqueue() and enqueue_many() only, because a sqlite3 transaction belongs to one "
            "thread"
        )


class RunsEnqueued(Protocol):
    """Runs jobs in this process as soon as they are enqueued."""

    def run_enqueued(self, ids: Sequence[JobId]) -> None: ...
    async def run_enqueued_soon(self, ids: Sequence[JobId]) -> None: ...


INLINE_RUNNERS: dict[str, RunsEnqueued] = {}
"""Runners by the URL of the store; empty outside `clutch.testing`."""


class Jobs:
    """Durable jobs in a store:

        jobs = clutch.Jobs("sqlite:///jobs.db")
        job = jobs.enqueue(send, "ann@example.org", in_=60, retry=5)
        jobs.get(job).state

    `clutch work MODULE --store sqlite:///jobs.db` runs them. May be used by any number of threads and, with the methods
    whose names begin with `a`, from asyncio. In a process that was forked it opens the store anew.
    """

    def __init__(
        self,
        url: str,
        *,
        strategy: str = "pipelined",
        connections: int = 4,
        options: JobOptions | None = None,
    ) -> None:
        """Takes the URL of a store: `sqlite:///jobs.db` (relative to the working folder), `sqlite:////absolute/jobs.db`;
        `redis://host:6379/0`, `rediss://…` with TLS, `redis+unix:///path`, `redis+sentinel://host1,host2/NAME` or
        `redis+cluster://host1,host2`, each also with `valkey`, with `?prefix=NAME` for several stores on one server.

        `strategy`: how threads that enqueue at a time share connections: `"pipelined"`, all that waits in one trip to
        the store; `"single"`, one after the other; `"pool"` and `"checkout"`, each by one of `connections`.
        Opens nothing yet. Raises `ConfigError`.
        """
        if strategy not in STRATEGIES:
            raise ConfigError(f"strategy {strategy!r}: allowed are {', '.join(STRATEGIES)}")
        if not isinstance(url, str):
            hint = "; is the variable set that it comes from?" if url is None else ""
            raise ConfigError(f"{url!r} is not the URL of a store; allowed is text such as sqlite:///jobs.db{hint}")
        try:
            self.url = under_folder(url)
        except FileNotFoundError:
            raise ConfigError(f"{url!r}: the working folder is gone; give an absolute path: sqlite:////…") from None
        self._offers = offers_of(self.url)
        self._lazy = LazyStore(self.url, strategy, connections if strategy in ("pool", "checkout") else 1)
        self._options = options or NO_JOB_OPTIONS

    def __repr__(self) -> str:
        return f"clutch.Jobs({without_password(self.url)!r})"

    def _with(self, options: JobOptions) -> Jobs:
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__)
        other._options = options
        return other

    @property
    def _store(self) -> _core.JobStore:
        """To open is to connect. In a program that gevent has patched, other greenlets run meanwhile."""
        if not is_patched() or self._lazy.opened is not None:
            return self._lazy.open()
        from clutch._pool.hub import aside

        return aside(self._lazy.open, alone=True)

    def _ask(self, ask: Callable[[_core.JobStore], T]) -> T:
        """Asks the store; other greenlets run meanwhile."""
        store = self._store
        if not is_patched():
            return ask(store)
        from clutch._pool.hub import aside

        return aside(lambda: ask(store))

    # ---- enqueue

    @naming_options
    def options(
        self,
        *,
        queue: str | None = None,
        priority: int | None = None,
        at: datetime | None = None,
        in_: Seconds | None = None,
        retry: int | None = None,
        backoff: str | Seconds | None = None,
        unique: str | bool | None = None,
        key: str | None = None,
        key_limit: int | None = None,
        key_rate: str | None = None,
        deadline: datetime | Seconds | None = None,
        tags: Sequence[str] | None = None,
        meta: Mapping[str, Any] | None = None,
        result: Seconds | None = None,
        after: str | Sequence[str] | None = None,
        after_failure: str | None = None,
    ) -> Jobs:
        """Return the same store with these options for each job: `jobs.options(queue="mail", in_=60).enqueue(send, 7)`.

        Options given this way never collide with the tool's own arguments, and type checkers check those. `JobOptions`
        documents each option.
        """
        given = {name: value for name, value in locals().items() if name != "self" and value is not None}
        return self._with(replace(self._options, **given))

    @overload
    def enqueue(self, tool: Callable[P, Any], /, *args: P.args, **kwargs: P.kwargs) -> JobId: ...
    @overload
    def enqueue(self, tool: str, /, *args: Any, **kwargs: Any) -> JobId: ...
    @overload
    def enqueue(self, tool: Callable[..., Any], /, *args: Any, queue: str, **kwargs: Any) -> JobId: ...
    @overload
    def enqueue(self, tool: Callable[..., Any], /, *args: Any, priority: int, **kwargs: Any) -> JobId: ...
    @overload
    def enqueue(self, tool: Callable[..., Any], /, *args: Any, at: datetime, **kwargs: Any) -> JobId: ...
    @overload
    def enqueue(self, tool: Callable[..., Any], /, *args: Any, in_: Seconds, **kwargs: Any) -> JobId: ...
    @overload
    def enqueue(self, tool: Callable[..., Any], /, *args: Any, retry: int, **kwargs: Any) -> JobId: ...
    @overload
    def enqueue(self, tool: Callable[..., Any], /, *args: Any, unique: str | bool, **kwargs: Any) -> JobId: ...
    @overload
    def enqueue(self, tool: Callable[..., Any], /, *args: Any, key: str, **kwargs: Any) -> JobId: ...
    @overload
    def enqueue(self, tool: Callable[..., Any], /, *args: Any, key_limit: int, **kwargs: Any) -> JobId: ...
    @overload
    def enqueue(self, tool: Callable[..., Any], /, *args: Any, key_rate: str, **kwargs: Any) -> JobId: ...
    @overload
    def enqueue(
        self, tool: Callable[..., Any], /, *args: Any, deadline: datetime | Seconds, **kwargs: Any
    ) -> JobId: ...
    @overload
    def enqueue(self, tool: Callable[..., Any], /, *args: Any, tags: Sequence[str], **kwargs: Any) -> JobId: ...
    @overload
    def enqueue(self, tool: Callable[..., Any], /, *args: Any, result: Seconds, **kwargs: Any) -> JobId: ...
    @overload
    def enqueue(self, tool: Callable[..., Any], /, *args: Any, after: str | Sequence[str], **kwargs: Any) -> JobId: ...
    @overload
    def enqueue(
        self, tool: Callable[..., Any], /, *args: Any, connection: sqlite3.Connection, **kwargs: Any
    ) -> JobId: ...
    def enqueue(self, tool: Any, /, *args: Any, connection: sqlite3.Connection | None = None, **kwargs: Any) -> JobId:
        """Enqueue a call of a tool, given as the function or by its name; return the job's id when it is durable.

        Beside the arguments it takes the options of `options()` by keyword: `queue`, `priority`, `at`, `in_`, `retry`,
        `backoff`, `unique`, `key`, `key_limit`, `key_rate`, `deadline`, `tags`, `meta`, `result`, `after`,
        `after_failure`. Where the tool has a parameter of that name, the keyword is the tool's: use `options()`.

        `connection`: of the module `sqlite3`, to the same file. The job is then part of its transaction, and exists if
        and only if that commits.

        Arguments are checked by the type hints of a function. Raises `BadArguments`, `StoreUnavailable`, `StoreError`,
        ValueError; with `connection`, also the errors of `sqlite3`.
        """
        text = self._text(tool, args, kwargs)
        return (self._enqueue([text]) if connection is None else self._enqueue_in(connection, [text]))[0]

    def enqueue_many(
        self,
        tool: Callable[..., Any] | str,
        arguments: Iterable[Any],
        /,
        *,
        then: Callable[..., Any] | str | None = None,
        connection: sqlite3.Connection | None = None,
        **options: Any,
    ) -> JobIds:
        """Enqueue one job for each of `arguments`, all of them or none, in one trip to the store; return their ids.

        Each of `arguments` is a tuple of positional arguments or a mapping of named ones; anything else is the only
        argument. Takes the options of `options()` by keyword. `connection`: as in `enqueue`.

        `then`: a tool, or a `functools.partial` of one, whose job runs when all of these have completed, which may then
        be 10,000 at most. Its id is `.then` of what is returned; it has the options of its own `@tool`, and the
        `after_failure` of those here.
        """
        jobs = self.options(**options) if options else self
        return jobs._enqueued(jobs._many(tool, arguments, then), then is not None, connection)

    def chain(self, *steps: Callable[..., Any] | str, connection: sqlite3.Connection | None = None) -> JobIds:
        """Enqueue jobs of which each runs when the one before it has completed, all of them or none; return their ids.

        Each step is a tool, or a `functools.partial` of one with its arguments:

            jobs.options(result="1h").chain(partial(download, url), unpack, notify)

        All have the options of `options()`, and its times and `after` are those of the first. `connection`: as in
        `enqueue`.
        """
        return self._enqueued(self._chained(steps), False, connection)

    async def aenqueue(self, tool: Any, /, *args: Any, **kwargs: Any) -> JobId:
        """`enqueue` for asyncio; not within a transaction."""
        refuse_connection(kwargs)
        return (await self._aenqueue([self._text(tool, args, kwargs)]))[0]

    async def aenqueue_many(
        self,
        tool: Callable[..., Any] | str,
        arguments: Iterable[Any],
        /,
        *,
        then: Callable[..., Any] | str | None = None,
        **options: Any,
    ) -> JobIds:
        """`enqueue_many` for asyncio; not within a transaction."""
        refuse_connection(options)
        jobs = self.options(**options) if options else self
        texts = jobs._many(tool, arguments, then)
        return ids_of(await self._aenqueue(texts) if texts else [], then is not None)

    async def achain(self, *steps: Callable[..., Any] | str) -> JobIds:
        """`chain` for asyncio; not within a transaction."""
        texts = self._chained(steps)
        return ids_of(await self._aenqueue(texts) if texts else [], False)

    def _called(self, tool: Any) -> Called:
        called = called_of(tool)
        note_tool(self._lazy.url, called)
        return called

    def _text(self, tool: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
        """The job as JSON."""
        called = self._called(tool)
        own = {name: kwargs.pop(name) for name in called.options_in(kwargs)} if kwargs else {}
        options = self._options.over(called.defaults)
        if own:
            options = replace(options, **own)
        return written(called.name, called.arguments(args, kwargs, self._offers["keywords"]), options)

    def _texts(self, tool: Any, many: Iterable[Any]) -> builtins.list[str]:
        """Returns jobs that differ in their arguments as JSON. No keyword of these is an option."""
        if isinstance(many, str | bytes | bytearray | Mapping):
            part = "key" if isinstance(many, Mapping) else "letter"
            raise TypeError(
                f"arguments of enqueue_many are {type(many).__name__}, each {part} of which would be a job: give a "
                "list of arguments, or use enqueue for one job"
            )
        called, by_name = self._called(tool), self._offers["keywords"]
        options = self._options.over(called.defaults)
        texts = []
        for at, given in enumerate(many):
            try:
                arguments = called.arguments(*arguments_of(given), by_name)
            except BadArguments as error:
                raise BadArguments(f"arguments[{at}]: {error}", problems=error.problems) from None
            texts.append(written(called.name, arguments, options))
        return texts

    def _many(self, tool: Any, arguments: Iterable[Any], then: Any) -> builtins.list[str]:
        """Jobs as JSON, `then` the last of them."""
        texts = self._texts(tool, arguments)
        if then is not None:
            texts.append(self._then(then, len(texts), JobOptions(after_failure=self._options.after_failure)))
        return texts

    def _then(self, step: Any, after_previous: int, options: JobOptions) -> str:
        """A job as JSON that comes after so many of those before it."""
        tool, args, kwargs = step_of(step)
        called = self._called(tool)
        arguments = called.arguments(args, kwargs, self._offers["keywords"])
        return written(called.name, arguments, options.over(called.defaults), after_previous)

    def _chained(self, steps: Sequence[Any]) -> builtins.list[str]:
        if isinstance(self._options.unique, str):
            raise ValueError(
                f"unique {self._options.unique!r}: all steps of a chain would be one job; allowed is True, by the tool "
                "and its arguments"
            )
        first = self._options
        later = replace(first, at=None, in_=None, after=None)
        return [self._then(step, min(nr, 1), later if nr else first) for nr, step in enumerate(steps)]

    def _enqueued(self, texts: builtins.list[str], has_then: bool, connection: sqlite3.Connection | None) -> JobIds:
        if not texts:
            return JobIds()
        return ids_of(self._enqueue(texts) if connection is None else self._enqueue_in(connection, texts), has_then)

    def _enqueue(self, texts: builtins.list[str]) -> builtins.list[JobId]:
        told = self._enqueue_in_hub(texts) if is_patched() else self._store.enqueue(texts)
        ids = [JobId(*one) for one in told]
        if (inline := INLINE_RUNNERS.get(self.url)) is not None:
            inline.run_enqueued(ids)
        return ids

    def _enqueue_in_hub(self, texts: builtins.list[str]) -> builtins.list[tuple[str, bool]]:
        """Enqueues in a program that gevent has patched: other greenlets run meanwhile."""
        from clutch._pool.hub import wait

        soon: builtins.list[_core.JobsEnqueued] = []
        store = self._store

        def subscribe(bridge: _core.Bridge, waiter: Any) -> None:
            soon.append(store.enqueue_soon(texts, bridge, waiter))

        if not wait(subscribe, None):
            return store.enqueue(texts)
        return soon[0].result()

    async def _aenqueue(self, texts: builtins.list[str]) -> builtins.list[JobId]:
        from clutch._pool.future import bridge_of_running_loop

        store = await self._lazy.open_soon()
        waiter = asyncio.get_running_loop().create_future()
        soon = store.enqueue_soon(texts, bridge_of_running_loop(), waiter)
        # A job cannot be taken back half way: who is cancelled meanwhile may have enqueued it.
        await waiter
        ids = [JobId(*one) for one in soon.result()]
        if (inline := INLINE_RUNNERS.get(self.url)) is not None:
            await inline.run_enqueued_soon(ids)
        return ids

    def _enqueue_in(self, connection: sqlite3.Connection, texts: builtins.list[str]) -> builtins.list[JobId]:
        """Enqueues within the caller's transaction. Whatever can be refused is refused before the first write."""
        if not self._offers["transactions"]:
            raise ConfigError(
                f"connection=: only a store on SQLite can take part in a transaction, and this is {self!r}"
            )
        if not isinstance(connection, sqlite3.Connection):
            raise ConfigError(f"connection={shortened(connection)}: allowed is a connection of the module sqlite3")
        jobs = (_core.JobStore.insert(self._lazy.url, text) for text in texts)
        rows = [Row(statement, dict(row), file, after, before) for statement, row, file, after, before in jobs]
        return [JobId(*one) for one in insert(connection, rows)]

    # ---- periodic jobs

    @naming_what_schedules_take
    def schedule(
        self,
        name: str,
        when: str | Seconds,
        tool: Callable[..., Any] | str,
        /,
        *,
        zone: str | None = None,
        misfire: str = "last",
        overlap: str = "skip",
    ) -> None:
        """Keep a schedule in the store: its job is enqueued at each tick, as of an entry `[cron.NAME]`.

            jobs.options(queue="mail").schedule("report", "0 3 * * *", partial(report, "de"), zone="Asia/Tokyo")

        `when`: a crontab schedule, or an interval: seconds, text such as `"5m"`, a timedelta. `tool`: a tool, or a
        `functools.partial` of one with its arguments. `zone`: of a schedule, default UTC. `misfire`: whether the
        `"last"` of the ticks that nobody could run is made up for, or `"skip"`. `overlap`: while the job of an earlier
        tick has not ended, `"skip"` the tick, let its job `"wait"`, or `"allow"` it beside. Its jobs have the options
        of `options()`; `retry` is 0 unless it is given.

        One of the same name is replaced, and begins with its next tick; if nothing of it has changed, nothing happens.
        Every dispatcher of the store takes it up within a few seconds. Raises ValueError, `BadArguments`,
        `StoreUnavailable`.
        """
        function, args, kwargs = step_of(tool)
        called = self._called(function)
        arguments = called.arguments(args, kwargs, self._offers["keywords"])
        options = self._options.over(called.defaults)
        text = entry_of(name, when, called, arguments, options, zone=zone, misfire=misfire, overlap=overlap)
        try:
            self._ask(lambda store: store.set_schedule(name, "put", text))
        except ValueError as error:
            option, why = error.args if len(error.args) == 2 else ("", str(error))
            of_option = {"zone": f"zone {zone!r}: ", "schedule": f"{when!r}: "}.get(option, "")
            raise ValueError(f"schedule {name!r}: {of_option}{why}") from None

    def schedules(self) -> builtins.list[Schedule]:
        """Return the schedules that the store keeps, by name. Those of configs are not among them."""
        return [Schedule.of(told) for told in self._ask(lambda store: store.schedules())]

    def pause_schedule(self, name: str) -> bool:
        """Pause a schedule: no dispatcher enqueues its jobs any more. Returns False if there is none of this name."""
        return self._ask(lambda store: store.set_schedule(name, "pause"))

    def resume_schedule(self, name: str) -> bool:
        """Resume a paused schedule with its next tick. Returns False if there is none of this name."""
        return self._ask(lambda store: store.set_schedule(name, "resume"))

    def unschedule(self, name: str) -> bool:
        """Remove a schedule; jobs that it has enqueued stay. Returns False if there is none of this name."""
        return self._ask(lambda store: store.set_schedule(name, "remove"))

    def run_schedule(self, name: str) -> JobId | None:
        """Enqueue the job of a schedule now, beside its ticks, and return its id; None if there is no such schedule.

        With `overlap="skip"` it is the id of the job that has not ended, if there is one (`is_new` is False).
        """
        told = self._ask(lambda store: store.run_schedule(name))
        return None if told is None else JobId(*told)

    async def aschedule(self, name: str, when: str | Seconds, tool: Callable[..., Any] | str, /, **how: Any) -> None:
        """`schedule` for asyncio."""
        await asyncio.to_thread(functools.partial(self.schedule, name, when, tool, **how))

    async def aschedules(self) -> builtins.list[Schedule]:
        """`schedules` for asyncio."""
        return await asyncio.to_thread(self.schedules)

    async def apause_schedule(self, name: str) -> bool:
        """`pause_schedule` for asyncio."""
        return await asyncio.to_thread(self.pause_schedule, name)

    async def aresume_schedule(self, name: str) -> bool:
        """`resume_schedule` for asyncio."""
        return await asyncio.to_thread(self.resume_schedule, name)

    async def aunschedule(self, name: str) -> bool:
        """`unschedule` for asyncio."""
        return await asyncio.to_thread(self.unschedule, name)

    async def arun_schedule(self, name: str) -> JobId | None:
        """`run_schedule` for asyncio."""
        return await asyncio.to_thread(self.run_schedule, name)

    # ---- looking, and changing

    def get(self, job: str) -> Job | None:
        """Return the job, or None if there is none with this id."""
        text = self._ask(lambda store: store.get(id_of(job)))
        return None if text is None else Job.of(json.loads(text))

    def list(
        self,
        *,
        state: str | None = None,
        queue: str | None = None,
        tool: str | None = None,
        tag: str | None = None,
        before: str | None = None,
        limit: int = 100,
    ) -> builtins.list[Job]:
        """Return the newest jobs that match, at most `limit`; `before`: only those older than that job."""
        if not 1 <= limit <= LIST_MAX:
            raise ValueError(f"limit {limit}: allowed are 1 to {LIST_MAX:,}")
        if state is not None and state not in STATES:
            raise ValueError(f"state {state!r}: allowed are {', '.join(STATES)}")
        for name, value in {"queue": queue, "tool": tool, "tag": tag, "before": before}.items():
            if value is not None and not isinstance(value, str):
                what = {"queue": "the name of a queue", "tool": "the name of a tool", "tag": "one tag"}.get(
                    name, "an id"
                )
                raise TypeError(f"{name} {shortened(value)}: allowed is text, {what}")
        wanted = {"state": state, "queue": queue, "tool": tool, "tag": tag, "before": before, "limit": limit}
        return [Job.of(one) for one in json.loads(self._ask(lambda store: store.list(json.dumps(wanted))))]

    def each(
        self,
        *,
        state: str | None = None,
        queue: str | None = None,
        tool: str | None = None,
        tag: str | None = None,
    ) -> Iterator[Job]:
        """Yield all jobs that match, the newest first:

            for job in jobs.each(state="dead", queue="mail"):
                jobs.retry(job.id)

        They are read in pages. Those that were yielded may be changed meanwhile.
        """
        wanted = {"state": state, "queue": queue, "tool": tool, "tag": tag, "limit": PAGE}
        page = self.list(**wanted)
        while page:
            # Before the caller deletes the last of these, which tells where to go on.
            following = self.list(**wanted, before=page[-1].id) if len(page) == PAGE else []
            yield from page
            page = following

    def stats(self) -> dict[str, Queue]:
        """Return the queues by name, with the number of jobs in each state."""
        queues = map(queue_of, json.loads(self._ask(lambda store: store.queues())))
        return {queue.name: queue for queue in queues}

    def runners(self, timeout: Seconds | None = None) -> builtins.list[Runner]:
        """Return who holds a lease of the store, by name, and whether each lives.

        A lease is a counter and tells no time, so they are watched until each has renewed its lease, or has not for
        longer than one that lives takes: half of its lease and a second, which are 16 s by default. `timeout`: for at
        most so long (seconds, or text such as "5s"); 0: one look, which tells who there is. Processes of Sidekiq
        itself are not among them.
        """
        watch, until = Watch(), None if timeout is None else time.monotonic() + seconds(timeout, "timeout")
        while True:
            is_told = watch.looked(json.loads(self._ask(lambda store: store.holders())), time.monotonic())
            if is_told or (until is not None and time.monotonic() >= until):
                return watch.runners()
            time.sleep(LOOK_INTERVAL)

    def cancel(self, job: str) -> bool:
        """Cancel a job. Returns False if it had already ended.

        A running job is interrupted within a third of its runner's lease.
        """
        return self._ask(lambda store: store.change(id_of(job), "cancel"))

    def retry(self, job: str, *, arguments: Any = None) -> bool:
        """Run a job that has ended, is scheduled for later, or waits for others, at once.

        Returns False if there is no such job.

        `arguments`: other ones, as each of those of `enqueue_many`: a tuple, a mapping, or the only one. They are
        checked when the job runs. Raises `BadArguments` where they cannot be JSON.
        """
        if arguments is None:
            return self._ask(lambda store: store.change(id_of(job), "retry"))
        text = Called("").arguments(*arguments_of(arguments), self._offers["keywords"])
        return self._ask(lambda store: store.change(id_of(job), "retry", text))

    def delete(self, job: str) -> bool:
        """Delete a job, unless it is running. Returns False if there is no such job."""
        return self._ask(lambda store: store.change(id_of(job), "delete"))

    def pause(self, queue: str) -> None:
        """Pause a queue: no runner takes jobs from it any more. Running jobs continue."""
        self._ask(lambda store: store.pause(queue, True))

    def resume(self, queue: str) -> None:
        """Resume a paused queue."""
        self._ask(lambda store: store.pause(queue, False))

    def limit(self, queue: str, running_max: int | None = None, *, rate: str | None = None) -> None:
        """Limit a queue over all runners: to `running_max` concurrent jobs, and to as many starts as `rate` allows
        (`"100/m"`, `"5/30s"`). None: no limit."""
        if running_max is not None and not is_whole(0, U32_MAX)(running_max):
            raise ValueError(f"running_max {running_max!r}: allowed are whole numbers from 0 to {U32_MAX:,}, or None")
        limit = None if rate is None else rate_of(rate, "rate")
        self._ask(lambda store: store.limit(queue, running_max, limit))

    def result(self, job: str, timeout: Seconds | None = None) -> Any:
        """Wait for the end of a job and return what it returned, as JSON has it.

        The result is kept only if the job was enqueued with `result=` and the time for that, at least a second. Raises
        `JobFailed` for a job that is cancelled or dead, TimeoutError, and `ClutchError` where there is no such job, or
        where its result was not kept or has expired: `get(job).state` tells how it ended. A store that is out of reach
        is waited for as well; `StoreUnavailable` is raised if it still is when the time is over.
        """
        return result_of(self.wait(job, timeout))

    async def aresult(self, job: str, timeout: Seconds | None = None) -> Any:
        """`result` for asyncio."""
        return result_of(await self.await_end(job, timeout))

    def wait(self, job: str, timeout: Seconds | None = None) -> Job:
        """Wait for the end of a job and return it, whatever became of it: `state` tells, and `errors` why.

        Raises TimeoutError, and ClutchError where there is no such job. A store that is out of reach is waited for as
        well; `StoreUnavailable` is raised if it still is when the time is over.
        """
        lost: StoreUnavailable | None = None
        for pause in looks(timeout):
            ended, lost = self._looked(job)
            if ended is not None:
                return ended
            time.sleep(pause)
        raise lost or TimeoutError(f"job {job} has not ended within {span(timeout):g} s")

    async def await_end(self, job: str, timeout: Seconds | None = None) -> Job:
        """`wait` for asyncio."""
        lost: StoreUnavailable | None = None
        for pause in looks(timeout):
            ended, lost = await asyncio.to_thread(self._looked, job)
            if ended is not None:
                return ended
            await asyncio.sleep(pause)
        raise lost or TimeoutError(f"job {job} has not ended within {span(timeout):g} s")

    def _looked(self, job: str) -> tuple[Job | None, StoreUnavailable | None]:
        """The job once it has ended; and why the store could not tell, if it is out of reach."""
        try:
            return self._ended(job), None
        except StoreUnavailable as error:
            return None, error

    def _ended(self, job: str) -> Job | None:
        found = self.get(job)
        if found is None:
            forgets = "" if self._offers["results"] else ", and Sidekiq's format keeps none"
            raise ClutchError(f"there is no job {job}; ended jobs are kept for a time only (keep.completed){forgets}")
        return found if found.state in ENDS else None

    async def aget(self, job: str) -> Job | None:
        """`get` for asyncio."""
        return await asyncio.to_thread(self.get, job)

    async def alist(self, **wanted: Any) -> builtins.list[Job]:
        """`list` for asyncio."""
        return await asyncio.to_thread(functools.partial(self.list, **wanted))

    async def astats(self) -> dict[str, Queue]:
        """`stats` for asyncio."""
        return await asyncio.to_thread(self.stats)

    async def arunners(self, timeout: Seconds | None = None) -> builtins.list[Runner]:
        """`runners` for asyncio."""
        return await asyncio.to_thread(self.runners, timeout)

    async def acancel(self, job: str) -> bool:
        """`cancel` for asyncio."""
        return await asyncio.to_thread(self.cancel, job)

    async def aretry(self, job: str, *, arguments: Any = None) -> bool:
        """`retry` for asyncio."""
        return await asyncio.to_thread(functools.partial(self.retry, job, arguments=arguments))


def ids_of(ids: Sequence[JobId], has_then: bool) -> JobIds:
    """Returns the ids of jobs, the last of which may be that of `then`."""
    told = JobIds(ids)
    if has_then:
        told.then = told.pop()
    return told


def span(timeout: Seconds | None) -> float:
    """Returns a timeout in seconds; the rest of a time may be zero, or less."""
    given = 0.0 if timeout is None else timeout
    return given if isinstance(given, float | int) else seconds(given, "timeout")


def looks(timeout: Seconds | None) -> Iterator[float]:
    """Yields the waits between two looks, until the timeout is over."""
    end = None if timeout is None else time.monotonic() + span(timeout)
    wait, most = LOOK_SECONDS
    while True:
        left = most if end is None else end - time.monotonic()
        yield max(0.0, min(wait, left))
        if left <= 0:
            return
        wait = min(wait * 1.5, most)


def id_of(job: str) -> str:
    if not isinstance(job, str):
        raise TypeError(f"job {job!r}: ids are text, also where they are numbers, such as '7'; enqueue returns one")
    return job


def result_of(job: Job) -> Any:
    if job.state != "completed":
        error = job.errors[-1] if job.errors else None
        why = error.message if error is not None and job.state == "dead" else job.reason
        raise JobFailed(
            f"job {job.id} ({job.tool}) is {job.state}: {why}",
            job=job.id,
            state=job.state,
            remote_traceback=error.traceback if error is not None else "",
        )
    if job.reason is not None and job.result is None:
        raise ClutchError(f"job {job.id} ({job.tool}) is completed: {job.reason}")
    if job.result_until is None:
        raise ClutchError(
            f"job {job.id} ({job.tool}) is completed, and its result was not kept: enqueue it with "
            'jobs.options(result="1h"), or say @tool(result="1h")'
        )
    if job.result is None and job.result_until <= datetime.now(UTC):
        raise ClutchError(
            f"job {job.id} ({job.tool}) is completed, and its result has expired: it was kept until "
            f"{job.result_until:%Y-%m-%d %H:%M:%S} UTC"
        )
    return job.result
