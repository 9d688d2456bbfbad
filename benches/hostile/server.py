"""A server as a value, and as a process: started, answering, stopped, one at a time.

Each runs in a process group of its own, so that nothing of it is left when it is stopped, however it takes that.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_START_SECONDS_MAX = 30
_STOP_SECONDS_MAX = 10
_LOOK_UP_SECONDS = 0.02
_SHOWN_BYTES_MAX = 4_000
_BUSY_STATUS = 503


@dataclass(frozen=True)
class Server:
    """What is started: `{port}` in its command stands for the port."""

    name: str
    command: tuple[str, ...]

    def __str__(self) -> str:
        """The command line as a person would type it."""
        shown = (part.format(port="PORT") for part in self.command if part not in (sys.executable, "-m"))
        return shlex.join(shown)


@dataclass(frozen=True)
class Running:
    """A server that answers."""

    port: int
    pid: int

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.port}{path}"


def module(name: str, module_name: str, *arguments: str) -> Server:
    """A server that is started as `python -m module`."""
    return Server(name, (sys.executable, "-m", module_name, *arguments))


@contextlib.contextmanager
def running(server: Server, answers: Callable[[int], bool]) -> Iterator[Running]:
    """The server, from its first right answer to its end; what it printed is shown when it does not start."""
    port = _free_port()
    command = [part.format(port=port) for part in server.command]
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            stdout=output,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            _wait(process, lambda: answers(port), lambda: f"{server} does not answer:\n{_tail(output)}")
            yield Running(port, process.pid)
        finally:
            _stop(process)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


def _wait(process: subprocess.Popen[bytes], is_there: Callable[[], bool], failure: Callable[[], str]) -> None:
    end = time.monotonic() + _START_SECONDS_MAX
    while not is_there():
        if process.poll() is not None or time.monotonic() > end:
            raise RuntimeError(failure())
        time.sleep(_LOOK_UP_SECONDS)


def _tail(output) -> str:
    output.seek(0)
    return output.read()[-_SHOWN_BYTES_MAX:].decode(errors="replace")


def _stop(process: subprocess.Popen[bytes]) -> None:
    """TERM, as a service manager does it; what is left of the group after that is killed."""
    process.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(_STOP_SECONDS_MAX)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def answers_http(path: str, body_bytes: int | None = None) -> Callable[[int], bool]:
    """A check: 200 at this path, with a body of that size if one is given. Any other answer is an error."""
    return lambda port: _answers_http(port, path, body_bytes)


def _answers_http(port: int, path: str, body_bytes: int | None) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    with contextlib.closing(connection):
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
        except (ConnectionError, TimeoutError):  # it listens before its workers are there
            return False
        body = answer.read()
    if answer.status == _BUSY_STATUS:
        return False
    if answer.status != http.HTTPStatus.OK or body_bytes not in (None, len(body)):
        raise RuntimeError(f"{path}: {answer.status}, {len(body)} bytes: {body[:200]!r}")
    return True


def answers_tcp(port: int) -> bool:
    """A check: one chunk is answered."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=5) as conn:
            conn.sendall(b"hello")
            return bool(conn.recv(100))
    except ConnectionError:
        return False
