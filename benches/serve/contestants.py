"""Who serves: Clutch, and its peers with the settings that their own pages call the fastest.

Where those pages leave a choice, all of it is tried for some seconds and the best is taken (`contest.best_of`).
"""

from __future__ import annotations

import importlib.metadata
import itertools

from benches.serve.server import Server, module, varied

CLUTCH = "clutch"
GRANIAN = "granian"
GUNICORN_UVICORN = "gunicorn+uvicorn"
GUNICORN_SYNC = "gunicorn sync"
GUNICORN_GTHREAD = "gunicorn gthread"
UVICORN = "uvicorn"

NOOP_ASGI = "benches.serve.apps:noop_asgi"
NOOP_WSGI = "benches.serve.apps:noop_wsgi"
ECHO_WEBSOCKET = "benches.serve.apps:echo_websocket"
FASTAPI = "benches.serve.fastapi_app:app"

_BIND = ("-b", "127.0.0.1:{port}")
_PACKAGES = ("granian", "gunicorn", "uvicorn", "uvloop", "httptools", "websockets", "wsproto", "fastapi", "pydantic")


def versions() -> str:
    """Of all packages that the rows use."""
    return ", ".join(f"{name} {importlib.metadata.version(name)}" for name in _PACKAGES)


def clutch(app: str, workers: int, *more: str) -> Server:
    return module(CLUTCH, "clutch", "serve", app, "-w", str(workers), *_BIND, *more)


def clutch_candidates(app: str, workers: int) -> list[Server]:
    """The defaults, and few requests at a time for `def` endpoints that compute (docs/serve/README.md)."""
    server = clutch(app, workers)
    return [varied(server), varied(server, "--worker-connections", "16")]


def granian(app: str, workers: int, *more: str, interface: str = "asgi", websockets: bool = False) -> Server:
    """HTTP/1 only and, unless they are wanted, no WebSockets; the access log is off by default."""
    loop = ["--loop", "uvloop"] if interface == "asgi" else []
    flags = ["--interface", interface, "--http", "1", "--ws" if websockets else "--no-ws", *loop]
    where = ["--host", "127.0.0.1", "--port", "{port}", "--log-level", "warning"]
    return module(GRANIAN, "granian", app, "--workers", str(workers), *flags, *where, *more)


def granian_asgi_candidates(app: str, workers: int) -> list[Server]:
    """Its page: `st` for few processes, `mt` for many CPUs; more runtime threads for many connections."""
    server = granian(app, workers)
    shapes = itertools.product(("st", "mt"), ("1", "2"))
    return [varied(server, "--runtime-mode", mode, "--runtime-threads", count) for mode, count in shapes]


def granian_wsgi_candidates(app: str, workers: int) -> list[Server]:
    """Its page: few blocking threads for apps that answer within a millisecond; else its defaults.

    Not its backpressure: that bounds connections, and would leave out most of a hundred that are kept alive.
    """
    shapes = itertools.product(("st", "mt"), ((), ("--blocking-threads", "1"), ("--blocking-threads", "2")))
    server = granian(app, workers, interface="wsgi")
    return [varied(server, "--runtime-mode", mode, *few) for mode, few in shapes]


def gunicorn_uvicorn(app: str, workers: int, *more: str) -> Server:
    """The worker class takes uvloop and httptools where they are installed, and writes no access log."""
    kind = ("-k", "uvicorn.workers.UvicornWorker")
    return module(GUNICORN_UVICORN, "gunicorn", app, *kind, "-w", str(workers), *_BIND, "--log-level", "error", *more)


def gunicorn_sync(app: str, workers: int) -> Server:
    return module(GUNICORN_SYNC, "gunicorn", app, "-w", str(workers), *_BIND, "--log-level", "error")


def gunicorn_gthread(app: str, workers: int, threads: int) -> Server:
    shape = ("-k", "gthread", "-w", str(workers), "--threads", str(threads))
    return module(GUNICORN_GTHREAD, "gunicorn", app, *shape, *_BIND, "--log-level", "error")


def uvicorn(app: str, workers: int, *more: str) -> Server:
    flags = ("--loop", "uvloop", "--http", "httptools", "--no-access-log", "--log-level", "warning")
    where = ("--host", "127.0.0.1", "--port", "{port}")
    return module(UVICORN, "uvicorn", app, "--workers", str(workers), *flags, *where, *more)


def uvicorn_websocket_candidates(app: str, workers: int) -> list[Server]:
    """Each of its protocol libraries for WebSockets."""
    server = uvicorn(app, workers)
    return [varied(server, "--ws", library) for library in ("websockets", "websockets-sansio", "wsproto")]


def plain_tcp(model: str) -> Server:
    """A server of scenario S3."""
    return module(f"plain {model}", "benches.serve.plain_tcp", model, "{port}")


def clutch_tcp(profile: str, workers: int, threads: int) -> Server:
    """The same model under Clutch."""
    name = "async_handler" if profile == "async" else "handler"
    shape = ("-k", profile, "-w", str(workers), "--threads", str(threads))
    return module(CLUTCH, "clutch", "serve", "--tcp", f"benches.serve.tcp_handlers:{name}", *shape, *_BIND)
