"""gunicorn's settings become a configuration of Clutch: one pool and one front.

Pure: no file is read and nothing is started here. Each value that is placed keeps where it was given, so that an error
found by the package config names the flag.
"""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from clutch._gunicorn.settings import SETTINGS
from clutch._gunicorn.sources import VARIABLES, Given, Layers
from clutch.config import APPS, Config, compose
from clutch.config.layers import nearest, variable_name
from clutch.config.options import FRONTS
from clutch.config.options import PROFILES as PROFILES_OF_POOLS
from clutch.config.values import POOL_NAME, SIZE
from clutch.errors import ConfigError, Problem

DEFAULT_BIND = "127.0.0.1:8000"
DEFAULT_PORT = 8000
SMALLEST_GRACE = "1ms"
NO_ACCESS_LOG = "none"
SHORT_LINE = '%(h)s "%(r)s" %(s)s %(dt_ms)s ms'
"""Access log line for a terminal."""

PROFILES = {
    "sync": "process",
    "gthread": "thread",
    "gevent": "greenlet",
    "gevent_wsgi": "greenlet",
    "gevent_pywsgi": "greenlet",
    "asgi": "async",
    "gunicorn.workers.sync.SyncWorker": "process",
    "gunicorn.workers.gthread.ThreadWorker": "thread",
    "gunicorn.workers.ggevent.GeventWorker": "greenlet",
    "gunicorn.workers.gasgi.ASGIWorker": "async",
    "uvicorn.workers.UvicornWorker": "async",
    "uvicorn.workers.UvicornH11Worker": "async",
    "uvicorn_worker.UvicornWorker": "async",
    "uvicorn_worker.UvicornH11Worker": "async",
}
OWN_PROFILES = tuple(PROFILES_OF_POOLS)
REFUSED_CLASSES = {
    "eventlet": "gevent, which is the profile greenlet",
    "gunicorn.workers.geventlet.EventletWorker": "gevent, which is the profile greenlet",
    "tornado": "an app of Tornado through its WSGIContainer, or a tcp handler",
    "gunicorn.workers.gtornado.TornadoWorker": "an app of Tornado through its WSGIContainer, or a tcp handler",
}
ONLY_OF_HTTP = {setting.name for setting in SETTINGS if (setting.place or "").startswith("front.")}
ONLY_OF_HTTP |= {
    "interface",
    "timeout",
    "ws_ping_interval",
    "keepalive",
    "limit_request_line",
    "limit_request_field_size",
}


@dataclass(slots=True)
class Serve:
    """The app to serve, beside gunicorn's settings."""

    app: str | None
    tcp: bool = False
    factory: bool = False
    settings: tuple[str, ...] = ()
    handed_over: tuple[int, ...] = ()
    """Listening sockets that the service manager passed on."""
    development: bool = False
    """Development mode: its code is being written."""
    line_format: str | None = None
    """Format of the access log where none is configured."""

    @property
    def front(self) -> str:
        return "tcp" if self.tcp else "serve"


@dataclass(slots=True)
class Places:
    """The tables of a configuration while they are filled, and where each value was given."""

    pool: str
    front: str
    raw: dict[str, Any] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)

    def put(self, where: str, value: Any, source: str = "") -> None:
        """`where`: `pool.queue.limit`, `front.bind`."""
        table, _, option = where.partition(".")
        place = f"pools.{self.pool}.{option}" if table == "pool" else f"fronts.{self.front}.{option}"
        *folders, last = place.split(".")
        inner = self.raw
        for name in folders:
            inner = inner.setdefault(name, {})
        inner[last] = value
        self.sources[place] = source


def configure(serve: Serve, layers: Layers, environ: Mapping[str, str]) -> tuple[Config, list[str]]:
    """The configuration, and warnings. Raises `ConfigError`. Relative paths are meant from the working folder."""
    warnings = _drop_requests(layers) if serve.tcp else []
    name = pool_name(layers.given, serve.front)
    places = translate(serve, layers.given, name)
    typed = translate(serve, layers.on_command_line, name)
    # What was typed wins over our own variables; those win over gunicorn's layers.
    overridden = {variable_name(place) for place, source in typed.sources.items() if source}
    environ = {variable: text for variable, text in environ.items() if variable not in overridden}
    file = Path.cwd() / re.sub(r"[/\\]", "_", str(places.raw["fronts"][serve.front][APPS[serve.front]]))
    more = {"settings": serve.settings, "environ": environ, "sources": places.sources}
    config = compose(places.raw, file, development=serve.development, **more)
    return config, [*layers.warnings, *warnings, *places.warnings, *config.warnings]


def translate(serve: Serve, given: Mapping[str, Given], pool: str) -> Places:
    """Raises `ConfigError` for what is no value here though gunicorn may take it."""
    places = Places(pool, serve.front)
    _app(serve, given, places)
    for setting in SETTINGS:
        if setting.place is not None and setting.name in given:
            places.put(setting.place, given[setting.name].value, given[setting.name].source)
    for part in (_interface, _listen, _shape, _recycling, _times, _heads, _environment, _tls_key, _requests_log):
        part(serve, given, places)
    return places


