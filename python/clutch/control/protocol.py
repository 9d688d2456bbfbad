"""The control socket of a server or of a program with pools, as both ends know it: where it is, who may talk, how.

One JSON object on a line each way, then the connection ends. The socket is private (0600, in a folder of 0700), and
each end looks at the other's credentials: the same user, or root. Sockets of dispatchers that are dead refuse
connections and are passed over.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import stat
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from clutch.errors import ClutchError

REQUEST_BYTES_MAX = 1 << 16
ANSWER_BYTES_MAX = 1 << 26
HELLO_SECONDS_MAX = 5.0
BACKLOG = 64

PATH_BYTES_MAX = 107
"""What a socket's address has room for: sun_path of unix(7), less its end."""

CREDENTIALS = struct.Struct("iII")
"""Pid, uid and gid, as the kernel tells them."""


class ControlError(ClutchError):
    """What the dispatcher answered instead of a result, or why there is no answer."""


class NoAnswer(ControlError):
    """It did not answer."""


class Dispatcher(NamedTuple):
    """One that runs, and where it listens."""

    socket: Path
    pid: int
    config: str
    """Of a program, what it is."""
    folder: str
    is_program: bool = False

    def __str__(self) -> str:
        return f"pid {self.pid}: {self.config}"


def folder() -> Path:
    """Where the sockets of this user's dispatchers are."""
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    if runtime and os.access(runtime, os.W_OK | os.X_OK):
        return Path(runtime, "clutch")
    return Path(f"/tmp/clutch-{os.geteuid()}")


def check_private(path: Path) -> None:
    """In a folder of somebody else's making there might be somebody else's socket. Raises PermissionError."""
    found = path.lstat()
    is_ours = stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o077
    if not is_ours:
        raise PermissionError(f"{path} must be a folder of this user alone (0700): remove it, or set XDG_RUNTIME_DIR")


def name_of(config: Path, pid: int) -> str:
    """The pid makes it unique; the rest tells those of one config apart from others."""
    return f"{zlib.crc32(os.fsencode(config.resolve())):08x}-{pid}.sock"


def pid_in(name: str) -> int | None:
    text = name.removesuffix(".sock").rpartition("-")[2]
    return int(text) if text.isdecimal() else None


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True


def check_peer(connection: socket.socket) -> int:
    """The pid at the other end. Raises PermissionError when it is another user's."""
    options = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS.size)
    pid, uid, _ = CREDENTIALS.unpack(options)
    if uid not in (0, os.geteuid()):
        raise PermissionError(f"the other end belongs to user {uid}")
    return pid


# Messages


def send(connection: socket.socket, message: dict[str, Any]) -> None:
    connection.sendall(json.dumps(message).encode() + b"\n")


def receive(connection: socket.socket, bytes_max: int) -> dict[str, Any]:
    """One line. Raises ValueError when it is no JSON object or too long, ConnectionError when there is none."""
    with connection.makefile("rb") as lines:
        line = lines.readline(bytes_max + 1)
    if not line:
        raise ConnectionError("the other end closed the connection")
    if not line.endswith(b"\n"):
        raise ValueError(f"a message is one line of at most {bytes_max} bytes")
    try:
        message = json.loads(line)
    except RecursionError as error:
        raise ValueError("a message is not nested so deeply") from error
    if not isinstance(message, dict):
        raise ValueError("a message is a JSON object")
    return message


# The side that asks


def ask(path: Path, command: str, timeout: float | None = None, **arguments: Any) -> Any:
    """The dispatcher's answer to one command. Raises ControlError."""
    try:
        with connected(path, timeout) as connection:
            send(connection, {"command": command, **arguments})
            answer = receive(connection, ANSWER_BYTES_MAX)
    except (OSError, ValueError) as error:
        raise NoAnswer(f"no answer from the dispatcher at {path}: {error}") from error
    if "error" in answer:
        raise ControlError(str(answer["error"]))
    return answer["result"]


@contextlib.contextmanager
def connected(path: Path, timeout: float | None = None) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(timeout)
        with address_of(path) as address:
            connection.connect(address)
        check_peer(connection)
        yield connection


@contextlib.contextmanager
def address_of(path: Path) -> Iterator[str]:
    """What bind() and connect() take for a path of any length: a long one goes by a descriptor of its folder."""
    if len(os.fsencode(path)) <= PATH_BYTES_MAX:
        yield os.fspath(path)
        return
    place = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{place}/{path.name}"
    finally:
        os.close(place)


def running() -> list[Dispatcher]:
    """This user's dispatchers that answer."""
    return [found for path in _sockets() if (found := _hello(path)) is not None]


def _sockets() -> list[Path]:
    place = folder()
    try:
        check_private(place)
    except FileNotFoundError:
        return []
    except PermissionError as error:
        raise ControlError(str(error)) from error
    return sorted(place.glob("*.sock"))


def _hello(path: Path) -> Dispatcher | None:
    try:
        answer = ask(path, "hello", HELLO_SECONDS_MAX)
        return Dispatcher(path, answer["pid"], answer["config"], answer["folder"], answer.get("is_program", False))
    except (ControlError, KeyError, TypeError):  # a dispatcher of another version may answer otherwise
        return None


def of_config(dispatchers: list[Dispatcher], config: Path) -> list[Dispatcher]:
    return [found for found in dispatchers if found.config == os.fspath(config.resolve())]


def of_folder(dispatchers: list[Dispatcher], folder: Path) -> list[Dispatcher]:
    """Those that were started in it."""
    return [found for found in dispatchers if found.folder == os.fspath(folder.resolve())]
