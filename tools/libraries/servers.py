"""Servers that cases connect to, started on free ports when one is first asked for: an HTTP one of Python's own, Redis,
PostgreSQL where its programs are installed."""

from __future__ import annotations

import contextlib
import glob
import http.server
import os
import shutil
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

WAIT_SECONDS = 30


class Servers:
    """What runs, by name."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: dict[str, str | None] = {}
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def has(self, name: str) -> bool:
        """Start the server, if it can be had."""
        with self._lock:
            if name not in self._running:
                self._running[name] = STARTS[name](self._stack)
            return self._running[name] is not None

    def variables(self) -> dict[str, str]:
        return {f"{name.upper()}_URL": url for name, url in self._running.items() if url is not None}


class Echo(http.server.BaseHTTPRequestHandler):
    """Answers with the path that it was asked for, on connections that stay."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        body = self.path.encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_args: Any) -> None:
        """Nothing."""


def start_http(stack: contextlib.ExitStack) -> str:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Echo)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    stack.callback(server.shutdown)
    return f"http://127.0.0.1:{server.server_port}"


def start_redis(stack: contextlib.ExitStack) -> str | None:
    if shutil.which("redis-server") is None:
        return None
    port = free_port()
    command = ["redis-server", "--port", str(port), "--save", "", "--bind", "127.0.0.1", "--daemonize", "no"]
    process = stack.enter_context(subprocess.Popen(command, stdout=subprocess.DEVNULL))
    stack.callback(process.terminate)
    wait_for(port)
    return f"redis://127.0.0.1:{port}/0"


def start_postgres(stack: contextlib.ExitStack) -> str | None:
    found = sorted(glob.glob("/usr/lib/postgresql/*/bin/pg_ctl"))
    if not found:
        return None
    folder, port = Path(tempfile.mkdtemp()), free_port()
    stack.callback(shutil.rmtree, folder, ignore_errors=True)
    programs = Path(found[-1]).parent
    own: dict[str, Any] = {}
    if os.geteuid() == 0:  # which it refuses to run as
        shutil.chown(folder, "postgres")
        own = {"user": "postgres"}
    data = folder / "data"
    quiet: dict[str, Any] = {
        "check": True,
        "stdout": subprocess.DEVNULL,
        "stderr": subprocess.DEVNULL,
        "cwd": "/",
        **own,
    }
    subprocess.run([programs / "initdb", "-D", data, "-A", "trust", "-U", "clutch"], **quiet)
    options = f"-p {port} -c listen_addresses=127.0.0.1 -k {folder}"
    subprocess.run([programs / "pg_ctl", "-D", data, "-o", options, "-w", "start"], **quiet)
    stop = [programs / "pg_ctl", "-D", data, "-m", "immediate", "stop"]
    stack.callback(lambda: subprocess.run(stop, **{**quiet, "check": False}))
    return f"postgresql://clutch@127.0.0.1:{port}/postgres"


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as one:
        return one.getsockname()[1]


def wait_for(port: int) -> None:
    until = time.monotonic() + WAIT_SECONDS
    while time.monotonic() < until:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.05)
    raise TimeoutError(f"nothing listens on port {port} after {WAIT_SECONDS} s")


STARTS: dict[str, Callable[[contextlib.ExitStack], str | None]] = {
    "http": start_http,
    "redis": start_redis,
    "postgres": start_postgres,
}
SERVERS = Servers()
