"""A WSGI app that does what apps do, each at a path of its own."""

from __future__ import annotations

import hashlib
import io
import json
import sys
import urllib.parse
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Any, Self
from wsgiref.validate import validator

from support.rendezvous import meet

Environ = dict[str, Any]
Start = Callable[..., Callable[[bytes], object]]

PIECE = bytes(64 << 10)
routes: dict[str, Callable[[Environ, Start], Iterable[bytes]]] = {}
closed: list[str] = []


def route(app: Callable[[Environ, Start], Iterable[bytes]]) -> Callable[[Environ, Start], Iterable[bytes]]:
    routes["/" + app.__name__] = app
    return app


def app(environ: Environ, start: Start) -> Iterable[bytes]:
    return routes.get(environ["PATH_INFO"], environ_seen)(environ, start)


def query(environ: Environ) -> dict[str, str]:
    return dict(urllib.parse.parse_qsl(environ["QUERY_STRING"]))


def reply(start: Start, value: Any) -> list[bytes]:
    body = json.dumps(value, default=repr).encode()
    start("200 OK", [("Content-Type", "application/json"), ("Content-Length", str(len(body)))])
    return [body]


class Parts:
    """An iterable that tells by `closed` how it was treated."""

    def __init__(self, name: str, parts: Iterator[bytes], port: int = 0) -> None:
        self.name, self.parts, self.port = name, parts, port

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> bytes:
        return next(self.parts)

    def close(self) -> None:
        closed.append(self.name)
        if self.port:
            meet(self.port, self.name)


@route
def environ_seen(environ: Environ, start: Start) -> list[bytes]:
    return reply(start, environ)


@route
def were_closed(environ: Environ, start: Start) -> list[bytes]:
    found, closed[:] = list(closed), []
    return reply(start, found)


@route
def count(environ: Environ, start: Start) -> list[bytes]:
    found, size = hashlib.sha256(), 0
    while piece := environ["wsgi.input"].read(100_000):
        found.update(piece)
        size += len(piece)
    return reply(start, {"size": size, "sha": found.hexdigest()})


@route
def lines(environ: Environ, start: Start) -> list[bytes]:
    """All the ways to read."""
    body = environ["wsgi.input"]
    found = [body.readline(), body.readline(3), body.read(2), next(iter(body)), *body.readlines(), body.read()]
    return reply(start, [piece.decode() for piece in found])


@route
def echo(environ: Environ, start: Start) -> Iterator[bytes]:
    """Each line as it comes."""
    start("200 OK", [("Content-Type", "text/plain")])
    yield from environ["wsgi.input"]


@route
def big(environ: Environ, start: Start) -> Iterator[bytes]:
    start("200 OK", [("Content-Type", "text/plain")])
    for _ in range(int(query(environ)["pieces"])):
        yield PIECE


@route
def large(environ: Environ, start: Start) -> list[bytes]:
    """In one part."""
    start("200 OK", [("Content-Type", "text/plain")])
    return [bytes(int(query(environ)["size"]))]


@route
def endless(environ: Environ, start: Start) -> Iterator[bytes]:
    start("200 OK", [("Content-Type", "text/plain")])
    sent = 0
    try:
        while True:
            yield PIECE
            sent += 1
    finally:
        meet(int(query(environ)["port"]), str(sent))


@route
def waits(environ: Environ, start: Start) -> list[bytes]:
    return reply(start, meet(int(query(environ)["port"]), "here"))


@route
def quick(environ: Environ, start: Start) -> list[bytes]:
    return reply(start, "quick")


@route
def status(environ: Environ, start: Start) -> list[bytes]:
    asked = query(environ)
    start(asked.get("line") or f"{asked['code']} As Asked", [("X-Seen", "1")])
    return [b"body", b" and more"]


@route
def parts(environ: Environ, start: Start) -> Iterable[bytes]:
    """An iterable with a `close`, that ends, raises at its start or in its middle, or never ends."""
    how = query(environ)["how"]

    def made() -> Iterator[bytes]:
        if how == "raises_first":
            raise ValueError("as asked")
        yield b"one "
        if how == "raises_later":
            raise ValueError("as asked")
        while how == "endless":
            yield PIECE
        yield b"two"

    start("200 OK", [("Content-Type", "text/plain")])
    return Parts(how, made(), int(query(environ).get("port", 0)))


class Listed(list[bytes]):
    """A list with a `close`, and another order."""

    def __iter__(self) -> Iterator[bytes]:
        return reversed(self)

    def close(self) -> None:
        closed.append("listed")


@route
def listed(environ: Environ, start: Start) -> Iterable[bytes]:
    start("200 OK", [["Content-Type", "text/plain"]])
    return Listed([b"two", b"one "])


