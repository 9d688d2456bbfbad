"""An app behind a serve front, and clients of it, for the suites of ASGI, WSGI and WebSocket."""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import socket
import threading
import urllib.parse
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clutch import Pool, _core, config
from support.rendezvous import WAIT_SECONDS
from support.shapes import Shape

CONNECTION = {
    "connections_max": 1000,
    "head_bytes_max": 65536,
    "head_timeout_ms": 10_000,
    "body_timeout_ms": 30_000,
    "write_timeout_ms": 30_000,
    "keep_alive_ms": 75_000,
    "access_log": None,
    "access_log_format": "text",
    "access_log_skip": [],
    "tls": None,
}
LIMITS = {
    "bind": ["127.0.0.1:0"],
    "unix_mode": 0o666,
    "threads": 1,
    "dispatch": "request",
    "timeout_ms": None,
    "silence_ms": None,
    "disconnect": "tell",
    "root_path": "",
    "headers_max": 100,
    "body_bytes_max": None,
    "connection_requests_max": None,
    "streams_max": 128,
    "message_bytes_max": 1 << 20,
    "ping_interval_ms": None,
    "ping_timeout_ms": 20_000,
    "proxy_protocol": False,
    "forwarded_allow": [],
    "header_map": "drop",
    "forwarder_headers": [],
}


def serve_fronts(stack: ExitStack, pool: Pool, **fronts: dict[str, Any]) -> _core.Fronts:
    """Fronts of these kinds, until the stack is closed."""
    configs = [
        (kind, kind, json.dumps({name: value for name, value in front.items() if name != "kind"}))
        for kind, front in fronts.items()
    ]
    plane = _core.Plane("{}", object())
    plane.add(pool)
    running = _core.Fronts(plane, configs)
    stack.callback(running.stop, 0)
    return running


@dataclass
class Service:
    pool: Pool
    fronts: _core.Fronts
    stack: ExitStack

    @property
    def address(self) -> str:
        return self.fronts.addresses("serve")[0]

    @property
    def place(self) -> tuple[str, int]:
        host, _, port = self.address.rpartition(":")
        return host, int(port)

    def connection(self) -> http.client.HTTPConnection:
        return self.stack.enter_context(
            contextlib.closing(http.client.HTTPConnection(self.address, timeout=WAIT_SECONDS))
        )

    def ask(
        self, path: str, method: str = "GET", body: Any = None, headers: dict[str, str] | None = None, **query: Any
    ) -> Answer:
        connection = self.connection()
        connection.request(method, with_query(path, query), body, headers or {})
        response = connection.getresponse()
        return Answer(response.status, response.headers, response.read())

    def send(self, text: bytes) -> socket.socket:
        """A raw client: what it says is sent, its answer not read."""
        client = self.stack.enter_context(socket.create_connection(self.place, WAIT_SECONDS))
        client.sendall(text)
        return client

    def get(self, path: str, **query: Any) -> socket.socket:
        return self.send(get_line(path, query))

    def get_slowly(self, path: str, **query: Any) -> socket.socket:
        """A client that takes little of its answer at a time."""
        client = self.stack.enter_context(socket.socket())
        client.settimeout(WAIT_SECONDS)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect(self.place)
        client.sendall(get_line(path, query))
        return client

    def begin(self, order: str) -> None:
        """Has the workers replaced; it is over when the test is."""
        ordered = threading.Thread(target=getattr(self.pool, order), kwargs={"timeout": WAIT_SECONDS})
        ordered.start()
        self.stack.callback(ordered.join)

    def pids(self) -> list[int]:
        return [worker["pid"] for worker in self.pool.stats()["workers"]]


@dataclass
class Answer:
    status: int
    headers: http.client.HTTPMessage
    body: bytes

    @property
    def json(self) -> Any:
        assert self.status == 200, (self.status, self.body)
        return json.loads(self.body)


def get_line(path: str, query: dict[str, Any]) -> bytes:
    return f"GET {with_query(path, query)} HTTP/1.1\r\nHost: x\r\n\r\n".encode()


def with_query(path: str, query: dict[str, Any]) -> str:
    return f"{path}?{urllib.parse.urlencode(query)}" if query else path


def read_to_end(client: socket.socket) -> bytes:
    got = b""
    while piece := client.recv(1 << 16):
        got += piece
    return got


def front_options(given: dict[str, Any]) -> dict[str, Any]:
    """Options of the connection go into their own table, as the core has them."""
    connection = {name: value for name, value in given.items() if name in CONNECTION}
    others = {name: value for name, value in given.items() if name not in CONNECTION}
    return {**others, "connection": {**CONNECTION, **connection}}


@contextlib.contextmanager
def serving(
    shape: Shape,
    target: str,
    kind: str,
    front: dict[str, Any] | None = None,
    factory: bool = False,
    lifespan: str = "auto",
    **options: Any,
) -> Iterator[Service]:
    spec = config.resolve("made", target=target, **{**shape.options, **options})
    root_path = (front or {}).get("root_path", "")
    app = {"kind": kind, "factory": factory, "root_path": root_path, "lifespan": lifespan}
    spec.core["launch"]["app"] = app
    spec.core["launch"]["profile_given"] = True
    with ExitStack() as stack:
        pool = Pool.from_spec(spec)
        stack.callback(pool.shutdown)
        stack.callback(pool.terminate_workers)
        pool.wait_ready(timeout=60)
        fronts = serve_fronts(stack, pool, serve={**LIMITS, "pool": "made", **front_options(front or {})})
        yield Service(pool, fronts, stack)


class Peak:
    """How much more memory some processes needed than they had at the start, at any time."""

    def __init__(self, pids: list[int]) -> None:
        self.pids = pids
        for pid in pids:
            Path(f"/proc/{pid}/clear_refs").write_text("5")
        self.before = {pid: peak_kb(pid) for pid in pids}

    def grown_mb(self) -> float:
        return max(peak_kb(pid) - self.before[pid] for pid in self.pids) / 1024


def peak_kb(pid: int) -> int:
    found = re.search(r"VmHWM:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    return int(found[1])
