"""The Celery app of a target, and what the dispatcher has to know of it. Imports Celery, which the target has done."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import socket
import ssl
import types
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import parse_qsl, quote, urlsplit

from celery import Celery, signals
from celery.utils.nodenames import host_format, worker_direct
from kombu.common import Broadcast
from kombu.exceptions import OperationalError
from kombu.utils.url import maybe_sanitize_url

from clutch.errors import ConfigError

NAMES = ("app", "celery")
"""Names of the app in a module, as Celery looks for it."""
SENTINEL_PORT = 26379


POOLS: dict[str, dict[str, Any]] = {
    "solo": {"workers": 1},
    "threads": {"profile": "thread"},
    "gevent": {"profile": "greenlet"},
    "eventlet": {"profile": "greenlet"},
}
"""What stands for Celery's pools other than prefork."""


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


def prepare(app: Celery, node: str) -> None:
    """Imports the modules of its tasks and finishes the app, as a worker of Celery does before it forks. Handlers of
    `celeryd_init` may set the app up by the name of its node."""
    app.set_current()
    app.set_default()
    app.loader.import_default_modules()
    worker = types.SimpleNamespace(app=app, hostname=node)
    signals.celeryd_init.send(sender=node, instance=worker, conf=app.conf, options={"hostname": node})
    app.finalize()
    modules = {type(task).__module__ for task in app.tasks.values()}
    app.conf.include = tuple({*app.conf.include, *modules})


def node_name(given: str | None = None) -> str:
    """`celery@HOST`, unless another is given, in which %h, %n and %d stand for what they do in Celery."""
    name = given or "celery"
    formatted: str = host_format(name if "@" in name else f"{name}@{socket.gethostname()}")
    return formatted


def store_url(app: Celery) -> str:
    """The URL of its broker as that of a store. Raises ConfigError where Clutch does not know the broker."""
    connection: Any = app.connection_for_read()
    scheme, place, told = server_of(app, connection)
    options = dict(connection.transport_options or {})
    told |= {
        "prefix": options.get("global_keyprefix", ""),
        "separator": options.get("sep", ""),
        "steps": ",".join(map(str, options.get("priority_steps", ()))),
        "visibility_timeout": options.get("visibility_timeout", ""),
        "timezone": str(app.conf.timezone or ""),
    }
    query = "&".join(f"{name}={quote(str(value), safe=',')}" for name, value in told.items() if value != "")
    return f"{scheme}://{place}" + (f"?{query}" if query else "")


def choose_broker(app: Celery) -> str | None:
    """Lets the app in this process use the first of several brokers that answers, or else the first. Returns which."""
    connection: Any = app.connection_for_read()
    several = connection.alt or ()
    if len(several) < 2 or connection.transport_cls == "sentinel":
        return None
    chosen = next((url for url in several if is_there(app.connection_for_read(url))), several[0])
    app.conf.update(broker_read_url=chosen, broker_write_url=chosen)
    return str(chosen)


def is_there(connection: Any) -> bool:
    with contextlib.suppress(*errors_of(connection)), connection:
        connection.ensure_connection(max_retries=1, interval_start=0)
        return True
    return False


def server_of(app: Celery, connection: Any) -> tuple[str, str, dict[str, Any]]:
    """Scheme, address and options of the server that a connection of kombu goes to, as a store names them."""
    url = connection.as_uri(include_password=True)
    kind = urlsplit(url).scheme
    if kind == "redis+socket":
        # kombu has the database, and what else it takes, in the query.
        asked = dict(parse_qsl(urlsplit(url).query))
        names = {"db": "virtual_host", "user": "username", "pass": "password"}
        told = {name: asked[of_kombu] for name, of_kombu in names.items() if of_kombu in asked}
        return "celery+unix", urlsplit(url).path, told
    if kind not in ("redis", "rediss", "sentinel"):
        what = f"the broker of the app {app.main or '?'!r} is {maybe_sanitize_url(url)}"
        if not app.conf.broker_read_url:
            what = f"the app {app.main or '?'!r} has no broker_url, such as redis://localhost:6379/0"
        raise ConfigError(
            f"{what}; clutch work runs apps whose broker is Redis. With another broker, `celery worker --pool custom` "
            "runs the tasks in a pool of Clutch (docs/celery.md)"
        )
    told = tls_of(connection.ssl)
    scheme = "celerys" if kind == "rediss" or told is not None else "celery"
    info = connection.info()
    user, password = info["userid"] or "", info["password"] or ""
    login = f"{quote(user, safe='')}:{quote(password, safe='')}@" if user or password else ""
    database = str(info["virtual_host"] or "").strip("/") or "0"
    if kind != "sentinel":
        return scheme, f"{login}{at(info['hostname'], info['port'])}/{database}", told or {}
    options = connection.transport_options or {}
    name = options.get("master_name")
    if not name:
        raise ConfigError("broker_transport_options: master_name is missing, by which the sentinels know the server")
    servers = [urlsplit(one) for one in connection.alt or [url]]
    hosts = ",".join(at(one.hostname or "localhost", one.port or SENTINEL_PORT) for one in servers)
    own = options.get("sentinel_kwargs") or {}
    more = {"sentinel_user": own.get("username") or "", "sentinel_password": own.get("password") or ""}
    return f"{scheme}+sentinel", f"{login}{hosts}/{name}/{database}", {**(told or {}), **more}


