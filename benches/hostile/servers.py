"""The servers that are compared, each with its defaults but for times that would make the matrix wait."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from benches.hostile import recorder
from benches.hostile.seen import Request, requests_by_client
from benches.hostile.server import Server, answers_http, running

ASGI, WSGI = "benches.hostile.recorder:asgi", "benches.hostile.recorder:wsgi"
_BIND = ("-b", "127.0.0.1:{port}")
_SHORT = {"head_timeout": "2s", "body_timeout": "2s", "keep_alive": "2s"}
_SETTINGS = [flag for name, value in _SHORT.items() for flag in ("--set", f"fronts.serve.{name}={value}")]


def _module(name: str, module: str, *arguments: str) -> Server:
    return Server(name, (sys.executable, "-m", module, *arguments))


def clutch(app: str, *flags: str, name: str = "clutch") -> Server:
    return _module(name, "clutch", "serve", app, "-w", "2", *_BIND, *_SETTINGS, *flags)


def granian(app: str, interface: str, name: str) -> Server:
    where = ("--host", "127.0.0.1", "--port", "{port}", "--log-level", "critical")
    return _module(name, "granian", app, "--interface", interface, "--workers", "2", *where)


def gunicorn(app: str, *flags: str, name: str) -> Server:
    return _module(name, "gunicorn", app, "-w", "2", *_BIND, "--log-level", "critical", *flags)


def uvicorn(app: str, http: str, name: str) -> Server:
    flags = ("--http", http, "--no-access-log", "--log-level", "critical")
    return _module(name, "uvicorn", app, *flags, "--workers", "2", "--host", "127.0.0.1", "--port", "{port}")


CLUTCH_ASGI = clutch(ASGI, name="clutch asgi")
CLUTCH_WSGI = clutch(WSGI, "--threads", "16", name="clutch wsgi")
PEERS = [
    granian(ASGI, "asgi", "granian asgi"),
    granian(WSGI, "wsgi", "granian wsgi"),
    gunicorn(WSGI, "-k", "gthread", "--threads", "16", name="gunicorn wsgi"),
    gunicorn(ASGI, "-k", "asgi", name="gunicorn asgi"),
    uvicorn(ASGI, "httptools", "uvicorn httptools"),
    uvicorn(ASGI, "h11", "uvicorn h11"),
]
SPEAK_HTTP2 = {"clutch asgi", "clutch wsgi", "granian asgi", "granian wsgi"}


@contextmanager
def recording(server: Server) -> Iterator[tuple[int, Callable[[], dict[str, list[Request]]]]]:
    """Its port, and what its app saw, to be asked after the block, when nothing runs any more."""
    with tempfile.TemporaryDirectory() as folder:
        record = Path(folder) / "record"
        command = ("env", f"{recorder.VARIABLE}={record}", *server.command)
        seen: dict[str, list[Request]] = {}
        with running(Server(server.name, command), answers_http("/ready")) as answering:
            yield answering.port, lambda: seen
        seen.update(requests_by_client(record))
