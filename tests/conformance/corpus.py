"""gunicorn's corpus of requests: each file is bytes, and a Python file beside it says what they are."""

from __future__ import annotations

import re
import sys
import types
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

HOST = b"Host: h.example\r\n"
_HAS_A_HEAD_AS_BODY = {"020"}
_HEAD = re.compile(rb"([^ \r\n]+ [^\r\n]+ HTTP/1\.[01]\r\n)((?:.*\n)*?\r?\n)")


@dataclass(frozen=True)
class Expected:
    """One request of a valid file."""

    method: str
    target: str
    headers: list[tuple[str, str]]
    body: str


def said(file: Path) -> bytes:
    """The bytes that a file stands for (tests/treq.py of gunicorn), with a Host in each head that has none: it is to be
    refused for its own reason."""
    text = file.read_bytes().replace(b"\n", b"")
    for escape, byte in ((rb"\r\n", b"\r\n"), (rb"\0", b"\0"), (rb"\n", b"\n"), (rb"\t", b"\t")):
        text = text.replace(escape, byte)
    first, *others = text.split(b"\\x")
    data = first + b"".join(bytes([int(piece[:2], 16)]) + piece[2:] for piece in others)
    return _HEAD.sub(_with_host, data, count=1 if file.stem in _HAS_A_HEAD_AS_BODY else 0)


def _with_host(head: re.Match[bytes]) -> bytes:
    line, lines = head.groups()
    return head[0] if re.search(rb"(?i)^host[ :]", lines, re.MULTILINE) else line + HOST + lines


def expected(file: Path) -> list[Expected]:
    """What the Python file beside a valid one says."""
    with _names_of_gunicorn():
        names: dict[str, Any] = {"uri": lambda text: text, "cfg": MagicMock()}
        exec(compile(file.with_suffix(".py").read_text(), str(file), "exec"), names)
    requests = names["request"]
    return [_one(request) for request in (requests if isinstance(requests, list) else [requests])]


def _one(request: dict[str, Any]) -> Expected:
    headers = [(name.lower(), value) for name, value in request["headers"]]
    body = request["body"]
    return Expected(
        request["method"], request["uri"], headers, body if isinstance(body, str) else body.decode("latin-1")
    )


@contextmanager
def _names_of_gunicorn() -> Iterator[None]:
    """The files import its settings and errors; what they are does not matter here."""
    names = ("gunicorn", "gunicorn.config", "gunicorn.http", "gunicorn.http.errors", "gunicorn.util")
    before = {name: sys.modules.pop(name, None) for name in names}
    for name in names:
        module = types.ModuleType(name)
        module.__getattr__ = lambda _: MagicMock()  # type: ignore[method-assign]
        sys.modules[name] = module
    try:
        yield
    finally:
        for name, module in before.items():
            sys.modules.pop(name)
            if module is not None:
                sys.modules[name] = module
