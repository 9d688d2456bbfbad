"""Runs jobs in the caller's process, for tests.

Jobs are claimed from their store and settled there by the core, as those of every runner. Their arguments are read,
and their results are written, by the handler that workers use. What is not as in a worker: deadlines stop nothing that
runs, and `serial`, `main_thread` and profiles have no effect.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import contextvars
import inspect
import threading
import types
from collections.abc import Coroutine, Iterator, Sequence
from typing import Any, Self, cast

from clutch import _core
from clutch._jobs.written import ENQUEUED_TOOLS
from clutch._worker.failure import describe
from clutch._worker.handlers.call import Tool
from clutch._worker.handlers.job import CURRENT, Dead, Directive, directive_of, encode, prepare
from clutch._worker.image import Image, LoadError
from clutch.errors import BadArguments, ClutchError, ConfigError
from clutch.jobs import JobId, Jobs

CLAIMED_MAX = 1000
"""Maximum number of earlier jobs of a queue that are searched to find one."""
SHAPE = {"profile": "process", "workers": 1, "threads": 1, "tasks": 1}

Target = str | types.ModuleType


class UnclearTool(ClutchError):
    """The test does not say which function a job is to run: that is no fault of the job."""


class Tools:
    """Finds the tools that jobs name."""

    def __init__(self, target: Target | None, store: str) -> None:
        """`store`: its URL, as enqueued to."""
        self._store = store
        self._image: Image | None = None
        self._known: dict[str, Tool] = {}
        if target is None:
            return
        name = target.__name__ if isinstance(target, types.ModuleType) else target
        self._image = Image({"start": "spawn", "launch": {"target": name, "preload": False}, "shape": SHAPE})
        try:
            self._image.start()
        except LoadError as error:
            raise ConfigError(str(error)) from error

    def close(self) -> None:
        if self._image is not None:
            self._image.run_hooks("stop")

    def find(self, name: str) -> Tool:
        """Raise NoSuchTool where the target has none; UnclearTool without a target."""
        if self._image is not None:
            return self._image.tool(name)
        function = ENQUEUED_TOOLS.get(self._store, {}).get(name)
        if function is None:
            raise UnclearTool(
                f"no function {name!r} was enqueued here, so it is not known which one runs: give the module of the "
                "tools, such as target=shop.tasks"
            )
        if name not in self._known or self._known[name].function is not function:
            self._known[name] = Tool.of_function(function)
        return self._known[name]


def too_many(attempts_max: int) -> ClutchError:
    return ClutchError(
        f"jobs are still waiting after {attempts_max:,} attempts: does a job enqueue itself, or snooze for ever? "
        "attempts_max= allows more"
    )


class Attempt:
    """An attempt of a job."""

    def __init__(self, core: _core.InlineJobs, claimed: _core.ClaimedJob, tools: Tools) -> None:
        self.context = contextvars.copy_context()
        self.tool: Tool | None = None
        self.value: Any = None
        self.is_over = False
        self._core: _core.InlineJobs | None = core
        self._claimed, self._tools = claimed, tools

    def send(self, said: bytes) -> None:
        """Takes a directive of the running job. Ignored after its end."""
        if self._core is not None:
            self._core.note(self._claimed, said)

    def close(self) -> None:
        """Lets go of the store: the context of the job keeps this object."""
        self._core = None

    def begin(self) -> Any:
        """Call the function, and return its value or the coroutine that makes it."""
        tool = self.tool = self._tools.find(self._claimed.tool)
        channel = cast(_core.JobChannel, self)
        self.job, args, kwargs = prepare(tool, channel, self._claimed.details, self._claimed.arguments)
        self.context.run(CURRENT.set, self.job)
        made = self.context.run(tool.function, *args, **kwargs)
        if inspect.isgenerator(made) or inspect.isasyncgen(made):
            raise BadArguments(f"tool '{tool.name}' is a generator, which cannot be a job")
        return made

    def written(self) -> tuple[bool, bytes]:
        self.is_over = True
        assert self.tool is not None
        return (False, b"null") if self.value is None else encode(self.tool, self.job, self.value)


def run_once(coroutine: Coroutine[Any, Any, Any], context: contextvars.Context) -> Any:
    with asyncio.Runner() as loop:
        return loop.run(coroutine, context=context)


def is_failure(error: BaseException) -> bool:
    return isinstance(error, Dead) or not isinstance(error, Directive)


class InlineRunner:
    """Runs jobs of one store, until it is closed.

    May be used by several threads, and by the jobs that it runs.
    """

    def __init__(self, jobs: Jobs, target: Target | None, raises: bool) -> None:
        self.jobs = jobs
        self._raises = raises
        self._tools = Tools(target, jobs._lazy.url)
        self._core = _core.InlineJobs(jobs._store)
        self._claiming = threading.Lock()
        self._threads = threading.local()
        self._loops: list[asyncio.Runner] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._core.leave()
        self._tools.close()
        for loop in self._loops:
            loop.close()

    def stats(self) -> str:
        return self._core.stats()

    # ---- which jobs

    def waiting(self, queue: str | None, with_scheduled: bool, attempts_max: int) -> Iterator[_core.ClaimedJob]:
        """Claim one job after the other until none can begin. Raise ClutchError if there are more than `attempts_max`.

        `with_scheduled`: move the clock on to the time of those that are due later, and back at the end.
        """
        attempts = 0
        with contextlib.ExitStack() as clock:
            moves_left = None
            while True:
                self._core.stage()
                queues = list(self.jobs.stats()) if queue is None else [queue]
                claimed, again_at = self._core.claim(queues, 1)
                if claimed:
                    if attempts == attempts_max:
                        self._core.put_back(claimed[0], "it was one too many for its test")
                        raise too_many(attempts_max)
                    attempts, moves_left = attempts + 1, None
                    yield claimed[0]
                    continue
                # Not before: a claim puts off what its key holds back.
                later = [at for at in (self._core.stage(), again_at) if at is not None]
                if moves_left is None:
                    # Each move makes a job available. Limits of rate that have a clock of their own (on Redis that of
                    # the server) would hold jobs back for ever.
                    moves_left = 1 + sum(one.scheduled for one in self.jobs.stats().values())
                if not (with_scheduled and later and moves_left):
                    return
                clock.callback(_core.stop_jobs_clock, _core.stop_jobs_clock(min(later)))
                moves_left -= 1

    def run_enqueued(self, ids: Sequence[JobId]) -> None:
        for claimed in self._claimed(ids):
            self.run(claimed)

    async def run_enqueued_soon(self, ids: Sequence[JobId]) -> None:
        for claimed in self._claimed(ids):
            await self.run_soon(claimed)

    def _claimed(self, ids: Sequence[JobId]) -> Iterator[_core.ClaimedJob]:
        for job in ids:
            if job.is_new and (claimed := self._claim(job)) is not None:
                yield claimed

    def _claim(self, job: str) -> _core.ClaimedJob | None:
        """Claim this job, unless it is to wait."""
        with self._claiming:
            self._core.stage()
            found = self.jobs.get(job)
            if found is None or found.state != "available":
                return None
            claimed, _ = self._core.claim([found.queue], CLAIMED_MAX)
            for other in claimed:
                if other.id != job:
                    self._core.put_back(other, "it waits for its turn")
            return next((one for one in claimed if one.id == job), None)

    # ---- one job

    def run(self, claimed: _core.ClaimedJob) -> None:
        with self._attempt(claimed) as attempt:
            made = attempt.begin()
            attempt.value = self._wait(made, attempt.context) if inspect.iscoroutine(made) else made

    async def run_soon(self, claimed: _core.ClaimedJob) -> None:
        """The same in an event loop, of which an `async def` tool is a task."""
        with self._attempt(claimed) as attempt:
            made = attempt.begin()
            if inspect.iscoroutine(made):
                made = await asyncio.create_task(made, context=attempt.context)
            attempt.value = made

    @contextlib.contextmanager
    def _attempt(self, claimed: _core.ClaimedJob) -> Iterator[Attempt]:
        attempt = Attempt(self._core, claimed, self._tools)
        try:
            yield attempt
            is_directive, value = attempt.written()
        except UnclearTool:
            self._core.put_back(claimed, "its tool is not known to the test")
            raise
        except (Exception, SystemExit) as error:  # sys.exit() ends no worker, and no test
            directive = None if attempt.is_over else directive_of(attempt.tool, error)
            if directive is not None:
                self._core.finish(claimed, True, directive)
            else:
                kind, type_name, message, traceback, *_ = describe(error)
                self._core.fail(claimed, "encode" if attempt.is_over else kind, type_name, message, traceback)
            if self._raises and is_failure(error):
                raise
        except BaseException:  # Ctrl-C, a task that is cancelled, pytest.fail()
            self._core.put_back(claimed, "its test was stopped")
            raise
        else:
            self._core.finish(claimed, is_directive, value)
            if self._raises and isinstance(attempt.value, Dead):
                raise attempt.value
        finally:
            attempt.close()

    def _wait(self, coroutine: Coroutine[Any, Any, Any], context: contextvars.Context) -> Any:
        """Run it on this thread's own loop; where another one runs, in a thread beside it."""
        if asyncio._get_running_loop() is not None:
            with concurrent.futures.ThreadPoolExecutor(1, "clutch-inline") as aside:
                return aside.submit(run_once, coroutine, context).result()
        loop = getattr(self._threads, "loop", None)
        if loop is None:
            loop = self._threads.loop = asyncio.Runner()
            self._loops.append(loop)
        return loop.run(coroutine, context=context)