def let_go(port: int, part: bytes) -> Iterator[bytes]:
    """The same part for ever, each when the test lets it go."""
    while True:
        meet(port, "next")
        yield part


@route
def events(environ: Environ, start: Start) -> Iterable[bytes]:
    """Events without end: one at once, each other when the test lets it go. Whoever closes them meets it, too."""
    port = int(query(environ)["port"])

    start("200 OK", [("Content-Type", "text/event-stream; charset=utf-8")])
    return Parts("closed", chain([b"data: first\n\n"], let_go(port, b"data: next\n\n")), port)


@route
def writes(environ: Environ, start: Start) -> list[bytes]:
    write = start("200 OK", [("Content-Type", "text/plain")])
    write(b"one ")
    write(b"two ")
    return [b"three"]


@route
def empty_parts(environ: Environ, start: Start) -> Iterable[bytes]:
    """Far more parts without bytes than may be on their way, before and behind one that has some."""
    write = start("200 OK", [("Content-Type", "text/plain")])
    parts = [b""] * 100 + [b"part"] + [b""] * 100
    if query(environ)["how"] == "write":
        for part in parts:
            write(part)
        return []
    return iter(parts)


@route
def empty_for_ever(environ: Environ, start: Start) -> Iterable[bytes]:
    """Whoever asks for a part, or closes it, meets the test."""
    port = int(query(environ)["port"])
    start("200 OK", [("Content-Type", "text/plain")])
    return Parts("closed", let_go(port, b""), port)


@route
def head_alone(environ: Environ, start: Start) -> Iterable[bytes]:
    """The head by an empty `write`, and a part when the test has it."""
    start("201 Created", [("Content-Type", "text/plain")])(b"")
    meet(int(query(environ)["port"]), "wrote")
    return [b"made"]


@route
def late_head(environ: Environ, start: Start) -> Iterator[bytes]:
    """A generator says its head with its first part."""
    yield b""
    start("201 Created", [("Content-Type", "text/plain")])
    yield b"made"


@route
def exc_info(environ: Environ, start: Start) -> Iterable[bytes]:
    """An error after the first head: it takes the place of what is not sent, or is raised again."""
    is_sent = query(environ)["sent"] == "yes"
    write = start("200 OK", [("Content-Type", "text/plain"), ("X-First", "1")])
    if is_sent:
        write(b"sent")
    try:
        raise KeyError("inside")
    except KeyError:
        start("503 Sorry", [("Content-Type", "text/plain")], sys.exc_info())
    return [b"sorry"]


@route
def wrong(environ: Environ, start: Start) -> Iterable[bytes]:
    how = query(environ)["how"]
    if how == "no_head":
        return [b"body"]
    if how == "status":
        start("2000 OK", [])
    if how == "raises":
        raise ValueError("as asked")
    if how in ("SystemExit", "KeyboardInterrupt"):
        raise {"SystemExit": SystemExit, "KeyboardInterrupt": KeyboardInterrupt}[how]
    start("200 OK", [("Content-Type", "text/plain"), ("Content-Length", "3")])
    if how == "twice":
        start("200 OK", [])
    if how == "text":
        return ["123"]  # type: ignore[list-item]
    return [b"12"]


@route
def too_long(environ: Environ, start: Start) -> Iterable[bytes]:
    """More than its Content-Length, in one of the three ways to give a body."""
    write = start("200 OK", [("Content-Type", "text/plain"), ("Content-Length", "3")])
    how = query(environ)["how"]
    if how == "write":
        write(b"12")
        write(b"34")
        return [b"56"]
    if how == "many":
        return iter([b"12", b"34"] * 50)
    return [b"12", b"34", b"56"] if how == "list" else iter([b"12", b"34", b"56"])


@route
def many_headers(environ: Environ, start: Start) -> list[bytes]:
    start("200 OK", [(f"X-{nr}", "1") for nr in range(int(query(environ)["count"]))])
    return [b"body"]


@route
def file(environ: Environ, start: Start) -> Iterable[bytes]:
    blocks = environ["wsgi.file_wrapper"](io.BytesIO(bytes(200_000)), 8192)
    start("200 OK", [("Content-Type", "text/plain"), ("X-Block", str(blocks.blksize))])
    return blocks


@route
def prints(environ: Environ, start: Start) -> list[bytes]:
    print("to wsgi.errors", file=environ["wsgi.errors"], flush=True)
    return reply(start, "printed")


def checked(environ: Environ, start: Start) -> list[bytes]:
    """As `wsgiref.validate` wants apps to be; it checks the server."""
    body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
    start("200 OK", [("Content-Type", "text/plain"), ("Content-Length", str(len(body)))])
    return [] if environ["REQUEST_METHOD"] == "HEAD" else [body]


strict = validator(checked)
