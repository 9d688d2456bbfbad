"""Tasks of a Celery app in a worker. What Celery's worker does with a message around the task, its own code does here
too: its consumer, without a connection, gives the message to its strategy, and that to a pool, which is this slot.

What is settled with the broker is settled by the dispatcher: a task returns a directive where that is anything but the
end of its message.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import logging
import os
import re
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextvars import ContextVar
from types import SimpleNamespace
from typing import Any

from billiard.einfo import ExceptionInfo
from billiard.exceptions import WorkerLostError
from celery import Celery, signals, states
from celery.app import trace
from celery.exceptions import (
    Ignore,
    InvalidTaskError,
    NotRegistered,
    Reject,
    Retry,
    TaskRevokedError,
)
from celery.utils.log import get_logger
from celery.worker import state
from celery.worker.consumer import consumer
from kombu.exceptions import OperationalError

from clutch._worker.failure import was_interrupted
from clutch._worker.handlers import job as jobs
from clutch._worker.handlers.call import Tool
from clutch.celery import NODE, RAN_IN_VAIN, REFUSED, apps
from clutch.celery.coroutines import bridge, part_producers
from clutch.celery.floods import Flood
from clutch.celery.limits import soft_limit
from clutch.celery.plain import Plain
from clutch.celery.standin import Channel, Controller, Standin, request_of
from clutch.celery.steps import HAS_GREENLETS, is_gevent_here, on_loop
from clutch.errors import Interrupted

logger = get_logger(__name__)

RESCUES_MAX = 10
"""A message whose runners died more often is not run again."""
BLAMELESS = {"lease_lapsed", "cut_off", "untold"}
"""Kinds of failures that are none of the task's own."""
OUTAGE_SECONDS = 5.0
"""Interval at which the result backend is tried again while it cannot be told how a task has ended."""


class Outcome:
    """What becomes of one message."""

    def __init__(self) -> None:
        self.requeue = False
        self.has_begun = False
        self.failed: BaseException | None = None
        self.malformed: BaseException | None = None
        self.is_unknown = False
        self.untold: BaseException | None = None
        self.is_told_later = False

    def is_refused(self) -> bool:
        """It has not done what it was to do."""
        return self.failed is not None or self.malformed is not None


class Failed(jobs.Dead):
    """Returned for a task that has failed, as its tracer has told whoever waits."""

    _why = RAN_IN_VAIN


class Malformed(jobs.Dead):
    """Returned for a message that cannot be read: it is set aside."""

    _kind = "malformed"
    _why = REFUSED


class Unknown(jobs.Dead):
    """Returned for a message of a task that the app does not have."""

    _why = REFUSED


class Untold(jobs.Dead):
    """Returned for a task that has ended while its result backend was out of reach: another worker tells, later."""

    _kind = "untold"


CURRENT: ContextVar[Outcome] = ContextVar("clutch.celery.outcome")


class Delivered(Channel):
    """The channel of the message that runs in this context."""

    def settled(self, requeue: bool) -> None:
        CURRENT.get().requeue |= requeue


class Slot:
    """The pool that Celery's requests are run with: the thread that they are in."""

    is_green = False
    num_processes = 1

    def apply_async(
        self,
        target: Callable[..., Any],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
        callback: Callable[..., Any] | None = None,
        accept_callback: Callable[..., Any] | None = None,
        timeout_callback: Callable[..., Any] | None = None,
        timeout: float | None = None,
        soft_timeout: float | None = None,
        **_: Any,
    ) -> None:
        outcome, current = CURRENT.get(), jobs.current_job()
        assert current is not None
        if not current._channel.begin():
            raise Interrupted  # its dispatcher is gone, and it is another's
        outcome.has_begun = True
        if accept_callback is not None:
            accept_callback(os.getpid(), time.monotonic())
        if timeout:
            current._channel.limit(max(1, round(timeout * 1000)))
        answer = traced(target, args, kwargs or {}, soft_timeout, timeout_callback)
        if outcome.malformed is not None:
            return  # it was refused, and has not run
        failed, value, _ = answer
        if failed:
            error = value.exception
            outcome.failed = getattr(error, "exc", error)
        if isinstance(outcome.failed, MemoryError):
            store_failure(args, outcome.failed, value)
        elif callback is not None:
            callback(answer)


def on_internal_error(exception: BaseException, **_: Any) -> None:
    """Notes what the tracer has refused, of which it tells nobody."""
    outcome = CURRENT.get(None)
    if outcome is not None and isinstance(exception, InvalidTaskError):
        outcome.malformed = exception


