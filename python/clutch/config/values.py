"""Values of options: a `Kind` for each kind of value, with its parser and its message.

A parser takes what TOML, Python, an environment variable or a flag gave and returns the value, or raises
`ValueError`. `core` makes of it what the JSON for the Rust core holds.
"""

from __future__ import annotations

import ipaddress
import json
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
BYTES = {"B": 1, "KB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30, "KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30}
YEAR_S = 366 * 86400.0
CALL_SECONDS_MAX = 1e18
"""The largest duration of the core: callers give a large number to mean no limit."""
PASSED_HEADERS_MAX = 20
"""Maximum number of headers that a front passes on to tools."""

HEADER_NAME = re.compile(r"(?!clutch-)[a-z0-9!#$%&'*+.^_`|~-]{1,100}")
"""A header that clients can set; those of Clutch are its own."""

PORT_MAX = 65535
PORTS = {"http": 80, "https": 443}
QUEUE_WEIGHT_MAX = 1000
BACKOFF_SECONDS_MAX = 1e10
INTERVAL_SECONDS_MIN = 1
SOCKET_PATH_BYTES_MAX = 100
"""The kernel allows 107; the socket is made under a slightly longer name first."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A way of writing a value."""

    name: str
    allowed: str
    """The allowed values, for messages."""
    parse: Callable[[Any], Any]
    core: Callable[[Any], Any] = lambda value: value
    names: tuple[str, ...] = ()
    """The allowed words, if they are few, to suggest the nearest."""
    verbatim: bool = False
    """Text from a variable or flag is the value itself, not TOML."""

    def read_text(self, text: str) -> Any:
        """The value of a variable or flag, as it would be in TOML: `4`, `true`, `{ min = 2 }`; else plain text."""
        if self.verbatim:
            return text
        import tomllib

        try:
            return tomllib.loads(f"value = {text}")["value"]
        except tomllib.TOMLDecodeError:
            return text


@dataclass(frozen=True, slots=True)
class WorkerRange:
    """Least and most workers of a pool."""

    min: int
    max: int


