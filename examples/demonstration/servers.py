"""The two processes beside the demo: the slow server that the I/O tool asks, and `clutch run` itself."""

from __future__ import annotations

import contextlib
import http.client
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from demonstration.work import ANSWER_MS, QUICKSTART

_READY_SECONDS_MAX = 30
_STOP_SECONDS_MAX = 15


@contextlib.contextmanager
def slow_server() -> Iterator[str]:
    """The path of a Unix socket that answers after a few milliseconds."""
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "slow.sock")
        command = [sys.executable, str(Path(__file__).with_name("slow_server.py")), path, str(ANSWER_MS)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
            assert server.stdout and server.stdin
            server.stdout.readline()
            yield path
            server.stdin.close()


@contextlib.contextmanager
def clutch_run() -> Iterator[str]:
    """The address of `clutch run` on the quickstart's config, on free ports so that it runs beside anything."""
    http_port, admin_port = _free_port(), _free_port()
    binds = {"fronts.http.bind": f"127.0.0.1:{http_port}", "fronts.admin.bind": f"127.0.0.1:{admin_port}"}
    settings = [flag for place, bind in binds.items() for flag in ("--set", f"{place}={bind}")]
    command = [sys.executable, "-m", "clutch", "run", "--log-level", "warning", *settings, "clutch.toml"]
    server = subprocess.Popen(command, cwd=QUICKSTART)
    try:
        _wait_until_ready(server, admin_port)
        yield f"127.0.0.1:{http_port}"
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait(_STOP_SECONDS_MAX)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


def _wait_until_ready(server: subprocess.Popen[bytes], admin_port: int) -> None:
    end = time.monotonic() + _READY_SECONDS_MAX
    while not _is_ready(admin_port):
        if server.poll() is not None or time.monotonic() > end:
            raise RuntimeError("clutch run did not become ready")
        time.sleep(0.05)


def _is_ready(admin_port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", admin_port, timeout=5)
    with contextlib.closing(connection), contextlib.suppress(ConnectionError):
        connection.request("GET", "/readyz")
        return connection.getresponse().status == http.client.OK
    return False


def pool_pss_bytes(worker_pids: list[int]) -> int:
    """Memory of a pool's workers and their zygote, pages that they share counted once."""
    zygotes = {_parent(pid) for pid in worker_pids} - {os.getpid()}
    return sum(_pss_bytes(pid) for pid in {*worker_pids, *zygotes})


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def _pss_bytes(pid: int) -> int:
    rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
    found = re.search(r"^Pss:\s+(\d+) kB", rollup, re.MULTILINE)
    return int(found[1]) * 1_024 if found else 0
