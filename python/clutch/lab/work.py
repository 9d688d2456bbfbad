"""What can be measured: calls, apps over HTTP, handlers of TCP, jobs, and servers that run already."""

from __future__ import annotations

import base64
import sys
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar, Protocol
from urllib.parse import urlsplit

from clutch.errors import ConfigError
from clutch.lab.load import Load
from clutch.lab.setting import AUTO, PROFILES, Setting

CLIENTS = 64
"""Connections of a load over a network, unless somebody says; or twice the slots, if they are more."""
CLIENTS_MAX = 512


class Work(Protocol):
    """`profiles`: those that it can run under; empty: it runs already. `unit`: what is counted. `seconds`: of one
    measurement, unless somebody says."""

    profiles: ClassVar[tuple[str, ...]]
    unit: ClassVar[str]
    seconds: ClassVar[float]

    def order(self, setting: Setting | None) -> dict[str, Any]:
        """What the runner is told: `kind`, and what the driver of that kind needs, as JSON can say it."""
        ...

    def load(self, setting: Setting | None) -> Load:
        """What it is asked for, unless somebody says."""
        ...


@dataclass(frozen=True)
class Calls:
    """A function and its arguments, as JSON can say them."""

    module: str
    name: str
    args: list[Any] = field(default_factory=list)
    kwargs: dict[str, Any] = field(default_factory=dict)
    profiles: ClassVar[tuple[str, ...]] = PROFILES
    unit: ClassVar[str] = "calls"
    seconds: ClassVar[float] = 0.1

    def order(self, setting: Setting | None) -> dict[str, Any]:
        assert setting is not None
        return {
            "kind": "calls",
            **asdict(self),
            "executor": "clutch",
            "options": setting.options(),
            "slots": setting.slots,
        }

    def load(self, setting: Setting | None) -> Load:
        return Load(2 * setting.slots if setting is not None else 2)

    def __str__(self) -> str:
        return f"{self.module}:{self.name}"


@dataclass(frozen=True)
class Request:
    """A request over HTTP, and how often it comes among others. `body`: text or bytes, or `module:function`, which is
    called for each of some bodies that are then used in turn."""

    path: str = "/"
    method: str = "GET"
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes | None = None
    body_function: str | None = None
    weight: int = 1

    def as_data(self) -> dict[str, Any]:
        body = None if self.body is None else base64.b64encode(self.body).decode()
        return {**asdict(self), "body": body}


@dataclass(frozen=True)
class App:
    """An ASGI or WSGI app that Clutch serves."""

    target: str
    requests: tuple[Request, ...] = (Request(),)
    flags: tuple[str, ...] = ()
    """More flags of `clutch serve`."""
    profiles: ClassVar[tuple[str, ...]] = PROFILES
    unit: ClassVar[str] = "requests"
    seconds: ClassVar[float] = 0.2

    def order(self, setting: Setting | None) -> dict[str, Any]:
        assert setting is not None
        command = [sys.executable, "-m", "clutch", "serve", self.target, *serve_flags(setting)]
        command += ["-b", "127.0.0.1:{port}", "--access-logfile", "none", *self.flags]
        return {"kind": "http", "command": command, "requests": [one.as_data() for one in self.requests]}

    def load(self, setting: Setting | None) -> Load:
        slots = 0 if setting is None or setting.profile == AUTO else setting.slots
        return Load(max(CLIENTS, min(2 * slots, CLIENTS_MAX)))

    def __str__(self) -> str:
        return f"{self.target} {' '.join(f'{one.method} {one.path}' for one in self.requests)}"


@dataclass(frozen=True)
class Handler:
    """A handler of TCP connections that Clutch serves. `until`: bytes that end an answer; None: the answer to the
    message is always the one that came first."""

    target: str
    message: bytes = b"ping\n"
    until: bytes | None = None
    profiles: ClassVar[tuple[str, ...]] = ("process", "thread", "async")
    unit: ClassVar[str] = "answers"
    seconds: ClassVar[float] = 0.2

    def order(self, setting: Setting | None) -> dict[str, Any]:
        assert setting is not None
        command = [sys.executable, "-m", "clutch", "serve", "--tcp", self.target, *serve_flags(setting)]
        return {
            "kind": "tcp",
            "command": [*command, "-b", "127.0.0.1:{port}"],
            "message": list(self.message),
            "until": None if self.until is None else list(self.until),
        }

    def load(self, setting: Setting | None) -> Load:
        return Load(min(CLIENTS, setting.slots) if setting is not None else 1)

    def __str__(self) -> str:
        return f"{self.target} over TCP"


@dataclass(frozen=True)
class Url:
    """A server that runs already. `pid`: its process on this machine, if its CPU time and memory are to be seen."""

    url: str
    requests: tuple[Request, ...] = (Request(),)
    pid: int | None = None
    profiles: ClassVar[tuple[str, ...]] = ()
    unit: ClassVar[str] = "requests"
    seconds: ClassVar[float] = 0.2

    def order(self, setting: Setting | None) -> dict[str, Any]:
        at = urlsplit(self.url)
        if at.scheme != "http" or at.hostname is None:
            raise ConfigError(f"{self.url!r}: allowed is http://HOST:PORT/PATH; TLS is not measured")
        place = {"host": at.hostname, "port": at.port or 80, "pid": self.pid}
        return {"kind": "http", **place, "requests": [one.as_data() for one in self.requests]}

    def load(self, setting: Setting | None) -> Load:
        return Load(CLIENTS)

    def __str__(self) -> str:
        return self.url


@dataclass(frozen=True)
class JobRun:
    """Jobs of one tool that `clutch work` runs. `store`: the URL of a store; None: SQLite in a folder of its own."""

    module: str
    name: str
    kwargs: dict[str, Any] = field(default_factory=dict)
    store: str | None = None
    profiles: ClassVar[tuple[str, ...]] = PROFILES
    unit: ClassVar[str] = "jobs"
    seconds: ClassVar[float] = 1.0

    def order(self, setting: Setting | None) -> dict[str, Any]:
        assert setting is not None
        command = [sys.executable, "-m", "clutch", "work", self.module, *setting.flags().split()]
        return {"kind": "jobs", **asdict(self), "command": command, "slots": setting.slots}

    def load(self, setting: Setting | None) -> Load:
        return Load(2 * setting.slots if setting is not None else 2)

    def __str__(self) -> str:
        return f"{self.module}:{self.name} as jobs"


def serve_flags(setting: Setting) -> list[str]:
    """The setting as flags of `clutch serve`. Profile `auto`: the one that Clutch chooses for such an app."""
    flags = [*([] if setting.profile == "auto" else ["-k", setting.profile]), "-w", str(setting.workers)]
    if setting.threads > 1 or setting.profile == "thread":
        flags += ["--threads", str(setting.threads)]
    if setting.profile in ("async", "greenlet"):
        flags += ["--worker-connections", str(setting.tasks)]
    return flags