@dataclass(frozen=True, slots=True)
class Address:
    """Address of a front: host and port, the path of a Unix socket, or a socket that was handed over."""

    host: str
    port: int
    path: str | None = None
    descriptor: int | None = None

    @property
    def is_local(self) -> bool:
        """Returns whether only this machine can reach it."""
        if self.path is not None or self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    def under(self, folder: Path) -> Address:
        """Resolve a relative socket path from `folder`."""
        return self if self.path is None else replace(self, path=str(folder / self.path))

    def __str__(self) -> str:
        if self.path is not None:
            return f"unix:{self.path}"
        if self.descriptor is not None:
            return f"fd:{self.descriptor}"
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def whole(least: int, most: int) -> Kind:
    def parse(value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise ValueError
        return value

    return Kind("whole number", f"a whole number from {least:_} to {most:_}", parse)


def choice(*names: str) -> Kind:
    def parse(value: Any) -> str:
        if value not in names:
            raise ValueError
        return str(value)

    return Kind("choice", ", ".join(names), parse, names=names, verbatim=True)


def or_none(kind: Kind) -> Kind:
    """The kind, or the word "none", for limits that can be disabled."""

    def parse(value: Any) -> Any:
        return None if value == "none" else kind.parse(value)

    return replace(kind, allowed=f'{kind.allowed}, or "none"', parse=parse)


def worker_range(most: int) -> Kind:
    count = whole(1, most).parse

    def parse(value: Any) -> WorkerRange:
        if isinstance(value, WorkerRange):
            return value
        if isinstance(value, str) and (found := re.fullmatch(r"(\d+)-(\d+)", value)):
            value = {"min": int(found[1]), "max": int(found[2])}
        if not isinstance(value, Mapping):
            return WorkerRange(count(value), count(value))
        if set(value) != {"min", "max"} or count(value["min"]) > count(value["max"]):
            raise ValueError
        return WorkerRange(value["min"], value["max"])

    allowed = f'a whole number from 1 to {most:_}, a range such as "2-8", or {{ min = 2, max = 8 }}'
    return Kind("workers", allowed, parse, core=lambda workers: workers.max)


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value.strip() or "\0" in value:
        raise ValueError
    return value


def _path(value: Any) -> str:
    return _text(os.fspath(value) if isinstance(value, os.PathLike) else value)


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError
    return value


def _fraction(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise ValueError
    return float(value)


def _duration(value: Any) -> float:
    seconds = _seconds(value)
    if not 0.001 <= seconds <= YEAR_S:
        raise ValueError
    return seconds


def _call_time(value: Any) -> float:
    seconds = _seconds(value)
    if not 0 <= seconds <= CALL_SECONDS_MAX:
        raise ValueError
    return seconds


def _seconds(value: Any) -> float:
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    return _amount(value, SECONDS)


def _size(value: Any) -> int:
    if isinstance(value, str):
        value = int(_amount(value.upper(), BYTES))
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value < 1 << 50:
        raise ValueError
    return value


def _mode(value: Any) -> int:
    mode = int(value, 8) if isinstance(value, str) else value
    if isinstance(mode, bool) or not isinstance(mode, int) or not 0 <= mode <= 0o777:
        raise ValueError
    return mode


def _amount(text: Any, units: Mapping[str, float]) -> float:
    found = re.fullmatch(r"(\d+(?:\.\d+)?) ?([A-Za-z]+)", text) if isinstance(text, str) else None
    if found is None or found[2] not in units:
        raise ValueError
    return float(found[1]) * units[found[2]]


def _variables(value: Any) -> dict[str, str]:
    if not isinstance(value, Mapping):
        raise ValueError
    for name, text in value.items():
        is_plain = isinstance(text, str | int) and not isinstance(text, bool)
        if not isinstance(name, str) or not name or "=" in name or not is_plain or "\0" in f"{name}{text}":
            raise ValueError
    return {name: str(text) for name, text in value.items()}


def _target(value: Any) -> str:
    word = r"[^\W\d]\w*"
    if not isinstance(value, str) or not re.fullmatch(rf"{word}(\.{word})*(:{word}(\.{word})*)?", value):
        raise ValueError
    return value


def _targets(value: Any) -> str:
    names = _text(value).split(",")
    if len(names) > 1 and any(":" in name for name in names):
        raise ValueError
    return ",".join(map(_target, names))


def _address(value: Any) -> Address:
    if isinstance(value, Address):
        return value
    text = _text(value)
    if text.startswith("unix:"):
        return Address("", 0, _socket_path(text.removeprefix("unix:")))
    found = re.fullmatch(r"(?:\[([0-9A-Fa-f:.]+)\]|([^\s:/\[\]]+)):(\d{1,5})", text)
    if found is None or int(found[3]) > PORT_MAX:
        raise ValueError
    return Address(found[1] or found[2], int(found[3]))


def _binds(value: Any) -> tuple[Address, ...]:
    one = isinstance(value, str | Address)
    if not one and not isinstance(value, list | tuple):
        raise ValueError
    binds = tuple(map(_bind, [value] if one else value))
    if not binds:
        raise ValueError
    return binds


def _bind(value: Any) -> Address:
    handed_over = re.fullmatch(r"fd:(\d{1,6})", value) if isinstance(value, str) else None
    return Address("", 0, descriptor=int(handed_over[1])) if handed_over else _address(value)


def _networks(value: Any) -> tuple[str, ...]:
    if not isinstance(value, str | list | tuple):
        raise ValueError
    networks = (value,) if isinstance(value, str) else tuple(map(_text, value))
    for network in networks:
        if network != "*":
            ipaddress.ip_network(network, strict=False)
    return networks


def _names(value: Any) -> tuple[str, ...]:
    if not isinstance(value, str | list | tuple):
        raise ValueError
    names = tuple(map(_text, value.split(",") if isinstance(value, str) else value))
    if not names or not all(names) or len(set(names)) < len(names):
        raise ValueError
    return names


def _passed_headers(value: Any) -> tuple[str, ...]:
    if not isinstance(value, str | list | tuple):
        raise ValueError
    given = [part for part in value.split(",") if part] if isinstance(value, str) else value
    names = tuple(dict.fromkeys(_text(name).strip().lower() for name in given))
    if len(names) > PASSED_HEADERS_MAX or not all(map(HEADER_NAME.fullmatch, names)):
        raise ValueError
    return names


def _origins(value: Any) -> tuple[str, ...]:
    if not isinstance(value, str | list | tuple):
        raise ValueError
    return tuple(map(_origin, (value,) if isinstance(value, str) else value))


def _origin(value: Any) -> str:
    """Parses an origin as browsers write it: in lower case, without the default port."""
    if value == "*":
        return value
    found = re.fullmatch(r"([a-z][a-z0-9+.-]*)://([a-z0-9_.-]+|\[[0-9a-f:.]+\])(?::(\d{1,5}))?", _text(value).lower())
    if found is None or int(found[3] or 0) > PORT_MAX:
        raise ValueError
    scheme, host, port = found[1], found[2], int(found[3] or 0)
    return f"{scheme}://{host}" if port in (0, PORTS.get(scheme)) else f"{scheme}://{host}:{port}"


def _root_path(value: Any) -> str:
    is_plain = isinstance(value, str) and not re.search(r"[\s?#\0]", value)
    if not is_plain or (value and not re.fullmatch(r"(/[^/]+)+", value)):
        raise ValueError
    return str(value)


def _pool_name(value: Any) -> str:
    if not isinstance(value, str) or not re.fullmatch(r"[A-Za-z][A-Za-z0-9_-]{0,63}", value):
        raise ValueError
    return value


def _socket_path(path: str) -> str:
    if not 0 < len(os.fsencode(path)) <= SOCKET_PATH_BYTES_MAX:
        raise ValueError
    return path


def _queues(value: Any) -> tuple[tuple[str, int], ...]:
    """`{ critical = 3 }`, `["critical"]` or `critical:3,default:1`, as pairs of a name and its weight."""
    if isinstance(value, str):
        value = dict(map(_queue, value.split(",")))
    if isinstance(value, list | tuple):
        value = dict.fromkeys(value, 1)
    if not isinstance(value, dict) or not value:
        raise ValueError
    for name, weight in value.items():
        if not isinstance(name, str) or not name or type(weight) is not int or not 1 <= weight <= QUEUE_WEIGHT_MAX:
            raise ValueError
    return tuple(value.items())


def _queue(text: str) -> tuple[str, int]:
    name, _, weight = text.strip().rpartition(":")
    if len(text.split()) > 1:
        raise ValueError  # other queues separate names by spaces
    return (name, int(weight)) if name else (weight, 1)


def _interval(value: Any) -> float:
    seconds = _duration(value)
    if seconds < INTERVAL_SECONDS_MIN:
        raise ValueError
    return seconds


def _backoff(value: Any) -> str | float:
    if value in ("polynomial", "exponential"):
        return str(value)
    seconds = _call_time(value)
    if seconds > BACKOFF_SECONDS_MAX:
        raise ValueError
    return seconds


def _backoff_core(backoff: str | float) -> dict[str, Any]:
    match backoff:
        case "polynomial":
            return {"kind": "polynomial"}
        case "exponential":
            return {"kind": "exponential", "first_ms": 1000, "most_ms": 3_600_000}
    return {"kind": "constant", "ms": round(float(backoff) * 1000)}


def _list_of_json(value: Any) -> list[Any]:
    if not isinstance(value, list | tuple):
        raise ValueError
    return list(_json(value))


def _table_of_json(value: Any) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise ValueError
    return dict(_json(value))


def _json(value: Any) -> Any:
    try:
        json.dumps(value, allow_nan=False)
    except TypeError as error:  # a date of TOML
        raise ValueError from error
    return value


def _preload(value: Any) -> bool | str | list[str]:
    if isinstance(value, bool) or value == "auto":
        return value  # type: ignore[no-any-return]
    return [_target(name) for name in _texts(value)]


def _texts(value: Any) -> list[str]:
    if not isinstance(value, list | tuple):
        raise ValueError
    return list(map(_text, value))


def _ms(seconds: float) -> int:
    return max(1, round(seconds * 1000))


TEXT = Kind("text", "text that is not empty", _text, verbatim=True)
FLAG = Kind("flag", "true or false", _flag)
FRACTION = Kind("fraction", "a number from 0 to 1", _fraction)
DURATION = Kind(
    "duration", 'seconds as a number, or text such as "250ms", "30s", "5m", "1h", "1d"', _duration, core=_ms
)
TIMEOUT = replace(
    or_none(DURATION),
    name="duration by app",
    allowed=f'{DURATION.allowed}, "none", or "auto": by the app',
    parse=lambda value: value if value == "auto" else or_none(DURATION).parse(value),
    core=lambda value: value if value == "auto" else _ms(value),
    names=("auto",),
)
INTERVAL = Kind(
    "interval", 'seconds from 1 up as a number, or text such as "30s", "5m", "1h", "1d"', _interval, core=_ms
)
CALL_TIME = Kind("call time", 'seconds from 0 to 1e18, or text such as "250ms", "30s", "5m", "1h", "1d"', _call_time)
SIZE = Kind("size", 'bytes as a number, or text such as "64KB", "512MB", "1GB" (units of 1024)', _size)
MODE = Kind("mode", 'permissions as octal digits, such as "0660"', _mode, verbatim=True)
VARIABLES = Kind("variables", 'a table of texts, such as { NAME = "value" }', _variables)
TARGETS = Kind(
    "targets", '"package.module", several ("mail,images"), or "package.module:object"', _targets, verbatim=True
)
TARGET = Kind("target", '"package.module" or "package.module:object"', _target, verbatim=True)
PATH = Kind("path", "a path, or a name on the PATH", _path, verbatim=True)
FILE = Kind("file", "a path", _path, verbatim=True)
LOG_FILE = Kind("file", "a path, or `-`", _path, verbatim=True)
SOCKET = Kind("socket", "a path", lambda value: _socket_path(_path(value)), verbatim=True)
ADDRESS = Kind(
    "address",
    '"host:port", such as "127.0.0.1:8080" (port 0 takes a free one), or "unix:path"',
    _address,
    core=str,
    verbatim=True,
)
BINDS = Kind(
    "binds",
    '"host:port", "unix:path" or "fd:3" (a socket that was handed over, listening), or a list of these',
    _binds,
    core=lambda binds: [str(bind) for bind in binds],
)
NETWORKS = Kind(
    "networks",
    'a list of addresses and networks, such as ["10.0.0.0/8", "::1"]; "*": all',
    _networks,
    core=list,
)
POOL_NAMES = Kind("pools", 'a list of names of pools, each once: ["ml", "shop"]', _names, core=list)
PASSED_HEADERS = Kind(
    "headers",
    f'up to {PASSED_HEADERS_MAX} names of headers, such as ["x-user", "x-tenant"], none of which begins with "clutch-"',
    _passed_headers,
    core=list,
)
ORIGINS = Kind(
    "origins",
    'a list of origins, such as ["https://app.example", "http://localhost:3000"], without a path; "*": all',
    _origins,
    core=list,
)
ROOT_PATH = Kind("root path", 'a path such as "/shop", without a / at its end; or ""', _root_path, verbatim=True)
QUEUES = Kind(
    "queues",
    'names, or names and weights from 1 to 1000: ["critical", "default"], { critical = 3, default = 1 }, '
    '"critical:3,default:1" with commas',
    _queues,
    core=lambda queues: [list(queue) for queue in queues],
)
SCHEDULE = Kind(
    "schedule",
    'minute, hour, day of month, month and day of week, such as "0 3 * * MON-FRI", with seconds before them if need '
    'be; "@hourly", "@daily", "@weekly", "@monthly", "@yearly"',
    _text,
    verbatim=True,
)
ZONE = Kind("time zone", 'a name such as "Europe/Berlin" or "UTC"', _text, verbatim=True)
BACKOFF = Kind(
    "backoff",
    '"polynomial", "exponential", seconds from 0 up, or text such as "5m"',
    _backoff,
    core=_backoff_core,
    names=("polynomial", "exponential"),
)
JSON_LIST = Kind("list of JSON", 'a list of JSON values, such as ["de", 7]; dates as text', _list_of_json)
JSON_TABLE = Kind("table of JSON", 'a table of JSON values, such as { language = "de" }; dates as text', _table_of_json)
TEXTS = Kind("texts", 'a list of texts, such as ["billing"]', _texts)
PRELOAD = Kind("preload", '"auto", true, false, or a list of modules, such as ["numpy"]', _preload, names=("auto",))
POOL_NAME = Kind(
    "name of a pool", "a letter, then letters, digits, - and _, at most 64 in all", _pool_name, verbatim=True
)


def under_folder(url: str, folder: Path | None = None) -> str:
    """The URL of a store, of which a path is absolute; without a `folder`, that of the program is meant."""
    scheme, mark, path = url.partition(":///")
    is_file = scheme == "sqlite" and path not in ("", ":memory:") and not path.startswith("?")
    if not is_file or path.startswith("/"):
        return url
    return f"{scheme}{mark}{(folder or Path.cwd()) / path}"


def without_password(url: str) -> str:
    """The URL of a store as it is shown, also where it is none."""
    scheme, mark, rest = url.partition(":")
    slashes = "/" * (len(rest) - len(rest.lstrip("/")))
    secret, at, place = rest.lstrip("/").rpartition("@")
    place = re.sub(r"\b((?:\w+_)?pass(?:word)?)=[^&#]*", r"\1=***", place)
    return f"{scheme}{mark}{slashes}{'***' if secret else ''}{at}{place}"
