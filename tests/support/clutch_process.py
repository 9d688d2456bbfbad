"""The `clutch` command as a process of its own, for tests: what it writes, where it listens, what is left of it.

Nothing here sleeps: output is read as it comes, ends are seen by pidfds, and what only a page can tell is asked again
until it is so.
"""

from __future__ import annotations

import contextlib
import fcntl
import http.client
import json
import os
import re
import signal
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Any, NamedTuple, Self

from clutch.testing import Processes

TESTS = Path(__file__).parents[1]
TARGETS = TESTS / "targets"
PYTHON_PATH = os.pathsep.join(map(str, (TESTS, TARGETS / "apps", TARGETS / "tools")))
WAIT_SECONDS = 30.0
COMMAND = (sys.executable, "-m", "clutch")

FRONTS = """
[fronts.http]
bind = "127.0.0.1:0"
[fronts.admin]
bind = "127.0.0.1:0"
"""


def with_http_option(line: str) -> str:
    return FRONTS.replace("[fronts.http]", f"[fronts.http]\n{line}")


def environment() -> dict[str, str]:
    """Where the tests' own modules are found, and nothing that would change a configuration."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("CLUTCH_")}
    return kept | {"PYTHONPATH": PYTHON_PATH}


def clutch(*arguments: str, cwd: Path, **more: Any) -> subprocess.CompletedProcess[str]:
    """A command that ends by itself."""
    command = [*COMMAND, *arguments]
    more = {"env": environment(), "timeout": WAIT_SECONDS, **more}
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, **more)


class Answer(NamedTuple):
    status: int
    headers: http.client.HTTPMessage
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def result(self) -> Any:
        assert self.status == 200, self.body
        return self.json["result"]

    @property
    def lines(self) -> list[Any]:
        return [json.loads(line) for line in self.body.splitlines()]


class Output:
    """What one stream of a process says, line by line, as it says it."""

    def __init__(self, stream: IO[str]) -> None:
        self.lines: list[str] = []
        self._stream = stream
        self._changed = threading.Condition()
        self._ended = False
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        for line in self._stream:
            with self._changed:
                self.lines.append(line.rstrip("\n"))
                self._changed.notify_all()
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def wait(self, pattern: str, timeout: float = WAIT_SECONDS) -> re.Match[str]:
        """The first line that the pattern is in. Raises TimeoutError with all that was said."""
        with self._changed:
            self._changed.wait_for(lambda: self._ended or self._find(pattern), timeout)
            found = self._find(pattern)
        if found is None:
            raise TimeoutError(f"{pattern!r} is not in:\n{self.text}")
        return found

    def wait_end(self, timeout: float = WAIT_SECONDS) -> str:
        self._reader.join(timeout)
        assert not self._reader.is_alive(), f"the stream is still open; so far:\n{self.text}"
        return self.text

    @property
    def text(self) -> str:
        return "\n".join(self.lines)

    def _find(self, pattern: str) -> re.Match[str] | None:
        return next(filter(None, (re.search(pattern, line) for line in self.lines)), None)


class Dispatcher:
    """One `clutch run` or `clutch serve`, in a session of its own as under a terminal."""

    def __init__(self, folder: Path, command: Sequence[str], stdin: int = subprocess.DEVNULL, **more: Any) -> None:
        """`stdin`: of a terminal, which becomes its own."""
        self.folder = folder
        self.process = subprocess.Popen(
            command,
            cwd=folder,
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            preexec_fn=take_terminal if stdin >= 0 else None,
            **{"env": environment(), **more},
        )
        assert self.process.stdout and self.process.stderr
        self.out, self.err = Output(self.process.stdout), Output(self.process.stderr)

    def wait_ready(self, pool: str) -> None:
        self.err.wait(rf"pool {pool}: ready")

    # Its end.

    def below(self) -> Processes:
        """Zygotes and workers, as of now."""
        return Processes.below(self.process.pid)

    def interrupt(self) -> None:
        """Ctrl-C: the terminal sends it to the whole group in the foreground."""
        os.killpg(self.process.pid, signal.SIGINT)

    def terminate(self) -> None:
        self.process.send_signal(signal.SIGTERM)

    def hurry(self, send: Callable[[], object]) -> int:
        """Sends a signal again until the process has ended: for half a second it is taken for the first one."""

        def has_ended() -> bool:
            if self.process.poll() is None:
                send()
            return self.process.poll() is not None

        soon(has_ended)
        return self.wait()

    def wait(self, timeout: float = WAIT_SECONDS) -> int:
        code = self.process.wait(timeout)
        self.out.wait_end()
        self.err.wait_end()
        return code

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        with self.below() as left:
            if self.process.poll() is None:
                self.process.kill()
                self.process.wait(WAIT_SECONDS)
            left.wait_ended()


class Server(Dispatcher):
    """One `clutch run`."""

    def __init__(
        self, folder: Path, config: str, *arguments: str, before: Sequence[str] = (), stdin: int = subprocess.DEVNULL
    ) -> None:
        """`before`: a command that starts it."""
        (folder / "clutch.toml").write_text(config)
        super().__init__(folder, [*before, *COMMAND, "run", *arguments, "clutch.toml"], stdin)

    # Addresses, from what it logs.

    @property
    def http(self) -> str:
        return self.err.wait(r"http: http://(\S+?)(?:\"|$)")[1]

    @property
    def admin(self) -> str:
        return self.err.wait(r"admin: http://(\S+?)(?:\"|$)")[1]

    # Requests.

    def call(
        self, tool: str, arguments: Any = None, *, pool: str = "api", body: bytes | None = None, **headers: str
    ) -> Answer:
        """POSTs the arguments, or the body as it is; `Clutch_Timeout="1s"` is a header."""
        with self.calling(tool, arguments, pool=pool, body=body, **headers) as connection:
            return answer(connection)

    @contextlib.contextmanager
    def calling(
        self, tool: str, arguments: Any = None, *, pool: str = "api", body: bytes | None = None, **headers: str
    ) -> Iterator[http.client.HTTPConnection]:
        """The request is sent, its answer not read; at the end the client is gone."""
        text = json.dumps(arguments or {}).encode() if body is None else body
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        connection = http.client.HTTPConnection(self.http, timeout=WAIT_SECONDS)
        with contextlib.closing(connection):
            sent = {"Content-Type": "application/json", **named}
            connection.request("POST", f"/pools/{pool}/tools/{tool}", text, sent)
            yield connection

    def get(self, path: str) -> Answer:
        connection = http.client.HTTPConnection(self.admin, timeout=WAIT_SECONDS)
        with contextlib.closing(connection):
            connection.request("GET", path)
            return answer(connection)

    def pool(self, name: str = "api") -> dict[str, Any]:
        (found,) = (pool for pool in self.get("/pools").json["pools"] if pool["name"] == name)
        return found

    def until(self, condition: Callable[[dict[str, Any]], object], name: str = "api") -> dict[str, Any]:
        """The pool's figures, once they are so."""
        deadline = time.monotonic() + WAIT_SECONDS
        while not condition(figures := self.pool(name)):
            if time.monotonic() > deadline:
                raise TimeoutError(figures)
        return figures


def take_terminal() -> None:
    """Makes the terminal at stdin the one whose Ctrl-C and end this session hears of."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def answer(connection: http.client.HTTPConnection) -> Answer:
    response = connection.getresponse()
    return Answer(response.status, response.headers, response.read())


def soon(condition: Callable[[], object]) -> None:
    """For what no event tells: is asked again until it is so."""
    deadline = time.monotonic() + WAIT_SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)
