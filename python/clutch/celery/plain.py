"""The short way of a message on which Celery's worker has nothing to do but to call its tracer.

Celery makes a call of its consumer, one of a strategy and a request of each message. Where nobody listens to these,
and nothing is to be looked at before the task runs, all they come to is the dict that the tracer is given. It is put
together here, as `celery.worker.request.Request` does; a request is made only of a task that has failed.
"""

from __future__ import annotations

import logging
import os
import time
from typing import Any

from celery import signals
from celery.app import trace
from celery.worker import request as requests
from celery.worker import state, strategy
from kombu.serialization import loads

from clutch.celery.standin import Standin, request_of

REQUEST, STRATEGY = "celery.worker.request:Request", "celery.worker.strategy:default"
"""The classes that a task has unless its app says otherwise."""
LOOKED_AT = ("eta", "expires", "compression", "timelimit")
"""Headers that something is to be done about before the task runs."""
NO_LIMITS = [None, None]


class Plain:
    """Runs messages of one receiver that can go the short way."""

    def __init__(self, receiver: Standin) -> None:
        self._receiver = receiver
        conf = receiver.app.conf
        self._logs = strategy.logger.isEnabledFor(logging.INFO)
        self._is_off = bool(conf.worker_deduplicate_successful_tasks) or requests.logger.isEnabledFor(logging.DEBUG)
        self._tasks: dict[str, Any] = {
            name: task
            for name, task in receiver.app.tasks.items()
            if (task.Request, task.Strategy) == (REQUEST, STRATEGY)
        }

    def call_of(self, envelope: dict[str, Any]) -> tuple[dict[str, Any], Any] | None:
        """What the tracer is given of a message: its request, and what its body says of callbacks. None: it is to go
        the long way, which tells what is wrong with it."""
        if self._is_off or signals.task_received.receivers or state.revoked_stamps or self._receiver.event_dispatcher:
            return None
        try:
            return self._made(envelope, envelope["headers"], envelope["properties"])
        except Exception:  # whatever it is: the long way tells
            return None

    def _made(
        self, envelope: dict[str, Any], headers: dict[str, Any], properties: dict[str, Any]
    ) -> tuple[dict[str, Any], Any] | None:
        task, task_id = self._tasks.get(headers["task"]), headers["id"]
        if task is None or not isinstance(task_id, str) or task_id in state.revoked or task.soft_time_limit:
            return None
        if any(headers.get(name) not in (None, NO_LIMITS) for name in LOOKED_AT):
            return None
        body = self._receiver.channel.decode_body(envelope["body"], properties.get("body_encoding"))
        body = loads(body, envelope["content-type"], envelope["content-encoding"], accept=self._receiver.accept)
        if not isinstance(body, list | tuple):
            return None
        args, kwargs, embed = body
        delivered = properties["delivery_info"]
        if not isinstance(properties["delivery_tag"], str) or not isinstance(delivered, dict):
            return None
        request = headers | {
            "properties": properties,
            "reply_to": properties.get("reply_to"),
            "correlation_id": properties.get("correlation_id"),
            "hostname": self._receiver.hostname,
            "delivery_info": {
                "exchange": delivered.get("exchange"),
                "routing_key": delivered.get("routing_key"),
                "priority": properties.get("priority"),
                "redelivered": delivered.get("redelivered", False),
            },
            "args": args,
            "kwargs": kwargs,
        }
        return request, embed

    def run(self, envelope: dict[str, Any], request: dict[str, Any], embed: Any) -> None:
        """Raises what the pool raises."""
        name, task_id, began = request["task"], request["id"], time.monotonic()
        if self._logs:
            said = {
                "id": task_id,
                "name": request.get("shadow") or name,
                "args": request.get("argsrepr", ""),
                "kwargs": request.get("kwargsrepr", ""),
                "eta": None,
            }
            strategy.logger.info(trace.LOG_RECEIVED, said, extra={"data": said})

        def ended(answer: tuple[Any, ...]) -> None:
            if answer[0]:
                made = request_of(self._receiver, self._receiver.message(envelope))
                made.on_accepted(os.getpid(), began)
                made.on_success(answer)

        body = (request["args"], request["kwargs"], embed)
        self._receiver.pool.apply_async(
            trace.fast_trace_task,
            (name, task_id, request, body, None, None),
            callback=ended,
            timeout=self._tasks[name].time_limit,
        )
