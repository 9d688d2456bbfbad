"""The cases over HTTP/1: heads, framing, chunks, trailers, targets, Hosts; each table is one line a case.

Where RFC 9112 says MUST, so does the table. Where it leaves a choice between two readings that a server in front could
make in the other way (a bare LF as the end of a line, a length beside chunks), the table wants what leaves none.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from benches.hostile.matrix.case import HOST, Case, Wanted

_HOST = f"Host: {HOST}\r\n"
_CHUNKED = "Transfer-Encoding: chunked\r\n"
_BODY = "5\r\nhello\r\n0\r\n\r\n"
_SMUGGLED = f"GET /smuggled HTTP/1.1\r\nHost: {HOST}\r\n\r\n"
_BIG = 1 << 64


def all_cases() -> list[Case]:
    """In the order of the tables; names are unique."""
    found = list(itertools.chain(*(group() for group in _GROUPS)))
    assert len({case.name for case in found}) == len(found)
    return found


def _head(*lines: str, first: str = "POST /c HTTP/1.1", host: str = _HOST) -> str:
    return f"{first}\r\n{host}" + "".join(f"{line}\r\n" for line in lines) + "\r\n"


# Request lines

_LINES_REFUSED = {
    "nothing but a path": "GET /c",
    "HTTP/0.9 with a version": "GET /c HTTP/0.9",
    "HTTP/1.10": "GET /c HTTP/1.10",
    "HTTP/11": "GET /c HTTP/11",
    "HTTP/1": "GET /c HTTP/1",
    "HTTP/01.1": "GET /c HTTP/01.1",
    "HTTP/1.01": "GET /c HTTP/1.01",
    "HTTP/2.0": "GET /c HTTP/2.0",
    "HTTP/3.0": "GET /c HTTP/3.0",
    "HTTP/-1.1": "GET /c HTTP/-1.1",
    "http/1.1": "GET /c http/1.1",
    "HTTQ/1.1": "GET /c HTTQ/1.1",
    "HTTPS/1.1": "GET /c HTTPS/1.1",
    "text after the version": "GET /c HTTP/1.1 x",
    "a space in the target": "GET /c d HTTP/1.1",
    "a tab in the target": "GET /c\td HTTP/1.1",
    "NUL in the target": "GET /c\0 HTTP/1.1",
    "DEL in the target": "GET /c\x7f HTTP/1.1",
    "a bare CR in the target": "GET /c\rd HTTP/1.1",
    "a bare CR in the method": "GE\rT /c HTTP/1.1",
    "VT for a space": "GET\x0b/c HTTP/1.1",
    "FF for a space": "GET\x0c/c HTTP/1.1",
    "a tab for a space": "GET\t/c HTTP/1.1",
    "no method": " /c HTTP/1.1",
    "a space before the method": " GET /c HTTP/1.1",
    "a slash in the method": "GE/T /c HTTP/1.1",
    "a colon in the method": "GET: /c HTTP/1.1",
    "a quote in the method": 'GE"T /c HTTP/1.1',
    "brackets in the method": "GE(T) /c HTTP/1.1",
    "a letter beyond ASCII in the method": "G\xc9T /c HTTP/1.1",
    "NUL in the method": "GE\0T /c HTTP/1.1",
}
_LINES_EITHER = {
    "HTTP/1.9": "GET /c HTTP/1.9",
    "HTTP/1.2": "GET /c HTTP/1.2",
    "two spaces after the method": "GET  /c HTTP/1.1",
    "two spaces before the version": "GET /c  HTTP/1.1",
    "a method in lower case": "get /c HTTP/1.1",
    "a method of forty letters": f"{'M' * 40} /c HTTP/1.1",
}
_LINES_ACCEPTED = {
    "GET": "GET /c HTTP/1.1",
    "an unusual method": "PROPFIND /c HTTP/1.1",
    "a query": "GET /c?a=b&c=%20 HTTP/1.1",
    "a query with question marks": "GET /c?a?b HTTP/1.1",
}


def _lines() -> Iterator[Case]:
    tables: list[tuple[Wanted, dict[str, str]]] = [
        ("refuse", _LINES_REFUSED),
        ("either", _LINES_EITHER),
        ("accept", _LINES_ACCEPTED),
    ]
    for wanted, table in tables:
        for name, line in table.items():
            yield Case(f"line: {name}", _head(first=line), wanted)
    yield Case("line: an empty line before", "\r\n" + _head(), "either", target="/c")
    yield Case("line: a line feed before", "\n" + _head(), "either", target="/c")
    yield Case("line: garbage before", "x\r\n" + _head(), "refuse")
    yield Case("line: HTTP/0.9", "GET /c\r\n", "refuse")
    yield Case("line: ended by a line feed", f"GET /c HTTP/1.1\n{_HOST}\r\n", "refuse")


# Header lines

_FIELDS_REFUSED = {
    "a space before the colon": "X-A : 1",
    "a tab before the colon": "X-A\t: 1",
    "a space in the name": "X A: 1",
    "no name": ": 1",
    "no colon": "X-A",
    "a folded line": "X-A: 1\r\n 2",
    "a line folded by a tab": "X-A: 1\r\n\t2",
    "NUL in the name": "X\0A: 1",
    "NUL in the value": "X-A: 1\x002",
    "a bare CR in the value": "X-A: 1\r2",
    "a bare CR before the colon": "X-A\r: 1",
    "BEL in the name": "X\x07A: 1",
    "DEL in the name": "X\x7fA: 1",
    "brackets in the name": "X(A): 1",
    "a quote in the name": 'X"A: 1',
    "a slash in the name": "X/A: 1",
    "a comma in the name": "X,A: 1",
    "a semicolon in the name": "X;A: 1",
    "an equals sign in the name": "X=A: 1",
    "an at in the name": "X@A: 1",
    "a letter beyond ASCII in the name": "X-\xc9: 1",
    "a line of its own that ends by LF": "X-A: 1\nX-B: 2",
    "LF before the length": "X-A: 1\nContent-Length: 5",
    "LF before the coding": "X-A: 1\nTransfer-Encoding: chunked",
    "two LF in place of the end": f"X-A: 1\n\n{_SMUGGLED}",
    "BEL in the value": "X-A: 1\x072",
    "ESC in the value": "X-A: 1\x1b2",
    "DEL in the value": "X-A: 1\x7f2",
    "VT in the value": "X-A: 1\x0b2",
}
_FIELDS_ACCEPTED = {
    "an empty value": ("X-A:", ""),
    "no space after the colon": ("X-A:1", "1"),
    "many spaces around the value": ("X-A:   1 \t ", "1"),
    "a tab in the value": ("X-A: 1\t2", "1\t2"),
    "letters beyond ASCII in the value": ("X-A: \xe9", "\xe9"),
    "all signs a name may have": ("X!#$%&'*+-.^`|~: 1", None),
    "the same name twice": ("X-A: 1\r\nX-A: 2", None),
}


def _fields() -> Iterator[Case]:
    first = "GET /c HTTP/1.1"
    for name, line in _FIELDS_REFUSED.items():
        # Control bytes but CR, LF and NUL may be kept or refused (RFC 9110, 5.5).
        wanted: Wanted = "either" if name.endswith("value") and ord(line[6]) not in (0, 13) else "refuse"
        yield Case(f"field: {name}", _head(line, first=first), wanted)
    for name, (line, value) in _FIELDS_ACCEPTED.items():
        has = (("x-a", (value,)),) if value is not None else ()
        yield Case(f"field: {name}", _head(line, first=first), "accept", has=has)
    yield Case("field: the first line begins with a space", _head(first=f"{first}\r\n X: 1"), "refuse")
    yield Case("field: the head ends by LF LF", f"{first}\r\n{_HOST}\n", "refuse")
    yield Case("field: the head ends by CR LF CR", f"{first}\r\n{_HOST}\r{_SMUGGLED}", "refuse")
    yield Case("field: all lines end by LF", f"{first}\nHost: {HOST}\n\n", "refuse")


# Hosts

_HOSTS_REFUSED = [
    *("h i", "a b", "h/", "h/x", "h@i", "u:p@h", "h\ti", "h:abc", "h:-1", "h:80:80", "[::1", "::1", "h?x", "h#x"),
    *("h\\x", "<h>", '"h"', "h^i", "h`i", "h{i}", "h|i", "[::1]x", "[::g]", "h:8 0", "[]", "h%zz", "http://h"),
    "h\0",
]
_HOSTS_EITHER = [
    *("", "h,i", "h:", "h:99999", "h%2f", "h'", "h;i", "*", "h\xe9", "h_i", "h.", ".h", "h..i", "-h", "H", "0.0.0.0=5"),
]
_HOSTS_ACCEPTED = ["h", "h:80", "h.example:8000", "127.0.0.1", "127.0.0.1:80", "[::1]", "[::1]:80", "xn--h-0fa", "1h"]


def _hosts() -> Iterator[Case]:
    tables: list[tuple[Wanted, list[str]]] = [
        ("refuse", _HOSTS_REFUSED),
        ("either", _HOSTS_EITHER),
        ("accept", _HOSTS_ACCEPTED),
    ]
    for wanted, hosts in tables:
        for host in hosts:
            has = (("host", (host,)),) if wanted == "accept" else ()
            yield Case(f"host: {host!r}", _head(first="GET /c HTTP/1.1", host=f"Host: {host}\r\n"), wanted, has=has)
    heads = {
        "none": "",
        "two that differ": f"{_HOST}Host: other\r\n",
        "two alike": _HOST * 2,
        "two, one empty": f"{_HOST}Host:\r\n",
        "a list": f"Host: {HOST}, other\r\n",
        "folded": f"Host:\r\n {HOST}\r\n",
    }
    for name, host in heads.items():
        wanted = "either" if name == "a list" else "refuse"
        yield Case(f"host: {name}", _head(first="GET /c HTTP/1.1", host=host), wanted)
    yield Case("host: none in HTTP/1.0", _head(first="GET /c HTTP/1.0", host=""), "either", canary_runs=False)


# Targets

_TARGETS: dict[str, tuple[str, Wanted]] = {
    "absolute": (f"http://{HOST}/c", "accept"),
    "absolute, https": (f"https://{HOST}/c", "either"),
    "absolute, capitals": (f"HTTP://{HOST}/c", "either"),
    "absolute, other host": ("http://other.example/c", "either"),
    "absolute, with userinfo": (f"http://u:p@{HOST}/c", "refuse"),
    "absolute, without host": ("http:///c", "refuse"),
    "absolute, unknown scheme": (f"gopher://{HOST}/c", "either"),
    "absolute, port that is none": (f"http://{HOST}:x/c", "refuse"),
    "absolute, space": (f"http://{HOST} /c", "refuse"),
    "authority": (f"{HOST}:80", "refuse"),
    "asterisk": ("*", "refuse"),
    "no slash": ("c", "refuse"),
    "empty": ("", "refuse"),
    "question mark": ("?c", "refuse"),
    "fragment": ("/c#d", "either"),
    "two slashes": ("//c", "accept"),
    "dots": ("/a/../c", "either"),
    "escaped slash": ("/a%2fc", "accept"),
    "escape that is none": ("/c%zz", "either"),
    "escape cut off": ("/c%2", "either"),
    "escaped NUL": ("/c%00", "either"),
    "escaped line end": ("/c%0d%0a", "accept"),
    "backslash": ("/a\\c", "either"),
    "quotes": ('/"c"', "either"),
    "angle brackets": ("/<c>", "either"),
    "quotes in the query": ('/c?q={"a":1}', "either"),
    "bytes beyond ASCII": ("/\xc3\xa9", "either"),
    "bytes that are no UTF-8": ("/\xff", "either"),
}


def _targets() -> Iterator[Case]:
    for name, (target, wanted) in _TARGETS.items():
        yield Case(f"target: {name}", _head(first=f"GET {target} HTTP/1.1"), wanted)
    yield Case("target: OPTIONS *", _head(first="OPTIONS * HTTP/1.1"), "either")
    yield Case("target: CONNECT", _head(first=f"CONNECT {HOST}:80 HTTP/1.1"), "refuse")
    yield Case("target: CONNECT of a path", _head(first="CONNECT /c HTTP/1.1"), "refuse")


# Lengths

_LENGTHS_REFUSED = [
    *("+5", "-5", "0x5", "5_0", "5.0", "5;", "", "5 5", "5a", "a", "٥".encode().decode("latin-1"), "\xb2", "5\x0b"),
    *("5, 6", "5,6", "5;5", '"5"', "1e1", f"{_BIG + 5}", f"{_BIG * _BIG}", "9" * 400, "5\x00", "5\r", "\x0c5", "- 5"),
]


def _lengths() -> Iterator[Case]:
    for length in _LENGTHS_REFUSED:
        yield Case(f"length: {length[:24]!r}", _head(f"Content-Length: {length}") + "hello", "refuse")
    alike = {
        "twice alike": _head("Content-Length: 5", "Content-Length: 5"),
        "a list of the same": _head("Content-Length: 5, 5"),
        "zeros before": _head("Content-Length: 0005"),
    }
    for name, head in alike.items():
        yield Case(f"length: {name}", head + "hello", "either", body="hello")
    refused = {
        "twice, they differ": _head("Content-Length: 5", "Content-Length: 6"),
        "twice, the first empty": _head("Content-Length:", "Content-Length: 5"),
        "twice, the second is none": _head("Content-Length: 5", "Content-Length: x"),
        "twice, capitals differ": _head("Content-Length: 5", "CONTENT-LENGTH: 4"),
        "three, the last differs": _head("Content-Length: 5", "Content-Length: 5", "Content-Length: 1"),
        "folded": _head("Content-Length:\r\n 5"),
        "space before the colon": _head("Content-Length : 5"),
        "after a NUL": _head("\0Content-Length: 5"),
        "after LF": _head("X: y\nContent-Length: 5"),
    }
    for name, head in refused.items():
        yield Case(f"length: {name}", head + "hello", "refuse")
    yield Case("length: five", _head("Content-Length: 5") + "hello", "accept", body="hello")
    yield Case("length: spaces around", _head("Content-Length:   5\t ") + "hello", "accept", body="hello")
    yield Case(
        "length: of a GET", _head("Content-Length: 5", first="GET /c HTTP/1.1") + "hello", "accept", body="hello"
    )
    yield Case("length: zero", _head("Content-Length: 0"), "accept", body="")
    yield Case("length: none at all", _head(), "accept", body="")
    yield Case("length: by underscore", _head("Content_Length: 5"), "either", body="")


# Codings

_CODINGS = {
    "space before the colon": "Transfer-Encoding : chunked",
    "tab before the colon": "Transfer-Encoding\t: chunked",
    "VT before": "Transfer-Encoding: \x0bchunked",
    "FF before": "Transfer-Encoding: \x0cchunked",
    "VT after": "Transfer-Encoding: chunked\x0b",
    "NBSP before": "Transfer-Encoding: \xa0chunked",
    "NUL before": "Transfer-Encoding: \0chunked",
    "NUL after": "Transfer-Encoding: chunked\0",
    "NUL in the name": "Transfer-Encoding\0: chunked",
    "bare CR before": "Transfer-Encoding: \rchunked",
    "bare CR after": "Transfer-Encoding: chunked\r",
    "double quotes": 'Transfer-Encoding: "chunked"',
    "single quotes": "Transfer-Encoding: 'chunked'",
    "a parameter": "Transfer-Encoding: chunked;a=b",
    "a semicolon": "Transfer-Encoding: chunked;",
    "a quality": "Transfer-Encoding: chunked;q=0.5",
    "folded": "Transfer-Encoding:\r\n chunked",
    "folded by a tab": "Transfer-Encoding:\r\n\tchunked",
    "folded in the word": "Transfer-Encoding: chun\r\n ked",
    "in a folded line": "X: y\r\n Transfer-Encoding: chunked",
    "identity": "Transfer-Encoding: identity",
    "gzip": "Transfer-Encoding: gzip",
    "chunked, identity": "Transfer-Encoding: chunked, identity",
    "chunked, gzip": "Transfer-Encoding: chunked, gzip",
    "chunked, chunked": "Transfer-Encoding: chunked, chunked",
    "chunked twice": "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
    "chunked, then gzip": "Transfer-Encoding: chunked\r\nTransfer-Encoding: gzip",
    "chunked, then identity": "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity",
    "chunked, then x": "Transfer-Encoding: chunked\r\nTransfer-Encoding: x",
    "x": "Transfer-Encoding: x",
    "xchunked": "Transfer-Encoding: xchunked",
    "chunkedx": "Transfer-Encoding: chunkedx",
    "chunk": "Transfer-Encoding: chunk",
    "chun ked": "Transfer-Encoding: chun ked",
    "x chunked": "Transfer-Encoding: x chunked",
    "a hyphen before": "Transfer-Encoding: -chunked",
    "long s": "Tran\xc5\xbffer-Encoding: chunked",
    "kelvin": "Transfer-Encoding: chun\xe2\x84\xaaed",
    "BOM": "Transfer-Encoding: \xef\xbb\xbfchunked",
    "after LF": "X: y\nTransfer-Encoding: chunked",
    "after a bare CR": "X: y\rTransfer-Encoding: chunked",
    "backslash": "Transfer-Encoding: chunke\\d",
}
_CODINGS_EITHER = {
    "empty": "Transfer-Encoding:",
    "a comma before": "Transfer-Encoding: ,chunked",
    "a comma after": "Transfer-Encoding: chunked,",
    "empty, then chunked": "Transfer-Encoding:\r\nTransfer-Encoding: chunked",
    "identity, chunked": "Transfer-Encoding: identity, chunked",
    "gzip, chunked": "Transfer-Encoding: gzip, chunked",
    "gzip, then chunked": "Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked",
    "by underscore": "Transfer_Encoding: chunked",
    "another name": "X-Transfer-Encoding: chunked",
}


def _codings() -> Iterator[Case]:
    for name, line in _CODINGS.items():
        yield Case(f"coding: {name}", _head(line) + _BODY, "refuse")
        yield Case(f"coding: {name}, beside a length", _head("Content-Length: 15", line) + _BODY, "refuse")
        yield Case(f"coding: {name}, before a length", _head(line, "Content-Length: 4") + _BODY, "refuse")
    for name, line in _CODINGS_EITHER.items():
        # The length ends where the chunks do, so that either reading leaves the canary alone.
        yield Case(f"coding: {name}, beside a length", _head(f"Content-Length: {len(_BODY)}", line) + _BODY, "either")
    for name in ("identity, chunked", "gzip, chunked", "gzip, then chunked"):
        yield Case(f"coding: {name}", _head(_CODINGS_EITHER[name]) + _BODY, "either", body="hello")
    for name, line in {
        "chunked": "Transfer-Encoding: chunked",
        "capitals": "TRANSFER-ENCODING: CHUNKED",
        "space around": "Transfer-Encoding:  chunked\t",
    }.items():
        yield Case(f"coding: {name}", _head(line) + _BODY, "accept", body="hello")
        for length in (4, 200):
            said = _head(f"Content-Length: {length}", line) + _BODY
            yield Case(f"coding: {name}, length {length}", said, "either", body="hello", canary_runs=False)
            said = _head(line, f"Content-Length: {length}") + _BODY
            yield Case(f"coding: {name}, then length {length}", said, "either", body="hello", canary_runs=False)
    old = _head(_CHUNKED[:-2], first="POST /c HTTP/1.0") + _BODY
    yield Case("coding: chunked in HTTP/1.0", old, "either", canary_runs=False)
    kept = _head(_CHUNKED[:-2], "Connection: keep-alive", first="POST /c HTTP/1.0") + _BODY
    yield Case("coding: chunked in HTTP/1.0, kept alive", kept, "either", canary_runs=False)
    yield Case("coding: of a GET", _head(_CHUNKED[:-2], first="GET /c HTTP/1.1") + _BODY, "accept", body="hello")


# Chunks

_SIZES_REFUSED = [
    *("0x5", "+5", "-5", "0_5", "5_", "5h", " 5", "\t5", "", "5,", "5.0", "g", "5\x00", "\x0b5", "5\r", '"5"', "٥"),
    *(f"{_BIG + 5:x}", "5" * 40, "fffffffffffffffb", "5\xa0"),
]
_CHUNKS_REFUSED = {
    "LF after the size": "5\nhello\r\n0\r\n\r\n",
    "CR after the size": "5\rhello\r\n0\r\n\r\n",
    "LF after the data": "5\r\nhello\n0\r\n\r\n",
    "CR after the data": "5\r\nhello\r0\r\n\r\n",
    "nothing after the data": "5\r\nhello0\r\n\r\n",
    "two bytes after the data": "5\r\nhelloxx0\r\n\r\n",
    "data longer than its size": "5\r\nhello, world\r\n0\r\n\r\n",
    "data shorter than its size": "6\r\nhello\r\n0\r\n\r\n",
    "LF at the last size": "5\r\nhello\r\n0\n\r\n",
    "LF at the end": "5\r\nhello\r\n0\r\n\n",
    "LF twice at the end": "5\r\nhello\r\n0\n\n",
    "CR at the end": f"5\r\nhello\r\n0\r\n\r{_SMUGGLED}",
    "LF in an extension": "5;a\nb\r\nhello\r\n0\r\n\r\n",
    "CR in an extension": "5;a\rb\r\nhello\r\n0\r\n\r\n",
    "LF in the last extension": f"5\r\nhello\r\n0;a\n\r\n{_SMUGGLED}",
    "an extension ended by LF": "5;a=b\nhello\r\n0\r\n\r\n",
    "a long extension": f"5;{'a' * 100_000}\r\nhello\r\n0\r\n\r\n",
    "an empty line first": "\r\n5\r\nhello\r\n0\r\n\r\n",
}
_CHUNKS_EITHER = {
    "NUL in an extension": "5;\x00\r\nhello\r\n0\r\n\r\n",
    "VT in an extension": "5;a=b\x0b\r\nhello\r\n0\r\n\r\n",
    "a space after the size": "5 \r\nhello\r\n0\r\n\r\n",
    "a space after the last size": "5\r\nhello\r\n0 \r\n\r\n",
    "a tab after the size": "5\t\r\nhello\r\n0\r\n\r\n",
    "a space before an extension": "5 ;a=b\r\nhello\r\n0\r\n\r\n",
    "text after a space": "5 a\r\nhello\r\n0\r\n\r\n",
    "an open quote": '5;a="b\r\nhello\r\n0\r\n\r\n',
    "a thousand zeros": f"{'0' * 1000}5\r\nhello\r\n0\r\n\r\n",
}
_CHUNKS_ACCEPTED = {
    "one": _BODY,
    "two": "2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n",
    "capitals": "A\r\nhello hell\r\n0\r\n\r\n",
    "zeros": "0005\r\nhello\r\n00\r\n\r\n",
    "an extension": "5;a=b\r\nhello\r\n0\r\n\r\n",
    "a quoted extension": '5;a="b c"\r\nhello\r\n0\r\n\r\n',
    "no data": "0\r\n\r\n",
    "line ends in the data": "5\r\n\r\n0\r\n\r\n0\r\n\r\n",
}


def _chunks() -> Iterator[Case]:
    head = _head(_CHUNKED[:-2])
    for size in _SIZES_REFUSED:
        shown = size.encode().decode("latin-1")
        yield Case(f"chunk: size {shown[:24]!r}", f"{head}{shown}\r\nhello\r\n0\r\n\r\n", "refuse")
    for name, body in _CHUNKS_REFUSED.items():
        yield Case(f"chunk: {name}", head + body, "refuse")
    for name, body in _CHUNKS_EITHER.items():
        yield Case(f"chunk: {name}", head + body, "either", body="hello")
    for name, body in _CHUNKS_ACCEPTED.items():
        read = {"capitals": "hello hell", "no data": "", "line ends in the data": "\r\n0\r\n"}.get(name, "hello")
        yield Case(f"chunk: {name}", head + body, "accept", body=read)


# Trailers

_TRAILERS_REFUSED = {
    "ended by LF": "A: b\n\r\n",
    "ended by LF LF": "A: b\n\n",
    "LF alone": "\n",
    "LF between two": "A: b\nC: d\r\n\r\n",
    "a bare CR": "A: b\rc\r\n\r\n",
    "NUL": "A: \0\r\n\r\n",
    "no colon": "garbage\r\n\r\n",
    "a space before the colon": "A : b\r\n\r\n",
    "a space in the name": "A b: c\r\n\r\n",
    "no name": ": b\r\n\r\n",
    "folded": "A: b\r\n c\r\n\r\n",
    "a begun request in it": f"X: y\n\r\n{_SMUGGLED}",
    "100 KB": f"A: {'b' * 100_000}\r\n\r\n",
    "10,000 lines": "A: b\r\n" * 10_000 + "\r\n",
}
_TRAILERS_EITHER = {
    "a length": "Content-Length: 5\r\n\r\n",
    "a coding": "Transfer-Encoding: chunked\r\n\r\n",
    "a Host": "Host: other\r\n\r\n",
    "a cookie": "Cookie: a=b\r\n\r\n",
    "a forwarded address": "X-Forwarded-For: 10.0.0.1\r\n\r\n",
}


def _trailers() -> Iterator[Case]:
    start = _head(_CHUNKED[:-2]) + "5\r\nhello\r\n0\r\n"
    for name, lines in _TRAILERS_REFUSED.items():
        yield Case(f"trailer: {name}", start + lines, "refuse")
    for name, lines in _TRAILERS_EITHER.items():
        has = (("cookie", ()), ("x-forwarded-for", ()), ("content-length", ()))
        yield Case(f"trailer: {name}", start + lines, "either", body="hello", has=has)
    yield Case("trailer: one", f"{start}A: b\r\n\r\n", "accept", body="hello", has=(("a", ()),))
    # The bytes that go from LF to LF are a request to who takes LF for the end of the trailers, and no such to others.
    hidden = f"POST /d HTTP/1.1\r\n{_HOST}Content-Length: {len(_SMUGGLED)}\r\n\r\n{_SMUGGLED}"
    for name, lines in {"A: b": "A: b\n\r\n", "LF": "\n", "LF LF": "A: b\n\n"}.items():
        yield Case(f"trailer: the next head swallowed after {name}", start + lines + hidden, "refuse")


# Connections

_HANDSHAKE = (
    "Connection: Upgrade",
    "Upgrade: websocket",
    "Sec-WebSocket-Version: 13",
    "Sec-WebSocket-Key: MDEyMzQ1Njc4OWFiY2RlZg==",
)


def _connections() -> Iterator[Case]:
    get = "GET /c HTTP/1.1"
    yield Case("connection: close", _head("Connection: close", first=get), "accept", canary_runs=False)
    yield Case("connection: close among others", _head("Connection: x, close", first=get), "accept", canary_runs=False)
    yield Case("connection: HTTP/1.0", _head(first="GET /c HTTP/1.0"), "accept", canary_runs=False)
    kept = _head("Connection: keep-alive", first="GET /c HTTP/1.0")
    yield Case("connection: HTTP/1.0, kept alive", kept, "either")
    yield Case("connection: unknown expectation", _head("Expect: x", first=get), "either")
    expecting = _head("Expect: 100-continue", "Content-Length: 5") + "hello"
    yield Case("connection: an expectation with its body", expecting, "accept", body="hello")
    h2c = _head("Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABk", first=get)
    yield Case("connection: h2c", h2c, "either")
    hop = _head("Connection: Content-Length", "Content-Length: 5") + "hello"
    yield Case("connection: names the length", hop, "accept", body="hello")
    hop = _head("Connection: Transfer-Encoding", _CHUNKED[:-2]) + _BODY
    yield Case("connection: names the coding", hop, "accept", body="hello")
    upgrade = _head(*_HANDSHAKE, "Content-Length: 5", first=get) + "hello"
    yield Case("connection: a handshake with a body", upgrade, "either")


_GROUPS = (_lines, _fields, _hosts, _targets, _lengths, _codings, _chunks, _trailers, _connections)
