"""A real Redis for tests, in a folder of its own, with everything on the disk before it answers."""

from __future__ import annotations

import contextlib
import shutil
import signal
import socket
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest

from support.clutch_process import WAIT_SECONDS, Output


def free_port() -> int:
    """One that was free a moment ago, for a server that cannot say which it took."""
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as listener:
        port: int = listener.getsockname()[1]
        return port


class RedisServer:
    """Listens at a Unix socket, which stays the same when it is started again."""

    def __init__(self, folder: Path, name: str = "redis") -> None:
        if shutil.which("redis-server") is None:
            pytest.skip("redis-server is not installed: sudo apt-get install redis-server")
        self.folder = folder / name
        self.folder.mkdir()
        self.url = f"redis+unix://{self.folder}/redis.sock"
        self.process: subprocess.Popen[str] | None = None

    def start(self, *options: str) -> Self:
        flags = ["--port", "0", "--unixsocket", "redis.sock", "--save", "", "--appendonly", "yes"]
        return self.run(*flags, "--appendfsync", "always", *options)

    def start_sentinel(self, configuration: str) -> Self:
        (self.folder / "sentinel.conf").write_text(configuration)
        return self.run("sentinel.conf", "--sentinel")

    def run(self, *arguments: str) -> Self:
        command = ["redis-server", *arguments]
        self.process = subprocess.Popen(command, cwd=self.folder, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout
        Output(self.process.stdout).wait("eady to accept connections|Sentinel ID is")
        return self

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait(WAIT_SECONDS)
            self.process = None

    def ask(self, *command: str) -> str:
        """What redis-cli says of a command."""
        ask = ["redis-cli", "-s", str(self.folder / "redis.sock"), *command]
        return subprocess.run(ask, capture_output=True, text=True, check=True, timeout=WAIT_SECONDS).stdout

    def stop_answering(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)

    def answer_again(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGCONT)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self.process is not None:
            self.answer_again()
        self.kill()
