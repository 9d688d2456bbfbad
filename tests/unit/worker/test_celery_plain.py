"""The short way of messages is the long one of Celery's own consumer, strategy and request, with less work."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

celery = pytest.importorskip("celery")

from celery import signals  # noqa: E402
from celery.worker import state  # noqa: E402

from clutch.celery.plain import Plain  # noqa: E402
from clutch.celery.tasks import Receiver  # noqa: E402

ID = "9f3c"


def made() -> Any:
    app = celery.Celery("shop", broker="memory://")
    app.conf.update(task_serializer="json", accept_content=["json", "yaml"])

    @app.task(name="plain", shared=False)
    def plain(*_: Any, **__: Any) -> None: ...

    @app.task(name="hurried", soft_time_limit=1, shared=False)
    def hurried() -> None: ...

    class Own(celery.worker.request.Request):
        """A request of the app's own."""

    @app.task(name="own", Request=f"{__name__}:Own", shared=False)
    def own() -> None: ...

    globals()["Own"] = Own
    app.finalize()
    return app


class Noted:
    """A pool that runs nothing, and knows what it was to run."""

    is_green, num_processes = False, 1

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def apply_async(self, target: Callable[..., Any], args: tuple[Any, ...], **_: Any) -> None:
        self.calls.append((target, args))


@pytest.fixture(scope="module")
def receiver() -> Receiver:
    app = made()
    received = Receiver(app, "celery@here")
    received.pool = Noted()  # type: ignore[assignment]
    received.update_strategies()
    received.plain = Plain(received)
    return received


@pytest.fixture(autouse=True)
def nothing_revoked() -> Iterator[None]:
    yield
    state.revoked.clear()
    state.revoked_stamps.clear()


def envelope(app: Any, task: str = "plain", args: Any = (), kwargs: Any = None, **options: Any) -> dict[str, Any]:
    """A message as Celery's client and kombu write it."""
    headers, properties, body, _ = app.amqp.as_task_v2(ID, task, args, kwargs or {}, **options)
    channel = app.connection_for_write().default_channel
    from kombu.serialization import dumps

    content_type, encoding, text = dumps(body, serializer="json")
    message = channel.prepare_message(text, 3, content_type, encoding, headers, properties)
    message["properties"] |= {"delivery_tag": "7", "delivery_info": {"exchange": "", "routing_key": "celery"}}
    read: dict[str, Any] = json.loads(json.dumps(message))
    return read


def ran_by(receiver: Any, run: Callable[[], None]) -> tuple[str, str, dict[str, Any]]:
    """What the tracer would have run: the task, its id, and the request that it makes of what it is given."""
    before = len(receiver.pool.calls)
    run()
    assert len(receiver.pool.calls) == before + 1
    _, (name, task_id, request, body, content_type, encoding) = receiver.pool.calls[-1]
    if content_type:
        from celery.app.trace import loads_message

        body = loads_message(body, content_type, encoding, accept=receiver.accept)
    args, kwargs, embed = tuple[Any, ...](body)
    return name, task_id, {**request, "args": args, "kwargs": kwargs, **(embed or {})}


LINK = {"task": "plain", "args": [], "kwargs": {}, "options": {}}
OPTIONS: list[dict[str, Any]] = [
    {},
    {"retries": 3, "root_id": "a", "parent_id": "b"},
    {"group_id": "g", "group_index": 2},
    {"shadow": "another", "argsrepr": "(1,)", "kwargsrepr": "{}"},
    {"ignore_result": True, "reply_to": "me"},
    {"chain": [LINK], "callbacks": [LINK], "errbacks": [LINK], "chord": LINK},
    {"origin": "gen1@there", "replaced_task_nesting": 2, "stamped_headers": ["customer"], "customer": "7"},
]
VALUES: list[tuple[list[Any], dict[str, Any]]] = [
    ([], {}),
    ([1, 2.5, None, True, "ä\u2028"], {}),
    ([[1, [2]], {"a": {"b": []}}], {"x": 1}),
    ([], {"self": 1, "": 2}),
    ([2**70, 1e300], {"y": [None]}),
]


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize(("args", "kwargs"), VALUES)
def test_the_tracer_is_given_the_same(receiver: Any, args: list[Any], kwargs: dict[str, Any], options: Any) -> None:
    sent = envelope(receiver.app, "plain", args, kwargs, **options)
    call = receiver.plain.call_of(sent)
    assert call is not None
    short = ran_by(receiver, lambda: receiver.plain.run(sent, *call))
    assert short == ran_by(receiver, lambda: receiver.receive(receiver.message(sent)))


def changed(message: dict[str, Any], **headers: Any) -> dict[str, Any]:
    return {**message, "headers": message["headers"] | headers}


@pytest.mark.parametrize(
    "what",
    ["hurried", "own", "unknown", "eta", "expires", "limits", "compressed", "no list", "no id", "type", "damaged"],
)
def test_what_celery_has_to_look_at_goes_the_long_way(receiver: Any, what: str) -> None:
    app = receiver.app
    sent = {
        "hurried": lambda: envelope(app, "hurried"),
        "own": lambda: envelope(app, "own"),
        "unknown": lambda: envelope(app, "nobody's"),
        "eta": lambda: envelope(app, countdown=60),
        "expires": lambda: envelope(app, expires=60),
        "limits": lambda: envelope(app, time_limit=60),
        "compressed": lambda: changed(envelope(app), compression="application/x-gzip"),
        "no list": lambda: envelope(app) | {"body": '{"args": []}', "properties": {}},
        "no id": lambda: changed(envelope(app), id=None),
        "type": lambda: envelope(app) | {"content-type": "application/x-python-serialize"},
        "damaged": lambda: envelope(app) | {"body": "%%%"},
    }[what]()
    assert receiver.plain.call_of(sent) is None


def test_who_listens_or_revokes_has_the_long_way(receiver: Any) -> None:
    sent = envelope(receiver.app)
    assert receiver.plain.call_of(sent) is not None

    def hear(**_: Any) -> None: ...

    signals.task_received.connect(hear)
    try:
        assert receiver.plain.call_of(sent) is None
    finally:
        signals.task_received.disconnect(hear)
    state.revoked.add(ID)
    assert receiver.plain.call_of(sent) is None
    state.revoked.clear()
    state.revoked_stamps["customer"] = ["7"]
    assert receiver.plain.call_of(sent) is None