def traced(
    target: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    soft_timeout: float | None,
    timeout_callback: Callable[..., Any] | None,
) -> Any:
    """Calls Celery's tracer: whether the task has failed, its result or failure, and how long it ran. What ends a
    worker of Celery is a failure of the task alone."""
    try:
        with soft_limit(soft_timeout, timeout_callback):
            return target(*args, **kwargs)
    except MemoryError:
        return 1, ExceptionInfo(), 0.0
    except (SystemExit, KeyboardInterrupt, GeneratorExit) as error:
        if was_interrupted(error):
            raise
        return 1, lost(f"the task raised {error!r}"), 0.0


def waiting_for(message: Any) -> trace.Context:
    """As much of the request of a message as can be read, for those who wait for it."""
    headers = message.headers if isinstance(message.headers, dict) else {}
    embed: Any = {}
    with contextlib.suppress(Exception):
        embed = message.payload[2]
    return trace.Context(headers | (embed if isinstance(embed, dict) else {}))


def tell_failure(app: Celery, message: Any, error: BaseException) -> None:
    """Tells who waits for a message that cannot be run that it has failed. Celery tells nobody."""
    request = waiting_for(message)
    if isinstance(request.id, str):
        with contextlib.suppress(Exception):  # whatever is wrong with it: the message is named in the log
            app.backend.mark_as_failure(request.id, error, request=request)


def is_outage(app: Celery, error: Exception) -> bool:
    """Whether a broker or a result backend is out of reach, or refuses what it is told."""
    broker = app.connection_for_write()
    of_broker = (*broker.connection_errors, *broker.channel_errors)
    is_known = isinstance(error, (OSError, OperationalError, *of_broker)) or app.backend.exception_safe_to_retry(error)
    return is_known and not isinstance(error, LookupError)  # kombu takes KeyError for one


def lost(reason: str) -> ExceptionInfo:
    """The failure of a task whose worker is gone, as Celery tells of it. What the worker said last is in the log."""
    try:
        raise WorkerLostError(reason.partition("; its last output:")[0])
    except WorkerLostError:
        return ExceptionInfo()


def store_failure(args: tuple[Any, ...], error: BaseException, einfo: ExceptionInfo) -> None:
    """Celery takes this error for the end of the worker, and tells nobody who waits for the task."""
    name, task_id, request = args[:3]
    app = trace.current_app._get_current_object()
    task = app.tasks[name]
    context = trace.Context(request)
    task.backend.mark_as_failure(task_id, error, traceback=einfo.traceback, request=context)
    signals.task_failure.send(
        sender=task,
        task_id=task_id,
        exception=error,
        args=request.get("args"),
        kwargs=request.get("kwargs"),
        traceback=error.__traceback__,
        einfo=einfo,
    )


class Timer:
    """What is due is here already: the dispatcher has waited."""

    def call_at(self, _eta: float, callback: Callable[..., Any], args: tuple[Any, ...] = (), **_: Any) -> None:
        callback(*args)


class Receiver(Standin):
    """Receives one message after the other, and runs it."""

    def __init__(self, app: Celery, hostname: str) -> None:
        super().__init__(app, hostname, Slot(), Timer(), Controller(), Delivered())
        self.on_task_request = self._run
        self.update_strategies()
        handler: Any = self.create_task_handler
        self.receive = handler(promise=Promise)
        self.plain = Plain(self)

    def on_unknown_message(self, body: Any, message: Any) -> None:
        super().on_unknown_message(body, message)
        self._refused(message, InvalidTaskError("the message says neither which task it is for nor which one it is"))

    def on_invalid_task(self, body: Any, message: Any, exc: BaseException) -> None:
        super().on_invalid_task(body, message, exc)
        self._refused(message, exc)

    def on_decode_error(self, message: Any, exc: BaseException) -> None:
        super().on_decode_error(message, exc)
        self._refused(message, exc)

    def on_unknown_task(self, body: Any, message: Any, exc: BaseException) -> None:
        super().on_unknown_task(body, message, exc)
        outcome = CURRENT.get()
        outcome.failed, outcome.is_unknown = exc, True
        request = waiting_for(message)
        if request.chord:  # whose end Celery forgets
            error = NotRegistered(message.headers.get("task"))
            self.app.backend.on_chord_part_return(request, states.FAILURE, error)

    def _refused(self, message: Any, error: BaseException) -> None:
        CURRENT.get().malformed = error
        tell_failure(self.app, message, error)

    def send_events(self, is_wanted: bool) -> None:
        """Sends the events of tasks, or no more. Strategies have looked at it when they were made."""
        if is_wanted and self.event_dispatcher is None:
            self.event_dispatcher = self.app.events.Dispatcher(
                self.app.connection_for_write(), hostname=self.hostname, enabled=True
            )
        elif not is_wanted:
            self.event_dispatcher = None
        self.update_strategies()

    def _run(self, request: Any) -> None:
        try:
            request.execute_using_pool(self.pool)
        except TaskRevokedError:
            """It has told so."""


