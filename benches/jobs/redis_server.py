"""A Redis of the bench's own: a temporary folder, a free port, nothing written to disk; stopped by its pid."""

from __future__ import annotations

import contextlib
import csv
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from benches.harness import Skipped
from benches.processes import die_with_parent

_START_SECONDS_MAX = 10
_STOP_SECONDS_MAX = 10
_COMMAND_SECONDS_MAX = 120
# Of "*3 $5 LPUSH $6 mylist $NNN" with all line ends: what LPUSH sends besides its payload.
LPUSH_BYTES = 37
_PROGRAMS = ("redis-server", "redis-benchmark", "redis-cli")
FLAGS = ("--save", "", "--appendonly", "no")


@dataclass(frozen=True)
class Counters:
    """What a server has been sent."""

    commands: int
    bytes: int


@dataclass(frozen=True)
class RedisServer:
    """A server that answers."""

    port: int
    pid: int

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def cli(self, *arguments: str) -> str:
        return _output("redis-cli", "-p", str(self.port), *arguments)

    def flush(self) -> None:
        """Forget all, at once."""
        self.cli("flushall", "sync")

    def counters(self) -> Counters:
        """So far; asking counts as one command."""
        lines = self.cli("info", "stats").splitlines()
        stats = dict(line.split(":", 1) for line in lines if ":" in line)
        return Counters(int(stats["total_commands_processed"]), int(stats["total_net_input_bytes"]))

    def lpush_rate(self, requests: int, sent_bytes: float, connections: int = 1) -> float:
        """LPUSH a second of redis-benchmark, each of `sent_bytes` on the wire, unpipelined."""
        payload_bytes = max(1, round(sent_bytes) - LPUSH_BYTES)
        return self._rate(("-t", "lpush", "-d", str(payload_bytes)), requests, connections)

    def rate(self, words: Sequence[str], requests: int, connections: int, pipelined: int) -> float:
        """A second, of redis-benchmark with any command; `__rand_int__` is a number below `requests`."""
        shape = ("-P", str(pipelined), "-r", str(requests))
        return self._rate(shape, requests, connections, words)

    def _rate(self, shape: Sequence[str], requests: int, connections: int, words: Sequence[str] = ()) -> float:
        common = ("-p", str(self.port), "-c", str(connections), "-n", str(requests), "--csv")
        answer = _output("redis-benchmark", *common, *shape, *words)
        return next(float(line["rps"]) for line in csv.DictReader(answer.splitlines()))

    def calls(self) -> dict[str, int]:
        """How often each command was called since `config resetstat`, from scripts too."""
        lines = self.cli("info", "commandstats").splitlines()
        stats = (line.removeprefix("cmdstat_").split(":calls=") for line in lines if ":calls=" in line)
        return {name: int(told.split(",")[0]) for name, told in stats}


def _output(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=_COMMAND_SECONDS_MAX).stdout


def version() -> str:
    """Of the server, with the flags that it is started with."""
    words = _output("redis-server", "--version").split()
    number = next(word.removeprefix("v=") for word in words if word.startswith("v="))
    return f"redis-server {number} --save '' --appendonly no, on loopback"


@contextlib.contextmanager
def running() -> Iterator[RedisServer]:
    """A server, from its first PONG to its end."""
    for program in _PROGRAMS:
        if not shutil.which(program):
            raise Skipped(f"{program} is missing; install it with: sudo apt-get install redis-server redis-tools")
    port = _free_port()
    with tempfile.TemporaryDirectory(prefix="clutch-bench-redis-") as folder:
        command = ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--dir", folder, *FLAGS]
        process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL, preexec_fn=die_with_parent
        )
        try:
            server = RedisServer(port, process.pid)
            _wait(server, process)
            yield server
        finally:
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_STOP_SECONDS_MAX)
            process.kill()
            process.wait()


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


def _wait(server: RedisServer, process: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + _START_SECONDS_MAX
    while time.monotonic() < end and process.poll() is None:
        with contextlib.suppress(subprocess.CalledProcessError):
            if server.cli("ping").strip() == "PONG":
                return
        time.sleep(0.02)
    raise RuntimeError(f"redis-server does not answer on port {server.port}")
