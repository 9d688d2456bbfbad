"""gunicorn: with uvicorn's worker, with its own for ASGI, and with threads for WSGI."""

from __future__ import annotations

from clutch.lab.peers.seam import Face
from clutch.lab.peers.servers.server import BIND, ServerPeer

THREADS = 4
PARSER = "its C parser (gunicorn[fast], --http-parser fast: its settings page)"


class Gunicorn(ServerPeer):
    requirements = ("gunicorn[fast]", "uvloop")
    flags: tuple[str, ...]

    def command(self, app: str, face: Face, workers: int) -> list[str]:
        return ["gunicorn", app, *self.flags, "-w", str(workers), "-b", BIND, "--log-level", "error"]


class WithUvicorn(Gunicorn):
    name = "gunicorn uvicorn"
    faces = ("asgi",)
    requirements = ("gunicorn", "uvicorn-worker", "uvicorn[standard]")
    settings = "the worker class of uvicorn-worker, which takes uvloop and httptools; no access log"
    flags = ("-k", "uvicorn_worker.UvicornWorker")


class Asgi(Gunicorn):
    name = "gunicorn asgi"
    faces = ("asgi",)
    settings = f"its own worker class asgi; uvloop; {PARSER}; no access log"
    flags = ("-k", "asgi", "--asgi-loop", "uvloop", "--http-parser", "fast")


class Gthread(Gunicorn):
    name = "gunicorn gthread"
    faces = ("wsgi",)
    settings = f"worker class gthread with {THREADS} threads each, as its page has 2 to 4 for a CPU; {PARSER}"
    flags = ("-k", "gthread", "--threads", str(THREADS), "--http-parser", "fast")


PEERS = (WithUvicorn(), Asgi(), Gthread())
