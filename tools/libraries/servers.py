"""Servers that cases connect to, started on free ports when one is first asked for: an HTTP one of Python's own, and
others where their programs are installed."""

from __future__ import annotations

import contextlib
import getpass
import glob
import http.server
import os
import shlex
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


class EchoHandler(http.server.BaseHTTPRequestHandler):
    """Answers with the path that it was asked for, and to POST with an empty object, on connections that stay."""

    protocol_version = "HTTP/1.1"
    wbufsize = -1  # an answer in one packet: clients acknowledge a second one 40 ms later

    def do_GET(self) -> None:
        self.answer(self.path.encode(), "text/plain")

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.answer(b"{}", "application/json")

    def answer(self, body: bytes, kind: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_args: Any) -> None:
        """Nothing."""


class QuietServer(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_args: Any) -> None:
        """Clients end as they like."""


def start_http(stack: contextlib.ExitStack) -> str:
    server = QuietServer(("127.0.0.1", 0), EchoHandler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    stack.callback(server.shutdown)
    return f"http://127.0.0.1:{server.server_port}"


def start_program(command: str, url: str, stack: contextlib.ExitStack) -> str | None:
    """Start a program that needs no files. The command and the URL have `{port}` in them."""
    port = free_port()
    name, *arguments = shlex.split(command.format(port=port))
    found = program_at(name)
    if found is None:
        return None
    process = subprocess.Popen([found, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    stack.callback(process.wait)
    stack.callback(process.terminate)
    wait_for(port)
    return url.format(port=port)


def program_at(name: str) -> str | None:
    return shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")


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


def start_mysql(stack: contextlib.ExitStack) -> str | None:
    install, server = program_at("mariadb-install-db"), program_at("mariadbd")
    if install is None or server is None:
        return None
    folder, port = Path(tempfile.mkdtemp()), free_port()
    stack.callback(shutil.rmtree, folder, ignore_errors=True)
    data = [f"--datadir={folder}/data", f"--user={getpass.getuser()}"]
    quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    subprocess.run([install, "--no-defaults", "--auth-root-authentication-method=normal", *data], check=True, **quiet)
    own = [f"--port={port}", "--bind-address=127.0.0.1", f"--socket={folder}/socket", f"--pid-file={folder}/pid"]
    own += ["--skip-grant-tables", "--skip-networking=0"]
    process = subprocess.Popen([server, "--no-defaults", *own, *data], **quiet)
    stack.callback(process.wait)
    stack.callback(process.terminate)
    wait_for(port)
    return f"mysql://root@127.0.0.1:{port}"


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


def program(command: str, url: str) -> Callable[[contextlib.ExitStack], str | None]:
    return lambda stack: start_program(command, url, stack)


STARTS: dict[str, Callable[[contextlib.ExitStack], str | None]] = {
    "http": start_http,
    "postgres": start_postgres,
    "mysql": start_mysql,
    "redis": program("redis-server --bind 127.0.0.1 --port {port} --save ''", "redis://127.0.0.1:{port}/0"),
    "memcached": program("memcached -l 127.0.0.1 -p {port} -u root", "127.0.0.1:{port}"),
    "mqtt": program("mosquitto -p {port}", "mqtt://127.0.0.1:{port}"),
    "nats": program("nats-server --addr 127.0.0.1 --port {port}", "nats://127.0.0.1:{port}"),
}
SERVERS = Servers()