class Promise:
    """As much of a promise as a message's settling needs."""

    def __init__(self, function: Callable[..., Any], args: Iterable[Any] = (), **_: Any) -> None:
        self._function, self._args = function, tuple(args)

    def __call__(self, *args: Any) -> None:
        self._function(*self._args, *args)


class TaskTool(Tool):
    """A task as a tool. Its one argument is the text of its message."""

    def decode_json(self, body: bytes) -> dict[str, Any]:
        return {"text": body}


def set_up_logging(app: Celery, node: str) -> None:
    """Logs as the pool's processes of Celery's worker do, which tells them how by these variables."""
    told = os.environ.get
    app.log.setup(
        int(told("CELERY_LOG_LEVEL") or logging.WARNING),
        told("CELERY_LOG_FILE") or None,
        bool(told("CELERY_LOG_REDIRECT")),
        told("CELERY_LOG_REDIRECT_LEVEL"),
        hostname=node,
    )


class Backends:
    """Result backends for greenlets. Celery makes one for each thread, which a greenlet is here. Those of ended tasks
    serve the next, which need not connect."""

    def __init__(self, app: Celery) -> None:
        self._app: Any = app
        self._free: list[Any] = []

    def lend(self) -> None:
        """Gives this greenlet a backend that no other uses, if there is one."""
        if self._free:
            self._app._backend = self._free.pop()

    def take_back(self) -> None:
        backend = self._app._backend
        if backend is not None and not backend.thread_safe:
            self._free.append(backend)


