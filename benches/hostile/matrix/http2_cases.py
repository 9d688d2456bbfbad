"""The cases over HTTP/2: what may be in the fields of a request, and how its body may end.

Each is a stream; a second one on the same connection, a plain request, has to be answered unless the connection ends.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from benches.hostile.matrix.case import HOST, Wanted
from benches.hostile.matrix.exchange import CANARY
from benches.hostile.seen import Outcome

Fields = tuple[tuple[str, str], ...]

_PSEUDO: Fields = ((":method", "POST"), (":scheme", "http"), (":authority", HOST), (":path", "/c"))


@dataclass(frozen=True)
class Case2:
    """One stream."""

    name: str
    fields: Fields
    wanted: Wanted
    body: bytes = b"hello"
    trailers: Fields = ()
    has: tuple[tuple[str, tuple[str, ...]], ...] = ()

    def complaint(self, outcome: Outcome) -> str | None:
        """What is wrong with this outcome."""
        others = [request for request in outcome.requests if request.target != CANARY]
        whole = [request for request in others if request.body is not None]
        if len(others) > 1:
            return f"requests were split off: {outcome}"
        if not whole:
            return f"not accepted: {outcome}" if self.wanted == "accept" else None
        if self.wanted == "refuse":
            return f"the app saw {whole[0]}"
        if whole[0].body != self.body.decode("latin-1"):
            return f"the app read the body {whole[0].body!r}"
        wrong = [(name, whole[0].values(name)) for name, values in self.has if whole[0].values(name) != list(values)]
        return f"the app read {wrong}" if wrong else None


def all_cases() -> list[Case2]:
    return [*_pseudo(), *_fields(), *_bodies(), *_accepted()]


def _with(**changed: str | None) -> Fields:
    """The pseudo-headers with some changed, or left out."""
    given = {f":{name}": value for name, value in changed.items()}
    fields = [(name, given.get(name, value)) for name, value in _PSEUDO]
    return tuple((name, value) for name, value in fields if value is not None)


def _pseudo() -> Iterator[Case2]:
    refused: dict[str, Fields] = {
        "no method": _with(method=None),
        "no scheme": _with(scheme=None),
        "no path": _with(path=None),
        "an empty path": _with(path=""),
        "a path without a slash": _with(path="c"),
        "a path with a space": _with(path="/c d"),
        "a path with a line end": _with(path="/c\r\nX: y"),
        "a path with LF": _with(path="/c\nd"),
        "a path with NUL": _with(path="/c\0"),
        "a whole URI as the path": _with(path=f"http://{HOST}/c"),
        "two paths": (*_PSEUDO, (":path", "/d")),
        "two methods": (*_PSEUDO, (":method", "GET")),
        "two schemes": (*_PSEUDO, (":scheme", "https")),
        "two authorities": (*_PSEUDO, (":authority", "other")),
        "an unknown one": (*_PSEUDO, (":x", "y")),
        "a status": (*_PSEUDO, (":status", "200")),
        "after a field": (*_PSEUDO[:3], ("x", "y"), _PSEUDO[3]),
        "in capitals": (*_PSEUDO[:3], (":PATH", "/c")),
        "no authority and no host": _with(authority=None),
        "an authority with userinfo": _with(authority=f"u@{HOST}"),
        "an authority with a path": _with(authority=f"{HOST}/x"),
        "an authority with a space": _with(authority="h x"),
        "an authority with a port that is none": _with(authority=f"{HOST}:x"),
        "an authority with a line end": _with(authority="h\r\nX: y"),
        "a method with a space": _with(method="GET /x HTTP/1.1\r\n"),
        "an empty method": _with(method=""),
        "CONNECT": ((":method", "CONNECT"), (":authority", f"{HOST}:80")),
    }
    for name, fields in refused.items():
        yield Case2(f"pseudo: {name}", fields, "refuse", body=b"")
    yield Case2("pseudo: an empty authority", _with(authority=""), "either", body=b"")
    yield Case2("pseudo: another scheme", _with(scheme="ftp"), "either", body=b"")


def _fields() -> Iterator[Case2]:
    refused: dict[str, tuple[str, str]] = {
        "a line end in the value": ("x", "1\r\ny: 2"),
        "LF in the value": ("x", "1\n2"),
        "CR in the value": ("x", "1\r2"),
        "NUL in the value": ("x", "1\x002"),
        "capitals in the name": ("X-A", "1"),
        "a space in the name": ("x a", "1"),
        "a colon in the name": ("x:a", "1"),
        "a line end in the name": ("x\r\ny", "1"),
        "NUL in the name": ("x\0", "1"),
        "a letter beyond ASCII in the name": ("x\xe9", "1"),
        "an empty name": ("", "1"),
        "transfer-encoding": ("transfer-encoding", "chunked"),
        "connection": ("connection", "close"),
        "keep-alive": ("keep-alive", "timeout=5"),
        "proxy-connection": ("proxy-connection", "close"),
        "upgrade": ("upgrade", "websocket"),
        "te but trailers": ("te", "gzip"),
        "a host that differs": ("host", "other.example"),
    }
    for name, field in refused.items():
        yield Case2(f"field: {name}", (*_PSEUDO, field), "refuse", body=b"")
    yield Case2("field: spaces around the value", (*_PSEUDO, ("x", " 1 ")), "either", body=b"")


def _bodies() -> Iterator[Case2]:
    for length in ("4", "6", "0", "x", "-5", "+5", "5, 5", "5,6", str((1 << 64) + 5)):
        wanted: Wanted = "either" if length == "5, 5" else "refuse"
        yield Case2(f"body: length {length!r}", (*_PSEUDO, ("content-length", length)), wanted)
    twice = (*_PSEUDO, ("content-length", "5"), ("content-length", "6"))
    yield Case2("body: two lengths", twice, "refuse")
    # Malformed, says RFC 9113, 8.1; but no trailer reaches an app.
    yield Case2("body: a pseudo-header in the trailers", _PSEUDO, "either", trailers=((":path", "/d"),))
    yield Case2("body: capitals in the trailers", _PSEUDO, "refuse", trailers=(("X-A", "1"),))
    yield Case2("body: connection in the trailers", _PSEUDO, "either", trailers=(("connection", "close"),))


def _accepted() -> Iterator[Case2]:
    yield Case2("plain", _PSEUDO, "accept")
    yield Case2("a length", (*_PSEUDO, ("content-length", "5")), "accept")
    yield Case2("te: trailers", (*_PSEUDO, ("te", "trailers")), "accept")
    yield Case2("a host that is the same", (*_PSEUDO, ("host", HOST)), "accept", has=(("host", (HOST,)),))
    named = (*_with(authority=None), ("host", HOST))
    yield Case2("a host in place of the authority", named, "accept", has=(("host", (HOST,)),))
    yield Case2("the authority is the host", _PSEUDO, "accept", has=(("host", (HOST,)),))
    yield Case2("trailers", _PSEUDO, "accept", trailers=(("x", "1"),), has=(("x", ()),))
    crumbs = (*_PSEUDO, ("cookie", "a=1"), ("x", "y"), ("cookie", "b=2"), ("cookie", "c=3"))
    yield Case2("cookies in crumbs", crumbs, "accept", has=(("cookie", ("a=1; b=2; c=3",)),))
    yield Case2("an underscore", (*_PSEUDO, ("x_a", "1")), "accept")