def pool_name(given: Mapping[str, Given], front: str) -> str:
    """`--name`, with what a pool's name cannot hold replaced."""
    if "proc_name" not in given:
        return FRONTS[front].default("pool")
    name = re.sub(r"[^A-Za-z0-9_-]+", "-", given["proc_name"].value)
    try:
        return POOL_NAME.parse(name)
    except ValueError:
        raise _wrong("--name", given["proc_name"], POOL_NAME.allowed) from None


def _wrong(place: str, given: Given, allowed: str, near: str | None = None) -> ConfigError:
    source = None if given.source == place else given.source
    return ConfigError(problems=[Problem(place, "invalid value", repr(given.value), allowed, near, source)])


# The app


def _app(serve: Serve, given: Mapping[str, Given], places: Places) -> None:
    named = Given(serve.app, "APP") if serve.app is not None else given.get("wsgi_app", Given("", ""))
    target, is_called = without_call(named)
    if is_called and serve.tcp:
        raise _wrong("APP", named, "module:handler, not called")
    places.put(f"front.{APPS[serve.front]}", target, named.source)
    if not serve.tcp:
        places.put("front.factory", serve.factory or is_called)
    places.put("front.pool", places.pool)


def _interface(serve: Serve, given: Mapping[str, Given], places: Places) -> None:
    """asgi3 is uvicorn's name of asgi; asginl granian's, without a lifespan."""
    if (asked := given.get("interface")) is None:
        return
    places.put("front.interface", {"asgi3": "asgi", "asginl": "asgi"}.get(asked.value, asked.value), asked.source)
    if asked.value == "asginl":
        places.put("front.lifespan", "off", asked.source)


def without_call(named: Given) -> tuple[str, bool]:
    """`module:create_app()` is `module:create_app`, a factory."""
    module, colon, call = named.value.partition(":")
    if not call.endswith(")"):
        return named.value, False
    try:
        parsed = ast.parse(call, mode="eval").body
    except SyntaxError:
        parsed = None
    if not isinstance(parsed, ast.Call):
        raise _wrong("APP", named, '"module:app" or "module:create_app()"')
    if parsed.args or parsed.keywords:
        allowed = f"a factory without arguments: in a module of your own, app = {call}, and name that"
        raise _wrong("APP", named, allowed)
    return f"{module}{colon}{ast.unparse(parsed.func)}", True


def _drop_requests(layers: Layers) -> list[str]:
    """A handler of connections has no requests. Letters about them are an error where typed, else a warning."""
    what = "applies to HTTP requests, and --tcp serves none"
    typed = ONLY_OF_HTTP.intersection(layers.on_command_line)
    if typed:
        sources = sorted(layers.given[name].source for name in typed)
        raise ConfigError(problems=[Problem(source, what) for source in sources])
    dropped = [layers.given.pop(name).source for name in sorted(ONLY_OF_HTTP.intersection(layers.given))]
    return [f"{source} {what}" for source in dropped if source not in VARIABLES.values()]


# What needs more than a place


def _listen(serve: Serve, given: Mapping[str, Given], places: Places) -> None:
    handed_over = [f"fd:{descriptor}" for descriptor in serve.handed_over]
    asked = given.get("bind")
    if asked is not None and (asked.source != "PORT" or not handed_over):
        places.put("front.bind", [*handed_over, *map(bind_of, asked.value)], asked.source)
    elif handed_over:
        places.put("front.bind", handed_over, "LISTEN_FDS")
    else:
        places.put("front.bind", [DEFAULT_BIND])


def bind_of(text: str) -> str:
    """gunicorn's way to write an address, as ours: `:80`, `shop.example`, `fd://3`, `tcp://host:80`."""
    text = text.removeprefix("tcp://")
    if text.startswith("fd://"):
        return text.replace("fd://", "fd:", 1)
    if text.startswith("unix:"):
        return re.sub(r"^unix:(//)?", "unix:", text)
    if text.startswith(":"):
        return f"0.0.0.0{text}"
    has_port = re.search(r":\d+$", text.rpartition("]")[2])
    return text if has_port or text.isdecimal() else f"{text}:{DEFAULT_PORT}"


def _shape(serve: Serve, given: Mapping[str, Given], places: Places) -> None:
    if "workers" not in given:
        places.put("pool.workers", 1)  # as everywhere: what an app keeps in memory is there for each request
    threads = given.get("threads")
    named = given.get("worker_class")
    profile = None if named is None else profile_of(named)
    if named is not None and named.value not in OWN_PROFILES:
        profile, threads = _as_gunicorn(profile, threads, places)
    if profile is not None:
        places.put("pool.profile", profile, named.source if named else "")
    if threads is not None:
        places.put("pool.threads", threads.value, threads.source)
    connections = given.get("worker_connections")
    if connections is not None and profile in (None, "async", "greenlet"):
        places.put("pool.tasks", connections.value, connections.source)
    elif connections is not None:
        places.warnings.append(f"{connections.source}: without effect with profile {profile}, which has --threads")


