"""Every kind of front in one table: how it is configured, and what a client of it says and hears."""

from __future__ import annotations

import contextlib
import json
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Self

WAIT_SECONDS = 60.0
"""Of what happens at once, or within the ten seconds that the admin front fixes; after it the test fails."""


@dataclass(frozen=True)
class Kind:
    """`options`: lines of TOML, with the pool `{pool}` and the folder `{folder}`."""

    name: str
    kind: str
    options: str
    request: bytes
    half: bytes
    """Of the request; then the client says nothing more."""
    answer: bytes
    """What the answer to the request ends with."""
    slow: str | None = None
    """Option that bounds how long half a request may stay one; none: the kind has no such bound, or a fixed one."""
    cuts_slow: bool = True
    hold: Callable[[str], bytes] | None = None
    """A request that is held at this gate; none: no request takes long."""
    large: bytes | None = None
    """A request whose answer is larger than what sockets keep; none: there is none."""
    unread: str | None = None
    """Option that bounds how long a client may leave its answer unread; none: that is for its handler."""
    connections_max: int | None = None
    """That is fixed; none: it is an option."""
    refusal: bytes | None = b""
    """What a client hears for which there is no room; none: it waits until there is."""
    has_app: bool = False
    binds: bool = True
    """It may have several addresses."""
    has_tls: bool = False
    has_tokens: bool = False

    def __str__(self) -> str:
        return self.name


def get(path: str, *headers: str) -> bytes:
    return "\r\n".join([f"GET {path} HTTP/1.1", "Host: HERE", *headers, "", ""]).encode()


def post(tool: str, **arguments: str) -> bytes:
    body = json.dumps(arguments)
    head = f"POST /pools/work/tools/{tool} HTTP/1.1\r\nHost: HERE\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n{body}".encode()


TLS = 'tls.certificate = "{folder}/certificate.pem"\ntls.key = "{folder}/key.pem"\n'

HTTP = Kind(
    "http",
    "http",
    "",
    request=post("greet"),
    half=post("greet")[:40],
    answer=b'{"result":"served"}',
    slow="head_timeout",
    hold=lambda gate: post("hold", gate=gate),
    large=post("large"),
    unread="write_timeout",
    refusal=b"urn:clutch:too-many-connections",
    has_tokens=True,
)
SERVE = Kind(
    "serve",
    "serve",
    'app = "front_targets:app"\npool = "{pool}"\nthreads = 1\n',
    request=get("/"),
    half=get("/")[:10],
    answer=b"served",
    slow="head_timeout",
    hold=lambda gate: get(f"/hold?{gate}"),
    large=get("/large"),
    unread="write_timeout",
    refusal=b"Service Unavailable",
    has_app=True,
)
TCP = Kind(
    "tcp",
    "tcp",
    'handler = "front_targets:lines"\npool = "{pool}"\n',
    request=b"hello\n",
    half=b"hel",
    answer=b"served\n",
    cuts_slow=False,
    hold=lambda gate: f"hold {gate}\n".encode(),
    large=b"large\n",
    refusal=None,
    has_app=True,
)
ADMIN = Kind(
    "admin",
    "admin",
    "",
    request=get("/healthz"),
    half=get("/healthz")[:10],
    answer=b'{"alive":true}',
    connections_max=256,
    refusal=b"urn:clutch:too-many-connections",
    binds=False,
    has_tokens=True,
)


def over_tls(kind: Kind) -> Kind:
    return replace(kind, name=f"{kind.name}-tls", options=kind.options + TLS, has_tls=True)


KINDS = [HTTP, over_tls(HTTP), SERVE, over_tls(SERVE), TCP, ADMIN]


class Client:
    """One connection, opened when this is made."""

    def __init__(self, kind: Kind, address: str, receive_bytes: int | None = None) -> None:
        self.kind = kind
        host, _, rest = address.partition(":")
        self.socket = socket.socket(socket.AF_UNIX if host == "unix" else socket.AF_INET)
        try:
            self.socket.settimeout(WAIT_SECONDS)
            if receive_bytes is not None:
                self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
            self.socket.connect(rest if host == "unix" else (host, int(rest)))
            if kind.has_tls:
                context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
                context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
                self.socket = context.wrap_socket(self.socket)
        except BaseException:
            self.socket.close()
            raise
        self._host = b"localhost" if host == "unix" else address.encode()
        self._received = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data.replace(b"HERE", self._host))

    def ask(self, request: bytes) -> bytes:
        self.send(request)
        return self.answer()

    def answer(self) -> bytes:
        """One whole answer; what there is of it, where the connection ends before."""
        while not self._is_whole() and (piece := self._receive()):
            self._received += piece
        answer, self._received = self._received, b""
        return answer

    def rest(self) -> bytes:
        """All until the end of the connection, however it ends."""
        while piece := self._receive():
            self._received += piece
        return self._received

    def _is_whole(self) -> bool:
        if self.kind.kind == "tcp":
            return self._received.endswith(b"\n")
        head, end, body = self._received.partition(b"\r\n\r\n")
        _, has_length, length = head.lower().partition(b"content-length: ")
        return bool(end and has_length) and len(body) >= int(length.split(b"\r\n")[0])

    def _receive(self) -> bytes:
        try:
            return self.socket.recv(1 << 16)
        except (ConnectionError, ssl.SSLError):
            return b""

    def reset(self) -> None:
        """Breaks it off: nothing of it stays, on either side."""
        with contextlib.suppress(OSError):
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        self.socket.close()
