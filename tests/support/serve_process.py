"""`clutch serve` as a process of its own, for tests."""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from support.clutch_process import COMMAND, TESTS, WAIT_SECONDS, Answer, Dispatcher, answer, clutch

ANY_PORT = "127.0.0.1:0"
EXAMPLES = TESTS.parent / "examples"


def curl(*arguments: str) -> subprocess.CompletedProcess[bytes]:
    """One real client's request; what it says is in `stderr`."""
    command = ["curl", "-sS", "--max-time", str(WAIT_SECONDS), *arguments]
    return subprocess.run(command, capture_output=True, check=True, timeout=WAIT_SECONDS + 5)


def make_certificate(folder: Path) -> Path:
    """Writes `certificate.pem` and `key.pem` for localhost into the folder, and gives it back."""
    command = "openssl req -x509 -newkey rsa:2048 -nodes -keyout key.pem -out certificate.pem -subj /CN=localhost"
    subprocess.run([*command.split(), "-addext", "subjectAltName=DNS:localhost"], cwd=folder, check=True, timeout=60)
    return folder


def make_server_certificate(folder: Path) -> Path:
    """Writes `ca.pem`, and `certificate.pem` with `key.pem` for localhost, for which it vouches."""
    (folder / "own").write_text("subjectAltName = DNS:localhost\nbasicConstraints = CA:FALSE\n")
    for command in (
        "openssl req -x509 -newkey rsa:2048 -nodes -keyout ca.key -out ca.pem -subj /CN=ca",
        "openssl req -newkey rsa:2048 -nodes -keyout key.pem -out key.csr -subj /CN=localhost",
        "openssl x509 -req -in key.csr -CA ca.pem -CAkey ca.key -CAcreateserial -out certificate.pem -extfile own",
    ):
        subprocess.run(command.split(), cwd=folder, check=True, timeout=60, stderr=subprocess.DEVNULL)
    return folder


def make_client_certificate(folder: Path) -> Path:
    """Writes `ca.pem`, and `client.pem` with `client.key`, for which it vouches."""
    (folder / "extensions").write_text("extendedKeyUsage = clientAuth\nbasicConstraints = CA:FALSE\n")
    for command in (
        "openssl req -x509 -newkey rsa:2048 -nodes -keyout ca.key -out ca.pem -subj /CN=ca",
        "openssl req -newkey rsa:2048 -nodes -keyout client.key -out client.csr -subj /CN=ann",
        "openssl x509 -req -in client.csr -CA ca.pem -CAkey ca.key -CAcreateserial -extfile extensions -out client.pem",
    ):
        subprocess.run(command.split(), cwd=folder, check=True, timeout=60, stderr=subprocess.DEVNULL)
    return folder


class Serving(Dispatcher):
    """One `clutch serve`."""

    def __init__(self, folder: Path, *flags: str, **more: Any) -> None:
        """`command`: the whole of it, in place of flags."""
        super().__init__(folder, more.pop("command", [*COMMAND, "serve", *flags]), **more)

    @property
    def address(self) -> str:
        return self.err.wait(r"serve: http://(\S+)")[1]

    @property
    def url(self) -> str:
        return f"http://{self.address}"

    @contextlib.contextmanager
    def asking(self, path: str = "/", at: str | None = None) -> Iterator[http.client.HTTPConnection]:
        """The request is sent, its answer not read."""
        connection = http.client.HTTPConnection(self.address, timeout=WAIT_SECONDS)
        if at is not None:
            connection.sock = socket.socket(socket.AF_UNIX)
            connection.sock.connect(at)
        with contextlib.closing(connection):
            connection.request("GET", path)
            yield connection

    def get(self, path: str = "/", at: str | None = None) -> Answer:
        with self.asking(path, at) as connection:
            return answer(connection)

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def pool(self) -> dict[str, Any]:
        """What `clutch ps` knows of it."""
        done = clutch("ps", "--json", "--pid", str(self.process.pid), cwd=self.folder)
        (pool,) = json.loads(done.stdout)["pools"]
        return pool

    def figures(self, name: str) -> dict[str, int]:
        """Values of a metric, by its labels; of one with an admin front."""
        at_admin = self.err.wait(r"admin: http://(\S+)")[1]
        with urllib.request.urlopen(f"http://{at_admin}/metrics", timeout=60) as answer:
            text = answer.read().decode()
        return {labels: int(value) for labels, value in re.findall(rf"(?m)^{name}{{(.*)}} (\d+)$", text)}

    def workers(self) -> list[int]:
        """Pids of those that are ready."""
        return [worker["pid"] for worker in self.pool()["workers"] if worker["state"] == "ready"]

    def until(self, condition: Callable[[list[int]], object]) -> list[int]:
        deadline = time.monotonic() + WAIT_SECONDS
        while not condition(pids := self.workers()):
            if time.monotonic() > deadline:
                raise TimeoutError(pids)
        return pids
