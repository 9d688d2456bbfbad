"""gunicorn's settings as `clutch serve` takes them: flags, name in a gunicorn.conf.py, how it is written; once.

Where each goes is in translation.py. What has no place here is named with what to do instead: nothing that a
command line or a file says is passed over in silence.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from clutch.config.options import THREADS_MAX, WORKERS_MAX
from clutch.config.values import DURATION, Kind, whole

COUNT_MAX = 1 << 52
CONF_FILE = "gunicorn.conf.py"
COMMAND_ARGS = "GUNICORN_CMD_ARGS"


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting. `place`: the option of `pool` or `front` that takes its value unchanged; None: it is translated."""

    name: str
    """Name in a gunicorn.conf.py."""
    flags: tuple[str, ...]
    kind: Kind
    help: str
    place: str | None = None
    many: bool = False
    """May be given several times."""
    bare: Any = None
    """Meaning of the flag without a value."""
    value_too: bool = False
    """A flag with a bare meaning that takes a value as well."""


@dataclass(frozen=True, slots=True)
class Refused:
    """A setting that has no place here, and what to do instead."""

    name: str
    flags: tuple[str, ...]
    instead: str
    takes_value: bool = True
    matters: bool = False
    """To go on without it would be unsafe: in a gunicorn.conf.py it is an error too, not a warning."""
    whose: str = "gunicorn"


# How settings are written. Each parser takes the text of a flag and the value in a file alike.


def _number(value: Any) -> Any:
    return int(value) if isinstance(value, str) and value.strip().lstrip("-").isdecimal() else value


def count(least: int, most: int = COUNT_MAX) -> Kind:
    kind = whole(least, most)
    return Kind(kind.name, kind.allowed, lambda value: kind.parse(_number(value)))


def _seconds(value: Any) -> float | None:
    """None: gunicorn's 0, which is no limit, or nothing at all; or `none`, as the option of clutch.toml has it."""
    if value == "none":
        return None
    value = _number(value)
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            return DURATION.parse(value)
    return None if value == 0 and not isinstance(value, bool) else DURATION.parse(value)


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value.strip() or "\0" in value:
        raise ValueError
    return value


def _file_name(value: Any) -> str:
    """A bare number is a port, as `-p` of other servers."""
    if _text(value).isdecimal():
        raise ValueError
    return value


def _class_name(value: Any) -> str:
    return f"{value.__module__}.{value.__qualname__}" if isinstance(value, type) else _text(value)


def _texts(value: Any) -> tuple[str, ...]:
    return tuple(map(_text, (value,) if isinstance(value, str) else _list(value)))


def _comma_separated(value: Any) -> tuple[str, ...]:
    texts = [one.strip() for text in _texts(value) for one in text.split(",")]
    return tuple(filter(None, texts))


def _list(value: Any) -> Any:
    if not isinstance(value, list | tuple):
        raise ValueError
    return value


def _variables(value: Any) -> dict[str, str]:
    pairs = [text.partition("=") for text in _texts(value)]
    if not all(name and equals for name, equals, _ in pairs):
        raise ValueError
    return {name: text for name, _, text in pairs}