def profile_of(named: Given) -> str:
    if named.value in OWN_PROFILES:
        return named.value
    if named.value in REFUSED_CLASSES:
        raise _wrong("--worker-class", named, REFUSED_CLASSES[named.value])
    if named.value not in PROFILES:
        known = [*OWN_PROFILES, *(name for name in PROFILES if not name.startswith("gunicorn."))]
        raise _wrong("--worker-class", named, ", ".join(known), nearest(named.value, known))
    return PROFILES[named.value]


def _as_gunicorn(profile: str | None, threads: Given | None, places: Places) -> tuple[str | None, Given | None]:
    """gunicorn's classes: sync with threads is gthread, gthread without has one, the others have no threads."""
    several = threads is not None and threads.value > 1
    if profile == "process" and several:
        return "thread", threads
    if profile == "thread":
        return profile, threads or Given(1, "")
    if threads is not None and several:
        places.warnings.append(f"{threads.source}: without effect with profile {profile}, as in gunicorn")
    return profile, None


def _recycling(serve: Serve, given: Mapping[str, Given], places: Places) -> None:
    """gunicorn draws each worker's limit from N to N + J; here it is drawn lower by a fraction: J of N + J."""
    least = given.get("max_requests")
    if least is None or least.value == 0:
        return
    jitter = given["max_requests_jitter"].value if "max_requests_jitter" in given else 0
    places.put("pool.recycle.calls", least.value + jitter, least.source)
    places.put("pool.recycle.jitter", jitter / (least.value + jitter), least.source)


def _times(serve: Serve, given: Mapping[str, Given], places: Places) -> None:
    """0 is no limit for the timeout and no pings at all, no time at all for the others."""
    places_of = (
        ("timeout", "front.timeout"),
        ("timeout", "front.silence"),
        ("ws_ping_interval", "front.ping_interval"),
    )
    for name, place in places_of:
        if (time := given.get(name)) is not None:
            places.put(place, "none" if time.value is None else time.value, time.source)
    if (grace := given.get("graceful_timeout")) is not None:
        places.put("pool.grace", SMALLEST_GRACE if grace.value is None else grace.value, grace.source)
    if (keep := given.get("keepalive")) is None:
        return
    if keep.value is None:
        places.put("front.connection_requests_max", 1, keep.source)
    else:
        places.put("front.keep_alive", keep.value, keep.source)


def _heads(serve: Serve, given: Mapping[str, Given], places: Places) -> None:
    """gunicorn limits the line and each field, we the head as a whole: they can only make it larger."""
    asked = [given[name] for name in ("limit_request_line", "limit_request_field_size") if name in given]
    if not asked:
        return
    least = SIZE.parse(FRONTS["serve"].default("head_max"))
    needed = sum(one.value for one in asked)
    if needed > least:
        places.put("front.head_max", needed, asked[0].source)
    else:
        names = " and ".join(one.source for one in asked)
        places.warnings.append(f"{names}: the head of a request is limited as a whole, to {least >> 10} KB")


def _environment(serve: Serve, given: Mapping[str, Given], places: Places) -> None:
    variables = dict(given["raw_env"].value) if "raw_env" in given else {}
    if (prefix := variables.get("SCRIPT_NAME")) and (
        "root_path" not in given or given["root_path"].source == "SCRIPT_NAME"
    ):
        places.put("front.root_path", prefix, "SCRIPT_NAME")
    if "pythonpath" in given:
        folders = [os.path.abspath(folder) for folder in given["pythonpath"].value]
        own = variables.get("PYTHONPATH", os.environ.get("PYTHONPATH"))
        variables["PYTHONPATH"] = os.pathsep.join([*folders, *([own] if own else [])])
    if variables:
        places.put("pool.env", variables, (given.get("raw_env") or given["pythonpath"]).source)


def _requests_log(serve: Serve, given: Mapping[str, Given], places: Places) -> None:
    """`--no-access-log` is the one without; on a terminal there is one unless somebody has said anything of it."""
    front = places.raw["fronts"][serve.front]
    if front.get("access_log") == NO_ACCESS_LOG:
        del front["access_log"]
    elif serve.line_format is not None and not (serve.tcp or {"accesslog", "access_log_format"} & given.keys()):
        places.put("front.access_log", "-")
        places.put("front.access_log_format", serve.line_format)


def _tls_key(serve: Serve, given: Mapping[str, Given], places: Places) -> None:
    """A certificate without a key brings it in the same file."""
    if "certfile" in given and "keyfile" not in given:
        places.put("front.tls.key", given["certfile"].value, given["certfile"].source)
    if "ca_certs" in given and "cert_reqs" not in given:
        places.put("front.tls.client_auth", "none")
        source = given["ca_certs"].source
        places.warnings.append(f"{source}: clients are asked for no certificate, as in gunicorn, without --cert-reqs")
