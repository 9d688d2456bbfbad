"""Every option of Clutch: name, kind, default and one line of doc, once.

From the tables below come the reading of `clutch.toml`, the `CLUTCH_*` variables, the flags, the keyword arguments of
`clutch.Pool`, the JSON that the Rust core gets, the commented file of `clutch init` and docs/config.md
(`python -m clutch.config`). A section of a front brings its own `finish`; a new kind of table is a row of tables.py.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from clutch.config.finish import (
    Step,
    check_exposure,
    check_passed_headers,
    check_tls,
    check_tokens,
    count_threads,
    place_access_log,
    place_binds,
)
from clutch.config.log_format import LOG_FORMAT
from clutch.config.values import (
    ADDRESS,
    BACKOFF,
    BINDS,
    DURATION,
    FILE,
    FLAG,
    FRACTION,
    INTERVAL,
    JSON_LIST,
    JSON_TABLE,
    LOG_FILE,
    MODE,
    NETWORKS,
    ORIGINS,
    PASSED_HEADERS,
    PATH,
    POOL_NAME,
    POOL_NAMES,
    PRELOAD,
    QUEUES,
    ROOT_PATH,
    SCHEDULE,
    SIZE,
    SOCKET,
    TARGET,
    TARGETS,
    TEXT,
    TEXTS,
    TIMEOUT,
    VARIABLES,
    ZONE,
    Kind,
    choice,
    or_none,
    whole,
    worker_range,
)
from clutch.tools import RETRIES_MAX

WORKERS_MAX = 4096
THREADS_MAX = 4096
TASKS_MAX = 65_536
UNSET: Any = object()


@dataclass(frozen=True, slots=True)
class Option:
    """An option. `default` is written as in TOML; None: there is none, or `default_text` says how it is found."""

    name: str
    kind: Kind
    default: Any
    doc: str
    core: str | None = None
    """Dotted place of the value in the JSON for the core."""
    default_text: str | None = None
    python_default: Any = UNSET
    """The default of a `clutch.Pool(...)` where it differs."""

    def default_value(self, from_python: bool) -> Any:
        default = self.python_default if from_python and self.python_default is not UNSET else self.default
        return None if default is None else self.kind.parse(default)


@dataclass(frozen=True, slots=True)
class Section:
    place: str
    doc: str
    options: tuple[Option, ...]
    app: str | None = None
    """Option that names the user's app, which a pool of its own runs. None for fronts without an app."""
    calls_tools: bool = False
    """True if clients of the front call the tools of all pools."""
    scheme: str = "http"
    """Scheme of the front's URLs; empty if it has none."""
    finish: tuple[Step, ...] = ()
    """Steps that decide the options of a front when each has its value, in this order."""

    def option(self, name: str) -> Option | None:
        return next((option for option in self.options if option.name == name), None)

    def default(self, name: str) -> Any:
        option = self.option(name)
        return option.default if option else None

    @property
    def groups(self) -> set[str]:
        """First words of dotted names: `queue`, `recycle`."""
        return {option.name.split(".")[0] for option in self.options if "." in option.name}


@dataclass(frozen=True, slots=True)
class ProfileDefaults:
    """Options of a pool that its profile decides."""

    threads: int = 1
    tasks: int = 1
    fixed: Mapping[str, str] = field(default_factory=dict)
    """Options that can only be 1, and what to take instead."""


PROFILES = {
    "process": ProfileDefaults(fixed={"threads": "profile thread", "tasks": "profile async or greenlet"}),
    "thread": ProfileDefaults(threads=8, fixed={"tasks": "more threads, or profile async or greenlet"}),
    "async": ProfileDefaults(tasks=256),
    "greenlet": ProfileDefaults(tasks=256, fixed={"threads": "more workers or tasks"}),
}
"""Each is a file in `_worker/profiles`, and a name in `clutch-pool`'s config.rs."""

