"""JSON echo over HTTP with 64 connections: `clutch run` against FastAPI on uvicorn, both with two workers.

wrk drives both with the same request; both answer the same body, which is checked once before measuring.
"""

from __future__ import annotations

import contextlib
import http.client
import importlib.metadata
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from benches.harness import Contestant, Report, Scale, Skipped, interleave, more

_ROOT = Path(__file__).resolve().parents[2]
_REQUEST = _ROOT / "benches" / "echo.lua"
_PATH = "/pools/bench/tools/echo"
_PEER = "FastAPI on uvicorn"
_CONNECTIONS = 64
_START_SECONDS_MAX = 30
_STOP_SECONDS_MAX = 10
_UVICORN = ["--workers", "2", "--loop", "uvloop", "--http", "httptools", "--no-access-log", "--log-level", "warning"]
_CONFIG = """
[pools.bench]
target = "benches.echo_tools"
profile = "process"
workers = 2

[fronts.http]
bind = "127.0.0.1:{port}"
"""


def run(scale: Scale) -> Report:
    """Requests a second of the two servers, both up, driven in turn."""
    wrk = _wrk()
    seconds = max(1, round(scale.seconds * 5))
    with _clutch() as ours, _uvicorn() as peer:
        field = [
            Contestant("clutch", lambda: _requests_per_second(wrk, ours, seconds)),
            Contestant(_PEER, lambda: _requests_per_second(wrk, peer, seconds)),
        ]
        interleave(field, 1)
        samples = interleave(field, scale.rounds)
    report = Report(notes=[_note()])
    report.compare(f"HTTP JSON echo, {_CONNECTIONS} connections", "/s", samples, {_PEER: more(3)})
    return report


def _note() -> str:
    versions = ", ".join(
        f"{name} {importlib.metadata.version(name)}"
        for name in ("fastapi", "uvicorn", "uvloop", "httptools", "pydantic")
    )
    return f"http: wrk -t1 -c{_CONNECTIONS}; 2 workers each; {versions}; uvicorn {' '.join(_UVICORN)}"


def _wrk() -> str:
    """The path of wrk, installed if that may be."""
    if shutil.which("wrk") is None and os.geteuid() == 0 and shutil.which("apt-get"):
        subprocess.run(["apt-get", "install", "-y", "-q", "wrk"], check=False, stdout=sys.stderr)
    wrk = shutil.which("wrk")
    if wrk is None:
        raise Skipped("wrk is missing: `sudo apt-get install wrk`, or build it from https://github.com/wg/wrk")
    return wrk


@contextlib.contextmanager
def _clutch() -> Iterator[int]:
    port = _free_port()
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "clutch.toml"
        config.write_text(_CONFIG.format(port=port))
        with _serving([sys.executable, "-m", "clutch", "run", "--log-level", "warning", str(config)], port):
            yield port


@contextlib.contextmanager
def _uvicorn() -> Iterator[int]:
    port = _free_port()
    with _serving([sys.executable, "-m", "uvicorn", "benches.fastapi_app:app", "--port", str(port), *_UVICORN], port):
        yield port


@contextlib.contextmanager
def _serving(command: list[str], port: int) -> Iterator[None]:
    """The server runs, has answered the request rightly, and is stopped at the end."""
    server = subprocess.Popen(command, cwd=_ROOT, stdout=sys.stderr)
    try:
        _wait_until_it_answers(server, port)
        yield
    finally:
        server.terminate()
        server.wait(_STOP_SECONDS_MAX)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


def _wait_until_it_answers(server: subprocess.Popen[bytes], port: int) -> None:
    end = time.monotonic() + _START_SECONDS_MAX
    while not _answers(port):
        if server.poll() is not None or time.monotonic() > end:
            raise RuntimeError(f"no server on port {port}: {server.args}")
        time.sleep(0.05)


def _answers(port: int) -> bool:
    """Whether a server is there; one that answers anything but the echo is an error."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    with contextlib.closing(connection):
        try:
            connection.request("POST", _PATH, json.dumps({"message": "hi"}), {"Content-Type": "application/json"})
        except ConnectionRefusedError:
            return False
        answer = connection.getresponse()
        body = answer.read()
    if answer.status == 503:
        return False
    assert json.loads(body) == {"result": "hi"}, f"{answer.status}: {body!r}"
    return True


def _requests_per_second(wrk: str, port: int, seconds: int) -> float:
    command = [wrk, "-t1", f"-c{_CONNECTIONS}", f"-d{seconds}s", "-s", str(_REQUEST), f"http://127.0.0.1:{port}{_PATH}"]
    printed = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    assert "Non-2xx" not in printed and "Socket errors" not in printed, printed
    found = re.search(r"Requests/sec:\s*([\d.]+)", printed)
    assert found, printed
    return float(found[1])
