"""Flags of uvicorn and granian, typed from habit: those that are a setting of ours, have no effect, or have no place.

They are flags alone: a gunicorn.conf.py has none of them. Their variables are not read, and that is said.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from clutch._gunicorn.settings import PROMETHEUS, RUSTLS, SETTING_OF, Refused
from clutch.errors import ConfigError, Problem


@dataclass(frozen=True, slots=True)
class Alias:
    """A flag that means the same as a setting."""

    flag: str
    setting: str
    """By its name in a gunicorn.conf.py."""
    bare: str | None = None
    """Meaning of the flag, which takes no value."""


@dataclass(frozen=True, slots=True)
class WithoutEffect:
    """A flag that changes nothing here, and why."""

    flag: str
    why: str
    takes_value: bool = True
    is_missed: bool = False
    """Whoever turns it on misses something here."""


ADDRESS_FLAGS = {"--host": "HOST", "--port": "PORT", "--uds": "PATH", "--fd": "N"}
"""Together an address: see `address_of`."""
PORT_MAX = 65_535
DEFAULT_HOST = "127.0.0.1"
DEFAULT_PORT = 8000

ALIASES = (
    Alias("--access-log", "accesslog", "-"),
    Alias("--no-access-log", "accesslog", "none"),
    Alias("--access-log-fmt", "access_log_format"),
    Alias("--app-dir", "pythonpath"),
    Alias("--working-dir", "chdir"),
    Alias("--url-path-prefix", "root_path"),
    Alias("--pid-file", "pidfile"),
    Alias("--limit-max-requests", "max_requests"),
    Alias("--limit-max-requests-jitter", "max_requests_jitter"),
    Alias("--timeout-keep-alive", "keepalive"),
    Alias("--timeout-graceful-shutdown", "graceful_timeout"),
    Alias("--workers-kill-timeout", "graceful_timeout"),
    Alias("--reload-paths", "reload_dirs"),
    Alias("--reload-ignore-dirs", "reload_excludes"),
    Alias("--reload-ignore-paths", "reload_excludes"),
    Alias("--ws-max-size", "websocket_max_message_size"),
    Alias("--uds-permissions", "unix_mode"),
    Alias("--ssl-certfile", "certfile"),
    Alias("--ssl-certificate", "certfile"),
    Alias("--ssl-keyfile", "keyfile"),
    Alias("--ssl-ca-certs", "ca_certs"),
    Alias("--ssl-ca", "ca_certs"),
    Alias("--ssl-cert-reqs", "cert_reqs"),
    Alias("--ssl-client-verify", "cert_reqs", "required"),
)

OURS = "the dispatcher speaks HTTP, in threads of its own"
DEFAULT = "this is the default"

CHANGES = "changes are seen at once, when files have rested for 20 ms"

WITHOUT_EFFECT = (
    WithoutEffect("--http", "HTTP/1.1 and HTTP/2 are always available"),
    WithoutEffect("--http2", "HTTP/1.1 and HTTP/2 are always available", False),
    WithoutEffect("--ws", "WebSockets are always available"),
    WithoutEffect("--ws-max-queue", "at most 32 messages are queued for an app"),
    WithoutEffect("--ws-per-message-deflate", "WebSocket messages are not compressed", is_missed=True),
    WithoutEffect("--proxy-headers", "headers of trusted proxies are read (--forwarded-allow-ips)", False),
    WithoutEffect("--no-server-header", "no Server header is sent", False),
    WithoutEffect("--date-header", DEFAULT, False),
    WithoutEffect("--use-colors", "the log has no colors", False),
    WithoutEffect("--no-use-colors", "the log has no colors", False),
    WithoutEffect("--timeout-worker-healthcheck", "workers are monitored without health checks"),
    WithoutEffect("--task-impl", "the event loop creates the tasks"),
    WithoutEffect("--runtime-mode", OURS),
    WithoutEffect("--runtime-threads", f"{OURS}: --set fronts.serve.threads=N"),
    WithoutEffect("--runtime-blocking-threads", OURS),
    WithoutEffect("--blocking-threads-idle-timeout", "idle threads of a worker are kept"),
    WithoutEffect("--http1-buffer-size", OURS),
    WithoutEffect("--http1-keep-alive", DEFAULT, False),
    WithoutEffect("--http1-pipeline-flush", OURS, False),
    WithoutEffect("--no-http1-pipeline-flush", OURS, False),
    WithoutEffect("--http2-adaptive-window", OURS, False),
    WithoutEffect("--no-http2-adaptive-window", OURS, False),
    WithoutEffect("--http2-initial-connection-window-size", OURS),
    WithoutEffect("--http2-initial-stream-window-size", OURS),
    WithoutEffect("--http2-max-send-buffer-size", OURS),
    WithoutEffect("--log", DEFAULT, False),
    WithoutEffect("--no-ssl-client-verify", DEFAULT, False),
    WithoutEffect("--respawn-failed-workers", "workers that die are always replaced", False),
    WithoutEffect("--respawn-interval", "workers that die are replaced at once, and slower when they keep dying"),
    WithoutEffect("--rss-sample-interval", "memory is always monitored"),
    WithoutEffect("--rss-samples", "memory is always monitored"),
    WithoutEffect("--no-factory", DEFAULT, False),
    WithoutEffect("--no-metrics", DEFAULT, False),
    WithoutEffect("--no-reload", DEFAULT, False),
    WithoutEffect("--reload-delay", CHANGES),
    WithoutEffect("--reload-tick", CHANGES),
    WithoutEffect("--reload-ignore-worker-failure", "new code that does not start waits for the next save", False),
)

STATIC = "let a proxy serve files, or middleware (docs/serve/frameworks.md, Static files)"
HEAD = "use --set fronts.serve.head_max=64KB"
PASSWORD = "decrypt the key: openssl pkey -in KEY -out plain.key"
VARIABLES = "use -e NAME=VALUE, or load the file in the shell first: set -a; . ./.env; set +a"


def _of_uvicorn(flag: str, instead: str, takes_value: bool = True) -> Refused:
    return Refused(flag.removeprefix("--").replace("-", "_"), (flag,), instead, takes_value, whose="uvicorn")


def _of_granian(flag: str, instead: str, takes_value: bool = True) -> Refused:
    return Refused(flag.removeprefix("--").replace("-", "_"), (flag,), instead, takes_value, whose="granian")


OF_OTHERS = (
    _of_uvicorn("--env-file", VARIABLES),
    _of_uvicorn("--no-proxy-headers", "use --set 'fronts.serve.forwarded_allow=[]'", False),
    _of_uvicorn("--server-header", "no Server header is sent: let a middleware add it", False),
    _of_uvicorn("--no-date-header", "RFC 9110 requires a Date header; remove it", False),
    _of_uvicorn("--header", "let a middleware add headers"),
    _of_uvicorn("--limit-concurrency", "use --worker-connections N (at a time, per worker) and --backlog N (waiting)"),
    _of_uvicorn("--ssl-keyfile-password", PASSWORD),
    _of_uvicorn("--ssl-ciphers", RUSTLS),
    _of_uvicorn("--h11-max-incomplete-event-size", HEAD),
    _of_uvicorn("--reset-contextvars", "each request runs in its own task; remove it", False),
    _of_granian("--no-ws", "WebSockets are always available; remove it", False),
    _of_granian("--blocking-threads", "use --threads N"),
    _of_granian("--backpressure", "use --worker-connections N (at a time, per worker) and --backlog N (waiting)"),
    _of_granian("--http1-header-read-timeout", "use --set fronts.serve.head_timeout=10s"),
    _of_granian("--no-http1-keep-alive", "use --keep-alive 0", False),
    _of_granian("--http2-keep-alive-interval", "use --keep-alive SECONDS"),
    _of_granian("--http2-keep-alive-timeout", "use --keep-alive SECONDS"),
    _of_granian("--http2-max-headers-size", HEAD),
    _of_granian("--no-log", "use --error-logfile /dev/null", False),
    _of_granian("--ssl-protocol-min", RUSTLS),
    _of_granian("--ssl-crl", "certificate revocation lists are not supported: check them in a proxy"),
    _of_granian("--no-respawn-failed-workers", "workers that die are always replaced; remove it", False),
    _of_granian("--workers-lifetime", "use --set pools.web.recycle.age=1h"),
    _of_granian("--workers-max-rss", "use --set pools.web.recycle.memory=512MB"),
    _of_granian("--env-files", VARIABLES),
    _of_granian("--static-path-route", STATIC),
    _of_granian("--static-path-mount", STATIC),
    _of_granian("--static-path-dir-to-file", STATIC),
    _of_granian("--static-path-expires", STATIC),
    _of_granian("--metrics", PROMETHEUS, False),
    _of_granian("--metrics-scrape-interval", PROMETHEUS),
    _of_granian("--metrics-address", PROMETHEUS),
    _of_granian("--metrics-port", PROMETHEUS),
    _of_granian("--reload-ignore-patterns", "use --reload-exclude PATTERN, such as gen_*.py"),
    _of_granian("--process-name", "use -n NAME for the pool's name, in logs and metrics"),
)


def address_of(flags: Mapping[str, str]) -> str | None:
    """The address that `--host`, `--port`, `--uds` or `--fd` tell, as a setting has it.

    Raises `ConfigError` for what is no port.
    """
    if (port := flags.get("--port")) is not None and not is_port(port):
        raise ConfigError(problems=[Problem("--port", "invalid value", repr(port), f"0 to {PORT_MAX}; 0: a free one")])
    if "--uds" in flags:
        return f"unix:{flags['--uds']}"
    if "--fd" in flags:
        return f"fd://{flags['--fd']}"
    return host_and_port(flags.get("--host"), flags.get("--port")) if flags else None


def is_port(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= len(str(PORT_MAX)) and int(text) <= PORT_MAX


def host_and_port(host: str | None, port: str | int | None) -> str:
    """An address of the two, either of which may be left out."""
    host = DEFAULT_HOST if host is None else host
    return f"{f'[{host}]' if ':' in host else host}:{DEFAULT_PORT if port is None else port}"


# What has another name, or another form, as a keyword of `clutch.serve` than as a flag.
KEYWORDS = {
    "bind": "bind",
    "graceful_timeout": "grace",
    "interface": "interface",
    "keepalive": "keep_alive",
    "max_requests": 'recycle={"calls": N}',
    "max_requests_jitter": 'recycle={"calls": N, "jitter": 0.1}',
    "chdir": "os.chdir",
    "pythonpath": "sys.path",
    "pidfile": "clutch serve --pid",
    "reload_dirs": "clutch serve --reload-dir",
    "reload_includes": "clutch serve --reload-include",
    "reload_excludes": "clutch serve --reload-exclude",
}
ADDRESS_KEYWORDS = {"uds": 'bind="unix:PATH"', "fd": 'bind="fd:N"'}


def keyword_of(name: str) -> tuple[str | None, str | None]:
    """A keyword of uvicorn.run or of granian as `clutch.serve` has it, or why it is not needed."""
    if name in ADDRESS_KEYWORDS:
        return ADDRESS_KEYWORDS[name], None
    flag = "--" + name.replace("_", "-")
    if name.endswith("s") and any(flag[:-1] in one.flags for one in OF_OTHERS):
        flag = flag[:-1]  # a list, as uvicorn's `headers`
    for one in (*WITHOUT_EFFECT, *OF_OTHERS):
        if isinstance(one, WithoutEffect) and flag in (one.flag, one.flag.replace("--no-", "--", 1)):
            return None, f"{one.why}; remove it"
        if isinstance(one, Refused) and flag in one.flags:
            return None, one.instead
    names = {alias.flag: alias.setting for alias in ALIASES}
    names |= {one: setting.name for setting in SETTING_OF.values() for one in setting.flags}
    setting = SETTING_OF.get(names.get(flag, name))
    if setting is None:
        return None, None
    if setting.place is None:
        return KEYWORDS.get(setting.name), None
    option, _, inner = setting.place.partition(".")[2].partition(".")
    return (f'{option}={{"{inner}": …}}' if inner else option), None


def warnings_of_variables(environ: Mapping[str, str]) -> list[str]:
    """Variables that uvicorn and granian read and this does not."""
    found = []
    for name in sorted(environ):
        server, _, rest = name.partition("_")
        if server in ("UVICORN", "GRANIAN") and rest:
            found.append(f"{name} is not read: {_instead('--' + rest.lower().replace('_', '-'))}")
    return found


def _instead(flag: str) -> str:
    for refused in OF_OTHERS:
        if flag in refused.flags:
            return refused.instead
    if flag in ("--host", "--port", "--uds", "--fd"):
        return "use -b HOST:PORT, -b unix:PATH or -b fd://N"
    names = {alias.flag: alias.setting for alias in ALIASES}
    names |= {one: setting.name for setting in SETTING_OF.values() for one in setting.flags}
    if flag in names:
        return f"use {SETTING_OF[names[flag]].flags[-1]}"
    return next((f"{one.why}; remove it" for one in WITHOUT_EFFECT if one.flag == flag), "remove it")