# fmt: off
POOL = Section("pools.NAME", "A named set of identical workers with one queue.", (
    Option("target", TARGETS, None,
           "Module, modules or object that the pool runs.", "launch.target", "none; a config file must name one"),
    Option("profile", choice(*PROFILES), "process",
           "What a slot of a worker is: a process, a thread, an asyncio task or a greenlet.", "shape.profile"),
    Option("workers", worker_range(WORKERS_MAX), None,
           "Number of worker processes; a range scales with the load.", "shape.workers", "by profile"),
    Option("threads", whole(1, THREADS_MAX), None,
           "Threads in each worker; in `async`, event loops.", "shape.threads", "by profile"),
    Option("tasks", whole(1, TASKS_MAX), None,
           "Concurrent tasks or greenlets in each thread.", "shape.tasks", "by profile"),
    Option("python", PATH, None,
           "Python interpreter of the workers; paths are relative to the config's folder.", None,
           "the one that runs Clutch"),
    Option("env", VARIABLES, {},
           "Environment variables of the workers, set before anything is imported.", None,
           "BLAS threads: max(1, usable CPUs // (workers × threads))"),
    Option("start", choice("fork", "spawn"), "fork",
           "Fork workers from a preloaded zygote, or start each as a fresh interpreter.", "start"),
    Option("start_timeout", DURATION, None,
           "Kill and restart a zygote or worker that is not ready within this time.", "start_timeout_ms",
           "none at the first start, then 60s"),
    Option("loop", choice("auto", "asyncio", "uvloop"), "auto",
           "Event loop of `async`, and of ASGI apps in any profile; `auto`: uvloop where it is installed.",
           "launch.loop"),
    Option("preload", PRELOAD, "auto",
           "What the zygote imports for its workers: the target, or only its libraries if the target starts threads or "
           "connects (auto); the target in any case (true); nothing (false); these modules.", "launch.preload"),
    Option("gil_policy", choice("fail", "warn", "processes"), "warn",
           "What to do when an import turns the GIL back on, on free-threaded Python.", "launch.gil_policy"),
    Option("deadline", DURATION, None,
           "Default deadline of each call or map item.", "deadline_ms", "none"),
    Option("queue.limit", whole(1, 10_000_000), 1000,
           "Maximum number of waiting calls.", "queue_limit", "1000; no limit for a pool made in Python", None),
    Option("queue.overflow", choice("reject", "block"), "reject",
           "When the queue is full: reject the call, or block the caller.", "overflow"),
    Option("deaths_max", whole(1, 1000), 3,
           "Stop retrying a call after it has killed this many workers; it raises Poisoned.",
           "deaths_max"),
    Option("recycle.calls", whole(1, 1 << 53), None,
           "Replace a worker after this many calls or map items.", "recycle_calls", "never"),
    Option("recycle.age", DURATION, None,
           "Replace a worker at this age.", "recycle_age_ms", "never"),
    Option("recycle.memory", SIZE, None,
           "Replace a worker when its private memory (not shared with others) reaches this.",
           "recycle_memory_bytes", "never"),
    Option("recycle.together", whole(1, WORKERS_MAX), 1,
           "Maximum number of workers replaced at once. Workers at their call or memory limit do not wait.",
           "recycle_together"),
    Option("restarts_max", whole(1, 1_000_000), 1000,
           "Maximum unexpected worker deaths per minute; above it, restarts are delayed.", "restarts_max"),
    Option("recycle.jitter", FRACTION, 0.1,
           "Lower each worker's limits at random by up to this fraction, so that workers are not all replaced at once.",
           "recycle_jitter"),
    Option("scale.delay", DURATION, "100ms",
           "Add workers when work has waited this long (with a range of workers).", "scale_delay_ms"),
    Option("scale.idle", DURATION, "30s",
           "Remove a worker when fewer would have been enough for this long.", "scale_idle_ms"),
    Option("memory_max", SIZE, None,
           "Maximum sum of the workers' private memory; the pool does not grow beyond it.", "memory_max_bytes", "none"),
    Option("grace", DURATION, "30s",
           "How long a shutdown or reload waits for running work.", "grace_ms"),
    Option("interrupt_grace", DURATION, "1s",
           "Time that code gets to stop after its deadline or a cancel, before its worker gets SIGTERM.",
           "interrupt_grace_ms"),
    Option("term_grace", DURATION, "1s",
           "Time between SIGTERM and SIGKILL to a worker and its child processes.", "term_grace_ms"),
    Option("stopped_limit", DURATION, "30s",
           "Replace a worker that stays stopped (SIGSTOP) for longer than this.", "stopped_limit_ms"),
    Option("payload_max", SIZE, "1GB",
           "Maximum size of the arguments or the result of one call.", "payload_bytes_max"),
    Option("output_kept", SIZE, "8KB",
           "How much of a worker's last output WorkerLost contains.", "output_kept_bytes"),
    Option("required", FLAG, True,
           "Whether /readyz waits for this pool, and `clutch run` ends if it cannot start.", "required"),
))

CONTROL_OFF = "off"
"""Instead of the control socket's path: none."""

TOP = Section("", "Options of the dispatcher.", (
    Option("control", SOCKET, None,
           "Path of the control socket for `clutch ps` and its kin, relative to the config's folder; `off`: none.",
           None, "in a private folder of the user"),
))

