"""The handler of requests for WSGI apps: what their environs have in common, their input, and what they iterate over.

PEP 3333. The environ and `start_response` are made natively (handlers/wsgi/).
"""

from __future__ import annotations

import io
import sys
from collections.abc import Generator, Iterable
from io import BytesIO
from typing import Any
from wsgiref.util import FileWrapper

from clutch import _core

__all__ = ["BytesIO", "open_input", "parts", "template"]

INPUT_BUFFER_BYTES = 64 << 10
BLOCK_BYTES = 64 << 10


def template(root_path: str, is_multithread: bool) -> dict[str, Any]:
    """The part that all environs share."""
    return {
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": "http",
        "wsgi.errors": sys.stderr,
        "wsgi.multithread": is_multithread,
        "wsgi.multiprocess": True,
        "wsgi.run_once": False,
        "wsgi.input_terminated": True,
        "wsgi.file_wrapper": Blocks,
        "SCRIPT_NAME": root_path,
        "SERVER_SOFTWARE": f"clutch/{_core.__version__}",
    }


class Blocks(FileWrapper):
    """`wsgi.file_wrapper`: in blocks that take one credit each, as apps mean much smaller ones."""

    def __init__(self, filelike: Any, blksize: int = BLOCK_BYTES) -> None:
        super().__init__(filelike, max(blksize, BLOCK_BYTES))


class Input(io.RawIOBase):
    """A body that comes in pieces, as the app reads it."""

    def __init__(self, request: _core.StartResponse) -> None:
        self._request = request
        self._rest = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if not self._rest:
            self._rest = memoryview(self._request.next_piece())
        count = min(len(buffer), len(self._rest))
        buffer[:count] = self._rest[:count]
        self._rest = self._rest[count:]
        return count


def open_input(request: _core.StartResponse) -> io.BufferedReader:
    return io.BufferedReader(Input(request), INPUT_BUFFER_BYTES)


def parts(made: Iterable[bytes]) -> Generator[bytes, None, None]:
    """Yields the parts that an app returned, and closes the iterable at the end, once, as PEP 3333 promises."""
    try:
        for part in made:  # noqa: UP028 - `yield from` would close it, too
            yield part
    finally:
        if (close := getattr(made, "close", None)) is not None:
            close()
