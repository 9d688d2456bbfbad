"""What stands in for parts of Celery's worker whose own work is the dispatcher's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from celery import Celery
from celery.utils.imports import symbol_by_name
from celery.worker import state
from celery.worker.consumer import Consumer
from celery.worker.strategy import hybrid_to_proto2, proto1_to_proto2
from kombu.serialization import prepare_accept_content
from kombu.transport.virtual import Base64, Message

NEEDED = ("delivery_tag", str), ("delivery_info", dict)
"""Properties that each message has."""


class Channel:
    """As much of a channel as a message needs to be read. What becomes of it is `settled` elsewhere."""

    no_ack_consumers = None
    codecs: ClassVar[dict[str, Any]] = {"base64": Base64()}

    def decode_body(self, body: Any, encoding: str | None = None) -> Any:
        return self.codecs[encoding].decode(body) if encoding in self.codecs else body

    def basic_ack(self, _tag: str, multiple: bool = False) -> None:
        """The message is done with."""

    def basic_reject(self, _tag: str, requeue: bool = False) -> None:
        self.settled(requeue)

    def settled(self, requeue: bool) -> None:
        """It was rejected."""


class Controller:
    """The worker, as strategies and commands look at it."""

    state = state
    semaphore = None
    autoscaler = None
    use_eventloop = False


class Quality:
    """How many messages are prefetched is the dispatcher's business."""

    value = 0

    def increment_eventually(self, n: int = 1) -> None:
        """There is nothing to count."""

    def decrement_eventually(self, n: int = 1) -> None:
        """There is nothing to count."""


class Standin(Consumer):
    """Celery's consumer without a loop of its own: it is handed messages."""

    def __init__(self, app: Celery, hostname: str, pool: Any, timer: Any, controller: Any, channel: Channel) -> None:
        """Its own parts alone: that of its parent makes threads and connections."""
        self.app = app
        self.hostname = hostname
        self.pool = pool
        self.timer = timer
        self.controller = controller
        self.channel = channel
        self.accept = prepare_accept_content(app.conf.accept_content)
        self.hub = None
        self.gossip = None
        self.task_consumer: Any = None
        self.qos = Quality()
        self.strategies: dict[str, Any] = {}
        self.task_buckets: dict[str, Any] = {}
        self.event_dispatcher: Any = None
        self.connection_errors: tuple[type[BaseException], ...] = ()
        self.disable_rate_limits = True
        self.on_task_message: set[Any] = set()
        self.restart_count = -1
        self._maximum_prefetch_restored = True

    def __repr__(self) -> str:
        """Celery's asks its parts. Signals have the consumer as their sender, which people log."""
        return f"<Consumer: {self.hostname} (running)>"

    def call_soon(self, p: Any, *args: Any, **kwargs: Any) -> Any:
        """Calls it now: there is no loop to come back to."""
        return p(*args, **kwargs)

    call_soon_ack = call_soon

    def message(self, envelope: dict[str, Any]) -> Message:
        """Reads a message out of what kombu has written. Raises what is wrong with it."""
        properties = envelope.get("properties")
        if not isinstance(properties, dict) or not all(isinstance(properties.get(name), kind) for name, kind in NEEDED):
            raise ValueError("its properties have no delivery_tag, or no delivery_info")
        message = Message(envelope, channel=self.channel, accept=self.accept)
        if message.errors:
            message._reraise_error()
        return message


def request_of(consumer: Any, message: Any, kind_of: Callable[[Any], Any] = lambda base: base) -> Any:
    """The request that a message would be run by. Raises what is wrong with it. `kind_of` may change its class."""
    name = (message.headers or {}).get("task")
    body, headers, decoded = message.body, message.headers, False
    if name is None or "args" in message.payload:
        read = hybrid_to_proto2 if name is not None else proto1_to_proto2
        body, headers, decoded, _ = read(message, message.payload)
        name = headers["task"]
    task = consumer.app.tasks[name]
    return kind_of(symbol_by_name(task.Request))(
        message,
        on_ack=message.ack_log_error,
        on_reject=message.reject_log_error,
        app=consumer.app,
        hostname=consumer.hostname,
        eventer=consumer.event_dispatcher,
        task=task,
        body=body,
        headers=headers,
        decoded=decoded,
    )
