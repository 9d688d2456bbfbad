"""Every option of Clutch: name, kind, default and one line of doc, once.

From the tables below come the reading of `clutch.toml`, the `CLUTCH_*` variables, the flags, the keyword arguments of
`clutch.Pool`, the JSON that the Rust core gets, the commented file of `clutch init` and docs/config.md
(`python -m clutch.config`). How they are read and checked is in config.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from clutch.log_format import LOG_FORMAT
from clutch.values import (
    ADDRESS,
    BINDS,
    DURATION,
    FILE,
    FLAG,
    FRACTION,
    LOG_FILE,
    MODE,
    NETWORKS,
    ORIGINS,
    PATH,
    POOL_NAME,
    ROOT_PATH,
    SIZE,
    SOCKET,
    TARGET,
    TEXT,
    VARIABLES,
    Kind,
    choice,
    or_none,
    whole,
    worker_range,
)

WORKERS_MAX = 4096
THREADS_MAX = 4096
TASKS_MAX = 65_536
UNSET: Any = object()


@dataclass(frozen=True, slots=True)
class Option:
    """One option. `default` is written as in TOML; None: there is none, or `default_text` says how it is found."""

    name: str
    kind: Kind
    default: Any
    doc: str
    core: str | None = None
    """Where the value goes in the JSON for the core, dotted."""
    default_text: str | None = None
    python_default: Any = UNSET
    """The default of a `clutch.Pool(...)` where it differs."""
    later: bool = False
    """Part of the grammar, but refused in this version."""

    def default_value(self, from_python: bool) -> Any:
        default = self.python_default if from_python and self.python_default is not UNSET else self.default
        return None if default is None else self.kind.parse(default)


@dataclass(frozen=True, slots=True)
class Section:
    place: str
    doc: str
    options: tuple[Option, ...]

    def option(self, name: str) -> Option | None:
        return next((option for option in self.options if option.name == name), None)

    def default(self, name: str) -> Any:
        option = self.option(name)
        return option.default if option else None

    @property
    def groups(self) -> set[str]:
        """First words of dotted names: `queue`, `recycle`."""
        return {option.name.split(".")[0] for option in self.options if "." in option.name}


# fmt: off
POOL = Section("pools.NAME", "A named set of identical workers with one waiting line.", (
    Option("target", TARGET, None,
           "What the pool runs: a module, or an object in one.", "launch.target", "none; a config file must name one"),
    Option("profile", choice("process", "thread", "async", "greenlet"), "process",
           "How slots are made inside a worker.", "shape.profile"),
    Option("workers", worker_range(WORKERS_MAX), None,
           "Worker processes; of a range, as many as the load needs.", "shape.workers", "by profile"),
    Option("threads", whole(1, THREADS_MAX), None,
           "Threads of a worker that run work (thread), or event loops (async).", "shape.threads", "by profile"),
    Option("tasks", whole(1, TASKS_MAX), None,
           "Tasks or greenlets at a time of each thread.", "shape.tasks", "by profile"),
    Option("python", PATH, None,
           "Interpreter of the workers; a path is relative to the config's folder.", None,
           "the one that runs Clutch"),
    Option("env", VARIABLES, {},
           "Environment variables, set before anything is imported.", None,
           "BLAS threads: max(1, usable CPUs // (workers × threads))"),
    Option("start", choice("fork", "spawn"), "fork",
           "Workers are forked from a preloaded zygote, or started afresh.", "start"),
    Option("start_timeout", DURATION, "60s",
           "A zygote or worker that is not ready by then is killed and started again.", "start_timeout_ms"),
    Option("preload", FLAG, True,
           "Import the target once in the zygote rather than in each worker.", "launch.preload"),
    Option("gil_policy", choice("fail", "warn", "processes"), "warn",
           "On a free-threaded Python, when an import turned the GIL back on.", "launch.gil_policy"),
    Option("deadline", DURATION, None,
           "For work that brings no deadline of its own; of a map, for each item.", "deadline_ms", "none"),
    Option("queue.limit", whole(1, 10_000_000), 1000,
           "Maximum number of calls that wait.", "queue_limit", "1000; no limit for a pool made in Python", None),
    Option("queue.overflow", choice("reject", "block"), "reject",
           "When the line is full: refuse at once, or let the submitter wait.", "overflow"),
    Option("deaths_max", whole(1, 1000), 3,
           "Work that so many workers have died of, in one submission with its retries, is not tried again (Poisoned).",
           "deaths_max"),
    Option("recycle.calls", whole(1, 1 << 53), None,
           "Replace a worker after this many calls or map items.", "recycle_calls", "never"),
    Option("recycle.age", DURATION, None,
           "Replace a worker at this age.", "recycle_age_ms", "never"),
    Option("recycle.memory", SIZE, None,
           "Replace a worker whose private memory (not shared with others) reaches this.",
           "recycle_memory_bytes", "never"),
    Option("recycle.together", whole(1, WORKERS_MAX), 1,
           "How many workers may be replaced at once; those at their call or memory limit do not wait.",
           "recycle_together"),
    Option("restarts_max", whole(1, 1_000_000), 1000,
           "Unexpected worker deaths per minute; beyond that, restarts are delayed.", "restarts_max"),
    Option("recycle.jitter", FRACTION, 0.1,
           "Fraction by which each worker's limits are drawn lower, so that not all are replaced at once.",
           "recycle_jitter"),
    Option("scale.delay", DURATION, "100ms",
           "A pool with a range of workers grows when work waits for so long.", "scale_delay_ms"),
    Option("scale.idle", DURATION, "30s",
           "It shrinks when fewer workers would have been enough for so long.", "scale_idle_ms"),
    Option("memory_max", SIZE, None,
           "The pool does not grow when its workers' private memory would come to more.", "memory_max_bytes", "none"),
    Option("grace", DURATION, "30s",
           "How long a stop waits for running work.", "grace_ms"),
    Option("interrupt_grace", DURATION, "1s",
           "How long code that was told to stop (deadline, cancel) has for it, before its worker is ended.",
           "interrupt_grace_ms"),
    Option("term_grace", DURATION, "1s",
           "After TERM to a worker and what it started, until KILL.", "term_grace_ms"),
    Option("stopped_limit", DURATION, "30s",
           "A worker that stays stopped (SIGSTOP) for longer is replaced.", "stopped_limit_ms"),
    Option("payload_max", SIZE, "1GB",
           "Maximum size of the arguments or the result of one call.", "payload_bytes_max"),
    Option("output_kept", SIZE, "8KB",
           "The last of a worker's output that its WorkerLost error shows.", "output_kept_bytes"),
    Option("required", FLAG, True,
           "Whether /readyz waits for this pool.", "required"),
))

CONTROL_OFF = "off"
"""Instead of the control socket's path: none."""