def at(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def tls_of(given: Any) -> dict[str, str] | None:
    """Options of a store's URL for those of `broker_use_ssl`; None: no TLS. Raises ConfigError."""
    if not isinstance(given, Mapping):
        return None  # True alone does not make kombu use TLS with Redis
    if given.get("ssl_check_hostname") is False and given.get("ssl_cert_reqs") != ssl.CERT_NONE:
        raise ConfigError(
            "broker_use_ssl: ssl_check_hostname=False: a certificate is verified with its name, or not at all; "
            "allowed: no ssl_check_hostname, or ssl_cert_reqs=CERT_NONE"
        )
    names = {"ca": "ssl_ca_certs", "cert": "ssl_certfile", "key": "ssl_keyfile"}
    told = {name: str(given[of_redis]) for name, of_redis in names.items() if given.get(of_redis)}
    if given.get("ssl_cert_reqs") in (ssl.CERT_NONE, "none", "CERT_NONE"):
        told.pop("ca", None)
        told["verify"] = "none"
    return told


def errors_of(connection: Any) -> tuple[type[Exception], ...]:
    """What is raised where the broker is away, or goes: kombu's connections have an error of their own that is none of
    its transport's."""
    return (OperationalError, *connection.connection_errors, *connection.channel_errors)


def declare(app: Celery, queues: list[str]) -> None:
    """Makes the queues known to clients and peers, by kombu's own code."""
    with app.connection_for_write() as connection:
        for name in queues:
            app.amqp.queues[name](connection.default_channel).declare()


def told(app: Celery, node: str, queues: list[str]) -> dict[str, Any]:
    """What the dispatcher has to know of the app. Handlers of `celeryd_after_setup` may add queues."""
    broker = choose_broker(app)
    name_broadcasts(app, node)
    if queues:
        try:
            app.amqp.queues.select(queues)
        except KeyError as unknown:
            known = ", ".join(app.amqp.queues)
            raise ConfigError(
                f"no queue {unknown} in task_queues, which has {known}; or set task_create_missing_queues = True"
            ) from None
    names = list(app.amqp.queues.consume_from)
    if app.conf.worker_direct:
        app.amqp.queues.select_add(worker_direct(node))
    worker = types.SimpleNamespace(app=app, hostname=node)
    signals.celeryd_after_setup.send(sender=node, instance=worker, conf=app.conf)
    return {
        "node": node,
        "store": store_url(app),
        "queues": names,
        "added": [name for name in app.amqp.queues.consume_from if name not in names],
        "pool": pool_options(app),
        "strict": (app.conf.broker_transport_options or {}).get("queue_order_strategy") in ("priority", "sorted"),
        "soft_shutdown": app.conf.worker_soft_shutdown_timeout,
        "tasks": sorted(name for name in app.tasks if not name.startswith("celery.")),
        "notes": list(notes(app, broker)),
    }


def name_broadcasts(app: Celery, node: str) -> None:
    """Names queues of broadcasts by their node, which removes them when it leaves. kombu names them anew in each
    process: what was sent meanwhile is lost then, and after a kill the one before is sent to for ever."""
    queues = app.amqp.queues
    for name, queue in list(queues.items()):
        if isinstance(queue, Broadcast) and name.startswith("bcast."):
            for known in (queues, queues._default_consume_from):
                known.pop(name, None)
            exchange: Any = queue.exchange
            steady: Any = queue
            steady.auto_delete = False
            steady.name = steady.queue = f"bcast.{exchange.name}.{node}"  # copies take the latter
            queues.select_add(queue)


def pool_options(app: Celery) -> dict[str, Any]:
    """What the settings of its worker are as options of a pool."""
    conf = app.conf
    made = dict(POOLS.get(conf.worker_pool, {}))
    if isinstance(conf.worker_concurrency, int):
        name = {"thread": "threads", "greenlet": "tasks"}.get(made.get("profile", ""), "workers")
        made = {"workers": 1, name: conf.worker_concurrency} | made
    if conf.worker_max_tasks_per_child:
        made["recycle.calls"] = conf.worker_max_tasks_per_child
    if conf.worker_max_memory_per_child:
        made["recycle.memory"] = conf.worker_max_memory_per_child * 1024
    if conf.worker_pool_start_method == "spawn":
        made["start"] = "spawn"
    return made


def notes(app: Celery, broker: str | None) -> Iterator[str]:
    """What somebody who set the broker up may not expect. `broker`: the one that was chosen of several."""
    given = app.connection_for_read().ssl
    if broker is not None:
        yield f"of several brokers {maybe_sanitize_url(broker)} is used until the next start"
    if given is True:
        yield "broker_use_ssl = True: kombu connects to Redis without TLS; write rediss://, or {'ssl_cert_reqs': …}"
    elif isinstance(given, Mapping) and "verify" in (tls_of(given) or {}):
        yield (
            "the certificate of the broker is not verified, as for kombu without ssl_cert_reqs; to verify it, write "
            "rediss://…?ssl_cert_reqs=required&ssl_ca_certs=FILE"
        )
