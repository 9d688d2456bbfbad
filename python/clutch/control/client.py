"""Asks servers and programs with pools by their control sockets: HTTP over a unix socket of the same user or root."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import socket
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from clutch.control import sockets
from clutch.errors import ClutchError

ANSWER_BYTES_MAX = 1 << 26
ANSWER_SECONDS_MAX = 30.0
"""For what commands ask."""
FIND_SECONDS_MAX = 5.0
"""For a process to say who it is."""

CREDENTIALS = struct.Struct("iII")
"""Pid, uid and gid, as the kernel tells them."""


def named_by(running: dict[str, Any]) -> str:
    """Returns what runs under the names that other commands take: `job 7, call 12`."""
    call = f"call {running['id']}"
    return call if running["job"] is None else f"job {running['job']}, {call}"


class ControlError(ClutchError):
    """Error that the process answered, or the reason why there is no answer."""


class NoAnswer(ControlError):
    """The process did not answer."""


class Process(NamedTuple):
    """A server or program that runs, and where it listens."""

    socket: Path
    pid: int
    config: str
    """Path of the config, or the description of a program."""
    folder: str
    is_program: bool = False

    def __str__(self) -> str:
        return f"pid {self.pid}: {self.config}"


class Connection(http.client.HTTPConnection):
    """To the control socket at a path. Raises PermissionError when another user is at the other end."""

    def __init__(self, path: Path, timeout: float | None = None) -> None:
        super().__init__("clutch", timeout=timeout)
        self.path = path
        self.pid = 0
        """Pid of the process at the other end, once connected."""

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        with sockets.address_of(self.path) as address:
            self.sock.connect(address)
        options = self.sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS.size)
        self.pid, uid, _ = CREDENTIALS.unpack(options)
        if uid not in (0, os.geteuid()):
            raise PermissionError(f"the other end belongs to user {uid}")


def get(path: Path, target: str, timeout: float | None = None) -> Any:
    """Returns the document at `target`, such as `/pools`. Raises ControlError."""
    return _ask(path, "GET", target, timeout)


def get_text(path: Path, target: str, timeout: float | None = None) -> str:
    """Returns the page at `target`, such as `/metrics`. Raises ControlError."""
    with connected(path, timeout) as connection:
        response = _response(connection, "GET", target)
        text = response.read(ANSWER_BYTES_MAX).decode()
    if response.status != http.HTTPStatus.OK:
        raise ControlError(f"status {response.status}")
    return text


def post(path: Path, target: str, timeout: float | None = None, **arguments: Any) -> Any:
    """Performs an action, such as `/pools/api/drain`, and returns its result. Raises ControlError."""
    return _ask(path, "POST", target, timeout, arguments)


def of_pool(name: str | None, action: str) -> str:
    """The target of an action on a pool, or on all of them."""
    return f"/{action}" if name is None else f"/pools/{quote(name, safe='')}/{action}"


def _ask(path: Path, method: str, target: str, timeout: float | None, body: dict[str, Any] | None = None) -> Any:
    with connected(path, timeout) as connection:
        response = _response(connection, method, target, body)
        answer = response.read(ANSWER_BYTES_MAX + 1)
    try:
        if len(answer) > ANSWER_BYTES_MAX:
            raise ValueError(f"the answer is longer than {ANSWER_BYTES_MAX} bytes")
        found = json.loads(answer)
    except (ValueError, RecursionError) as error:
        raise NoAnswer(f"no answer from {path}: {error}") from error
    if response.status != http.HTTPStatus.OK:
        raise ControlError(str(found.get("detail")) if isinstance(found, dict) else f"status {response.status}")
    return found


@contextlib.contextmanager
def connected(path: Path, timeout: float | None = None) -> Iterator[Connection]:
    """Raises NoAnswer, also for what goes wrong while it is used."""
    connection = Connection(path, timeout)
    try:
        connection.connect()
        yield connection
    except (OSError, http.client.HTTPException) as error:
        raise NoAnswer(f"no answer from {path}: {error or type(error).__name__}") from error
    finally:
        connection.close()


def _response(
    connection: Connection, method: str, target: str, body: dict[str, Any] | None = None
) -> http.client.HTTPResponse:
    sent = None if body is None else json.dumps({name: value for name, value in body.items() if value is not None})
    connection.request(method, target, sent)
    return connection.getresponse()


def events(path: Path, scope: str = "lives") -> Iterator[dict[str, Any]]:
    """Yields events of the pools as they happen, until the process ends. Raises ControlError."""
    with connected(path) as connection:
        response = _response(connection, "GET", f"/events?scope={scope}")
        if response.status != http.HTTPStatus.OK:
            raise ControlError(response.read().decode(errors="replace"))
        for line in response:
            if line.startswith(b"data: "):
                yield json.loads(line.removeprefix(b"data: "))


def running() -> list[Process]:
    """This user's servers and programs that answer. Raises ControlError."""
    try:
        paths = sockets.all_of_user()
    except PermissionError as error:
        raise ControlError(str(error)) from error
    return [found for path in paths if (found := _process_at(path)) is not None]


def _process_at(path: Path) -> Process | None:
    try:
        found = get(path, "/process", FIND_SECONDS_MAX)
        return Process(path, found["pid"], found["config"], found["folder"], found.get("is_program", False))
    except (ControlError, KeyError, TypeError):  # one of another version may answer otherwise
        return None


def of_config(processes: list[Process], config: Path) -> list[Process]:
    return [found for found in processes if found.config == os.fspath(config.resolve())]


def of_folder(processes: list[Process], folder: Path) -> list[Process]:
    """Returns the processes that were started in a folder."""
    return [found for found in processes if found.folder == os.fspath(folder.resolve())]