TOP = Section("", "Of the dispatcher itself.", (
    Option("control", SOCKET, None,
           "The control socket that `clutch ps` and the like talk to, relative to the config's folder; `off`: none.",
           None, "in a private folder of the user, found by itself"),
))

TOKEN = Option("token", TEXT, None, "`Authorization: Bearer …` that every request must bring.", "token", "none")
TOKEN_FILE = Option(
    "token_file", FILE, None,
    "File of such tokens, one a line, read again when it changes; relative to the config's folder.", "token_file",
    "none",
)
INSECURE = Option("insecure", FLAG, False, "Allow an address beyond loopback without a token or TLS.", "insecure")

TLS = (
    Option("tls.certificate", FILE, None,
           "PEM file: the certificate, then those that vouch for it; relative to the config's folder.",
           "tls.certificate", "none: no TLS"),
    Option("tls.key", FILE, None, "PEM file: its private key.", "tls.key", "none"),
    Option("tls.client_ca", FILE, None,
           "PEM file: who vouches for certificates of clients.", "tls.client_ca", "none"),
    Option("tls.client_auth", choice("none", "optional", "required"), None,
           "Whether a client must show a certificate; one that is shown must be good.", "tls.client_auth",
           "required with `tls.client_ca`, else none"),
)

ACCESS_LOG = Option(
    "access_log", LOG_FILE, None,
    "A line for each request: into this file (relative to the config's folder), or `-` for stdout.",
    "access_log", "none",
)
ACCESS_LOG_FORMAT = Option(
    "access_log_format", LOG_FORMAT, None,
    "How that line is written; atoms are those of gunicorn's `access_log_format`.", "access_log_format",
    "`json` with `--log-format json`, else `text`",
)

HTTP = Section("fronts.http", "Calls over HTTP and JSON.", (
    Option("bind", BINDS, "127.0.0.1:8080", "Where it listens, at one place or several.", "bind"),
    TOKEN,
    TOKEN_FILE,
    INSECURE,
    *TLS,
    Option("cors_origins", ORIGINS, [],
           "Origins whose web pages may call, as browsers write them; `*`: all, which needs a token.", "cors_origins"),
    Option("body_max", SIZE, "16MB", "Largest request body.", "body_bytes_max"),
    Option("head_max", SIZE, "64KB", "Largest request head.", "head_bytes_max"),
    Option("head_timeout", DURATION, "10s", "A client that has not sent its head by then is cut off.",
           "head_timeout_ms"),
    Option("body_timeout", DURATION, "30s", "A client that has not sent its body by then is cut off.",
           "body_timeout_ms"),
    Option("write_timeout", DURATION, "30s",
           "A client that takes less than 1 KB of its response in so long is cut off.", "write_timeout_ms"),
    Option("keep_alive", DURATION, "75s", "An idle connection is closed after this long.", "keep_alive_ms"),
    Option("connections_max", whole(1, 1_000_000), 4096, "Most connections at a time.", "connections_max"),
    ACCESS_LOG,
    ACCESS_LOG_FORMAT,
))

ADMIN = Section("fronts.admin", "Health, readiness and metrics: /healthz, /readyz, /metrics.", (
    Option("bind", ADDRESS, "127.0.0.1:9180", "Where it listens.", "bind"),
    TOKEN,
    TOKEN_FILE,
    INSECURE,
))