TOKEN = Option("token", TEXT, None, "Token that every request must send as `Authorization: Bearer …`.", "token", "none")
TOKEN_FILE = Option(
    "token_file", FILE, None,
    "File with tokens, one per line, relative to the config's folder; read again when it changes.", "token_file",
    "none",
)
INSECURE = Option("insecure", FLAG, False, "Allow an address beyond loopback without a token or TLS.", "insecure")

TLS = (
    Option("tls.certificate", FILE, None,
           "PEM file with the certificate chain, relative to the config's folder.",
           "connection.tls.certificate", "none: no TLS"),
    Option("tls.key", FILE, None, "PEM file with the private key.", "connection.tls.key", "none"),
    Option("tls.client_ca", FILE, None,
           "PEM file with the CA certificates that verify client certificates.", "connection.tls.client_ca", "none"),
    Option("tls.client_auth", choice("none", "optional", "required"), None,
           "Whether clients must present a certificate; a presented certificate must be valid.",
           "connection.tls.client_auth", "required with `tls.client_ca`, else none"),
)

ACCESS_LOG = Option(
    "access_log", LOG_FILE, None,
    "Write a line for each request to this file (relative to the config's folder), or to stdout (`-`).",
    "connection.access_log", "none",
)
ACCESS_LOG_FORMAT = Option(
    "access_log_format", LOG_FORMAT, None,
    "Format of the access log: text, json, or a line with gunicorn's atoms.", "connection.access_log_format",
    "`json` with `--log-format json`, else `text`",
)
ACCESS_LOG_SKIP = Option(
    "access_log_skip", TEXTS, [],
    'Paths whose requests are not in the access log if they succeed; with `/*` at the end, all below: `["/health"]`.',
    "connection.access_log_skip",
)

CONNECTION = (
    Option("head_max", SIZE, "64KB", "Maximum size of a request head.", "connection.head_bytes_max"),
    Option("head_timeout", DURATION, "10s", "Time limit for receiving the request head.",
           "connection.head_timeout_ms"),
    Option("write_timeout", DURATION, "30s",
           "Close the connection of a client that reads less than 1 KB of the response in this time.",
           "connection.write_timeout_ms"),
    # Longer than the 60 s after which most load balancers let go of a connection: who closes first must be the side
    # that sends the requests, or one is sent into a connection that is being closed.
    Option("keep_alive", DURATION, "75s", "Close an idle connection after this time.", "connection.keep_alive_ms"),
    ACCESS_LOG,
    ACCESS_LOG_FORMAT,
    ACCESS_LOG_SKIP,
    *TLS,
)
"""Options of all fronts that speak HTTP to clients, in one struct of the core: `ConnectionConfig`."""

HTTP = Section("fronts.http", "Calls over HTTP and JSON.", (
    Option("bind", BINDS, "127.0.0.1:8080", "One or more addresses to listen on.", "bind"),
    TOKEN,
    TOKEN_FILE,
    INSECURE,
    Option("cors_origins", ORIGINS, [],
           "Origins whose web pages may call the tools; `*` allows all and requires a token.", "cors_origins"),
    Option("pools", POOL_NAMES, None,
           "Pools whose tools can be called; the front knows no others. Default: all.", "pools", "all"),
    Option("pass_headers", PASSED_HEADERS, [],
           "Headers of requests that tools find in `clutch.call_headers()`; up to 8 KiB each.", "pass_headers"),
    *CONNECTION,
    Option("body_max", SIZE, "16MB", "Maximum size of a request body.", "body_bytes_max"),
    Option("body_timeout", DURATION, "30s", "Time limit for receiving the request body.",
           "connection.body_timeout_ms"),
    Option("connections_max", whole(1, 1_000_000), 4096, "Maximum number of open connections.",
           "connection.connections_max"),
), calls_tools=True, finish=(
    place_access_log, place_binds, check_tls, check_tokens, check_exposure, check_passed_headers,
))

ADMIN = Section("fronts.admin", "Health, readiness and metrics: /healthz, /readyz, /metrics.", (
    Option("bind", ADDRESS, "127.0.0.1:9180", "Address to listen on.", "bind"),
    TOKEN,
    TOKEN_FILE,
    INSECURE,
), finish=(place_binds, check_tokens, check_exposure))