class Tasks:
    """The tasks of an app in this process."""

    def __init__(self, app: Celery, has_loop: bool) -> None:
        """`has_loop`: slots are tasks of an event loop."""
        self.app = app
        self.has_loop = has_loop and HAS_GREENLETS
        self._node = apps.node_name(os.environ.get(NODE))
        apps.prepare(app, self._node)
        self.names = sorted(app.tasks)
        self._receiver: Receiver | None = None
        self._tools: dict[str, TaskTool] = {}
        self._settings: dict[str, Any] | None = None
        self._changing = threading.Lock()
        self._backends: Backends | None = None
        self._flood = Flood()

    def start(self) -> None:
        """In a worker, before its first task: what the pool of Celery's worker does in each of its processes."""
        app, node = self.app, self._node
        app.loader.init_worker()
        app.loader.init_worker_process()
        set_up_logging(app, node)
        for task in app.tasks.values():
            bridge(task)
        if is_gevent_here():
            part_producers(app)
            self._backends = Backends(app)
        trace.setup_worker_optimizations(app, node)
        signals.task_internal_error.connect(on_internal_error)
        self._flood.watch(consumer.logger, logger)
        state.reset_state()
        self._receiver = Receiver(app, node)
        signals.worker_process_init.send(sender=node)
        atexit.register(self._end)

    def _end(self) -> None:
        self._flood.tell()
        signals.worker_process_shutdown.send(sender=self._node, pid=os.getpid(), exitcode=0)

    def tool(self, name: str) -> Tool:
        """Any name has one: also what is not registered has somebody who waits for it."""
        found = self._tools.get(name)
        if found is None:
            task = self.app.tasks.get(name)
            runs_on_loop = self.has_loop and getattr(task, "is_coroutine", False)
            found = TaskTool(name, self.run_on_loop if runs_on_loop else self.run)
            if task is not None:
                self._tools[name] = found
        return found

    async def run_on_loop(self, text: bytes) -> Any:
        return await on_loop(self.run, text)

    def run(self, text: bytes) -> Any:
        receiver, current = self._receiver, jobs.current_job()
        assert receiver is not None
        assert current is not None
        outcome = Outcome()
        token = CURRENT.set(outcome)
        try:
            envelope = json.loads(text)["message"]
            meta = current.meta
            settings = meta.get("settings")  # none: the broker has forgotten them, and the node will tell them again
            if settings is not None and settings != self._settings:
                self._apply(settings)
            if meta.get("revoked"):
                state.revoked.add(envelope["headers"]["id"])
            if self._backends is not None:
                self._backends.lend()
            self._take(receiver, envelope, meta)
            if self._backends is not None:  # one of a task that was stopped may have been in use
                self._backends.take_back()
        finally:
            CURRENT.reset(token)
        return directive(outcome)

    def _take(self, receiver: Receiver, envelope: dict[str, Any], meta: Mapping[str, Any]) -> None:
        """Runs a message, or tells that it has failed elsewhere. Whatever is wrong with it hurts nothing else."""
        failure, rescues, plain = meta.get("failure"), meta.get("rescues", 0), receiver.plain
        call = plain.call_of(envelope) if failure is None and not rescues else None
        message = None if call is not None else self._read(receiver, envelope)
        if message is None and call is None:
            return
        try:
            if call is not None:
                plain.run(envelope, *call)
            elif failure is None or (failure["kind"] in BLAMELESS and self._runs_again(envelope, failure, rescues)):
                receiver.receive(message)
            else:
                self._fail(message, failure, rescues)
                return
            if CURRENT.get().is_refused():
                self._tell_refused(message or receiver.message(envelope))
        except Exception as error:
            outcome, headers = CURRENT.get(), envelope.get("headers")
            if outcome.has_begun or is_outage(self.app, error):
                logger.error("cannot tell now how a task has ended: %r; its headers: %r", error, headers)
                outcome.untold = error
                outcome.is_told_later = not outcome.has_begun and failure is not None
                return
            logger.exception("cannot run a message; its headers: %r", headers)
            outcome.malformed = error
            tell_failure(self.app, message or receiver.message(envelope), error)

    def _read(self, receiver: Receiver, envelope: dict[str, Any]) -> Any:
        """The message; None: it cannot be read, which is told."""
        try:
            return receiver.message(envelope)
        except Exception as error:
            logger.error("cannot read a message: %r; its headers: %r", error, envelope.get("headers"))
            CURRENT.get().malformed = error
            tell_failure(self.app, SimpleNamespace(headers=envelope.get("headers"), payload=None), error)

    def _tell_refused(self, message: Any) -> None:
        """Tells of what Celery tells nobody: what the tracer has refused, and a task that wants to be back in its queue
        and was acknowledged when it began."""
        outcome = CURRENT.get()
        error = outcome.failed
        if outcome.has_begun and outcome.malformed is not None:
            tell_failure(self.app, message, outcome.malformed)
        elif isinstance(error, Reject) and error.requeue and not outcome.requeue:
            tell_failure(self.app, message, error)

    def _apply(self, settings: dict[str, Any]) -> None:
        """Takes over what remote control has changed in the node."""
        receiver = self._receiver
        assert receiver is not None
        with self._changing:
            if settings == self._settings:
                return
            for name, (soft, hard) in settings["limits"].items():
                task = self.app.tasks.get(name)
                if task is not None:
                    task.soft_time_limit, task.time_limit = soft, hard
            state.revoked_stamps.clear()
            state.revoked_stamps.update(settings["stamps"])
            receiver.send_events(settings["events"])
            self._settings = settings

    def _runs_again(self, envelope: dict[str, Any], failure: dict[str, str], rescues: int) -> bool:
        """Whether what was lost with its runner is run again: what is acknowledged early runs once at most."""
        headers = envelope.get("headers") or {}
        task = self.app.tasks.get(headers.get("task"))
        if task is None or not task.acks_late or rescues > RESCUES_MAX:
            return False
        if failure["kind"] == "untold" and task.backend.get_state(headers.get("id")) in states.READY_STATES:
            return False
        envelope["headers"]["redelivered"] = True
        envelope["properties"]["delivery_info"]["redelivered"] = True
        return True

    def _fail(self, message: Any, failure: dict[str, str], rescues: int) -> None:
        """Tells whoever waits of a failure outside of the worker that had the task."""
        receiver = self._receiver
        assert receiver is not None
        request = request_of(receiver, message)
        kind = failure["kind"]
        if not request.ignore_result and request.task.backend.get_state(request.id) in states.READY_STATES:
            return  # it had ended, and told so
        if kind == "deadline":
            hard, soft = request.time_limits
            request.time_start = request.time_start or time.time()
            request.on_timeout(False, hard or request.task.time_limit or soft or seconds_in(failure["message"]))
        elif kind == "cancelled":
            request._announce_revoked("terminated", True, "SIGTERM", False)
        else:
            more = f" ({rescues} times)" if rescues > 1 else ""
            request.on_failure(lost(f"{failure['message']}{more}"), return_ok=False)


def seconds_in(message: str) -> float | None:
    """After how long a deadline passed."""
    found = re.search(r"after ([0-9.]+) s\b", message)
    return float(found[1]) if found else None


def directive(outcome: Outcome) -> Any:
    error = outcome.failed
    if outcome.malformed is not None:
        return Malformed(f"{type(outcome.malformed).__name__}: {outcome.malformed}")
    if outcome.untold is not None:
        reason = f"its result backend was out of reach: {outcome.untold!r}"
        return jobs.Snooze(OUTAGE_SECONDS) if outcome.is_told_later else Untold(reason)
    if outcome.requeue:
        return jobs.Snooze(0)
    if error is None or isinstance(error, Ignore | Retry):
        return None
    if outcome.is_unknown:
        return Unknown(f"NotRegistered: {error}")
    if isinstance(error, Reject):
        return Failed(f"Reject: {error.reason}")
    return Failed(f"{type(error).__name__}: {error}")