def _table(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError
    return value


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError
    return value


def _one_of(words: dict[Any, Any]) -> Callable[[Any], Any]:
    def parse(value: Any) -> Any:
        if not isinstance(value, str | bool) or value not in words:
            raise ValueError
        return words[value]

    return parse


PROXY_PROTOCOLS = {"off": False, "v1": True, "v2": True, "auto": True, False: False, True: True}
CERT_REQS = {"0": "none", "1": "optional", "2": "required"} | {word: word for word in ("none", "optional", "required")}
INTERFACES = ("auto", "asgi", "asgi3", "asgi2", "wsgi", "asginl")
LIFESPANS = ("auto", "on", "off")
LOG_LEVELS = {level: level for level in ("debug", "info", "warning", "error")} | {"critical": "error"}

WORKERS = count(1, WORKERS_MAX)
THREADS = count(1, THREADS_MAX)
AMOUNT = count(1)
AMOUNT_OR_0 = count(0)
SECONDS = Kind("seconds", 'seconds as a number, or text such as "30s"; 0 or "none": no limit', _seconds)
TEXT = Kind("text", "text that is not empty", _text)
FILE = Kind("file", "a file; not a bare number: --port N sets the port, ./N is a file", _file_name)
CLASS = Kind("class", "text that is not empty", _class_name)
LIST = Kind("list", "texts, separated by commas", _comma_separated)
VARIABLES = Kind("variables", "NAME=VALUE", _variables)
TABLE = Kind("table", "a dict for logging.config.dictConfig", _table)
FLAG = Kind("flag", "True or False", _flag)
PROXY = Kind("proxy", "off, v1, v2, auto", _one_of(PROXY_PROTOCOLS))
CERTIFICATES = Kind(
    "number",
    "0 or none, 1 or optional, 2 or required",
    lambda value: _one_of(CERT_REQS)(str(int(value)) if isinstance(value, int) else value),
)
INTERFACE = Kind("interface", ", ".join(INTERFACES), _one_of({word: word for word in INTERFACES}), names=INTERFACES)
HEADER_MAPS = ("drop", "refuse", "dangerous")
HEADER_MAP = Kind("word", ", ".join(HEADER_MAPS), _one_of({word: word for word in HEADER_MAPS}), names=HEADER_MAPS)
DISPATCHES = ("auto", "request", "connection")
DISPATCH = Kind("word", ", ".join(DISPATCHES), _one_of({word: word for word in DISPATCHES}), names=DISPATCHES)
LOOPS = ("auto", "asyncio", "uvloop")
LOOP = Kind("loop", ", ".join(LOOPS), _one_of({word: word for word in LOOPS}), names=LOOPS)
LIFESPAN = Kind("lifespan", ", ".join(LIFESPANS), _one_of({word: word for word in LIFESPANS}), names=LIFESPANS)
LEVEL = Kind("level", "debug, info, warning, error, critical", _one_of(LOG_LEVELS), names=tuple(LOG_LEVELS))

# fmt: off
SETTINGS = (
    Setting("config", ("-c", "--config"), TEXT,
           "A gunicorn.conf.py, or python:MODULE. [default: ./gunicorn.conf.py if it exists]"),
    Setting("workers", ("-w", "--workers"), WORKERS,
           "Worker processes. [default: $WEB_CONCURRENCY, or 1]", "pool.workers"),
    Setting("threads", ("--threads",), THREADS,
           "Threads of a worker; for an async app, its event loops. [default: 1]"),
    Setting("bind", ("-b", "--bind"), LIST,
           "HOST:PORT, HOST, :PORT, unix:PATH or fd://N; several. [default: 0.0.0.0:$PORT, or 127.0.0.1:8000]",
           many=True),
    Setting("worker_class", ("-k", "--worker-class"), CLASS,
           "sync, gthread, gevent, uvicorn.workers.UvicornWorker, or a profile: process, thread, async, greenlet. "
           "[default: by the app]"),
    Setting("worker_connections", ("--worker-connections",), AMOUNT,
           "Concurrent requests per worker, for async apps and gevent. [default: 256]"),
    Setting("max_requests", ("--max-requests",), AMOUNT_OR_0,
           "Replace a worker after this many requests; 0: never. [default: 0]"),
    Setting("max_requests_jitter", ("--max-requests-jitter",), AMOUNT_OR_0,
           "Add a random number of requests, up to this many, to --max-requests of each worker. [default: 0]"),
    Setting("timeout", ("-t", "--timeout"), SECONDS,
           "Maximum time until a response starts, and between its parts; 0: no limit. [default: none, and for a WSGI "
           "app 30 until it starts]"),
    Setting("graceful_timeout", ("--graceful-timeout",), SECONDS,
           "How long a shutdown or reload waits for running requests. [default: 30]"),
    Setting("keepalive", ("--keep-alive",), SECONDS,
           "Close an idle connection after this many seconds; 0: after each response. [default: 75]"),
    Setting("reload", ("--reload",), FLAG,
           "Reload the code when its files change, for development. Makes 1 the default of -w.", bare=True),
    Setting("reload_dirs", ("--reload-dir",), LIST,
           "Folders that --reload watches. [default: this folder, and that of the app]", many=True),
    Setting("reload_includes", ("--reload-include",), LIST,
           "Files that --reload watches beside Python's, .env and what is in folders named templates: *.yaml.",
           many=True),
    Setting("reload_excludes", ("--reload-exclude",), LIST,
           "Files and folders that --reload does not watch: gen_*.py, build.", many=True),
    Setting("reload_extra_files", ("--reload-extra-file",), LIST, "The same as --reload-include.", many=True),
    Setting("preload_app", ("--preload",), FLAG,
           "Fork workers from one import of the app always. [default: if that is safe]", "pool.preload", bare=True),
    Setting("backlog", ("--backlog",), AMOUNT, "Requests that may wait for a worker. [default: 1000]",
           "pool.queue.limit"),
    Setting("accesslog", ("--access-logfile",), TEXT,
           "Write a line for each request to this file; -: stdout, none: no log. "
           "[default: - on a terminal or with --reload]",
           "front.access_log"),
    Setting("access_log_format", ("--access-logformat",), TEXT,
           "Format of the access log: text, json, or atoms such as %(h)s. [default: text]",
           "front.access_log_format"),
    Setting("access_log_skip", ("--access-log-skip",), LIST,
           "Paths left out of the access log when they succeed: /health, /static/*.", "front.access_log_skip",
           many=True),
    Setting("errorlog", ("--error-logfile", "--log-file"), TEXT,
           "Write the server's log to this file; -: stderr. [default: -]"),
    Setting("loglevel", ("--log-level",), LEVEL,
           "debug, info, warning, error, or critical (the same as error). [default: info]"),
    Setting("logconfig", ("--log-config",), TEXT,
           "Configure the server's log from a logging configuration file: .ini, .json or .yaml."),
    Setting("logconfig_json", ("--log-config-json",), TEXT, "The same, as JSON."),
    Setting("logconfig_dict", (), TABLE, "The same, as a dict in a gunicorn.conf.py."),
    Setting("certfile", ("--certfile",), TEXT, "PEM file of the certificate, for TLS.", "front.tls.certificate"),
    Setting("keyfile", ("--keyfile",), TEXT, "PEM file of its key.", "front.tls.key"),
    Setting("ca_certs", ("--ca-certs",), TEXT,
           "PEM file of the CA certificates that client certificates are checked against.",
           "front.tls.client_ca"),
    Setting("cert_reqs", ("--cert-reqs",), CERTIFICATES,
           "Whether clients must present a certificate: 0 or none, 1 or optional, 2 or required. [default: none]",
           "front.tls.client_auth"),
    Setting("forwarded_allow_ips", ("--forwarded-allow-ips",), LIST,
           "Proxies whose X-Forwarded-… headers are trusted; *: all. [default: $FORWARDED_ALLOW_IPS, or 127.0.0.1,::1]",
           "front.forwarded_allow"),
    Setting("header_map", ("--header-map",), HEADER_MAP,
           "Headers with an underscore in their name: drop, refuse, or dangerous (pass to the app). [default: drop]",
           "front.header_map"),
    Setting("forwarder_headers", ("--forwarder-headers",), LIST,
           "Names of such headers that trusted proxies may set; *: any.", "front.forwarder_headers"),
    Setting("proxy_protocol", ("--proxy-protocol",), PROXY,
           "Expect a PROXY protocol header at the start of each connection.", "front.proxy_protocol",
           bare="auto", value_too=True),
    Setting("limit_request_line", ("--limit-request-line",), AMOUNT_OR_0,
           "Raise the limit of the request head, which is limited as a whole (64 KB)."),
    Setting("limit_request_fields", ("--limit-request-fields",), AMOUNT,
           "Maximum number of header lines in a request. [default: 100]", "front.headers_max"),
    Setting("limit_request_field_size", ("--limit-request-field_size",), AMOUNT_OR_0,
           "Raise the limit of the request head, which is limited as a whole (64 KB)."),
    Setting("asgi_loop", ("--asgi-loop", "--loop"), LOOP,
           "Event loop of an async app: auto, asyncio or uvloop. [default: auto: uvloop if it is installed]",
           "pool.loop"),
    Setting("interface", ("--interface",), INTERFACE,
           "Interface of the app: auto, asgi, asgi3, asgi2, wsgi, or asginl (asgi without lifespan). [default: auto]"),
    Setting("asgi_lifespan", ("--lifespan", "--asgi-lifespan"), LIFESPAN,
           "Send lifespan events to an ASGI app; on: fail if it does not support them. [default: auto]",
           "front.lifespan"),
    Setting("root_path", ("--root-path",), TEXT, "Path prefix under which a proxy serves the app.", "front.root_path"),
    Setting("dispatch", ("--dispatch",), DISPATCH,
           "What workers get: a request, or a connection, whose plain requests they answer themselves. "
           "[default: auto: connection, unless an option rules it out]", "front.dispatch"),
    Setting("unix_mode", ("--unix-mode",), TEXT, "Permissions of the Unix sockets that are created. [default: 0666]",
           "front.unix_mode"),
    Setting("ws_ping_interval", ("--ws-ping-interval",), SECONDS,
           "Seconds between pings to a WebSocket client; 0: no pings. [default: 20]"),
    Setting("ws_ping_timeout", ("--ws-ping-timeout",), SECONDS,
           "Seconds to wait for the answer to a ping. [default: 20]", "front.ping_timeout"),
    Setting("websocket_max_message_size", ("--websocket-max-message-size",), AMOUNT,
           "Maximum size of a WebSocket message, in bytes. [default: 16 MB]", "front.message_max"),
    Setting("http2_max_concurrent_streams", ("--http2-max-concurrent-streams",), AMOUNT,
           "Maximum number of concurrent requests on one HTTP/2 connection. [default: 100]", "front.streams_max"),
    Setting("chdir", ("--chdir",), TEXT, "Change to this folder before loading the app."),
    Setting("raw_env", ("-e", "--env"), VARIABLES,
           "Set an environment variable, NAME=VALUE, in the workers. May be repeated.", many=True),
    Setting("proc_name", ("-n", "--name"), TEXT, "Name of the pool, in logs and metrics. [default: web]"),
    Setting("pidfile", ("-p", "--pid"), FILE, "Write the process id to this file; removed at exit."),
    Setting("pythonpath", ("--pythonpath",), LIST, "Folders to add to sys.path, separated by commas."),
    Setting("check_config", ("--check-config",), FLAG, "Check the configuration and exit.", bare=True),
    Setting("wsgi_app", (), TEXT, "The app, if the command line names none."),
)

SERVICE = "start it as that user: User= of a systemd unit, USER of a container, setpriv"
OUTPUT = "logs go to stderr; the access log and the output of workers to stdout: let the service manager collect them"
OUTPUT_JSON = f"{OUTPUT} (--log-format json)"
STRICT = "request heads are always parsed strictly; remove the flag"
HTTP_2 = "HTTP/1.1 and HTTP/2 are always available, with and without TLS; remove the flag"
RUSTLS = "TLS 1.2 and 1.3 with safe ciphers are always used; remove the flag"
PROMETHEUS = "metrics are for Prometheus: --set fronts.admin.bind=127.0.0.1:9180"
DIRTY = "describe a second pool in clutch.toml, and call it through `clutch run`"
PASTE = "create the app in a module of your own, and serve that"

REFUSED = (
    Refused("daemon", ("-D", "--daemon"),
            "let a service manager run it (systemd: Type=notify), or a shell: nohup clutch serve … &", False, True),
    Refused("user", ("-u", "--user"), SERVICE, matters=True),
    Refused("group", ("-g", "--group"), SERVICE, matters=True),
    Refused("initgroups", ("--initgroups",), SERVICE, False, True),
    Refused("umask", ("-m", "--umask"), "use --unix-mode 0660 for the socket; for files, umask where it is started",
            matters=True),
    Refused("reload_engine", ("--reload-engine",), "--reload watches with watchfiles; remove it"),
    Refused("spew", ("--spew",), "`clutch stack` shows what runs", False),
    Refused("print_config", ("--print-config",), "--check-config says what is served", False),
    Refused("sendfile", ("--no-sendfile",), "there is no sendfile to turn off; remove it", False),
    Refused("reuse_port", ("--reuse-port",), "one process listens for all workers; remove the flag", False),
    Refused("worker_tmp_dir", ("--worker-tmp-dir",), "there are no heartbeat files; remove it"),
    Refused("tmp_upload_dir", (), "uploads are not stored in files; remove the setting"),
    Refused("secure_scheme_headers", (), "X-Forwarded-Proto, -Ssl and -Protocol of trusted proxies "
            "are understood (--forwarded-allow-ips)"),
    Refused("logger_class", ("--logger-class",), OUTPUT_JSON),
    Refused("syslog", ("--log-syslog",), OUTPUT, False),
    Refused("syslog_addr", ("--log-syslog-to",), OUTPUT),
    Refused("syslog_prefix", ("--log-syslog-prefix",), OUTPUT),
    Refused("syslog_facility", ("--log-syslog-facility",), OUTPUT),
    Refused("disable_redirect_access_to_syslog", ("--disable-redirect-access-to-syslog",), OUTPUT, False),
    Refused("capture_output", ("--capture-output",), f"{OUTPUT}; remove it", False),
    Refused("enable_stdio_inheritance", ("-R", "--enable-stdio-inheritance"), f"{OUTPUT}; remove it", False),
    Refused("statsd_host", ("--statsd-host",), PROMETHEUS),
    Refused("statsd_prefix", ("--statsd-prefix",), PROMETHEUS),
    Refused("dogstatsd_tags", ("--dogstatsd-tags",), PROMETHEUS),
    Refused("enable_backlog_metric", ("--enable-backlog-metric",), PROMETHEUS, False),
    Refused("default_proc_name", (), "--name names the pool"),
    Refused("paste", ("--paste", "--paster"), PASTE),
    Refused("raw_paste_global_conf", ("--paste-global",), PASTE),
    Refused("proxy_allow_ips", ("--proxy-allow-from",),
            "with --proxy-protocol every client must send its header: bind where only the proxy is", matters=True),
    Refused("protocol", ("--protocol",), "only HTTP is supported: configure the proxy to use HTTP"),
    Refused("uwsgi_allow_ips", ("--uwsgi-allow-from",), "only HTTP is supported: configure the proxy to use HTTP"),
    Refused("ssl_version", ("--ssl-version",), RUSTLS),
    Refused("ciphers", ("--ciphers",), RUSTLS),
    Refused("suppress_ragged_eofs", ("--suppress-ragged-eofs",), RUSTLS, False),
    Refused("do_handshake_on_connect", ("--do-handshake-on-connect",), RUSTLS, False),
    Refused("http_protocols", ("--http-protocols",), HTTP_2),
    Refused("http2_cleartext", ("--http2-cleartext",), HTTP_2),
    Refused("http2_initial_window_size", ("--http2-initial-window-size",), HTTP_2),
    Refused("http2_max_frame_size", ("--http2-max-frame-size",), HTTP_2),
    Refused("http2_max_header_list_size", ("--http2-max-header-list-size",), "--set fronts.serve.head_max=64KB"),
    Refused("http_parser", ("--http-parser",), STRICT),
    Refused("permit_obsolete_folding", ("--permit-obsolete-folding",), STRICT, False),
    Refused("strip_header_spaces", ("--strip-header-spaces",), STRICT, False),
    Refused("permit_unconventional_http_method", ("--permit-unconventional-http-method",), STRICT, False),
    Refused("permit_unconventional_http_version", ("--permit-unconventional-http-version",), STRICT, False),
    Refused("casefold_http_method", ("--casefold-http-method",), STRICT, False),
    Refused("asgi_disconnect_grace_period", ("--asgi-disconnect-grace-period",),
            "tell the app of a disconnect, or stop it: --set fronts.serve.disconnect=cancel"),
    Refused("dirty_apps", ("--dirty-app",), DIRTY),
    Refused("dirty_workers", ("--dirty-workers",), DIRTY),
    Refused("dirty_timeout", ("--dirty-timeout",), DIRTY),
    Refused("dirty_threads", ("--dirty-threads",), DIRTY),
    Refused("dirty_graceful_timeout", ("--dirty-graceful-timeout",), DIRTY),
    Refused("control_socket", ("--control-socket",), "use --control for the path of the control socket"),
    Refused("control_socket_mode", ("--control-socket-mode",), "only this user can use that socket; remove the flag"),
    Refused("control_socket_disable", ("--no-control-socket",), "the control socket is this user's alone", False),
)

IN_THE_WORKER = "@clutch.on_start in the app's module"
AT_ITS_END = "@clutch.on_stop in the app's module"
EVENTS = "the log, and metrics"
MIDDLEWARE = "a middleware"

HOOKS = {
    "on_starting": "the service manager or script that starts `clutch serve`",
    "on_reload": EVENTS,
    "when_ready": "systemd's Type=notify, or /readyz of [fronts.admin]",
    "pre_fork": IN_THE_WORKER,
    "post_fork": IN_THE_WORKER,
    "post_worker_init": IN_THE_WORKER,
    "worker_int": AT_ITS_END,
    "worker_abort": "the log, which has the stacks of each request that timed out",
    "pre_exec": "SIGHUP, which reloads the code in place",
    "pre_request": MIDDLEWARE,
    "post_request": MIDDLEWARE,
    "child_exit": "@clutch.on_start in the app's module, which runs in its replacement",
    "worker_exit": AT_ITS_END,
    "nworkers_changed": EVENTS,
    "on_exit": "the service manager or script that starts `clutch serve`",
    "ssl_context": "--certfile and --keyfile",
    "on_dirty_starting": DIRTY,
    "dirty_post_fork": DIRTY,
    "dirty_worker_init": DIRTY,
    "dirty_worker_exit": DIRTY,
}
# fmt: on

SETTING_OF = {setting.name: setting for setting in SETTINGS}
REFUSED_OF = {refused.name: refused for refused in REFUSED}