SERVE = Section("fronts.serve", "An ASGI or WSGI app, served over HTTP/1.1 and HTTP/2.", (
    Option("app", TARGET, None,
           "The app, or its factory with `factory`; a module alone means its `app`, or else its `application`.",
           None, "none; must be given"),
    Option("factory", FLAG, False, "Call `app` to create the app."),
    Option("interface", choice("auto", "asgi", "asgi2", "wsgi"), "auto",
           "Interface of the app; `auto` detects it from the signature."),
    Option("lifespan", choice("auto", "on", "off"), "auto",
           "Send lifespan events to an ASGI app; `on`: fail if it does not support them, `auto`: continue without."),
    Option("pool", POOL_NAME, "web",
           "Pool that runs the app; created with the profile `async` if it is not in [pools].", "pool"),
    Option("bind", BINDS, "127.0.0.1:8000", "One or more addresses to listen on.", "bind"),
    Option("unix_mode", MODE, "0666", "Permissions of the Unix sockets in `bind`.", "unix_mode"),
    Option("threads", whole(1, 256), None,
           "Dispatcher threads that handle HTTP.", "threads", "one for every four usable CPUs"),
    Option("dispatch", choice("auto", "request", "connection"), "auto",
           "Give workers single requests, or whole connections, on which they answer plain HTTP/1.1 requests "
           "themselves; `auto`: connections, unless an option needs the dispatcher for each request.", "dispatch"),
    Option("timeout", TIMEOUT, "auto",
           "Maximum time until the response starts, not counted while waiting for the client; `auto`: 30s for a WSGI "
           "app, none for an ASGI app.", "timeout_ms"),
    Option("silence", or_none(DURATION), "none",
           "Maximum pause between the parts of a response that has begun, not counted while waiting for the client, "
           "nor in event streams.", "silence_ms"),
    Option("disconnect", choice("tell", "cancel"), "tell",
           "When the client disconnects: tell the app, or cancel the request.", "disconnect"),
    Option("root_path", ROOT_PATH, "",
           "Path prefix under which a proxy serves the app: its `root_path` and `SCRIPT_NAME`.", "root_path"),
    Option("headers_max", whole(1, 10_000), 100, "Maximum number of headers in a request.", "headers_max"),
    Option("body_max", SIZE, None, "Maximum size of a request body.", "body_bytes_max", "none"),
    Option("body_timeout", DURATION, "30s",
           "Close the connection of a client that sends less than 1 KB of the body in this time while the app waits.",
           "connection.body_timeout_ms"),
    Option("connection_requests_max", whole(1, 1 << 53), None,
           "Close a connection after this many requests.", "connection_requests_max", "none"),
    Option("streams_max", whole(1, 100_000), 100, "Maximum number of concurrent requests on one HTTP/2 connection.",
           "streams_max"),
    # Idle ones cost a descriptor and some kilobytes each, and WebSockets stay: more than for calls.
    Option("connections_max", whole(1, 1_000_000), 10_000, "Maximum number of open connections.",
           "connection.connections_max"),
    Option("message_max", SIZE, "16MB", "Maximum size of a WebSocket message.", "message_bytes_max"),
    Option("ping_interval", or_none(DURATION), "20s",
           "Interval between pings to a WebSocket client.", "ping_interval_ms"),
    Option("ping_timeout", DURATION, "20s",
           "Close a WebSocket whose client does not answer a ping within this time.", "ping_timeout_ms"),
    Option("proxy_protocol", FLAG, False,
           "Expect a PROXY protocol header at the start of each connection.", "proxy_protocol"),
    Option("forwarded_allow", NETWORKS, ["127.0.0.1", "::1"],
           "Peers whose `X-Forwarded-…` headers are trusted; clients of Unix sockets always are.",
           "forwarded_allow"),
    Option("header_map", choice("drop", "refuse", "dangerous"), "drop",
           "Headers with an underscore in their name, which could pose as others: drop them, refuse the request, or "
           "pass them to the app whoever set them.", "header_map"),
    Option("forwarder_headers", TEXTS, [],
           'Names of such headers that the peers of `forwarded_allow` may set; `["*"]`: any.', "forwarder_headers"),
    *CONNECTION,
), app="app", finish=(place_access_log, place_binds, count_threads, check_tls))

TCP = Section("fronts.tcp", "A handler of TCP connections; workers get the sockets themselves.", (
    Option("handler", TARGET, None,
           "`def handler(conn: socket)` or `async def handler(reader, writer)`.", None, "none; must be given"),
    Option("pool", POOL_NAME, "tcp",
           "Pool that runs the app; created with the profile `async` if it is not in [pools].", "pool"),
    Option("bind", BINDS, "127.0.0.1:9000", "One or more addresses to listen on.", "bind"),
    Option("connections_max", whole(1, 1_000_000), 10_000,
           "Maximum number of open connections, including those that wait for a slot.", "connections_max"),
), app="handler", scheme="", finish=(place_binds,))

