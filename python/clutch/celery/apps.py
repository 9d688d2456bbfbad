"""The Celery app of a target, and what the dispatcher has to know of it. Imports Celery, which the target has done."""

from __future__ import annotations

import importlib
import importlib.util
import socket
import types
from typing import Any
from urllib.parse import parse_qsl, quote, urlsplit

from celery import Celery
from kombu.utils.url import maybe_sanitize_url

from clutch.errors import ConfigError

NAMES = ("app", "celery")
"""Names of the app in a module, as Celery looks for it."""
SCHEMES = {"redis": "celery", "rediss": "celerys", "redis+socket": "celery+unix", "sentinel": "celery+sentinel"}


def find(found: Any) -> Celery | None:
    """Returns the app that this is, or that a module has; as `celery -A` finds it."""
    if isinstance(found, Celery):
        return found
    if not isinstance(found, types.ModuleType):
        return None
    named = [getattr(found, name, None) for name in NAMES]
    inside = getattr(found, "celery", None)
    if isinstance(inside, types.ModuleType):  # a package whose module `celery` has it, as in Django projects
        named += [getattr(inside, name, None) for name in NAMES]
    named += vars(found).values()
    app = next((one for one in named if isinstance(one, Celery)), None)
    if app is None and hasattr(found, "__path__") and importlib.util.find_spec(f"{found.__name__}.celery"):
        return find(importlib.import_module(f"{found.__name__}.celery"))
    return app


def prepare(app: Celery) -> None:
    """Imports the modules of its tasks and finishes the app, as a worker of Celery does before it forks."""
    app.set_current()
    app.set_default()
    app.loader.import_default_modules()
    app.finalize()
    modules = {type(task).__module__ for task in app.tasks.values()}
    app.conf.include = tuple({*app.conf.include, *modules})


def node_name(given: str | None = None) -> str:
    """`celery@HOST`, unless another is given."""
    name = given or "celery"
    return name if "@" in name else f"{name}@{socket.gethostname()}"


def store_url(app: Celery) -> str:
    """The URL of its broker as that of a store. Raises ConfigError where Clutch does not know the broker."""
    connection = app.connection_for_read()
    url = connection.as_uri(include_password=True)
    parts = urlsplit(url)
    scheme = SCHEMES.get(parts.scheme)
    if scheme is None:
        raise ConfigError(
            f"the broker of {app!r} is {maybe_sanitize_url(url)}; clutch work runs apps whose broker is Redis. Another "
            "worker of Celery runs in Clutch's profiles by `celery worker --pool custom`"
        )
    options = dict(connection.transport_options or {})
    told = {
        "prefix": options.get("global_keyprefix", ""),
        "separator": options.get("sep", ""),
        "steps": ",".join(map(str, options.get("priority_steps", ()))),
        "visibility_timeout": options.get("visibility_timeout", ""),
        "timezone": str(app.conf.timezone or ""),
    }
    if scheme == "celery+unix":
        # kombu has the database, and what else it takes, in the query.
        asked = dict(parse_qsl(parts.query))
        told |= {
            "db": asked.get("virtual_host", ""),
            "user": asked.get("username", ""),
            "pass": asked.get("password", ""),
        }
        place = parts.path
    else:
        place = f"{parts.netloc}{parts.path or '/0'}"
    query = "&".join(f"{name}={quote(str(value), safe=',')}" for name, value in told.items() if value != "")
    return f"{scheme}://{place}" + (f"?{query}" if query else "")


def declare(app: Celery, queues: list[str]) -> None:
    """Makes the queues known to clients and peers, by kombu's own code."""
    with app.connection_for_write() as connection:
        for name in queues:
            app.amqp.queues[name](connection.default_channel).declare()


def told(app: Celery, name: str, queues: list[str]) -> dict[str, Any]:
    """What the dispatcher has to know of the app. `name`: of its node."""
    if queues:
        app.amqp.queues.select(queues)
    names = list(app.amqp.queues.consume_from)
    return {
        "node": node_name(name),
        "store": store_url(app),
        "queues": names,
        "concurrency": app.conf.worker_concurrency,
        "tasks": sorted(app.tasks),
    }