SERVE = Section("fronts.serve", "An ASGI or WSGI app, served over HTTP/1.1 and HTTP/2.", (
    Option("app", TARGET, None,
           "The app, or with `factory` what makes it; of a module alone its `app`, else its `application`.",
           None, "none; must be given"),
    Option("factory", FLAG, False, "The app is what calling this gives."),
    Option("interface", choice("auto", "asgi", "asgi2", "wsgi"), "auto",
           "What the app speaks; `auto`: it is seen from how the app is called."),
    Option("lifespan", choice("auto", "on", "off"), "auto",
           "Whether an ASGI app is told of its start and end; `on`: it must answer, `auto`: it may raise."),
    Option("pool", POOL_NAME, "web",
           "The pool that runs it. One that is not among [pools] is made, and its profile is `async`.", "pool"),
    Option("bind", BINDS, "127.0.0.1:8000", "Where it listens, at one place or several.", "bind"),
    Option("unix_mode", MODE, "0666", "Who may connect to a Unix socket of `bind`: its permissions.", "unix_mode"),
    Option("threads", whole(1, 256), None,
           "Threads of the dispatcher that speak HTTP.", "threads", "one for each four usable CPUs"),
    Option("timeout", or_none(DURATION), "30s",
           "The app's time until the head of its response, then its silence; not while it waits for the client, nor in "
           "streams of events.", "timeout_ms"),
    Option("disconnect", choice("tell", "cancel"), "tell",
           "When the client has gone: the app is told and goes on, or it is stopped.", "disconnect"),
    Option("root_path", ROOT_PATH, "",
           "The app's `root_path` and `SCRIPT_NAME`: where a proxy has mounted it.", "root_path"),
    Option("head_max", SIZE, "64KB", "Largest request head.", "head_bytes_max"),
    Option("headers_max", whole(1, 10_000), 100, "Most header lines of a request.", "headers_max"),
    Option("head_timeout", DURATION, "10s",
           "A client that has not sent its whole head by then is cut off.", "head_timeout_ms"),
    Option("body_max", SIZE, None, "Largest request body.", "body_bytes_max", "none"),
    Option("body_timeout", DURATION, "30s",
           "A client that sends less than 1 KB of its body in so long, while the app waits for it, is cut off.",
           "body_timeout_ms"),
    Option("write_timeout", DURATION, "30s",
           "A client that takes less than 1 KB of its response in so long is cut off.", "write_timeout_ms"),
    # Longer than the 60 s after which most load balancers let go of a connection: who closes first must be the side
    # that sends the requests, or one is sent into a connection that is being closed.
    Option("keep_alive", DURATION, "75s", "An idle connection is closed after this long.", "keep_alive_ms"),
    Option("connection_requests_max", whole(1, 1 << 53), None,
           "A connection is closed after so many requests.", "connection_requests_max", "none"),
    Option("streams_max", whole(1, 100_000), 100, "Most requests at a time on one HTTP/2 connection.", "streams_max"),
    # Idle ones cost a descriptor and some kilobytes each, and WebSockets stay: more than for calls.
    Option("connections_max", whole(1, 1_000_000), 10_000, "Most connections at a time.", "connections_max"),
    Option("message_max", SIZE, "16MB", "Largest message of a WebSocket.", "message_bytes_max"),
    Option("ping_interval", or_none(DURATION), "20s",
           "How often the client of a WebSocket is asked whether it is there.", "ping_interval_ms"),
    Option("ping_timeout", DURATION, "20s", "A client that does not answer for so long is cut off.", "ping_timeout_ms"),
    *TLS,
    Option("proxy_protocol", FLAG, False,
           "Each connection starts with a line (or head) of the PROXY protocol.", "proxy_protocol"),
    Option("forwarded_allow", NETWORKS, ["127.0.0.1", "::1"],
           "Whose `X-Forwarded-…` headers are believed; of a Unix socket's clients they always are.",
           "forwarded_allow"),
    ACCESS_LOG,
    ACCESS_LOG_FORMAT,
))

TCP = Section("fronts.tcp", "A handler of TCP connections, which go to the workers themselves.", (
    Option("handler", TARGET, None,
           "`def handler(conn: socket)` or `async def handler(reader, writer)`.", None, "none; must be given"),
    Option("pool", POOL_NAME, "tcp",
           "The pool that runs it. One that is not among [pools] is made, and its profile is `async`.", "pool"),
    Option("bind", BINDS, "127.0.0.1:9000", "Where it listens, at one place or several.", "bind"),
    Option("connections_max", whole(1, 1_000_000), 10_000,
           "Most connections at a time, those that wait for a slot included.", "connections_max"),
))
# fmt: on

FRONTS = {section.place.removeprefix("fronts."): section for section in (HTTP, ADMIN, SERVE, TCP)}


def core_json(section: Section, values: Mapping[str, Any]) -> dict[str, Any]:
    core: dict[str, Any] = {}
    for option in section.options:
        if option.core is not None:
            value = values[option.name]
            *outer, last = option.core.split(".")
            table = core.setdefault(outer[0], {}) if outer else core
            table[last] = None if value is None else option.kind.core(value)
    return core