STORE = Section("stores.NAME", "A store of jobs.", (
    Option("url", TEXT, None,
           "URL: `sqlite:///jobs.db` (relative to the config's folder), `sqlite:////absolute/jobs.db`, or "
           "`redis://host:6379/0`.", None,
           "none; must be given"),
))

CRON = Section("cron.NAME", "A periodic job. Each scheduled time is called a tick.", (
    Option("tool", TEXT, None, "Name of the tool, as in the target of the pool that runs it.", "job.tool",
           "none; must be given"),
    Option("schedule", SCHEDULE, None, "Schedule in crontab format.", "schedule",
           "none; this or `every` must be given"),
    Option("zone", ZONE, None, "Time zone of the schedule.", "zone", "`UTC`"),
    Option("every", INTERVAL, None,
           "Interval between ticks, instead of a schedule; ticks are at its multiples since 1970, UTC.", "every_ms",
           "none"),
    Option("args", JSON_LIST, [], "Arguments of the tool by position."),
    Option("kwargs", JSON_TABLE, {}, "Arguments of the tool by name."),
    Option("store", TEXT, None, "Store of the jobs.", None, "the only one in [stores]"),
    Option("queue", TEXT, "default", "Queue of the jobs.", "job.queue"),
    Option("priority", whole(-9, 9), 0, "Priority of the jobs; larger runs first.", "job.priority"),
    Option("overlap", choice("skip", "wait", "allow"), "skip",
           "While an earlier job of the entry has not ended: skip the tick, queue its job behind that one, or allow "
           "both to run.", "overlap"),
    Option("misfire", choice("last", "skip"), "last",
           "Ticks missed by more than a minute: run the last one, or skip them all.", "misfire"),
    Option("retry", replace(whole(0, RETRIES_MAX), core=lambda retry: 1 + retry), 0,
           "Maximum number of retries.", "job.attempts_max"),
    Option("backoff", BACKOFF, "polynomial", "Delay before each retry.", "job.backoff"),
    Option("deadline", DURATION, None,
           "Time after the enqueue at which a job is no longer started, and interrupted if it runs.",
           "deadline_ms", "none"),
    Option("tags", TEXTS, [], "Tags of the jobs; `cron:NAME` is added.", "job.tags"),
))

OF_ALL_JOBS = (
    Option("pool", POOL_NAME, None, "Pool that runs the jobs.", None, "the only one in [pools]"),
    Option("strict", FLAG, False, "Take jobs from a queue only while all queues before it are empty.", "strict"),
    Option("slots_max", whole(1, 1_000_000), None, "Maximum number of concurrent jobs.", "slots_max",
           "as many as the pool has slots"),
    Option("lease", DURATION, "30s",
           "A dispatcher that has not renewed its lease for this long loses its jobs to others.", "lease_ms"),
)

JOBS = Section("fronts.jobs", "Jobs from a store, run in a pool.", (
    Option("store", TEXT, None, "Store to take jobs from.", None, "the only one in [stores]"),
    Option("queues", QUEUES, "default", "Queues to take jobs from, with weights.", "queues"),
    *OF_ALL_JOBS,
    Option("keep.completed", DURATION, "1h", "Retention of completed jobs.", "keep_completed_ms"),
    Option("keep.cancelled", DURATION, "1d", "Retention of cancelled jobs.", "keep_cancelled_ms"),
    Option("keep.dead", DURATION, "180d", "Retention of dead jobs.", "keep_dead_ms"),
), calls_tools=True, scheme="")

CELERY = Section("fronts.celery", "Tasks of a Celery app from its broker, run in the pool whose target has the app.", (
    Option("queues", QUEUES, None, "Queues to take tasks from, with weights.", "queues", "those of the app"),
    Option("node", TEXT, None, "Name as a worker of Celery, NAME or NAME@HOST.", "node", "the front's name"),
    *OF_ALL_JOBS,
), scheme="")
# fmt: on

NETWORK_FRONTS = (HTTP, ADMIN, SERVE, TCP)
FRONTS = {section.place.removeprefix("fronts."): section for section in (*NETWORK_FRONTS, JOBS, CELERY)}


def core_json(section: Section, values: Mapping[str, Any]) -> dict[str, Any]:
    core: dict[str, Any] = {}
    for option in section.options:
        if option.core is not None:
            value = values[option.name]
            *outer, last = option.core.split(".")
            table = functools.reduce(lambda table, name: table.setdefault(name, {}), outer, core)
            table[last] = None if value is None else option.kind.core(value)
    return core
